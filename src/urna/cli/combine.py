"""`urna combine`: one setting from clients' own searches, with a guarantee or without."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.keep import Keeper, keeping
from urna.cli.origin import origin
from urna.cli.output import Format, FormatOption, errors, print_json, print_table, results, table
from urna.cli.terms import (
    ColludingOption,
    DeltaOption,
    DropoutOption,
    EpsilonOption,
    LedgerOption,
    ScriptOption,
    ledger_at,
)
from urna.errors import ParameterError, UnknownName
from urna.files import write_json, write_whole
from urna.privacy import Budget, Ledger
from urna.randomness import SecretSource, secrets_of
from urna.report import settings_chart
from urna.space import Axis, Space
from urna.study.recorded_vote import vote_on
from urna.systems.combine import (
    STRATEGIES,
    Anchored,
    Combination,
    Dbscan,
    FederatedDbscan,
    Frame,
    Guarantee,
    Judged,
    Mean,
    Median,
    Recorded,
    Strategy,
    TrimmedMean,
    compare,
    judge,
    read_searches,
    strategy_named,
)
from urna.systems.combine import combine as combine_searches
from urna.tally import Options, Run

__all__ = ["combine"]

_VOTE, _LOSS = "vote", "loss"
_BY_ACCURACY = (Dbscan, FederatedDbscan, Anchored)
_NAMES = ", ".join([*STRATEGIES, _VOTE])
_IN_THE_CLEAR = (
    "The other rows were computed in the clear from the file, for comparison: whoever runs this "
    "command has seen everything in it."
)


@dataclass(frozen=True, slots=True)
class _Encrypted:
    """What is asked of encryption."""

    threshold: int | None = None
    processes: bool = False
    recompute: bool = False


def combine(
    searches: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS.csv",
            help="Table of local searches, .csv or .csv.gz: `client`, one column per "
            "hyperparameter, `accuracy`. Rows of client -1 are the federated search.",
        ),
    ],
    strategy: Annotated[str, typer.Option(help=f"How to combine: {_NAMES}.")] = "dbscan",
    guarantee: Annotated[
        Guarantee, typer.Option(help="What clients are promised.")
    ] = Guarantee.NONE,
    where: Annotated[
        list[str] | None, typer.Option(help="Only rows with COLUMN=VALUE; repeat for several.")
    ] = None,
    axes: Annotated[
        str | None, typer.Option(help="Hyperparameters, separated by commas; all by default.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="Axes and their scales, as .toml or .json.")
    ] = None,
    score: Annotated[
        str, typer.Option(help="Column that says how good a setting is.")
    ] = "accuracy",
    min_points: Annotated[
        int,
        typer.Option(
            help="Clients that make a cell dense; for dbscan in the clear, settings that make a "
            "core."
        ),
    ] = 4,
    cell: Annotated[
        float | None,
        typer.Option(help="Length of a cell, as a part of an axis; 0.15 if unset."),
    ] = None,
    plain: Annotated[
        bool, typer.Option(help="Average rates as they are, not on their log scale.")
    ] = False,
    threshold: Annotated[
        int | None, typer.Option(help="With encryption: how many must help to open; all if unset.")
    ] = None,
    processes: Annotated[
        bool, typer.Option(help="With encryption: every party in a process of its own.")
    ] = False,
    recompute: Annotated[
        bool,
        typer.Option(
            help="With encryption: parties compute keys and results again before they use them."
        ),
    ] = False,
    others: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Show all strategies, exact and in the clear, beside it; by default unless "
            "clients are protected.",
        ),
    ] = None,
    epsilon: EpsilonOption = 5.0,
    delta: DeltaOption = 1e-5,
    dropout: DropoutOption = "0",
    colluding: ColludingOption = "0",
    ledger: LedgerOption = None,
    scripted_secrets: ScriptOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Folder for result.json, report.html, settings.svg, comparison.json; with a "
            "ledger, beside the ledger by default.",
        ),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Combine clients' own searches into one setting for all (PrivTuna)."""
    opened = ledger_at(ledger)
    secrets = secrets_of(scripted_secrets)
    if others and opened is not None:
        raise ParameterError(
            "--compare computes exact results from everybody's searches, which no ledger counts: "
            "leave it out, or leave --ledger out"
        )
    others = guarantee is Guarantee.NONE and opened is None if others is None else others
    files = ("result.json", "report.html", "settings.svg", "comparison.json")
    with keeping(out, opened, *files) as keeper:
        recorded = read_searches(
            searches,
            where=_conditions(where),
            axes=None if axes is None else [name.strip() for name in axes.split(",")],
            score=score,
            space=None if space is None else Space.read(space),
        )
        votes = strategy == _VOTE
        if votes and not guarantee.private:
            raise ParameterError("a vote has noise: ask for --guarantee dp or both")
        if votes and plain:
            raise ParameterError(f"{strategy} averages nothing: leave --plain out")
        chosen = None if votes else _configured(recorded, strategy, min_points, cell, plain)
        if isinstance(chosen, Dbscan) and guarantee is not Guarantee.NONE:
            chosen = _configured(recorded, "federated-dbscan", min_points, cell, plain)
        elif cell is not None and not isinstance(chosen, FederatedDbscan):
            raise ParameterError(f"{strategy} counts in no cells: leave --cell out")
        if score == _LOSS and isinstance(chosen, _BY_ACCURACY):
            raise ParameterError(f"{strategy} needs accuracies between 0 and 1, not losses")
        keeper.hold_room(20 * len(recorded.searches.candidates()))
        options: Options = {"dropout": dropout, "colluding": colluding}
        result = _combined(
            recorded,
            chosen,
            guarantee,
            Budget(epsilon, delta),
            opened,
            secrets,
            keeper,
            options,
            _Encrypted(threshold, processes, recompute),
        )
        title = f"{searches.name}: {_said(where) or 'all rows'}"
        keeper.tell(origin(title, simulated=not processes, repeatable=not secrets.private))
        kept = keeper.keep(result)
        page = keeper.keep_page()
        listed = _all(recorded, min_points, cell, score) if others else []
        compared = _comparison(recorded, listed, result)
        if kept is not None:
            write_whole(kept.with_name("settings.svg"), settings_chart(result, alone=True))
            write_json(kept.with_name("comparison.json"), _as_mapping(recorded, compared))
    if output is Format.JSON:
        print_json({**result.as_mapping(), **_as_mapping(recorded, compared)})
        return
    _print(recorded, result, compared)
    if kept is not None and page is not None:
        results().print(f"written: {page}, {kept} and settings.svg")


