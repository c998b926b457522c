"""How a vote is held, wherever it is held."""

from dataclasses import dataclass

from urna.data import MIN_SAMPLES
from urna.systems.vote.ballot import BallotKind
from urna.systems.vote.decode import Decoder
from urna.systems.vote.posterior import PosteriorDecoder
from urna.systems.vote.rehearsal import Rehearsal
from urna.systems.vote.reveal import COUNTS, Reveal
from urna.systems.vote.shapes import Ballot
from urna.systems.vote.shards import SHARD_SECONDS
from urna.tally import Terms

__all__ = ["VoteSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteSettings:
    """How a vote is held.

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
    """

    reveal: Reveal = COUNTS
    ballot: Ballot | BallotKind | str | None = None
    votes: int | None = None
    decoder: Decoder | None = None
    rehearsal: Rehearsal | None = None
    smallest_shard: int = MIN_SAMPLES
    shard_seconds: float = SHARD_SECONDS

    def check(self, terms: Terms | None = None, **of_counts: object) -> None:
        """Refuse what does not go with what is revealed; see `Reveal.check`.

        Raises:
            ParameterError: It says what to leave out.
        """
        self.reveal.check(
            terms,
            ballot=self.ballot,
            votes=self.votes,
            decoder=self.decoder,
            rehearsal=self.rehearsal,
            **of_counts,
        )

    @property
    def reader(self) -> Decoder:
        """How the winner is read from counts."""
        return self.decoder or PosteriorDecoder()

    @property
    def informed(self) -> bool:
        """Whether the rehearsal, if there is one, informs the decoder."""
        return self.rehearsal is not None and self.rehearsal.informs(self.reader)
