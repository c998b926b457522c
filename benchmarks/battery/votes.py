"""Hold many votes on one recorded table, by every method that is compared."""

import functools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.battery.tables import Table
from benchmarks.dp_hype.published import DELTA, SIGMA, VOTES
from benchmarks.papers.replay import Recording, replay

from urna.privacy import Budget
from urna.space import Space
from urna.systems.vote import DecoderKind, NoisyVotes, plan
from urna.systems.vote.decode import Decoded, Decoder

__all__ = ["BINS", "METHODS", "Cell", "hold"]

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.integer]

METHODS = {
    "paper": "five equal votes, argmax, the authors' noise",
    "argmax": "five equal votes, argmax, our noise",
    "default": "the default",
    "renamed": "the default, axes whose names say nothing",
    "top-5": "five equal votes, our decoder",
    "public": "no vote: the best on other, public data",
}
BINS = 10
NEAR = 1.0
"""Points within which a winner is as good as the best."""
_LOTS = 24  # top-k ballots differ by lot where losses are equal: so many of them are filled


@dataclass(frozen=True, slots=True)
class Cell:
    """How good winners were on one table, among so many clients, at one budget."""

    table: str
    name: str
    kind: str
    split: str
    candidates: int
    clients: int
    epsilon: float
    regret: dict[str, float]
    """By method: mean points between the best candidate and the winner."""
    error: dict[str, float]
    """Its standard error over votes; the table is the same for all."""
    near: dict[str, float]
    """Share of winners within a point of the best."""
    told: float
    """Share of votes in which the default says more than that it cannot tell."""
    covered: float | None
    """Share of the default's credible sets that hold who truly leads; None where it gave none."""
    named: float | None
    """Mean share of all candidates in such a set, the winner counted in."""
    decoded: int
    """How many votes those are about."""
    bins: list[list[float]]
    """For each tenth of the stated probability: votes, their sum, and how often it was true."""

    @property
    def gain(self) -> float:
        """Points by which the default beats the paper's mechanism."""
        return self.regret["paper"] - self.regret["default"]

    @property
    def gain_error(self) -> float:
        """Standard error of the gain."""
        return math.hypot(self.error["paper"], self.error["default"])


@dataclass(slots=True)
class _Watched:
    """A decoder that keeps what it was shown and, for the first votes, all it said."""

    deep: int
    inner: Decoder = field(default_factory=DecoderKind.POSTERIOR.build)
    said: list[Decoded] = field(default_factory=list)
    last: NoisyVotes | None = None
    name: str = "watched"

    def winner(self, tally: NoisyVotes) -> int:
        self.last = tally
        if len(self.said) >= self.deep:
            return self.inner.winner(tally)
        self.said.append(self.inner.decode(tally))
        return self.said[-1].winner

    def decode(self, tally: NoisyVotes) -> Decoded:
        return self.inner.decode(tally)


