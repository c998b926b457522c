"""`urna ledger`: what was spent on a set of data, and what is left."""

import datetime
import math
from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, print_json, results, table
from urna.errors import LedgerError, ParameterError
from urna.files import digest_of
from urna.privacy import (
    Adjacency,
    Budget,
    DeclaredRelease,
    GaussianRelease,
    Ledger,
    Release,
    Repeated,
)
from urna.privacy.budget import rounded_down, rounded_up
from urna.privacy.ledger_file import KeptResult

__all__ = ["ledger"]

ledger = typer.Typer(help="Show, create or extend a ledger of privacy spent.", no_args_is_help=True)

_File = Annotated[Path, typer.Argument(help="The ledger's file.")]


@ledger.command()
def show(file: _File, output: FormatOption = Format.TEXT) -> None:
    """Show what FILE has counted, what is spent and what is left."""
    opened = Ledger(file)
    if output is Format.JSON:
        print_json(opened.as_mapping())
        return
    spent = opened.spent()
    rows = table(
        f"Ledger {file}: {opened.subject or 'no subject'}",
        "when (UTC)",
        "what",
        ">epsilon",
        "counts",
        "result",
    )
    for entry in opened.entries():
        when = datetime.datetime.fromtimestamp(entry.written, datetime.UTC)
        counts = "no (withdrawn)" if entry.withdrawn else "yes"
        if entry.fixed:
            counts = "yes (withdrawn late)"
        label = entry.label if entry.rounds is None else f"{entry.label}: {entry.rounds} held"
        kept = _where(entry.result)
        alone = rounded_up(entry.cost.at(opened.cap.delta))
        rows.add_row(when.strftime("%Y-%m-%d %H:%M"), label, alone, counts, kept)
    out = results()
    out.print(rows)
    out.print(
        f"spent epsilon {rounded_up(spent.epsilon)} of {opened.cap.epsilon:g} at delta "
        f"{opened.cap.delta:g}, {opened.adjacency}; a further sum may cost up to "
        f"{rounded_down(opened.left())}"
    )
    if opened.declared is not None:
        out.print(
            f"of it epsilon {opened.declared.epsilon:g} at delta {opened.declared.delta:g} is set "
            "apart for releases that other programs declare"
        )
    out.print(
        f"accountant: {spent.accountant}. What was spent is computed as if the noise of all "
        "releases had been fixed beforehand; the cap holds however they were chosen."
    )


def _where(kept: KeptResult | None) -> str:
    """Return where a result is, and whether it is still what it was."""
    if kept is None:
        return ""
    path = Path(kept.path)
    if not path.is_file():
        return f"{path} (not there any more)"
    return str(path) if digest_of(path) == kept.sha256 else f"{path} (changed since)"


@ledger.command()
def create(
    file: _File,
    epsilon: Annotated[float, typer.Option(help="The cap, for life: epsilon.")],
    delta: Annotated[float, typer.Option(help="The cap, for life: delta.")],
    adjacency: Annotated[
        Adjacency, typer.Option(help="The neighbouring relation, for life.")
    ] = Adjacency.REPLACE_ONE_CLIENT,
    subject: Annotated[str, typer.Option(help="Which data this is about.")] = "",
    declared_epsilon: Annotated[
        float | None,
        typer.Option(help="Part of the cap, for life, for what other programs declare: epsilon."),
    ] = None,
    declared_delta: Annotated[
        float | None, typer.Option(help="The same part's delta; half of the cap's by default.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Create a ledger at FILE with a cap that never changes."""
    if file.exists():
        raise LedgerError(f"{file} exists already; `urna ledger show` tells what it holds")
    part = None
    if declared_epsilon is not None:
        part = Budget(declared_epsilon, delta / 2 if declared_delta is None else declared_delta)
    elif declared_delta is not None:
        raise ParameterError("--declared-delta belongs to --declared-epsilon: name both")
    made = Ledger.open(
        file, Budget(epsilon, delta), adjacency=adjacency, subject=subject, declared=part
    )
    if output is Format.JSON:
        print_json(made.as_mapping())
        return
    typer.echo(f"{file}: cap epsilon {epsilon:g}, delta {delta:g}, {adjacency}")


@ledger.command()
def add(
    file: _File,
    label: Annotated[str, typer.Option(help="What was released, in a few words.")],
    epsilon: Annotated[float | None, typer.Option(help="Its declared epsilon.")] = None,
    delta: Annotated[float, typer.Option(help="Its declared delta.")] = 0.0,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Or: Gaussian noise over sensitivity, per round.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of the Gaussian mechanism.")] = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Count in FILE what is released by another program, before it is released."""
    if (epsilon is None) == (noise_multiplier is None):
        raise typer.BadParameter("name either --epsilon or --noise-multiplier")
    opened = Ledger(file)
    release: Release
    if noise_multiplier is not None:
        release = Repeated(GaussianRelease(noise_multiplier), rounds)
    else:
        release = DeclaredRelease(math.nan if epsilon is None else epsilon, delta)
    opened.charge(release, label=label)
    if output is Format.JSON:
        print_json(opened.as_mapping())
        return
    spent = opened.spent()
    typer.echo(
        f"counted; spent epsilon {rounded_up(spent.epsilon)} of {opened.cap.epsilon:g} at delta "
        f"{opened.cap.delta:g}, {opened.adjacency}, {spent.accountant}"
    )
