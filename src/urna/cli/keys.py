"""`urna keys`: a node's identity key, and the directory of everybody's."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, of_flower, print_json, print_table, results, table
from urna.errors import ParameterError
from urna.files import write_whole
from urna.randomness import OsSecrets

__all__ = ["keys"]

keys = typer.Typer(
    help="Make an identity key, collect a directory of keys, show either.", no_args_is_help=True
)


@keys.command()
def make(
    name: Annotated[str, typer.Argument(help="The node's name, as others will know it.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="File to write; NAME.key by default.")
    ] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make an identity key for NAME; print the line that others need."""
    key = of_flower("identities").NodeKey.draw(name, OsSecrets())
    path = output or Path(f"{name}.key")
    key.write(path)
    if form is Format.JSON:
        public = of_flower("identities").write_public_key(key.public)
        print_json({"name": key.name, "public": public, "file": str(path)})
        return
    typer.echo(f"written: {path} (secret; keep it on this machine)", err=True)
    typer.echo(key.public_line)


@keys.command()
def collect(
    sources: Annotated[
        list[Path], typer.Argument(help="Directories, key files or files of public lines.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Directory file to write.")],
    form: FormatOption = Format.TEXT,
) -> None:
    """Collect public keys from SOURCES into one directory file.

    A name that appears with two different keys is refused: somebody must find out which is
    right, by a way the server does not control.
    """
    known = of_flower("identities")
    found: dict[str, bytes] = {}
    for source in sources:
        for name, key in known.read_public_keys(source).items():
            if found.setdefault(name, key) != key:
                raise ParameterError(f"{source}: {name!r} has another key than before")
    directory = known.DirectoryFile(found)
    write_whole(output, directory.as_toml())
    if form is Format.JSON:
        found_names = sorted(found)
        print_json({"file": str(output), "names": found_names, "fingerprint": _fingerprint(found)})
        return
    typer.echo(f"written: {output}, {len(found)} keys, fingerprint {_fingerprint(found)}")


@keys.command()
def show(
    file: Annotated[Path, typer.Argument(help="A key file or a directory.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Show the public keys in FILE and their fingerprint, to be compared by telephone."""
    known = of_flower("identities")
    found = known.read_public_keys(file)
    written = {name: known.write_public_key(key) for name, key in sorted(found.items())}
    if output is Format.JSON:
        print_json({"keys": written, "fingerprint": _fingerprint(found)})
        return
    rows = table(f"{file}: {len(found)} keys", "name", "public key")
    for name, key in written.items():
        rows.add_row(name, key)
    console = results()
    print_table(rows)
    console.print(f"fingerprint: {_fingerprint(found)}")


def _fingerprint(found: Mapping[str, bytes]) -> str:
    """Return a short digest of all names and keys: equal directories have equal ones."""
    lines = "".join(f"{name} {key.hex()}\n" for name, key in sorted(found.items()))
    digest = hashlib.sha256(b"urna directory\0" + lines.encode()).hexdigest()[:32]
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))
