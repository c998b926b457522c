"""Read a winner out of a noisy tally.

The tally is private already, and everything here is computed from it and from public facts
(the space, the noise's variance), so it is post-processing and costs no privacy, however
often it is done.
"""

import functools
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri

from urna.errors import ParameterError
from urna.space import Space
from urna.systems.vote.ballot import VOTES, WEAK
from urna.systems.vote.kernels import Family, families, unrelated

Array = npt.NDArray[np.float64]

DRAWS = 2000
"""Draws from a posterior, from which the chances of leading are read."""

SCALES = (0.5, 1.0)
"""What clients' votes may be of those that were rehearsed, where the rehearsal is right."""
USELESS = 0.85
"""Weight, before the tally is seen, of a rehearsal that says nothing about the clients."""

_TRUSTS = 40  # values of B that are averaged over
_CLOSE = 1.4  # times as far behind the most noisy votes as noise takes one, the leader may be
_SELDOM = 0.5  # of draws are of candidates met once or twice: too many to tell apart
_NEGLIGIBLE = 1e-9  # weight of a value of B
_FAR = 16.0  # deviations of noise behind: no rival
_MOST_ENTRIES = 4_000_000
_UNEVEN = (0.0, 0.1, 0.5)
"""Share of the votes' variance that a candidate does not have in common with neighbours."""
_AGREEMENTS = (0.1, 0.2, 0.35, 0.55, 0.8)
"""Deviation of the true votes over what it would be if all clients voted alike."""
_DRAWN, _RAISED = 0.8, 2.7
"""How odds become what is said: see `calibrated`."""
_FINEST = 1 / (4 * DRAWS)
"""Draws of two models tell chances no finer."""
_STRUCTURELESS = 0.1
"""Weight, before the tally is seen, of neighbours having nothing to do with each other."""


@dataclass(frozen=True, slots=True)
class NoisyVotes:
    """What a decoder may look at: the tally and public facts, nothing else."""

    space: Space
    votes: npt.NDArray[np.float64]
    """Noisy votes for each candidate."""
    std: float
    """Standard deviation of the noise in each entry, in votes; zero if there is none."""
    clients: int
    """How many ballots are in the sum: one for each client, or for each shard of its records."""
    norm: float = math.sqrt(VOTES)
    """L2 norm of one ballot, in votes."""

    @property
    def noise(self) -> float:
        """Standard deviation of the noise over what all ballots can weigh."""
        return self.std / (self.clients * self.norm)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A winner, and how sure the tally makes us of it."""

    winner: int
    confidence: float | None
    """Probability that the winner truly leads, given the tally alone; None where the tally
    cannot tell."""
    near_ties: tuple[int, ...] = ()
    """Who else may well lead, most probable first: a choice the user has."""


class Decoder(Protocol):
    """Noisy tally to winner and its confidence."""

    @property
    def name(self) -> str:
        """The decoder's name in outputs."""
        ...

    def winner(self, tally: NoisyVotes) -> int:
        """Return the winner alone: what `decode` returns, sooner."""
        ...

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the winner, how surely it leads, and who may lead as well."""
        ...


@dataclass(frozen=True, slots=True)
class ArgmaxDecoder:
    """Take the candidate with the most noisy votes (DP-Hype, Algorithm 1).

    Args:
        level: Probability with which the true leader is to be in the credible set.
    """

    level: float = 0.9
    name: str = "argmax"

    def winner(self, tally: NoisyVotes) -> int:
        """Return the candidate with the most noisy votes; equals by a public lot (`leader`)."""
        return leader(tally.votes, tally.space)

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the candidate with the most noisy votes, and how surely it leads."""
        winner = self.winner(tally)
        sure = leading_probability(tally.votes, tally.std, winner)
        if tally.std == 0:
            equal = np.flatnonzero(tally.votes == tally.votes.max()).tolist()
            return Decoded(winner, sure, tuple(place for place in equal if place != winner))
        return told(winner, sure, leading_alone(tally), self.level, tally)


