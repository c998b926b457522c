"""`urna verify`: check the transcript of a round over Flower, or a page."""

from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.output import Format, FormatOption, of_flower, print_json, print_table, results, table
from urna.cli.verify_page import verify_page
from urna.errors import ParameterError, ProtocolError
from urna.report import load_result
from urna.systems.vote import VoteResult

__all__ = ["verify"]


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
        verify_page(transcript, directory, server_key, result, output)
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
    if output is Format.JSON:
        print_json(_plain(found) | {"checked": checked, "problems": problems})
    else:
        _print(found, checked, problems)
    if problems:
        raise typer.Exit(1)


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


def _print(found: Any, checked: dict[str, bool], problems: list[str]) -> None:  # noqa: ANN401
    terms, console = found.announcement.terms, results()
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
    for what, done in checked.items():
        if not done:
            console.print(f"not checked: {what}", style="dim")
    for problem in problems:
        console.print(f"wrong: {problem}", style="bold red")
    if not problems:
        console.print("nothing is wrong with what was checked")
