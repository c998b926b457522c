"""Choose the default ballot and decoder on simulated landscapes, not on anybody's data.

A landscape is a random space (2 to 4 axes, 20 to 250 candidates), a random surface of quality
over it, and 100 clients that see it with their own deviations and evaluation noise; its kinds are
in `urna.forecast.surfaces`. For every strength of noise, ballot and decoder the mean regret
of the winners is printed, in per cent of the distance from the worst to the best candidate.

    python benchmarks/landscapes.py --landscapes 400 --format json
    python benchmarks/landscapes.py --landscapes 400 --opens winner

With `--opens winner` ballots of levels are compared, for votes of which only the winner is opened
(docs/decisions/0032-levels-again.md); winners' probabilities are computed, not drawn.

The defaults of `urna.systems.vote.settings.choose_ballot` are the winners of this table;
docs/decisions/0008-default-ballot-and-decoder.md shows it.
"""

import argparse
import functools
import itertools
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from urna.forecast import surfaces
from urna.privacy import SelectionRelease
from urna.space import Axis, Space
from urna.systems.vote import ArgmaxDecoder, BallotShape, NoisyVotes, PosteriorDecoder, fill_ballot
from urna.systems.vote.ballot import LEVELS, Ballot, ScoreShape, reference_loss
from urna.systems.vote.plan import head_start

Array = npt.NDArray[np.float64]
Rng = np.random.Generator

CLIENTS = 100
NOISES = {
    "n=50, ε=.1": 0.87,
    "ε=.1": 0.435,
    "ε=.25": 0.188,
    "ε=.5": 0.099,
    "ε=1": 0.053,
    "ε=3": 0.02,
}
"""Noise over what all ballots can weigh; named for 100 clients and δ = 1e-5."""
WIDTHS = (0.02, 0.05, 0.1, 0.2)
POWERS = (1.0, 2.0, 3.0, 4.0, 6.0)
ELECTORATES = {
    "n=100, ε=.05": (100, 0.05),
    "n=100, ε=.1": (100, 0.1),
    "n=100, ε=.25": (100, 0.25),
    "n=100, ε=.5": (100, 0.5),
    "n=20, ε=1": (20, 1.0),
}
"""Clients and epsilon of votes of which only the winner is opened."""
PARTS = (0.4, 0.5, 0.7, 0.85, 1.0)
LEVEL_POWERS = (1.0, 2.0, 3.0, 4.0, 6.0)


def draw_space(rng: Rng) -> Space:
    """Draw axes, one learning rate and one to three others: 20 to 250 candidates."""
    while True:
        low, high = rng.uniform(-8, -3), rng.uniform(-1.5, 0.5)
        count = int(rng.integers(5, 13))
        exponents = np.linspace(low, high, count)
        if rng.random() < 0.3:
            exponents = np.sort(rng.uniform(low, high, count))
        axes = [Axis.log([float(f"{10**e:.5g}") for e in exponents])]
        for _ in range(int(rng.integers(1, 4))):
            values, kind = int(rng.integers(2, 6)), rng.random()
            if kind < 0.5:
                axes.append(Axis.linear_range(0.0, 1.0, values))
            elif kind < 0.8:
                axes.append(Axis.ordinal(list(range(values))))
            else:
                axes.append(Axis.categorical([f"kind {i}" for i in range(values)]))
        rate, *others = axes
        space = Space(lr=rate, **{f"axis{i}": axis for i, axis in enumerate(others)})
        if 20 <= len(space) <= 250:
            return space


def _seen(kind: str, rng: Rng, space: Space) -> tuple[Array, Array]:
    found = surfaces.KINDS[kind](rng, space, CLIENTS)
    return found.seen, found.quality


KINDS = {kind: functools.partial(_seen, kind) for kind in surfaces.KINDS}
"""What 100 clients see and what is true, by kind of landscape."""


def ballots_of(candidates: int) -> dict[str, Ballot]:
    """Return the ballots to compare."""
    shapes: dict[str, Ballot] = {"top-k 5": BallotShape.top_k(5, candidates)}
    for width in WIDTHS:
        shapes[f"ranked {width:g}"] = BallotShape.ranked(width * candidates, candidates)
    for power in POWERS:
        shapes[f"scored {power:g}"] = ScoreShape(candidates, power=power)
    return shapes


