"""What would a vote have given us? Votes held again on recorded losses."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from benchmarks.papers.ballot_options import BallotOption, DecoderOption, VotesOption
from benchmarks.papers.replay import Replayed, read_recording, unnamed_space
from benchmarks.papers.replay import replay as replay_votes

from urna.cli.options import QuietOption
from urna.cli.output import (
    Format,
    FormatOption,
    errors,
    live_progress,
    print_json,
    print_table,
    results,
    table,
)
from urna.space import Space
from urna.systems.vote import DecoderKind

__all__ = ["replay"]

_EPSILONS = (0.1, 0.25, 0.5, 1.0, 3.0, float("inf"))
_WARNING = (
    "Recorded losses are never private: whoever replays them has seen them. Epsilon says what a "
    "vote would have cost, not what this command protects."
)

_FREQUENT = 3  # winners that are named

_UNNAMED = (
    "No --space was named, so nothing is known of which candidates are neighbours: votes are read "
    "one by one, where a search would read them as a surface."
)


def replay(
    losses: Annotated[
        Path,
        typer.Argument(
            help="An .npz file: `losses` or `accuracies` (clients × candidates), and perhaps "
            "`federated`, the accuracy each candidate reaches in training."
        ),
    ],
    space: Annotated[
        Path | None,
        typer.Option(help="The candidates, as .toml or .json, in the order of the recording."),
    ] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Privacy budget: epsilon, or inf; repeat.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Privacy budget: delta.")] = 1e-5,
    ballot: BallotOption = None,
    votes: VotesOption = None,
    decoder: DecoderOption = DecoderKind.POSTERIOR,
    draws: Annotated[int, typer.Option(help="Votes held at each epsilon.")] = 60,
    noise_std: Annotated[
        float | None,
        typer.Option(help="Noise in votes, whatever epsilon asks for: to compare with others."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Public seed of ties and noise.")] = 0,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Hold votes again on recorded losses: what would a vote have given us?

    Not private: whoever has the recording has seen the losses.
    """
    recording = read_recording(losses)
    candidates = recording.losses.shape[1]
    named = recording.space if space is None else Space.read(space)
    chosen = named or unnamed_space(candidates)
    usual = _EPSILONS if noise_std is None else _EPSILONS[:-1]
    with live_progress(quiet) as report:
        replayed = replay_votes(
            recording,
            chosen,
            epsilons=epsilon or usual,
            rng=np.random.default_rng(seed),
            delta=delta,
            ballot=ballot,
            votes=votes,
            decoder=decoder.build(),
            draws=draws,
            noise_std=noise_std,
            progress=lambda done, total: report("holding votes", done, total),
        )
    if output is Format.JSON:
        rows = [each.as_mapping() for each in replayed]
        for winner in (winner for row in rows for winner in row["winners"]):
            winner["candidate"] = chosen[winner["place"]]
        print_json(
            {
                "warning": _WARNING,
                "neighbours_known": named is not None,
                "clients": recording.losses.shape[0],
                "candidates": candidates,
                "results": rows,
                # With one epsilon its figures need no list.
                **(rows[0] if len(rows) == 1 else {}),
            }
        )
        return
    errors.print(_WARNING)
    if named is None:
        errors.print(_UNNAMED)
    _print(replayed, recording.losses.shape[0])
    _print_winners(replayed, chosen)


def _print_winners(replayed: list[Replayed], space: Space) -> None:
    """Print who won how often, at each epsilon."""
    rows = table("\nwho won", ">epsilon", ">votes won", "candidate")
    for each in replayed:
        for place, wins in each.wins[:_FREQUENT]:
            named = ", ".join(f"{name}={value}" for name, value in space[place].items())
            rows.add_row(f"{each.epsilon:g}", f"{100 * wins / each.draws:.0f} %", named)
        if len(each.wins) > _FREQUENT:
            rest = sum(wins for _, wins in each.wins[_FREQUENT:])
            others = f"{len(each.wins) - _FREQUENT} others"
            rows.add_row(f"{each.epsilon:g}", f"{100 * rest / each.draws:.0f} %", others)
    print_table(rows)


def _print(replayed: list[Replayed], clients: int) -> None:
    first = replayed[0]
    title = f"{first.draws} votes of {clients} clients each, winners by {first.judged_by}"
    rows = table(title, ">epsilon", ">noise", ">winners' mean", ">±", ">regret", ">best won", "")
    for each in replayed:
        rows.add_row(
            f"{each.epsilon:g}",
            f"{each.noise_std:.2f}",
            f"{each.mean_quality:.4f}",
            f"{each.standard_error:.4f}",
            f"{each.regret:.4f}",
            f"{100 * each.top1_rate:.0f} %",
            each.ballot,
        )
    console = results()
    print_table(rows)
    console.print(f"decoder: {first.decoder}", style="dim")
    said = {(each.delta, each.adjacency, each.accountant) for each in replayed}
    for delta, adjacency, accountant in sorted(said, key=str):
        rows_of = ", ".join(
            f"{each.epsilon:g}"
            for each in replayed
            if (each.delta, each.adjacency, each.accountant) == (delta, adjacency, accountant)
        )
        cost = "nothing is private" if delta is None else f"delta {delta:g}, {adjacency}"
        console.print(f"epsilon {rows_of}: {cost}, accountant: {accountant}", style="dim")
