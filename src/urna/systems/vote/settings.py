"""What a vote is asked to be: what it reveals, how ballots are filled, how the winner is read."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import MIN_SAMPLES
from urna.errors import ParameterError, UnknownName
from urna.privacy import Budget, parts_of, pure_first
from urna.space import Space
from urna.systems.vote.ballot import (
    LEVELS,
    STRONG,
    VOTES,
    WEAK,
    Ballot,
    BallotKind,
    BallotShape,
    LevelShape,
    ScoreShape,
    fill_ballot,
)
from urna.systems.vote.decode import Decoder, PosteriorDecoder
from urna.tally import HelperSelection, Selection, VerifiedSelection

SHARD_SECONDS = 600.0
"""How long the evaluation of one shard may take."""

SHORTLISTED, FEWEST = 0.25, 8
"""Fraction of the candidates that is voted on where noise is strong, and the fewest of them."""

_WIDTHS = {STRONG: 0.1, WEAK: 0.05, -math.inf: 0.02}
"""By the noise above which it counts: within which fraction of candidates weights fall to 1/e."""
_POWERS = {STRONG: 2.0, WEAK: 3.0, -math.inf: 4.0}
"""By the same noise: how sharply scores fall with the loss."""
_PARTS = {0.32: 0.5, 0.12: 0.7, -math.inf: 1.0}
"""By noise over what all ballots can give one candidate: from which part of the way to the best
loss on a candidate gets the top level."""

_KINDS = ("counts", "winner")


@dataclass(frozen=True, slots=True)
class Reveal:
    """What a vote is to reveal, and whom that rests on.

    Args:
        kind: `counts`, noisy votes for each candidate, of which everybody reads the winner and
            its rivals; or `winner`, the winner alone, which needs far less noise, and a helper.
        helper: Where only the winner is revealed: who holds the other share of the sum, and is
            trusted not to collude with whoever leads.
        verified: Whether leader and helper check every ballot; an invalid one is refused, and its
            client named.

    Raises:
        ParameterError: The parts do not go with each other; it says what to leave out, or what
            is missing.
    """

    kind: str = "counts"
    helper: str | None = None
    verified: bool = False

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UnknownName("thing to reveal", str(self.kind), _KINDS)
        if not self.winner:
            if self.helper is not None or self.verified:
                raise ParameterError(
                    "a helper only helps to reveal the winner, and to verify its ballots: reveal "
                    "the winner alone (--opens winner), or leave the helper out"
                )
            return
        if self.helper is None:
            raise ParameterError(
                "revealing only the winner takes a helper, an organisation that does not collude "
                "with the leader: name it (`helper=`, --helper)"
            )
        text = isinstance(self.helper, str) and self.helper.isprintable()
        if not (text and self.helper.strip()):
            raise ParameterError(
                f"a helper's name is text that can be printed, got {self.helper!r}"
            )

    @property
    def winner(self) -> bool:
        """Whether only the winner is revealed."""
        return self.kind == "winner"

    def refuse(self, **of_counts: object) -> None:
        """Refuse what only counts have, each by its name, where they are not revealed."""
        asked = [f"`{name}`" for name, value in of_counts.items() if value is not None]
        if self.winner and asked:
            raise ParameterError(
                "where only the winner is revealed, ballots are levels and there are no counts: "
                f"leave {' and '.join(asked)} out"
            )

    def selection(self, chosen: Selection | None = None) -> Selection:
        """Return what finds the winner where all parties are played in this process.

        Raises:
            ParameterError: Counts are revealed, or the one that is chosen has another helper.
        """
        if self.helper is None:
            raise ParameterError("nobody helps where counts are revealed: leave `selection` out")
        if chosen is None:
            return VerifiedSelection(self.helper) if self.verified else HelperSelection(self.helper)
        if chosen.helper != self.helper:
            raise ParameterError(
                f"the helper is {self.helper}, and the selection names {chosen.helper}: name one"
            )
        return chosen

    def divide(self, budget: Budget, part: float) -> tuple[Budget, Budget]:
        """Divide a budget between the vote, with this part of μ², and what follows it.

        Guarantee:
            Both fit into one ledger whose cap is the budget, the vote entered first: squares of
            μ add up; a winner counts by its epsilon, and what follows by the rest.
        """
        if self.winner:
            return pure_first(budget, part)
        voting, rest = parts_of(budget, (part, 1 - part))
        return voting, rest


COUNTS = Reveal()
"""Noisy votes for each candidate, of which everybody reads the winner."""


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """A rehearsal: losses of every candidate on public data of the same kind, at no privacy cost.

    It may decide which candidates are voted on and what a decoder expects of the tally. Whether
    public data resemble the clients' nobody knows beforehand: the tally says so itself, as far
    as its noise lets it.

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
        """Raise ParameterError where a search is of other candidates than were rehearsed."""
        if space != self.space:
            raise ParameterError(
                "the rehearsal was of other candidates: rehearse the space that is searched"
            )

    def expected(self, shape: Ballot, asked: Space) -> npt.NDArray[np.float64]:
        """Return the votes that a pretend ballot gives the candidates asked, on average."""
        places = self.space.places_of(asked)
        keys = (hashlib.sha256(b"urna rehearsal %d" % i).digest() for i in range(len(self.losses)))
        filled = [
            fill_ballot(row[places], shape, key) for row, key in zip(self.losses, keys, strict=True)
        ]
        return np.asarray(np.mean(filled, axis=0) / shape.vote)

    def shortlist(self, noise: float) -> Space:
        """Return the candidates to vote on: all, or the best quarter where noise is strong.

        A ballot over fewer candidates says more about each. Where noise (see `relative_noise`) is
        weaker the vote can find out by itself what a wrong rehearsal would have kept from it.
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
        """Return a decoder that expects what was rehearsed; argmax expects nothing."""
        if isinstance(decoder, PosteriorDecoder):
            return replace(decoder, expected=self.expected(shape, asked))
        return decoder

    def as_mapping(self, asked: Space, trust: float | None) -> dict[str, Any]:
        """Return what a result says about it; `trust` is how probably the tally has it right."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteSettings:
    """How a vote is run.

    Args:
        reveal: Counts, of which the winner and its rivals are read; or the winner alone, which
            needs far less noise, and a helper: `Reveal("winner", helper="…")`.
        ballot: How a client spreads its vote; by scores unless `votes` are given.
        votes: How many candidates each client names in a top-k ballot.
        decoder: How the winner is read from counts; `PosteriorDecoder` by default.
        rehearsal: The same search on public data: it says what the decoder may expect and, where
            noise is strong, which candidates are voted on.
        smallest_shard: A shard with fewer records abstains; a client with too few is refused.
        shard_seconds: A shard whose evaluation takes longer abstains.

    Raises:
        ParameterError: Something does not go with what is revealed; it says what to leave out.
    """

    reveal: Reveal = COUNTS
    ballot: Ballot | BallotKind | str | None = None
    votes: int | None = None
    decoder: Decoder | None = None
    rehearsal: Rehearsal | None = None
    smallest_shard: int = MIN_SAMPLES
    shard_seconds: float = SHARD_SECONDS

    def __post_init__(self) -> None:
        self.reveal.refuse(
            ballot=self.ballot, votes=self.votes, decoder=self.decoder, rehearsal=self.rehearsal
        )

    def reader(self, shape: Ballot, space: Space) -> Decoder:
        """Return how the winner is read from counts of such ballots on these candidates."""
        decoder = self.decoder or PosteriorDecoder()
        return decoder if self.rehearsal is None else self.rehearsal.decoder(shape, space, decoder)


