"""Read a tally as a noisy picture of a surface over the grid of candidates.

The tally is private already, and everything here is computed from it and from public facts
(the space, the noise's variance), so it is post-processing and costs no privacy, however
often it is done.
"""

import functools
import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.space import Space
from urna.systems.vote.decode import (
    DRAWS,
    ArgmaxDecoder,
    Decoded,
    Decoder,
    NoisyVotes,
    in_pieces,
    leader,
    leading_alone,
    public_generator,
    told,
)
from urna.systems.vote.kernels import Family, families, unrelated

__all__ = ["DecoderKind", "Posterior", "PosteriorDecoder", "calibrated"]

Array = npt.NDArray[np.float64]

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
class PosteriorDecoder:
    """Take the candidate of highest posterior mean, averaged over Gaussian-process priors.

    Every prior of `kernels.families`, at several amplitudes and shares of unevenness, and a
    prior without any structure are weighed by the marginal likelihood of the tally. Before the
    tally is seen a tenth of the weight lies on no structure: where neighbours do not resemble
    each other the tally says so, and the decoder becomes argmax by itself. How much the true votes
    can vary is public: at most as if all clients voted alike.

    What is said of the winner comes from the same posterior, but with caution: priors may be
    wrong, and leaders are often nearly tied. So every candidate's chance to lead is averaged
    with its chance under a model without structure, and the winner's is corrected by what
    came true on simulated loss surfaces. Where more than half of the candidates may lead, the tally
    cannot tell, and no number is given.

    Args:
        level: Probability with which the true leader is to be in the credible set.
    """

    level: float = 0.9
    name: str = "posterior"

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ParameterError(f"the level must lie strictly between 0 and 1, got {self.level}")

    def winner(self, tally: NoisyVotes) -> int:
        """Return the winner alone, which takes no draws."""
        if tally.std == 0 or np.ptp(tally.votes) == 0:
            return leader(tally.votes, tally.space)
        return leader(Posterior.of(tally).mean, tally.space)

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the winner, how probably it leads, and who may lead as well."""
        if tally.std == 0 or np.ptp(tally.votes) == 0:
            return ArgmaxDecoder(self.level).decode(tally)
        posterior = Posterior.of(tally)
        winner = leader(posterior.mean, tally.space)
        leading = (posterior.leading(public_generator(tally)) + leading_alone(tally)) / 2
        sure = calibrated(float(leading[winner]), tally)
        return told(winner, sure, leading, self.level, tally)


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
        total = _variances(family, alike) + noise
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

    def leading(self, rng: np.random.Generator, shift: Array | float = 0.0) -> Array:
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


def _variances(family: Family, alike: float) -> Array:
    """Return the prior variance of each coordinate, shape (settings, priors, candidates)."""
    settings = [(a, u) for a in _AGREEMENTS for u in (_UNEVEN if family.vectors else (0.0,))]
    return np.stack([a**2 * alike * ((1 - u) * family.values + u) for a, u in settings])