@dataclass(frozen=True, slots=True)
class PosteriorDecoder:
    """Take the candidate of highest posterior mean, averaged over Gaussian-process priors.

    Every prior of `kernels.families`, at several amplitudes and shares of unevenness, and a
    prior without any structure are weighed by the marginal likelihood of the tally. Where
    neighbours do not resemble each other the tally says so, and the decoder becomes argmax by
    itself. How much the true votes can vary is public: at most as if all clients voted alike.

    After a rehearsal the true votes are some scale times those rehearsed, and such a surface beside
    them; or that surface alone, if the rehearsal is useless. The tally weighs that as well. Where
    noise is weak the vote speaks for itself and the rehearsal is left out.

    Priors may be wrong, and leaders are often nearly tied. So every candidate's chance to lead is
    averaged with its chance under a model without structure, and the winner's is corrected by what
    came true on simulated loss surfaces.

    Args:
        level: Probability with which the true leader is to be in the credible set.
        expected: Votes that one ballot gives each candidate, on average, if a rehearsal is right.
    """

    level: float = 0.9
    expected: Array | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ParameterError(f"the level must lie strictly between 0 and 1, got {self.level}")

    @property
    def name(self) -> str:
        """The decoder's name in outputs."""
        return "posterior" if self.expected is None else "posterior, rehearsed"

    def winner(self, tally: NoisyVotes) -> int:
        """Return the winner alone, which takes no draws."""
        if tally.std == 0 or np.ptp(tally.votes) == 0:
            return leader(tally.votes, tally.space)
        return leader(_mean(_weighed(tally, self._heeded(tally))), tally.space)

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the winner, how probably it leads, and who may lead as well."""
        if tally.std == 0 or np.ptp(tally.votes) == 0:
            return ArgmaxDecoder(self.level).decode(tally)
        parts, rng = _weighed(tally, self._heeded(tally)), public_generator(tally)
        winner = leader(_mean(parts), tally.space)
        drawn = sum(weight * each.leading(rng, shift) for weight, shift, each in parts)
        leading = (drawn + leading_alone(tally)) / 2
        sure = calibrated(float(leading[winner]), tally)
        return told(winner, sure, leading, self.level, tally)

    def trust(self, tally: NoisyVotes) -> float | None:
        """Return how probable the tally makes it that the rehearsal is right, if it was heeded."""
        expected = self._heeded(tally)
        return None if expected is None else 1.0 - _weighed(tally, expected)[0][0]

    def _heeded(self, tally: NoisyVotes) -> Array | None:
        """Return what was rehearsed, unless the vote speaks for itself."""
        if self.expected is None or tally.noise <= WEAK or np.ptp(tally.votes) == 0:
            return None
        return None if np.ptp(self.expected) == 0 else self.expected


class DecoderKind(StrEnum):
    """Ways to read a winner from a tally."""

    POSTERIOR = "posterior"
    ARGMAX = "argmax"

    def build(self) -> Decoder:
        """Return the decoder of this name."""
        return PosteriorDecoder() if self is DecoderKind.POSTERIOR else ArgmaxDecoder()


@dataclass(frozen=True, slots=True, eq=False)
class _Priors:
    """Priors of one family, under noise of one strength, before a tally is seen."""

    family: Family
    gains: Array
    """Share of a coordinate's variance that is signal, shape (settings, priors, candidates)."""
    logs: Array
    """Logarithm of weight times normalising constant, shape (settings, priors)."""


