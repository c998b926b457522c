"""`urna combine`: one setting from clients' own searches, with a guarantee or without."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.options import Said, SpaceOption, keyed, say_candidates
from urna.cli.output import Format, FormatOption, errors, print_json, print_table, results, table
from urna.cli.run import once
from urna.errors import ParameterError
from urna.files import write_json, write_whole
from urna.report import settings_chart
from urna.study.recorded import all_strategies, recorded_of
from urna.systems.combine import Combination, Guarantee, Recorded, Strategy

__all__ = ["combine"]

_IN_THE_CLEAR = (
    "The other rows were computed in the clear from the file, for comparison: the person who "
    "runs this command has seen everything in it."
)


def _combine(
    said: Said,
    searches: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS.csv",
            help="Table of local searches, .csv or .csv.gz: `client`, one column per "
            "hyperparameter, `accuracy`.",
        ),
    ],
    space: SpaceOption = None,
    others: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Show all strategies, exact and in the clear, beside it; by default unless "
            "clients are protected.",
        ),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Combine clients' own searches into one setting for all (PrivTuna)."""
    say_candidates(said, space)
    said.section("data")["source"] = str(searches)
    said.section("combine")
    study = said.study()
    guarantee, counted = study.combine.guarantee, bool(study.privacy.ledger)
    if others and counted:
        raise ParameterError(
            "--compare computes exact results from everybody's searches, which no ledger counts: "
            "leave it out, or leave --ledger out"
        )
    others = guarantee is Guarantee.NONE and not counted if others is None else others
    with once(study, quiet=True) as (outcome, _, folder, head):
        result = outcome.follow
        if not isinstance(result, Combination):
            raise ParameterError("nothing was combined")
        recorded = recorded_of(study)
        listed = all_strategies(recorded, study.combine) if others else []
        compared = _comparison(recorded, listed, result)
        if folder is not None:
            write_whole(folder / "settings.svg", settings_chart(result, alone=True))
            write_json(folder / "comparison.json", _as_mapping(compared))
    if output is Format.JSON:
        print_json({**result.as_mapping(), **_as_mapping(compared)})
        return
    results().print(f"{head}\n")
    _print(recorded, result, compared)
    if folder is not None:
        page = folder / "report.html"
        results().print(f"written: {page}, {folder / 'result.json'} and settings.svg")


combine = keyed("combine", _combine)


def _comparison(
    recorded: Recorded, listed: Sequence[Strategy], result: Combination
) -> dict[str, Mapping[str, float] | None]:
    """Return what strategies find in the clear, and what was found under the guarantee."""
    found: dict[str, Mapping[str, float] | None] = {}
    for strategy in listed:
        try:
            found[strategy.name] = strategy.combine(recorded.searches).setting
        except ParameterError:  # nothing was left to combine
            found[strategy.name] = None
    return {**found, _named(result): result.setting}


def _as_mapping(compared: Mapping[str, Mapping[str, float] | None]) -> dict[str, Any]:
    return {"comparison": [{"strategy": n, "setting": found} for n, found in compared.items()]}


def _print(
    recorded: Recorded,
    result: Combination,
    compared: Mapping[str, Mapping[str, float] | None],
) -> None:
    console = results()
    names = recorded.searches.frame.names
    logs = any(ruler.log for ruler in result.frame.rulers)
    scale = ", rates on their log scale" if logs else ""
    columns = ["", "strategy", *(f">{name}" for name in names)]
    rows = table(f"{result.clients} clients' searches{scale}", *columns)
    for name, setting in compared.items():
        mark = "→" if name == _named(result) else ""
        if setting is None:
            rows.add_row(mark, name, "nothing to combine")
        else:
            rows.add_row(mark, name, *(f"{setting[axis]:.4g}" for axis in names))
    print_table(rows)
    if result.guarantee is not Guarantee.NONE and len(compared) > 1:
        errors.print(_IN_THE_CLEAR)
    for place, why in result.lost.items():
        errors.print(f"client {recorded.clients[place]} {why}: it is left out")
    console.print(f"\n{result}")
    if result.cost:
        cost = result.cost
        console.print(
            f"cost: {cost['bytes_per_party'] / 1e6:.2f} MB per party and "
            f"{cost['key_bytes_per_party'] / 1e6:.2f} MB of keys",
            style="dim",
        )


def _named(result: Combination) -> str:
    """Return what the table calls the result: its guarantee goes with its strategy."""
    if result.guarantee is Guarantee.NONE:
        return result.strategy
    return f"{result.strategy}, {result.guarantee}"
