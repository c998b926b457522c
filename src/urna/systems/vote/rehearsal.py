"""A rehearsal: the same search on public data of the same kind, which costs no privacy.

What it finds is public, so it may decide which candidates are voted on and what a decoder
expects of the tally. Whether public data resemble the clients' nobody knows beforehand: the
tally says so itself, as far as its noise lets it.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import Objective, Progress, losses_of_each
from urna.local.cache import data_fingerprint
from urna.space import Space
from urna.systems.vote.ballot import STRONG, WEAK, fill_ballot
from urna.systems.vote.decode import (
    Decoded,
    Decoder,
    NoisyVotes,
    leader,
    leading_alone,
    public_generator,
    told,
)
from urna.systems.vote.inputs import as_clients, as_objective, as_space
from urna.systems.vote.posterior import Posterior, PosteriorDecoder, calibrated
from urna.systems.vote.shapes import Ballot

__all__ = ["Rehearsal", "RehearsedDecoder", "rehearse"]

Array = npt.NDArray[np.float64]
DataT = TypeVar("DataT")

SCALES = (0.5, 1.0)
"""What clients' votes may be of those that were rehearsed, where the rehearsal is right."""
USELESS = 0.85
"""Weight, before the tally is seen, of a rehearsal that says nothing about the clients."""
SHORTLISTED, FEWEST = 0.25, 8
"""Part of the candidates that is voted on where noise is strong, and the fewest of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """Losses of every candidate on public data.

    Assumes:
        The data are public. Nothing can check that: to call private data public voids every
        statement about whose they are.

    Args:
        space: The candidates, all of them.
        losses: One row for each pretend client; lower is better, not finite is worst.
        data: What the data are called.
        digest: SHA-256 of the rows; of the losses where data are no rows.
    """

    space: Space
    losses: Array
    data: str
    digest: str

    def __post_init__(self) -> None:
        if self.losses.ndim != 2 or self.losses.shape[1] != len(self.space):
            raise ParameterError(
                f"a rehearsal of {len(self.space)} candidates has losses of the shape (pretend "
                f"clients, {len(self.space)}), got {self.losses.shape}"
            )
        if not np.isfinite(self.losses).any():
            raise ParameterError(
                f"no candidate has a finite loss on {self.data}: the rehearsal says nothing"
            )

    def check(self, space: Space) -> None:
        """Refuse a search of other candidates than were rehearsed.

        Raises:
            ParameterError: They differ.
        """
        if space != self.space:
            raise ParameterError(
                "the rehearsal was of other candidates: rehearse the space that is searched"
            )

    def expected(self, shape: Ballot, asked: Space) -> Array:
        """Return the votes that a ballot of the pretend clients gives each candidate, on average.

        Args:
            shape: How clients fill in their ballots.
            asked: The candidates that are voted on, some of the rehearsed.
        """
        places = self.space.places_of(asked)
        keys = (hashlib.sha256(b"urna rehearsal %d" % i).digest() for i in range(len(self.losses)))
        filled = [
            fill_ballot(row[places], shape, key) for row, key in zip(self.losses, keys, strict=True)
        ]
        return np.asarray(np.mean(filled, axis=0) / shape.vote)

    def shortlist(self, noise: float) -> Space:
        """Return the candidates to vote on: all, or the best quarter where noise is strong.

        A ballot over fewer candidates says more about each. Where noise is weaker the vote can
        find out by itself what a wrong rehearsal would have kept from it.

        Args:
            noise: Of the tally over what all ballots can weigh; see `relative_noise`.
        """
        count = max(FEWEST, math.ceil(SHORTLISTED * len(self.space)))
        if noise <= STRONG or count >= len(self.space):
            return self.space
        ranks = np.argsort(
            np.argsort(np.where(np.isfinite(self.losses), self.losses, np.inf), kind="stable"),
            kind="stable",
        )
        best = np.argsort(ranks.mean(axis=0), kind="stable")[:count]
        return self.space.only(sorted(best.tolist()))

    @staticmethod
    def informs(decoder: Decoder) -> TypeGuard[PosteriorDecoder]:
        """Say whether a rehearsal tells a decoder what to expect; argmax expects nothing."""
        return isinstance(decoder, PosteriorDecoder)

    def decoder(self, shape: Ballot, asked: Space, decoder: Decoder) -> Decoder:
        """Return a decoder that expects what was rehearsed; argmax expects nothing.

        Args:
            shape: How clients fill in their ballots.
            asked: The candidates that are voted on.
            decoder: How the tally would be read without a rehearsal.
        """
        if self.informs(decoder):
            return RehearsedDecoder(self.expected(shape, asked), decoder)
        return decoder

    def as_mapping(self, asked: Space, trust: float | None) -> dict[str, Any]:
        """Return what a result says about it.

        Args:
            asked: The candidates that were voted on.
            trust: How probable the tally makes it that the rehearsal is right; None if the
                decoder does not say.
        """
        return {
            "data": self.data,
            "sha256": self.digest,
            "public": True,
            "pretend_clients": len(self.losses),
            "candidates": len(self.space),
            "voted_on": len(asked),
            "trust": trust,
        }

    @property
    def caveat(self) -> str:
        """What a privacy statement says about it."""
        return (
            f"It assumes that {self.data} (SHA-256 {self.digest[:12]}…), on which candidates were "
            "rehearsed, is public: whoever's private data it holds is promised nothing"
        )


def rehearse(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[DataT],
    *,
    data: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> Rehearsal:
    """Evaluate every candidate on public data, split among a few pretend clients.

    It costs no privacy, because nothing private is read.

    Assumes:
        The data are public, and whether to use them was not decided by private data.

    Args:
        space: The candidates, in order.
        objective: How a client evaluates them on its data.
        clients: Each pretend client's public data; as large as a real client's, if that is known.
        data: What the data are called, in results.
        seed: Public seed of local training.
        progress: Called with candidates finished and their number.

    Raises:
        ParameterError: There are no data, or no candidate has a finite loss on them.
    """
    space, judge, parts = as_space(space), as_objective(objective), as_clients(clients)
    if not parts:
        raise ParameterError("a rehearsal needs the data of at least one pretend client, got none")
    losses = np.array(
        [
            np.asarray(found, dtype=np.float64)
            for found in losses_of_each(
                judge,
                parts,
                space,
                seeds=[seed] * len(parts),
                progress=progress or (lambda done, total: None),
            )
        ]
    )
    rows = all(isinstance(part, Samples) for part in parts)
    text = "".join(map(data_fingerprint, parts)).encode() if rows else losses.tobytes()
    return Rehearsal(space, losses, data, hashlib.sha256(b"urna rehearsal\0" + text).hexdigest())


@dataclass(frozen=True, slots=True, eq=False)
class RehearsedDecoder:
    """Read a tally that may look as it did in a rehearsal.

    The true votes are some scale times those rehearsed, and a surface over the grid beside
    them, as `PosteriorDecoder` has it; or that surface alone, if the rehearsal is useless. All
    are weighed by the marginal likelihood of the tally. Where noise is weak the vote speaks for
    itself and the rehearsal is left out.

    Args:
        expected: Votes that one ballot gives each candidate, on average, if it is right.
        decoder: How a tally is read without a rehearsal.
        name: In outputs.
    """

    expected: Array
    decoder: PosteriorDecoder
    name: str = "posterior, rehearsed"

    def winner(self, tally: NoisyVotes) -> int:
        """Return the winner alone."""
        if self._speaks_for_itself(tally):
            return self.decoder.winner(tally)
        return leader(_Mixture.of(tally, self.expected).mean, tally.space)

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the winner, how surely it leads, and who may lead as well."""
        if self._speaks_for_itself(tally):
            return self.decoder.decode(tally)
        mixture = _Mixture.of(tally, self.expected)
        winner = leader(mixture.mean, tally.space)
        leading = (mixture.leading(public_generator(tally)) + leading_alone(tally)) / 2
        sure = calibrated(float(leading[winner]), tally)
        return told(winner, sure, leading, self.decoder.level, tally)

    def trust(self, tally: NoisyVotes) -> float | None:
        """Return how probable the tally makes it that the rehearsal is right, if it was asked."""
        if self._speaks_for_itself(tally):
            return None
        return 1.0 - _Mixture.of(tally, self.expected).weights[0]

    def _speaks_for_itself(self, tally: NoisyVotes) -> bool:
        return tally.noise <= WEAK or bool(np.ptp(tally.votes) == 0 or np.ptp(self.expected) == 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Mixture:
    """What the tally says if the rehearsal is useless, or right at some scale."""

    shifts: tuple[Array, ...]
    """Votes that were rehearsed, at each scale; none first."""
    posteriors: tuple[Posterior, ...]
    """Of what is left of the tally."""
    weights: tuple[float, ...]

    @classmethod
    def of(cls, tally: NoisyVotes, expected: Array) -> "_Mixture":
        rehearsed = tally.clients * (expected - expected.mean())
        shifts = tuple(scale * rehearsed for scale in (0.0, *SCALES))
        posteriors = tuple(
            Posterior.of(replace(tally, votes=tally.votes - shift)) for shift in shifts
        )
        prior = np.array([USELESS, *[(1 - USELESS) / len(SCALES)] * len(SCALES)])
        logs = np.log(prior) + np.array([posterior.evidence for posterior in posteriors])
        weights = np.exp(logs - logs.max())
        return cls(shifts, posteriors, tuple((weights / weights.sum()).tolist()))

    @property
    def mean(self) -> Array:
        """Posterior mean of the votes, less their mean."""
        parts = zip(self.weights, self.shifts, self.posteriors, strict=True)
        return np.asarray(sum(weight * (shift + each.mean) for weight, shift, each in parts))

    def leading(self, rng: np.random.Generator) -> Array:
        """Return how probably each candidate leads."""
        parts = zip(self.weights, self.shifts, self.posteriors, strict=True)
        return np.asarray(sum(weight * each.leading(rng, shift) for weight, shift, each in parts))