def hold(
    table: Table, clients: int, epsilons: Sequence[float], *, draws: int, deep: int
) -> list[Cell]:
    """Hold votes at each budget.

    Args:
        table: Losses of some clients.
        clients: How many vote: a multiple of the table's, or fewer, who are its first.
        epsilons: Budgets.
        draws: How many votes are held by each method; half as many by the last two of them.
        deep: In how many of the default's votes all that the decoder says is looked at.
    """
    recorded = len(table.losses)
    if clients > recorded and clients % recorded:
        raise ValueError(f"{recorded} recorded clients count for a multiple, got {clients}")
    losses = np.repeat(table.losses, max(clients // recorded, 1), axis=0)[:clients]
    seed = zlib.crc32(f"{table.cell}/{clients}".encode())
    return [_cell(table, losses, e, draws, deep, seed + i) for i, e in enumerate(epsilons)]


def _cell(table: Table, losses: Array, epsilon: float, draws: int, deep: int, seed: int) -> Cell:
    clients, candidates = losses.shape
    rng = np.random.default_rng(seed)
    recording = Recording(losses, table.final, "points")
    watched = _Watched(deep)
    winners: dict[str, Any] = {}

    def vote(space: Space, decoder: Decoder, count: int, noise: float | None = None) -> Places:
        (held,) = replay(
            recording,
            space,
            epsilons=[epsilon],
            rng=np.random.default_rng(seed),  # the same lots and noise for all
            delta=DELTA,
            decoder=decoder,
            draws=count,
            noise_std=noise,
        )
        return np.array(held.winners)

    winners["default"] = vote(table.space, watched, draws)
    winners["renamed"] = vote(_renamed(table.space), DecoderKind.POSTERIOR.build(), draws // 2)
    exact = _Watched(0)
    vote(table.space, exact, 1, noise=1e-6)
    ours = _noise(clients, candidates, epsilon)
    lots = _top(losses, rng)
    tallies = lots[np.arange(draws) % len(lots)]
    z = rng.standard_normal(tallies.shape)
    winners["paper"] = np.argmax(tallies + published(clients, candidates, epsilon) * z, axis=1)
    winners["argmax"] = np.argmax(tallies + ours * z, axis=1)
    decoder, norm = DecoderKind.POSTERIOR.build(), math.sqrt(min(VOTES, candidates))
    winners["top-5"] = np.array(
        [
            decoder.winner(NoisyVotes(table.space, votes, ours, clients, norm))
            for votes in (tallies + ours * z)[: draws // 2]
        ]
    )
    winners["public"] = np.flatnonzero(table.public == table.public.max())
    behind = table.final.max() - table.final
    regrets = {method: behind[winners[method]] for method in METHODS}
    found = _believed(watched.said, exact.last, candidates)
    return Cell(
        table.cell,
        table.name,
        table.kind,
        table.split,
        candidates,
        clients,
        epsilon,
        {method: float(some.mean()) for method, some in regrets.items()},
        {
            method: 0.0 if method == "public" else float(some.std() / math.sqrt(len(some)))
            for method, some in regrets.items()
        },
        {method: float(np.mean(some <= NEAR)) for method, some in regrets.items()},
        *found,
    )


def _believed(
    said: Sequence[Decoded], exact: NoisyVotes | None, candidates: int
) -> tuple[float, float | None, float | None, int, list[list[float]]]:
    """Hold what was said against who truly leads: who has the most votes before noise."""
    if exact is None:
        raise RuntimeError("no vote was held without noise")
    # The step by which votes are counted is far larger than what is left of the noise.
    leaders = set(np.flatnonzero(exact.votes >= exact.votes.max() - 1e-3).tolist())
    bins = [[0, 0.0, 0] for _ in range(BINS)]
    covered, named = [], []
    for one in said:
        if one.confidence is None:
            continue
        members = {one.winner, *one.near_ties}
        covered.append(bool(members & leaders))
        named.append(len(members) / candidates)
        place = bins[min(int(one.confidence * BINS), BINS - 1)]
        place[0] += 1
        place[1] += one.confidence
        place[2] += one.winner in leaders
    told = len(covered) / len(said)
    if not covered:
        return told, None, None, len(said), bins
    return told, float(np.mean(covered)), float(np.mean(named)), len(said), bins


def _renamed(space: Space) -> Space:
    """Return the same candidates under names that say nothing."""
    mapping = space.as_mapping()
    for number, axis in enumerate(mapping["axes"]):
        axis["name"] = f"axis_{number}"
    return Space.from_mapping(mapping)


def _top(losses: Array, rng: np.random.Generator) -> Array:
    """Return sums of five equal votes of each client; equals are decided by lot in each."""
    finite = np.where(np.isfinite(losses), losses, np.inf)[np.isfinite(losses).any(axis=1)]
    votes = min(VOTES, losses.shape[1])
    orders = (np.lexsort((rng.random(finite.shape), finite), axis=1) for _ in range(_LOTS))
    return np.array(
        [np.bincount(o[:, :votes].ravel(), minlength=losses.shape[1]) for o in orders], dtype=float
    )


@functools.cache
def _noise(clients: int, candidates: int, epsilon: float) -> float:
    """Return our noise for five equal votes, in votes."""
    return plan(
        clients=clients, candidates=candidates, budget=Budget(epsilon, DELTA), votes=VOTES
    ).most_noise_std


def published(clients: int, candidates: int, epsilon: float) -> float:
    """Return the authors' noise; below what they published, ours and their excess at ε = 0.1."""
    if epsilon in SIGMA:
        return SIGMA[epsilon]
    excess = SIGMA[0.1] / _noise(clients, candidates, 0.1)
    return excess * _noise(clients, candidates, epsilon)
