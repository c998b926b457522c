"""Claim: a rehearsal on public data helps where noise is strong, and costs little if it is wrong.

On simulated landscapes, 10 and 100 clients: five pretend clients see a surface that is the
clients' own (right), half theirs and half an unrelated one (half), or unrelated (wrong). Beside
the vote without a rehearsal and the control (no vote at all: the rehearsal's winner), the vote
with what a rehearsal is used for: what the decoder expects, the shortlist, and both where
`Rehearsal` has both. Mean regret of the winners in per cent of the distance from the worst to the
best candidate.

    python benchmarks/rehearsal.py --landscapes 90
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.landscapes import draw_space

from urna.forecast.surfaces import KINDS
from urna.privacy import Budget
from urna.space import Space
from urna.systems.vote import NoisyVotes, PosteriorDecoder, Rehearsal, fill_ballot
from urna.systems.vote.decode import Decoder
from urna.systems.vote.plan import relative_noise
from urna.systems.vote.settings import choose_ballot

Array = npt.NDArray[np.float64]
STRUCTURED = [kind for kind in KINDS if kind != "none"]
PRETEND = 5
UNRELATED = {"right": 0.0, "half": 0.5, "wrong": 1.0}
"""Weight of the unrelated surface in what is rehearsed."""
CLIENTS, EPSILONS, DELTA = (10, 100), (0.1, 0.25, 1.0), 1e-5


def winner(
    rng: np.random.Generator,
    seen: Array,
    space: Space,
    asked: Space,
    noise: float,
    rehearsal: Rehearsal | None,
) -> int:
    """Hold one vote on some of the candidates; return the winner's place among all."""
    everybody = list(space)
    places = [everybody.index(candidate) for candidate in asked]
    shape = choose_ballot(None, candidates=len(asked), noise=noise)
    total = np.sum([fill_ballot(-row[places], shape, rng.bytes(32)) for row in seen], axis=0)
    norm = shape.norm / shape.vote
    std = noise * len(seen) * norm
    votes = total / shape.vote + std * rng.standard_normal(len(asked))
    decoder: Decoder = PosteriorDecoder()
    if rehearsal is not None:
        decoder = rehearsal.decoder(shape, asked, decoder)
    return places[decoder.winner(NoisyVotes(asked, votes, std, len(seen), norm))]


def compare(landscapes: int, seed: int) -> dict[str, dict[str, str]]:
    """Return mean regrets and their standard errors."""
    rng = np.random.default_rng(seed)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(landscapes):
        space, kind = draw_space(rng), STRUCTURED[number % len(STRUCTURED)]
        for clients in CLIENTS:
            land, other = (KINDS[kind](rng, space, clients + PRETEND) for _ in range(2))
            seen, regret = land.seen[:clients], land.regret
            apart = (land.seen[clients:] - land.quality) / np.ptp(land.quality)
            for name, part in UNRELATED.items():
                surface = -(1 - part) * regret - part * other.regret
                rehearsal = Rehearsal(space, -surface - apart, "a landscape", "")
                control = int(rehearsal.losses.mean(axis=0).argmin())
                for epsilon in EPSILONS:
                    noise = relative_noise(Budget(epsilon, DELTA), clients)
                    cell = f"n={clients}, ε={epsilon:g}, {name}"
                    shortlist = rehearsal.shortlist(math.inf)
                    ways = {
                        "no rehearsal": (space, None),
                        "expected": (space, rehearsal),
                        "shortlist": (shortlist, None),
                        "both": (shortlist, rehearsal),
                        "as built": (rehearsal.shortlist(noise), rehearsal),
                    }
                    found[cell, "control"].append(float(regret[control]))
                    for way, (asked, used) in ways.items():
                        place = winner(rng, seen, space, asked, noise, used)
                        found[cell, way].append(float(regret[place]))
        print(f"\r{number + 1} of {landscapes}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table: dict[str, dict[str, str]] = {}
    for (cell, way), values in found.items():
        mean, error = np.mean(values), np.std(values) / math.sqrt(len(values))
        table.setdefault(cell, {})[way] = f"{100 * mean:.1f} ± {100 * error:.1f}"
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--landscapes", type=int, default=90)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    table = compare(options.landscapes, options.seed)
    if options.format == "json":
        print(json.dumps({"landscapes": options.landscapes, "regret": table}, ensure_ascii=False))
        return
    ways = list(next(iter(table.values())))
    print(f"{'':22s}", *(f"{way:>14s}" for way in ways))
    for cell, row in table.items():
        print(f"{cell:22s}", *(f"{row[way]:>14s}" for way in ways))


if __name__ == "__main__":
    main()