@functools.lru_cache(maxsize=1)
def _priors(space: Space, noise: float, alike: float) -> tuple[_Priors, ...]:
    """Prepare all priors; kept, because a replay asks for the same again and again."""
    structured, found = families(space), []
    for family in (*structured, unrelated(len(space))):
        uneven = _UNEVEN if family.vectors else (0.0,)
        total = noise + np.stack(
            [a**2 * alike * ((1 - u) * family.values + u) for a in _AGREEMENTS for u in uneven]
        )
        share = (1 - _STRUCTURELESS) / len(structured) if family.vectors else _STRUCTURELESS
        weight = np.log(share / len(total) * family.shares)
        found.append(
            _Priors(family, 1 - noise / total, weight - 0.5 * np.log(total) @ family.copies)
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """What the tally says about the true votes: a mixture of normals."""

    votes: Array
    """The tally, less its mean."""
    noise: float
    """Variance of the noise in each entry."""
    priors: tuple[_Priors, ...]
    weights: tuple[Array, ...]
    """Given the tally, for each family of shape (settings, priors)."""
    evidence: float
    """Logarithm of the tally's marginal likelihood, but for a constant of its noise and length."""

    @classmethod
    def of(cls, tally: NoisyVotes) -> "Posterior":
        """Weigh all priors by the marginal likelihood of the tally."""
        noise, centred = tally.std**2, tally.votes - tally.votes.mean()
        alike = (tally.clients * tally.norm) ** 2 / len(tally.votes)
        priors = _priors(tally.space, noise, alike)
        coordinates = tuple(prior.family.project(centred) for prior in priors)
        logs = [
            prior.logs - 0.5 / noise * np.einsum("spc,pc->sp", 1 - prior.gains, found**2)
            for prior, found in zip(priors, coordinates, strict=True)
        ]
        most = max(log.max() for log in logs)
        weights = [np.exp(log - most) for log in logs]
        total = sum(weight.sum() for weight in weights)
        shares = tuple(weight / total for weight in weights)
        return cls(centred, noise, priors, shares, float(most + math.log(total)))

    @property
    def mean(self) -> Array:
        """Posterior mean of the votes, less the mean of the tally."""
        parts = zip(self.priors, self.weights, strict=True)
        return np.asarray(
            sum(
                prior.family.shrunk(self.votes, np.einsum("sp,spc->pc", weight, prior.gains))
                for prior, weight in parts
            )
        )

    def leading(self, rng: np.random.Generator, shift: Array) -> Array:
        """Return how often each candidate leads in draws from the posterior, moved by a shift."""
        wins = np.zeros(len(self.votes))
        flat = np.concatenate([weight.ravel() for weight in self.weights])
        ends = np.cumsum([weight.size for weight in self.weights])[:-1]
        counts = np.split(rng.multinomial(DRAWS, flat / flat.sum()), ends)
        for priors, count in zip(self.priors, counts, strict=True):
            per_prior = count.reshape(priors.logs.shape)
            for prior in np.flatnonzero(per_prior.any(axis=0)).tolist():
                one = priors.family.member(prior)
                settings = np.repeat(np.arange(len(per_prior)), per_prior[:, prior])
                for some in in_pieces(settings, len(wins)):
                    drawn = one.drawn(self.votes, priors.gains[some, prior], self.noise, rng)
                    wins += np.bincount(np.argmax(drawn + shift, axis=1), minlength=len(wins))
        return wins / DRAWS


def _weighed(tally: NoisyVotes, expected: Array | None) -> list[tuple[float, Array, Posterior]]:
    """Return what the tally says if a rehearsal is useless, then if it is right at each scale.

    Each has its weight, the votes that were rehearsed at this scale, and what is left of the tally.
    """
    scales = (0.0,) if expected is None else (0.0, *SCALES)
    rehearsed = np.zeros(1) if expected is None else expected - expected.mean()
    shifts = [scale * (tally.clients * rehearsed) for scale in scales]
    posteriors = [Posterior.of(replace(tally, votes=tally.votes - shift)) for shift in shifts]
    prior = np.array([USELESS, *[(1 - USELESS) / len(SCALES)] * len(SCALES)])[: len(scales)]
    logs = np.log(prior) + np.array([posterior.evidence for posterior in posteriors])
    weights = np.exp(logs - logs.max())
    return list(zip((weights / weights.sum()).tolist(), shifts, posteriors, strict=True))


def _mean(parts: list[tuple[float, Array, Posterior]]) -> Array:
    """Return the posterior mean of the votes, less their mean."""
    return np.asarray(sum(weight * (shift + each.mean) for weight, shift, each in parts))


def calibrated(chance: float, tally: NoisyVotes) -> float:
    """Return how often a winner of this chance truly led.

    Odds are drawn towards even, because leaders of real votes are often nearly tied, and raised
    under strong noise, where a mean with a model without structure says too little. Both numbers
    were fitted on loss surfaces, drawn tables and recordings
    (docs/decisions/0040-odds-drawn-towards-even.md).
    """
    chance = min(max(chance, _FINEST), 1 - _FINEST)
    raised = math.exp(_RAISED * min(max(tally.noise - 0.05, 0.0), 0.25))
    odds = raised * (chance / (1 - chance)) ** _DRAWN
    return float(odds / (1 + odds))


def leader(votes: npt.NDArray[np.float64], space: Space) -> int:
    """Return who has the most; equals are decided by a public lot that hangs on the space."""
    best = np.flatnonzero(votes == votes.max())
    lot = hashlib.sha256(b"urna tie\0" + space.fingerprint.encode()).digest()
    return int(best[int.from_bytes(lot) % len(best)])


def leading_probability(votes: npt.NDArray[np.float64], std: float, candidate: int) -> float:
    """Return the probability that a candidate's true votes are the most, given noisy ones.

    True votes are taken as independent normals around a common mean. How far they spread is
    unknown: it is averaged over, weighted by how well it explains the tally, with a uniform
    prior on B = spread²/(spread² + noise²) (the uniform shrinkage prior). So a tally that is all
    noise is not read as its largest entry would have it. For one B, posterior means differ by
    B·(v_i − v_j) with a deviation of √B·noise each, and the probability is
    E_z ∏_{j≠i} Φ(√B·(v_i − v_j)/noise + z), z standard normal. It is only as good as this model.
    """
    others = np.delete(votes, candidate)
    if std == 0:
        leaders = votes == votes.max()
        return float(leaders[candidate]) / int(leaders.sum())
    gaps = (votes[candidate] - others) / std
    z = np.linspace(-8.0, 8.0, 161)
    density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    gaps = gaps[gaps < _FAR]
    trusts, weights = _trusts(votes, std)
    trusts, weights = trusts[weights > _NEGLIGIBLE], weights[weights > _NEGLIGIBLE]
    ahead = [
        density @ np.exp(log_ndtr(math.sqrt(trust) * gaps[:, None] + z).sum(axis=0))
        for trust in trusts
    ]
    return float(np.clip(weights @ np.array(ahead), 0.0, 1.0))


def _trusts(
    votes: npt.NDArray[np.float64], std: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return values of B and how probable the tally makes them."""
    squares = float(((votes - votes.mean()) ** 2).sum()) / std**2
    trusts = (np.arange(_TRUSTS) + 0.5) / _TRUSTS
    # The sum of squares over (spread² + noise²) is chi-square with m − 1 degrees of freedom.
    log_weights = (len(votes) - 1) / 2 * np.log(1 - trusts) - squares * (1 - trusts) / 2
    weights = np.exp(log_weights - log_weights.max())
    return trusts, weights / weights.sum()


def leading_alone(tally: NoisyVotes) -> npt.NDArray[np.float64]:
    """Return how often each candidate leads in draws from the model of `leading_probability`."""
    rng = public_generator(tally)
    trusts, weights = _trusts(tally.votes, tally.std)
    wins = np.zeros(len(tally.votes))
    for some in in_pieces(rng.choice(trusts, size=(DRAWS, 1), p=weights), len(wins)):
        noise = np.sqrt(some) * tally.std * rng.standard_normal((len(some), len(wins)))
        leaders = np.argmax(some * tally.votes + noise, axis=1)
        wins += np.bincount(leaders, minlength=len(wins))
    return wins / DRAWS


def told(
    winner: int, sure: float, leading: npt.NDArray[np.float64], level: float, tally: NoisyVotes
) -> Decoded:
    """Return a winner with what can be said of it, or that nothing can.

    A set is what the model finds probable, and each candidate within 2.3 deviations (at 90 %) of
    the most noisy votes, whatever the model says: where many are nearly tied, a model that is a
    little wrong leaves the leader out. A set of whole candidates holds more than it must, and
    caution makes it larger still; how much less mass will do was measured
    (docs/decisions/0034-sets-near-ties.md). A set that names more than half of the candidates is
    no choice: then the tally cannot tell. Nor can it where so many may lead that draws met most of
    them once or twice, or not at all.
    """
    mass = level ** float(np.clip(1.5 + 4.0 * (tally.noise - 0.05), 1.5, 2.0))
    near = credible_set(leading, winner, mass)
    behind = _CLOSE * float(ndtri((1 + level) / 2)) * tally.std
    close = np.flatnonzero(tally.votes.max() - tally.votes <= behind)
    others = [place for place in close.tolist() if place not in (winner, *near)]
    near = (*near, *sorted(others, key=lambda place: -leading[place]))
    seldom = float(leading[leading <= 1 / DRAWS].sum())
    if len(leading) > 1 and (2 * (1 + len(near)) > len(leading) or seldom > _SELDOM):
        return Decoded(winner, None)
    return Decoded(winner, sure, near)


def in_pieces(draws: npt.NDArray[Any], candidates: int) -> Iterator[npt.NDArray[Any]]:
    """Yield draws some at a time, so that what is computed for them fits into memory."""
    some = max(1, _MOST_ENTRIES // candidates)
    for start in range(0, len(draws), some):
        yield draws[start : start + some]


def public_generator(tally: NoisyVotes) -> np.random.Generator:
    """Return a generator that everybody who has the tally can repeat; nothing here is secret."""
    text = tally.space.fingerprint.encode() + tally.votes.tobytes()
    return np.random.default_rng(list(hashlib.sha256(b"urna draws\0" + text).digest()))


def credible_set(leading: npt.NDArray[np.float64], winner: int, level: float) -> tuple[int, ...]:
    """Return who else may lead: with the winner, the smallest set of at least this probability."""
    order = [place for place in np.argsort(-leading, kind="stable").tolist() if place != winner]
    held = leading[winner] + np.concatenate([[0.0], np.cumsum(leading[order])])
    # Sums of probabilities may miss the level by a rounding error.
    return tuple(order[: int(np.argmax(held >= min(level, held[-1]) - 1e-12))])
