"""How the results of stages are printed."""

import math

from urna.cli.output import print_table, results, table
from urna.privacy.budget import rounded_up
from urna.study import StudyOutcome
from urna.systems.combine import Combination
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult

__all__ = ["print_result"]


def print_result(outcome: StudyOutcome, title: str, head: str) -> None:
    """Print what came of a study: votes and rounds as tables, everything in sentences.

    `head` says where it ran, what it promises and which ledger counted it.
    """
    console, last = results(), outcome.result
    console.print(f"{head}\n")
    if outcome.again:
        console.print("this study is finished; nothing was spent now\n", style="dim")
    if isinstance(last, VoteResult) and last.revealed.counts is not None:
        _print_votes(last, title)
    elif isinstance(last, TrainResult) and last.history:
        _print_rounds(last, title)
    else:
        console.print(title)
    if outcome.vote is not None and outcome.follow is not None:
        console.print(outcome.vote.verdict)
    console.print(str(last))
    if isinstance(last, Combination):
        console.print(f"everything together: {outcome.privacy}")


def _print_votes(result: VoteResult, title: str) -> None:
    rows = table(title, "", *(f">{name}" for name in result.space.axes), ">noisy votes", "")
    longest = max(float(result.votes.max()), 1.0)
    for place in result.places(8):
        votes = float(result.votes[place])
        bar = "█" * round(24 * max(votes, 0.0) / longest)
        mark = "→" if place == result.winner else ""
        values = (f"{value}" for value in result.space[place].values())
        rows.add_row(mark, *values, f"{votes:.1f}", bar)
    print_table(rows)
    star = "a guess" if result.inconclusive else "the winner"
    noise = (
        f"each ± {result.standard_error:.1f} votes of noise (one standard deviation); → {star}\n"
    )
    results().print(noise, style="dim")


def _print_rounds(result: TrainResult, title: str) -> None:
    rows = table(title, ">round", ">in the sum", ">clip norm", ">epsilon", ">test", "")
    history = result.history
    every = max(1, len(history) // 8)
    shown = [r for r in history if r.number % every == 0 or r is history[-1] or r is history[0]]
    for report in shown:
        epsilon = "infinite" if report.epsilon is None else rounded_up(report.epsilon)
        right = math.nan if report.test is None else report.test[1]
        test = "" if math.isnan(right) else f"{100 * right:.1f} %"
        bar = "" if math.isnan(right) else "█" * round(24 * right)
        rows.add_row(
            f"{report.number}", f"{report.took_part}", f"{report.clip_norm:.3g}", epsilon, test, bar
        )
    print_table(rows)
