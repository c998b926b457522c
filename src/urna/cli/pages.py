"""`urna report` and `urna verify`: pages about results; whether a page or transcript is intact."""

import base64
import binascii
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.output import Format, FormatOption, of_flower, print_json, print_table, results, table
from urna.errors import ParameterError, ProtocolError
from urna.files import digest_of, write_whole
from urna.report import (
    Provenance,
    ReportSigner,
    Seal,
    assessment,
    load_result,
    load_run,
    load_whole,
    page,
    read_seal,
)
from urna.systems.vote import VoteResult

__all__ = ["report", "verify", "write_page"]


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
    dpia: Annotated[
        bool,
        typer.Option(
            "--dpia",
            help="Write dpia.md as well, beside the page: a draft of what GDPR Art. 35(7) asks "
            "for. It marks what the study does not know.",
        ),
    ] = False,
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
    also = {}
    if dpia:
        run = load_run(file)
        text = assessment(
            load_whole(file), title=_title(file, title, run), run=run, sha256=digest_of(file)
        )
        write_whole(path.with_name("dpia.md"), text)
        also["assessment"] = str(path.with_name("dpia.md"))
    if output is Format.JSON:
        print_json({"written": str(path), "sha256": digest_of(path), **also})
    else:
        typer.echo(f"written: {' and '.join([str(path), *also.values()])}")


def _title(file: Path, title: str | None, run: Provenance | None) -> str:
    """Return what a page is called: as it was asked for, as its run says, or as its folder."""
    return title or (run.title if run is not None else "") or file.absolute().parent.name


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
    named = _title(file, title, run)
    text = page(load_whole(file), title=named, run=run, sha256=digest_of(file), signer=signer)
    write_whole(out, text)
    return out


def verify(
    transcript: Annotated[
        Path, typer.Argument(help="A transcript that a node or server kept, or a page (.html).")
    ],
    directory: Annotated[
        Path | None, typer.Option(help="Your directory of identity keys, to check signatures.")
    ] = None,
    server_key: Annotated[
        str | None,
        typer.Option(help="The server's, or a page's signer's, public key, from elsewhere."),
    ] = None,
    result: Annotated[
        Path | None, typer.Option(help="A result.json that should be of this round or page.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Check TRANSCRIPT: what was announced, who took part, signatures, the digest of the sum.

    Of a page: whether it is as it was written, who signed it, and which result it shows.
    """
    if transcript.suffix == ".html":
        _verify_page(transcript, directory, server_key, result, output)
        return
    identities, transcripts = of_flower("identities"), of_flower("transcript")
    try:
        found = transcripts.Transcript.read(transcript.read_bytes())
    except OSError as error:
        raise ParameterError(f"cannot read {transcript}: {error.strerror}") from error
    except ProtocolError as error:
        raise ParameterError(f"{transcript}: {error}") from error
    keys = identities.DirectoryFile.read(directory) if directory is not None else None
    trusted = identities.read_public_key(server_key) if server_key is not None else None
    problems = found.problems(directory=keys, server_key=trusted)
    if result is not None:
        held = load_result(result)
        known = held.total if isinstance(held, VoteResult) else None
        if known is None or transcripts.sum_digest(known) != found.sum_digest:
            problems.append("The result is not the sum of this round.")
    checked = {
        "signatures of the nodes": keys is not None and found.announcement.signed,
        "signatures of the server": trusted is not None,
        "the result": result is not None,
    }
    if output is Format.TEXT:
        _print_round(found)
    _conclude(_plain(found), checked, problems, output)


def _plain(found: Any) -> dict[str, Any]:  # noqa: ANN401 - a Transcript, of an optional package
    announced = found.announcement
    return {
        "subject": announced.kind,
        "round": found.number,
        "rounds": announced.rounds,
        "terms": announced.terms.as_mapping(),
        "signed": announced.signed,
        "names": list(announced.names),
        "ending": str(found.ending),
        "survivors": list(found.survivors),
        "lost": dict(found.lost),
        "faults": dict(found.faults),
        "receipts": sorted(found.receipts),
        "sum_digest": found.sum_digest,
    }


def _print_round(found: Any) -> None:  # noqa: ANN401 - a Transcript
    terms = found.announcement.terms
    rows = table(f"{found.announcement.kind}, round {found.number}", "", "")
    rows.add_row("ended", str(found.ending))
    rows.add_row("took part", f"{len(found.announcement.names)}")
    rows.add_row("in the sum", f"{len(found.survivors)}")
    rows.add_row("epsilon, delta", f"{terms.budget.epsilon:g}, {terms.budget.delta:g}")
    rows.add_row("neighbouring relation", str(terms.adjacency))
    rows.add_row("counted out", f"{terms.dropouts} dropouts, {terms.colluders} colluders")
    rows.add_row("server", str(terms.server))
    for name, why in [*found.lost.items(), *found.faults.items()]:
        rows.add_row(name, why)
    print_table(rows)


def _conclude(
    said: dict[str, Any], checked: dict[str, bool], problems: list[str], output: Format
) -> None:
    """Print what was checked and what is wrong; end with 1 where something is."""
    if output is Format.JSON:
        print_json(said | {"checked": checked, "problems": problems})
    else:
        console = results()
        for what, done in checked.items():
            if not done:
                console.print(f"not checked: {what}", style="dim")
        for problem in problems:
            console.print(f"wrong: {problem}", style="bold red")
        if not problems:
            console.print("nothing is wrong with what was checked")
    if problems:
        raise typer.Exit(1)


def _verify_page(
    page: Path,
    directory: Path | None,
    key: str | None,
    result: Path | None,
    output: Format,
) -> None:
    """Check a page, and end with 1 where something is wrong.

    Args:
        page: The page.
        directory: Public keys by name, to tell whose signature it is.
        key: The signer's public key, in base64, from elsewhere.
        result: The file that the page should be about.
        output: How to print.
    """
    text = _read(page)
    seal = read_seal(text)
    problems = [] if seal.intact else ["The page was changed after it was written."]
    trusted = _trusted(seal, directory, key)
    if trusted is not None and seal.public != trusted:
        problems.append("It is not signed by the key that was given.")
    if result is not None:
        named = re.search(r'data-result="([0-9a-f]{64})"', text)
        if named is None or named.group(1) != _digest(result):
            problems.append(f"It is not about {result}.")
    checked = {
        "the signature": seal.signature is not None,
        "whose key it is": trusted is not None,
        "the result": result is not None,
    }
    if output is Format.TEXT:
        results().print(f"sha256: {seal.digest}", soft_wrap=True)
        if seal.intact:
            results().print(f"signed by: {seal.name or 'nobody'}")
    said = {"sha256": seal.digest, "signed_by": seal.name, "intact": seal.intact}
    _conclude(said, checked, problems, output)


def _trusted(seal: Seal, directory: Path | None, key: str | None) -> bytes | None:
    if key is not None:
        try:
            return base64.b64decode(key, validate=True)
        except (ValueError, binascii.Error) as error:
            raise ParameterError("a public key is written in base64") from error
    if directory is None:
        return None
    found: dict[str, bytes] = of_flower("identities").read_public_keys(directory)
    return found.get(seal.name or "", b"")


def _read(page: Path) -> str:
    try:
        return page.read_bytes().decode()
    except OSError as error:
        raise ParameterError(f"cannot read {page}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{page} is no page of Urna's: it is not UTF-8") from error


def _digest(file: Path) -> str:
    try:
        return digest_of(file)
    except OSError as error:
        raise ParameterError(f"cannot read {file}: {error.strerror}") from error
