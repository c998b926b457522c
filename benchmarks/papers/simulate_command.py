"""Votes on made-up landscapes, or the paper's own (DP-Hype, Figure 2)."""

from pathlib import Path
from typing import Annotated, Any

import typer
from benchmarks.papers.ballot_options import asked_space
from benchmarks.papers.figure_2_command import figure_2 as print_figure_2

from urna.cli.options import QuietOption
from urna.cli.output import (
    Format,
    FormatOption,
    live_progress,
    print_json,
    print_table,
    results,
    table,
)
from urna.errors import ParameterError
from urna.forecast.surfaces import stand_in
from urna.forecast.votes import AGREEMENTS, WITHIN, Forecast, forecast
from urna.privacy import Adjacency, Budget
from urna.privacy.cost import GAUSSIAN
from urna.systems.vote import DecoderKind, VotePlan, plan
from urna.systems.vote.ballot import BallotKind

__all__ = ["simulate"]


def simulate(
    figure_2: Annotated[
        bool, typer.Option("--figure-2", help="The paper's simulation: top-k ballots, argmax.")
    ] = False,
    vary: Annotated[
        str | None,
        typer.Option(help="Figure 2: what varies, `spread` (2a, the default) or `good` (2b)."),
    ] = None,
    good: Annotated[
        int, typer.Option(help="Figure 2: good candidates, where the spread varies.")
    ] = 5,
    clients: Annotated[int, typer.Option(help="Number of voters.")] = 250,
    candidates: Annotated[
        int | None, typer.Option(help="Number of candidates; 100 by default.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="The candidates themselves, as .toml or .json.")
    ] = None,
    ballot: Annotated[
        list[BallotKind] | None,
        typer.Option(help="How clients spread their vote; repeat. Scored by default."),
    ] = None,
    votes: Annotated[list[int] | None, typer.Option(help="Sizes of top-k ballots; repeat.")] = None,
    decoder: Annotated[
        list[DecoderKind] | None,
        typer.Option(help="How winners are read; repeat. Posterior by default."),
    ] = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Epsilons; repeat.")] = None,
    delta: Annotated[float, typer.Option(help="Delta.")] = 1e-5,
    repetitions: Annotated[int, typer.Option(help="Votes held in each setting.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Public seed.")] = 0,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Hold made-up votes: what do ballots and decoders find on landscapes over such a space?"""
    budgets = [Budget(e, delta) for e in epsilon or (0.25, 1.0)]
    known, count = asked_space(space, candidates)
    if figure_2 or vary is not None:
        if known is not None or ballot or decoder:
            raise ParameterError(
                "Figure 2 has top-k ballots, argmax and no axes; leave --space, --ballot and "
                "--decoder out"
            )
        print_figure_2(
            vary=vary or "spread",
            good=good,
            clients=clients,
            candidates=count,
            votes=votes,
            budgets=budgets,
            repetitions=repetitions,
            seed=seed,
            quiet=quiet,
            output=output,
        )
        return
    if repetitions < 1:
        raise ParameterError(f"repetitions must be at least 1, got {repetitions}")
    grid = known or stand_in(count)
    kinds: list[tuple[BallotKind | None, int | None]] = [
        *((kind, None) for kind in ballot or []),
        *((None, k) for k in votes or []),
    ]
    plans = [
        plan(clients=clients, candidates=len(grid), budget=budget, ballot=kind, votes=k)
        for budget in budgets
        for kind, k in kinds or [(None, None)]
    ]
    found: list[tuple[VotePlan, DecoderKind, str, Forecast]] = []
    readers = decoder or [DecoderKind.POSTERIOR]
    settings = [(v, reader, *a) for v in plans for reader in readers for a in AGREEMENTS.items()]
    with live_progress(quiet) as report:
        for done, (vote, reader, name, apart) in enumerate(settings):
            report("simulating votes", done, len(settings))
            each = forecast(
                vote, grid, decoder=reader.build(), held=repetitions, apart=apart, seed=seed
            )
            found.append((vote, reader, name, each))
        report("simulating votes", len(settings), len(settings))
    if output is Format.JSON:
        print_json(
            {
                "clients": clients,
                "candidates": len(grid),
                "space": repr(grid),
                "adjacency": str(Adjacency.REPLACE_ONE_CLIENT),
                "accountant": GAUSSIAN,
                "outcomes": [_plain(*each) for each in found],
            }
        )
        return
    for budget in budgets:
        title = f"Made-up votes: epsilon {budget.epsilon:g}, delta {delta:g}, replace-one-client, "
        title += f"{clients} clients, {repetitions} votes each, {grid!r}"
        columns = (f">≤ {100 * part:g} %" for part in WITHIN)
        rows = table(title, "ballot", "decoder", "clients are", *columns, ">regret")
        for vote, reader, name, each in found:
            if vote.terms.budget == budget:
                chances = (f"{100 * each.within(part):.0f}" for part in WITHIN)
                said = (str(vote.shape), str(reader), name)
                rows.add_row(*said, *chances, each.described_regret())
        print_table(rows)
    results().print(
        "Per cent of the votes whose winner falls short of the best by at most so much,\n"
        "and mean regret with its 95 % interval, both of the distance from the worst\n"
        "candidate to the best. Made-up landscapes, not a guarantee.",
        style="dim",
    )


def _plain(vote: VotePlan, decoder: DecoderKind, name: str, each: Forecast) -> dict[str, Any]:
    return {
        "epsilon": vote.terms.budget.epsilon,
        "delta": vote.terms.budget.delta,
        "ballot": str(vote.shape),
        "decoder": str(decoder),
        "clients_are": name,
        "noise_std": vote.noise_std,
        **each.as_mapping(),
    }