def choose_ballot(
    kind: Ballot | BallotKind | str | None,
    *,
    candidates: int,
    noise: float,
    votes: int | None = None,
) -> Ballot:
    """Return the ballot of a vote. Ranks and scores are as wide as the noise asks for.

    Under strong noise wide ballots win, because neighbours of good candidates are counted as
    well; under weak noise narrow ones are more precise. The noise (its standard deviation over what
    all ballots together can weigh, in L2) is public, so the width may follow it. How it does was
    fixed on simulated loss surfaces (docs/decisions/0008-default-ballot-and-decoder.md).

    A ballot that is chosen already stays as it is. No kind is top-k if `votes` are given, else
    scored; top-k ballots name five candidates by default.
    """
    if isinstance(kind, Ballot):
        if kind.candidates != candidates or votes is not None:
            raise ParameterError(
                f"this ballot is for {kind.candidates} candidates and has its own number of votes, "
                f"got {candidates} candidates and votes={votes}"
            )
        return kind
    if kind is None:
        kind = BallotKind.SCORED if votes is None else BallotKind.TOP_K
    if kind not in list(BallotKind):
        raise UnknownName("kind of ballot", str(kind), BallotKind)
    if kind == BallotKind.TOP_K:
        return BallotShape.top_k(min(VOTES, candidates) if votes is None else votes, candidates)
    if votes is not None:
        raise ParameterError(
            f"only top-k ballots name a number of candidates; leave votes out, or the kind {kind}"
        )
    if kind == BallotKind.RANKED:
        return BallotShape.ranked(_under(noise, _WIDTHS) * candidates, candidates)
    return ScoreShape.of(candidates, _under(noise, _POWERS))


def choose_levels(candidates: int, *, noise_std: float, ballots: int) -> LevelShape:
    """Return levels as wide as the noise asks for (docs/decisions/0032-levels-again.md)."""
    return LevelShape(candidates, _under(noise_std / (ballots * LEVELS), _PARTS))


def _under(noise: float, table: Mapping[float, float]) -> float:
    """Return what a table has for this noise."""
    return next(value for least, value in table.items() if noise > least)
