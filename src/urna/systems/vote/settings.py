"""What a vote is asked to be: what it reveals, how ballots are filled, how the winner is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from urna.data import MIN_SAMPLES
from urna.errors import ParameterError, UnknownName
from urna.privacy import Budget, parts_of, pure_first
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
)
from urna.systems.vote.decode import Decoder, PosteriorDecoder
from urna.systems.vote.rehearsal import Rehearsal
from urna.tally import HelperSelection, Selection, VerifiedSelection

SHARD_SECONDS = 600.0
"""How long the evaluation of one shard may take."""

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
        if (
            not isinstance(self.helper, str)
            or not self.helper.strip()
            or not self.helper.isprintable()
        ):
            raise ParameterError(
                f"a helper's name is text that can be printed, got {self.helper!r}"
            )

    @property
    def winner(self) -> bool:
        """Whether only the winner is revealed."""
        return self.kind == "winner"

    def refuse(self, **of_counts: object) -> None:
        """Refuse what only counts have, where they are not revealed.

        Args:
            of_counts: What was asked for by its name; None where it was not.

        Raises:
            ParameterError: It says what to leave out.
        """
        asked = [f"`{name}`" for name, value in of_counts.items() if value is not None]
        if self.winner and asked:
            raise ParameterError(
                "where only the winner is revealed, ballots are levels and there are no counts: "
                f"leave {' and '.join(asked)} out"
            )

    def selection(self, chosen: Selection | None = None) -> Selection:
        """Return what finds the winner where all parties are played in this process.

        Args:
            chosen: Finds it instead, with the same helper.

        Raises:
            ParameterError: Counts are revealed, or another helper is named.
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

    @property
    def reader(self) -> Decoder:
        """How the winner is read from counts."""
        return self.decoder or PosteriorDecoder()

    @property
    def informed(self) -> bool:
        """Whether the rehearsal, if there is one, informs the decoder."""
        return self.rehearsal is not None and isinstance(self.reader, PosteriorDecoder)


def choose_ballot(
    kind: Ballot | BallotKind | str | None,
    *,
    candidates: int,
    noise: float,
    votes: int | None = None,
) -> Ballot:
    """Return the ballot of a vote. Ranks and scores are as wide as the noise asks for.

    Under strong noise wide ballots win, because neighbours of good candidates are counted as
    well; under weak noise narrow ones are more precise. The noise per client is public, so
    the width may follow it. How it does was fixed on simulated loss surfaces
    (docs/decisions/0008-default-ballot-and-decoder.md).

    Args:
        kind: The kind of ballot; top-k if `votes` are given, else scored. A ballot that is
            chosen already stays as it is.
        candidates: How many candidates there are.
        noise: Standard deviation of the noise over what all ballots together can weigh, in L2.
        votes: How many candidates a top-k ballot names; five by default.

    Example:
        >>> choose_ballot("top-k", candidates=100, noise=0.1).most
        1
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
    """Return ballots as wide as the noise asks for; how wide was fixed on simulated loss surfaces.

    Example:
        >>> choose_levels(100, noise_std=6.0, ballots=100).part
        1.0
    """
    return LevelShape(candidates, _under(noise_std / (ballots * LEVELS), _PARTS))


def _under(noise: float, table: Mapping[float, float]) -> float:
    """Return what a table has for this noise."""
    return next(value for least, value in table.items() if noise > least)