def compare(landscapes: int, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean regrets by noise, ballot and decoder, and kind of landscape."""
    rng = np.random.default_rng(seed)
    regrets: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    decoders = (ArgmaxDecoder(), PosteriorDecoder())
    for number in range(landscapes):
        kind = list(KINDS)[number % len(KINDS)]
        space = draw_space(rng)
        seen, quality = KINDS[kind](rng, space)
        regret = (quality.max() - quality) / np.ptp(quality)
        for name, shape in ballots_of(len(space)).items():
            total = sum(fill_ballot(-row, shape, rng.bytes(32)) for row in seen)
            votes, norm = np.asarray(total) / shape.vote, shape.norm / shape.vote
            for noise, share in NOISES.items():
                std = share * CLIENTS * norm
                noisy = votes + std * rng.standard_normal(len(space))
                tally = NoisyVotes(space, noisy, std, CLIENTS, norm)
                for decoder in decoders:
                    found = regret[decoder.winner(tally)]
                    regrets[noise, f"{name}, {decoder.name}", kind].append(float(found))
        print(f"\r{number + 1} of {landscapes}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return _table(regrets)


def _table(
    regrets: dict[tuple[str, str, str], list[float]],
) -> dict[str, dict[str, dict[str, float]]]:
    table: dict[str, dict[str, dict[str, float]]] = {}
    for (noise, method, kind), values in regrets.items():
        row = table.setdefault(noise, {}).setdefault(method, {})
        row[kind] = round(100 * float(np.mean(values)), 2)
        row[f"{kind} ±"] = round(100 * float(np.std(values) / math.sqrt(len(values))), 2)
    for rows in table.values():
        for row in rows.values():
            row["structured"] = round(float(np.mean([row[k] for k in KINDS if k != "none"])), 2)
    return table


def compare_levels(landscapes: int, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean regrets by noise and rule for levels, where only the winner is opened."""
    rng = np.random.default_rng(seed)
    regrets: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for number in range(landscapes):
        kind = list(KINDS)[number % len(KINDS)]
        space = draw_space(rng)
        seen, quality = KINDS[kind](rng, space)
        regret = (quality.max() - quality) / np.ptp(quality)
        behind = np.array(head_start(space, SelectionRelease(1.0, 1000, len(space)))) / 1000
        for reference, part, power in itertools.product(("median", "good"), PARTS, LEVEL_POWERS):
            ballots = np.array([_levels(-row, reference, part, power) for row in seen])
            for name, (clients, epsilon) in ELECTORATES.items():
                votes = ballots[:clients].sum(axis=0) * epsilon / (2 * LEVELS)
                found = float(winner_odds(votes + behind) @ regret)
                regrets[name, f"{reference}, part {part:g}, power {power:g}", kind].append(found)
        print(f"\r{number + 1} of {landscapes}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return _table(regrets)


def _levels(losses: Array, reference: str, part: float, power: float) -> Array:
    best, zero, scaled = reference_loss(losses)
    if reference == "median":
        zero = float(np.sort(scaled)[len(scaled) // 2])
    score = np.clip((zero - scaled) / (part * (zero - best)), 0.0, 1.0) ** power
    return np.asarray(np.rint(LEVELS * score))


def winner_odds(votes: Array, points: int = 200) -> Array:
    """Return each candidate's probability to win under exponential noise of rate one.

    P(j) = ∫ f(y − v_j)·Π_{k≠j} F(y − v_k) dy over the y that the largest can take.
    """
    level = np.concatenate([np.linspace(0, 12, points), np.linspace(12.5, 40, 56)])
    above = np.minimum(np.exp(votes[:, None] - votes.max() - level), 1 - 1e-15)
    below = np.log1p(-above)
    density = above * np.exp(below.sum(axis=0) - below)
    chance = ((density[:, 1:] + density[:, :-1]) / 2) @ np.diff(level)
    return np.asarray(chance / chance.sum())


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--landscapes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--opens", choices=("tally", "winner"), default="tally")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    chosen = compare if options.opens == "tally" else compare_levels
    table = chosen(options.landscapes, options.seed)
    if options.format == "json":
        text = json.dumps({"landscapes": options.landscapes, "seed": options.seed, "regret": table})
    else:
        lines = []
        for noise, rows in table.items():
            lines.append(noise)
            for method, row in sorted(rows.items(), key=lambda each: each[1]["structured"]):
                kinds = "  ".join(f"{kind} {row[kind]:5.1f}" for kind in KINDS)
                lines.append(f"  {row['structured']:5.1f}  {method:24s} {kinds}")
        text = "\n".join(lines)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
