"""`urna report`: the page about a result, made again from its file."""

from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, of_flower, print_json
from urna.errors import ParameterError
from urna.files import digest_of, write_whole
from urna.report import Provenance, ReportSigner, load_run, load_whole, page

__all__ = ["report", "write_page"]


def report(
    result: Annotated[Path, typer.Argument(help="A result.json, or the folder that holds it.")],
    out: Annotated[
        Path | None,
        typer.Option("--output", help="File to write; report.html beside the result by default."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="What the page is called.")] = None,
    sign: Annotated[
        Path | None, typer.Option(help="Sign the page with this key (`urna keys make`).")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write the page about RESULT: one HTML file that stands alone.

    `urna verify PAGE` says whether a page is as it was written, and who signed it.
    """
    file = result / "result.json" if result.is_dir() else result
    if file.suffix != ".json":
        raise ParameterError(f"a result is a .json file or the folder that holds it, got {file}")
    signer = None if sign is None else of_flower("identities").NodeKey.read(sign)
    path = write_page(file, out, title=title, signer=signer)
    if output is Format.JSON:
        print_json({"written": str(path), "sha256": digest_of(path)})
    else:
        typer.echo(f"written: {path}")


def write_page(
    file: Path,
    out: Path | None = None,
    *,
    title: str | None = None,
    run: Provenance | None = None,
    signer: ReportSigner | None = None,
) -> Path:
    """Write the page about a result's file, beside it by default; return the page's.

    Args:
        file: Holds the result.
        out: Where to.
        title: What the page is called; as its run says by default.
        run: How the result came about; as the file says by default.
        signer: Who signs the page; nobody by default.

    Raises:
        ParameterError: The file holds no result, or none that can be shown.
    """
    run, out = run or load_run(file), out or file.with_name("report.html")
    named = title or (run.title if run is not None else "") or file.absolute().parent.name
    text = page(load_whole(file), title=named, run=run, sha256=digest_of(file), signer=signer)
    write_whole(out, text)
    return out
