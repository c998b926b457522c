"""A rehearsal: the same search on public data of the same kind, which costs no privacy.

What it finds is public, so it may decide which candidates are voted on and what a decoder
expects of the tally. Whether public data resemble the clients' nobody knows beforehand: the
tally says so itself, as far as its noise lets it.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.space import Space
from urna.systems.vote.ballot import STRONG, Ballot, fill_ballot
from urna.systems.vote.decode import Decoder, PosteriorDecoder

SHORTLISTED, FEWEST = 0.25, 8
"""Fraction of the candidates that is voted on where noise is strong, and the fewest of them."""


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
    losses: npt.NDArray[np.float64]
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

    def expected(self, shape: Ballot, asked: Space) -> npt.NDArray[np.float64]:
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

    def decoder(self, shape: Ballot, asked: Space, decoder: Decoder) -> Decoder:
        """Return a decoder that expects what was rehearsed; argmax expects nothing.

        Args:
            shape: How clients fill in their ballots.
            asked: The candidates that are voted on.
            decoder: How the tally would be read without a rehearsal.
        """
        if isinstance(decoder, PosteriorDecoder):
            return replace(decoder, expected=self.expected(shape, asked))
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
