"""Compare two rounds, coarse to fine, with one round at equal total epsilon.

On the simulated landscapes of `landscapes.py`, 100 clients: a part of the budget (as a share
of μ²) finds the most promising candidates, the rest votes among them. Prints mean regrets in
per cent of the distance from the worst to the best candidate, for several strengths of noise.

    python benchmarks/two_rounds.py --landscapes 150
    python benchmarks/two_rounds.py --recordings benchmarks/dp_hype/results/losses --landscapes 40

With `--recordings` the landscapes are those of real clients: recorded accuracies of 100 clients
on the space of DP-Hype's evaluation, each as often as `--landscapes` says, judged by federated
accuracy.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from landscapes import CLIENTS, KINDS, NOISES, Array, Rng, space_of

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.papers.replay import read_recording

from urna.space import Space
from urna.systems.vote import (
    NoisyVotes,
    PosteriorDecoder,
    choose_ballot,
    fill_ballot,
)
from urna.systems.vote.rounds import FIRST_SHARE, KEPT, after_first

SETTINGS = ((FIRST_SHARE, KEPT), (FIRST_SHARE, 0.25), (0.2, KEPT))
STRUCTURED = [kind for kind in KINDS if kind != "none"]


def vote(rng: Rng, seen: Array, space: Space, noise: float) -> NoisyVotes:
    """Hold one vote with this much noise."""
    shape = choose_ballot(None, candidates=len(space), noise=noise)
    total = sum(fill_ballot(-row, shape, rng.bytes(32)) for row in seen)
    norm = shape.norm / shape.vote
    std = noise * CLIENTS * norm
    noisy = np.asarray(total) / shape.vote + std * rng.standard_normal(len(space))
    return NoisyVotes(space, noisy, std, CLIENTS, norm)


def drawn(rng: Rng, count: int) -> Iterator[tuple[Space, Array, Array]]:
    """Yield a space, what clients see, and each candidate's regret."""
    for number in range(count):
        space = space_of(rng)
        seen, quality = KINDS[STRUCTURED[number % len(STRUCTURED)]](rng, space)
        yield space, seen, (quality.max() - quality) / np.ptp(quality)


def recorded(folder: Path, count: int) -> Iterator[tuple[Space, Array, Array]]:
    """Yield the recordings of 100 clients, again and again."""
    space = Space.read(folder.parent / "space.toml")
    for file in sorted(folder.glob(f"*-n{CLIENTS}-*.npz")) * count:
        recording = read_recording(file)
        yield space, -recording.losses, recording.quality.max() - recording.quality


def compare(
    landscapes: Iterable[tuple[Space, Array, Array]], rng: Rng
) -> dict[str, dict[str, str]]:
    """Return mean regrets and their standard errors."""
    decoder = PosteriorDecoder()
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number, (space, seen, regret) in enumerate(landscapes, start=1):
        for name, noise in NOISES.items():
            found[name, "one round"].append(regret[decoder.winner(vote(rng, seen, space, noise))])
            for share, kept in SETTINGS:
                first = vote(rng, seen, space, noise / math.sqrt(share))
                places = decoder.promising(first, max(4, math.ceil(kept * len(space))))
                inside = space.only(places)
                second = vote(rng, seen[:, places], inside, noise / math.sqrt(1 - share))
                winner = places[after_first(first, places, second.norm).winner(second)]
                found[name, f"two, {share:g} of μ², {kept:g} kept"].append(regret[winner])
        print(f"\r{number}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table: dict[str, dict[str, str]] = {}
    for (name, method), values in found.items():
        mean, error = np.mean(values), np.std(values) / math.sqrt(len(values))
        table.setdefault(name, {})[method] = f"{100 * mean:.2f} ± {100 * error:.2f}"
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--landscapes", type=int, default=150)
    parser.add_argument("--recordings", type=Path, help="folder of recorded accuracies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    count, folder = options.landscapes, options.recordings
    table = compare(drawn(rng, count) if folder is None else recorded(folder, count), rng)
    if options.format == "json":
        print(json.dumps({"landscapes": options.landscapes, "regret": table}, ensure_ascii=False))
        return
    for name, row in table.items():
        print(name, *(f"  {method}: {value}" for method, value in row.items()), sep="\n")


if __name__ == "__main__":
    main()