def _combined(
    recorded: Recorded,
    strategy: Strategy | None,
    guarantee: Guarantee,
    budget: Budget,
    ledger: Ledger | None,
    secrets: SecretSource,
    keeper: Keeper,
    options: Options,
    encrypted: _Encrypted,
) -> Combination:
    if guarantee is not Guarantee.ENCRYPTION and encrypted != _Encrypted():
        raise ParameterError(
            "--threshold, --processes and --recompute belong to --guarantee encryption; this is "
            f"{guarantee}"
        )

    def keep(found: Combination) -> None:
        keeper.keep(found)

    if strategy is None:
        return vote_on(
            recorded.searches,
            guarantee=guarantee,
            space=recorded.space,
            budget=budget,
            run=Run(ledger=ledger, secrets=secrets, keep=keep),
            **options,
        )
    return combine_searches(
        recorded.searches,
        strategy,
        guarantee=guarantee,
        budget=budget,
        threshold=encrypted.threshold,
        processes=encrypted.processes,
        recomputes=encrypted.recompute,
        run=Run(ledger=ledger, secrets=secrets, keep=keep),
        **(options if guarantee.private else {}),
    )


def _configured(
    recorded: Recorded, name: str, min_points: int, cell: float | None, plain: bool
) -> Strategy:
    """Return the strategy that was asked for, as it was asked for."""
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, [*STRATEGIES, _VOTE])
    strategy = strategy_named(name)
    match strategy:
        case Dbscan():
            return Dbscan(min_points=min_points, plain=plain)
        case FederatedDbscan():
            length = strategy.cell if cell is None else cell
            found = FederatedDbscan(cell=length, min_points=min_points, plain=plain)
            found.agreed(recorded.searches.frame)  # refuses what cannot be
            return found
        case Mean() | Median() | TrimmedMean():
            return replace(strategy, plain=plain)
    if plain:
        raise ParameterError(f"{name} averages nothing: leave --plain out")
    if isinstance(strategy, Anchored):
        return Anchored(within=_server_frame(recorded))
    return strategy


def _all(recorded: Recorded, min_points: int, cell: float | None, score: str) -> list[Strategy]:
    """Return all strategies that can work with these scores."""
    every = [_configured(recorded, n, min_points, cell, plain=False) for n in STRATEGIES]
    return [each for each in every if score != _LOSS or not isinstance(each, _BY_ACCURACY)]


def _server_frame(recorded: Recorded) -> Frame | None:
    """Return the axes the federation searched, where it did: public, its results are not read."""
    if recorded.federated is None:
        return None
    axes = {}
    for place, (name, axis) in enumerate(recorded.space.axes.items()):
        values = sorted(set(recorded.federated.settings[:, place].tolist()))
        axes[name] = Axis(axis.kind, tuple(values))
    return Frame.of(Space(**axes))


def _comparison(
    recorded: Recorded, listed: Sequence[Strategy], result: Combination
) -> list[Judged]:
    """Judge strategies in the clear, and what was found under the guarantee."""
    if recorded.federated is None:
        found = []
        for strategy in listed:
            setting: Mapping[str, float] | None
            try:
                setting = strategy.combine(recorded.searches).setting
            except ParameterError:
                setting = None
            found.append(Judged(strategy.name, setting, {}, math.nan, math.nan, math.nan))
    else:
        found = compare(recorded.searches, recorded.federated, listed)
    name = _named(result)
    if name not in {judged.strategy for judged in found}:
        if recorded.federated is None:
            found.append(Judged(name, result.setting, {}, math.nan, math.nan, math.nan))
        else:
            frame = recorded.searches.frame
            found.append(judge(name, result.setting, recorded.federated, frame))
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
    rows = table(f"{result.clients} clients' searches", *columns)
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


def _conditions(where: list[str] | None) -> dict[str, str]:
    found = {}
    for each in where or []:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ParameterError(f"--where takes COLUMN=VALUE, got {each!r}")
        found[name] = value
    return found


def _said(where: list[str] | None) -> str:
    return ", ".join(where or [])
