"""`urna combine`: one setting from clients' own searches, with a guarantee or without."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.candidates import SpaceOption, say_candidates
from urna.cli.once import once
from urna.cli.options import Said, keyed
from urna.cli.output import Format, FormatOption, errors, print_json, print_table, results, table
from urna.errors import ParameterError
from urna.files import write_json, write_whole
from urna.report import settings_chart
from urna.study.recorded import all_strategies, recorded_of
from urna.systems.combine import Combination, Guarantee, Judged, Recorded, Strategy, compare, judge

__all__ = ["combine"]

_IN_THE_CLEAR = (
    "The other rows were computed in the clear from the file, for comparison: whoever runs this "
    "command has seen everything in it."
)


def _combine(
    said: Said,
    searches: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS.csv",
            help="Table of local searches, .csv or .csv.gz: `client`, one column per "
            "hyperparameter, `accuracy`. Rows of client -1 are the federated search.",
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
    with once(study, quiet=True) as (outcome, _, folder):
        result = outcome.follow
        if not isinstance(result, Combination):
            raise ParameterError("nothing was combined")
        recorded = recorded_of(study)
        listed = all_strategies(recorded, study.combine) if others else []
        compared = _comparison(recorded, listed, result)
        if folder is not None:
            write_whole(folder / "settings.svg", settings_chart(result, alone=True))
            write_json(folder / "comparison.json", _as_mapping(recorded, compared))
    if output is Format.JSON:
        print_json({**result.as_mapping(), **_as_mapping(recorded, compared)})
        return
    _print(recorded, result, compared)
    if folder is not None:
        page = folder / "report.html"
        results().print(f"written: {page}, {folder / 'result.json'} and settings.svg")


combine = keyed("combine", _combine)


def _comparison(
    recorded: Recorded, listed: Sequence[Strategy], result: Combination
) -> list[Judged]:
    """Judge strategies in the clear, and what was found under the guarantee."""
    found, name = compare(recorded, listed), _named(result)
    if name not in {judged.strategy for judged in found}:
        found.append(judge(name, result.setting, recorded.federated, recorded.scale))
    return found


def _as_mapping(recorded: Recorded, compared: list[Judged]) -> dict[str, Any]:
    federated = recorded.federated
    optimum = None
    if federated is not None:
        best = int(federated.scores.argmax())
        names = recorded.searches.frame.names
        optimum = {
            "setting": dict(zip(names, federated.settings[best].tolist(), strict=True)),
            "accuracy": float(federated.scores[best]),
        }
    return {
        "federated_optimum": optimum,
        "comparison": [judged.as_mapping() for judged in compared],
    }


def _print(recorded: Recorded, result: Combination, compared: list[Judged]) -> None:
    console, known = results(), recorded.federated is not None
    names = recorded.searches.frame.names
    columns = ["", "strategy", *(f">{name}" for name in names)]
    if known:
        columns += [*(f">Δ {name}" for name in names), ">accuracy", ">below best"]
    logs = any(ruler.log for ruler in result.frame.rulers)
    scale = ", rates on their log scale" if logs else ""
    rows = table(f"{result.clients} clients' searches{scale}", *columns)
    own = _named(result)
    for judged in compared:
        mark = "→" if judged.strategy == own else ""
        if judged.setting is None:
            rows.add_row(mark, judged.strategy, "nothing to combine")
            continue
        values = [f"{judged.setting[name]:.4g}" for name in names]
        if known:
            values += [f"{judged.distance[name]:.3f}" for name in names]
            values += [f"{judged.accuracy:.4f}", f"{judged.regret:.4f}"]
        rows.add_row(mark, judged.strategy, *values)
    print_table(rows)
    if known:
        console.print(
            "Δ: how far from the federation's own best; accuracy at the nearest candidate",
            style="dim",
        )
        optimum = _as_mapping(recorded, [])["federated_optimum"]
        setting = ", ".join(f"{k}={v:g}" for k, v in optimum["setting"].items())
        console.print(
            f"the federation's own best: {setting}, accuracy {optimum['accuracy']:.4f}",
            style="dim",
        )
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
