"""Choose the default ballot and decoder on simulated landscapes, not on anybody's data.

A landscape is a random space (2 to 4 axes, 20 to 250 candidates), a random surface of quality
over it, and 100 clients that see it with their own deviations and evaluation noise. Three
kinds have structure: `rates` (quality rises and falls along a learning rate, other axes shift
and scale it), `bowl` (a smooth optimum with interactions and a cliff), `process` (a draw from
a Gaussian process with random ranges); `none` has no structure at all. For every strength of
noise, ballot and decoder the mean regret of the winners is printed, in per cent of the
distance from the worst to the best candidate.

    python benchmarks/landscapes.py --landscapes 400 --format json

The defaults of `urna.vote.ballot.choose_ballot` are the winners of this table;
docs/decisions/0008-default-ballot-and-decoder.md shows it.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from urna.space import Axis, AxisKind, Space
from urna.vote import (
    ArgmaxDecoder,
    Ballot,
    BallotShape,
    NoisyVotes,
    PosteriorDecoder,
    ScoreShape,
    fill_ballot,
)

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


def space_of(rng: Rng) -> Space:
    """Draw axes: one learning rate and one to three others."""
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


def smooth(rng: Rng, space: Space) -> Callable[..., Array]:
    """Return a sampler of surfaces with random ranges."""
    covariance = np.ones((len(space), len(space)))
    for steps in space.distances():
        reach = math.exp(rng.uniform(math.log(0.7), math.log(6.0)))
        gaussian = rng.random() < 0.5
        covariance *= np.exp(-0.5 * (steps / reach) ** 2) if gaussian else np.exp(-steps / reach)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return lambda *more: np.asarray(rng.standard_normal((*more, len(space))) @ root.T)


def places_of(space: Space) -> npt.NDArray[np.intp]:
    """Return each candidate's place on each axis."""
    sizes = [len(axis.values) for axis in space.axes.values()]
    return np.stack(np.unravel_index(np.arange(len(space)), sizes), axis=1)


def rates(rng: Rng, space: Space) -> tuple[Array, Array]:
    """Return clients' and true quality: a plateau along the rate, with a cliff behind it."""
    places, names = places_of(space), list(space.axes)
    position = np.log10([float(candidate[names[0]]) for candidate in space])
    gain = np.ones(len(space))
    for i, axis in enumerate(list(space.axes.values())[1:], start=1):
        count = len(axis.values)
        line = np.linspace(-0.5, 0.5, count)
        ordered = axis.kind is not AxisKind.CATEGORICAL and rng.random() < 0.7
        shift = line * rng.normal(0, 0.8) if ordered else rng.normal(0, 0.3, count)
        from_best = np.abs(line - rng.uniform(-0.5, 0.5)) if ordered else rng.random(count)
        factor = 1 - abs(rng.normal(0, 0.15)) * from_best
        if rng.random() < 0.2:  # one value spoils the training, as a decay of zero does
            factor[0 if ordered else int(rng.integers(count))] *= rng.uniform(0.2, 0.9)
        position = position + shift[places[:, i]]
        gain = gain * factor[places[:, i]]
    start = rng.uniform(np.quantile(position, 0.3), np.quantile(position, 0.9))
    rise, width, slope = rng.uniform(0.15, 0.6), rng.uniform(0.8, 3.0), rng.uniform(0, 0.06)
    fall = 0.1 if rng.random() < 0.7 else 0.5

    def quality(moved: Array | float, scaled: Array | float) -> Array:
        x = position + moved - start
        top = np.clip(1 - slope * (x - width / 2) ** 2, 0, 1)
        up, down = 1 / (1 + np.exp(-x / rise)), 1 / (1 + np.exp((x - width) / fall))
        return np.asarray(up * top * down * gain * scaled)

    apart = math.exp(rng.uniform(math.log(0.03), math.log(0.6)))
    noise = math.exp(rng.uniform(math.log(0.003), math.log(0.06)))
    shape = (CLIENTS, len(space))
    seen = quality(
        apart * rng.standard_normal((CLIENTS, 1)), 1 + 0.06 * apart * rng.standard_normal(shape)
    )
    return seen + noise * rng.standard_normal(shape), quality(0.0, 1.0)


def seen_by_clients(rng: Rng, latent: Array, deviate: Callable[..., Array]) -> tuple[Array, Array]:
    """Squash a latent surface to qualities and let every client see its own version."""
    middle = np.quantile(latent, rng.uniform(0.5, 0.95))
    quality = 1 / (1 + np.exp(-(latent - middle) * rng.uniform(1, 3) / latent.std()))
    spread = float(quality.std())
    apart = math.exp(rng.uniform(math.log(0.03), math.log(0.6))) * spread
    noise = math.exp(rng.uniform(math.log(0.02), math.log(0.5))) * spread
    seen = quality + apart * deviate(CLIENTS)
    return seen + noise * rng.standard_normal(seen.shape), quality


def bowl(rng: Rng, space: Space) -> tuple[Array, Array]:
    """Return a smooth optimum along the first axis, moved by the others, with a cliff."""
    places = places_of(space).astype(float)
    axes = list(space.axes.values())
    count = len(axes[0].values)
    best, width = rng.uniform(0.3 * count, 0.95 * count), rng.uniform(0.5, 2.5)
    x = places[:, 0].copy()
    effects = np.zeros(len(space))
    for i, axis in enumerate(axes[1:], start=1):
        if axis.kind is not AxisKind.CATEGORICAL:
            x += rng.normal(0, 0.4) * places[:, i]
        heights = rng.normal(0, rng.uniform(0, 1), len(axis.values))
        effects += heights[places[:, i].astype(int)]
    latent = -(((x - best) / width) ** 2)
    latent = np.where(x > best + rng.uniform(0.3, 2) * width, latent - rng.uniform(1, 6), latent)
    draw = smooth(rng, space)
    return seen_by_clients(rng, 2 * (latent + effects + 0.3 * draw()), smooth(rng, space))


def process(rng: Rng, space: Space) -> tuple[Array, Array]:
    """Return a draw from a Gaussian process."""
    return seen_by_clients(rng, smooth(rng, space)(), smooth(rng, space))


def none(rng: Rng, space: Space) -> tuple[Array, Array]:
    """Return qualities that have nothing to do with the space."""
    latent = rng.standard_normal(len(space))
    return seen_by_clients(rng, latent, lambda n: rng.standard_normal((n, len(space))))


KINDS = {"rates": rates, "bowl": bowl, "process": process, "none": none}


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
        space = space_of(rng)
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
    table: dict[str, dict[str, dict[str, float]]] = {}
    for (noise, method, kind), values in regrets.items():
        row = table.setdefault(noise, {}).setdefault(method, {})
        row[kind] = round(100 * float(np.mean(values)), 2)
        row[f"{kind} ±"] = round(100 * float(np.std(values) / math.sqrt(len(values))), 2)
    for rows in table.values():
        for row in rows.values():
            row["structured"] = round(float(np.mean([row[k] for k in KINDS if k != "none"])), 2)
    return table


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--landscapes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    table = compare(options.landscapes, options.seed)
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
