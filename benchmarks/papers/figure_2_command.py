"""The paper's controlled simulation (DP-Hype, Figure 2), as tables."""

from collections.abc import Sequence

import numpy as np
import typer
from benchmarks.papers.figure_2 import (
    FIGURE_2_GOOD,
    FIGURE_2_SPREADS,
    FIGURE_2_VOTES,
    SimulatedVote,
)
from benchmarks.papers.figure_2 import simulate as simulate_votes

from urna.cli.output import Format, live_progress, print_json, print_table, table
from urna.privacy import Adjacency, Budget
from urna.privacy.cost import GAUSSIAN

__all__ = ["figure_2"]


def figure_2(
    *,
    vary: str,
    good: int,
    clients: int,
    candidates: int,
    votes: Sequence[int] | None,
    budgets: Sequence[Budget],
    repetitions: int,
    seed: int,
    quiet: bool,
    output: Format,
) -> None:
    """Simulate votes under controlled agreement: which ballot size finds a good candidate?"""
    if vary not in ("spread", "good"):
        raise typer.BadParameter(f"--vary is `spread` or `good`, got {vary!r}")
    sizes = [k for k in votes or FIGURE_2_VOTES if votes or k <= candidates]
    settings = (
        [(good, spread) for spread in FIGURE_2_SPREADS]
        if vary == "spread"
        else [(number, 1.0) for number in FIGURE_2_GOOD if number < candidates]
    )
    rng = np.random.default_rng(seed)
    outcomes: list[SimulatedVote] = []
    with live_progress(quiet) as report:
        for done, (number, spread) in enumerate(settings):
            report("simulating votes", done, len(settings))
            outcomes += simulate_votes(
                budgets=budgets,
                rng=rng,
                clients=clients,
                candidates=candidates,
                votes=sizes,
                good=number,
                spread=spread,
                repetitions=repetitions,
            )
        report("simulating votes", len(settings), len(settings))
    if output is Format.JSON:
        print_json(
            {
                "clients": clients,
                "candidates": candidates,
                "adjacency": str(Adjacency.REPLACE_ONE_CLIENT),
                "accountant": GAUSSIAN,
                "outcomes": [_plain(outcome) for outcome in outcomes],
            }
        )
        return
    for budget in budgets:
        title = (
            f"How often a good candidate wins: epsilon {budget.epsilon:g}, delta {budget.delta:g}, "
        )
        title += f"replace-one-client, {clients} clients, {repetitions} votes each"
        rows = table(title, vary, *(f">k={k}" for k in sizes))
        for number, spread in settings:
            row = [o for o in outcomes if (o.good, o.spread) == (number, spread)]
            rates = [f"{o.rate:.2f}" for o in row if o.epsilon == budget.epsilon]
            rows.add_row(f"{spread if vary == 'spread' else number:g}", *rates)
        print_table(rows)


def _plain(outcome: SimulatedVote) -> dict[str, object]:
    low, high = outcome.interval
    return {
        "epsilon": outcome.epsilon,
        "delta": outcome.delta,
        "votes": outcome.votes,
        "good": outcome.good,
        "spread": outcome.spread,
        "noise_std": outcome.noise_std,
        "rate": outcome.rate,
        "rate_low": low,
        "rate_high": high,
        "repetitions": outcome.repetitions,
    }
