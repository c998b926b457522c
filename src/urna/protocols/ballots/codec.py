"""A ballot: as bits, as two shares with a proof, and what one count will do with many of them.

The proof is Urna's own (`proof`). An independent reference that shares and proves the same
ballots, Prio3SumVec of draft-irtf-cfrg-vdaf, is in `tests/reference`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.protocols.ballots.field import FAST, Elements
from urna.protocols.ballots.proof import ANSWER, BLINDS, BitProof, Questions
from urna.randomness import SEED_BYTES, SecretSource

MOST_BITS = 1 << 16
"""Bits of the largest ballot."""


@dataclass(frozen=True, slots=True)
class BallotLayout:
    """A vector of levels.

    Args:
        candidates: Entries of the vector.
        levels: Largest level; each entry is in 0..levels.

    Example:
        >>> BallotLayout(candidates=200).bits  # two of each level
        400
    """

    candidates: int
    levels: int = 3

    def __post_init__(self) -> None:
        if any(type(n) is not int or n < 1 for n in (self.candidates, self.levels)):
            raise ParameterError(f"candidates and levels are positive integers, got {self}")
        if self.bits > MOST_BITS or self.levels > 1 << 16:
            raise ParameterError(
                f"a ballot of at most {MOST_BITS} bits is provided for, got {self}"
            )

    @property
    def weights(self) -> tuple[int, ...]:
        """What the bits of one level count: powers of two, the last less, `levels` in all."""
        rest = tuple(1 << place for place in range(self.levels.bit_length() - 1))
        return (*rest, self.levels - sum(rest))

    @property
    def bits(self) -> int:
        """Bits of a ballot."""
        return self.candidates * len(self.weights)

    def check(self, ballot: IntVector) -> None:
        """Raise ParameterError unless this is a valid ballot."""
        if ballot.shape != (self.candidates,) or ballot.dtype.kind not in "iu":
            raise ParameterError(
                f"a ballot is {self.candidates} integers, got {ballot.dtype} of {ballot.shape}"
            )
        low, high = int(ballot.min()), int(ballot.max())
        if low < 0 or high > self.levels:
            raise ParameterError(f"levels lie in 0..{self.levels}, got {low}..{high}")

    def encode(self, ballot: IntVector) -> npt.NDArray[np.uint8]:
        """Return a valid ballot as bits.

        Raises:
            ParameterError: It is no valid ballot. Nothing is sent.
        """
        self.check(ballot)
        values, weights = np.asarray(ballot, dtype=np.int64), self.weights
        top = values > sum(weights[:-1])
        rest = values - top * weights[-1]
        low = [rest >> place & 1 for place in range(len(weights) - 1)]
        return np.stack([*low, top.astype(np.int64)], axis=1).astype(np.uint8).ravel()

    def levels_of(self, bits: npt.NDArray[np.integer], modulus: int) -> IntVector:
        """Return what bits of levels, or sums or shares of such, say of each candidate."""
        weights = np.array(self.weights, dtype=object)
        columns = bits.astype(object).reshape(self.candidates, -1)
        return np.asarray((columns * weights).sum(axis=1) % modulus, dtype=np.int64)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        return {"candidates": self.candidates, "levels": self.levels}


LEADER, HELPER = 0, 1

CODEC = "urna-bits"
"""How ballots are proven: the name that messages give it. Another one is refused."""


@dataclass(frozen=True, slots=True)
class Shards:
    """One ballot, shared."""

    leader: bytes = field(repr=False)
    helper: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Codec:
    """Shares of ballots of one layout, and the proof that all bits of a ballot are bits."""

    layout: BallotLayout

    @property
    def proof(self) -> BitProof:
        """The proof."""
        return BitProof(FAST, self.layout.bits)

    @property
    def modulus(self) -> int:
        """Shares of sums add up modulo this prime."""
        return FAST.modulus

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of the leader's share, of the helper's, and of an answer.

        An element has four bytes; the helper's share is a seed.
        """
        return 4 * self.proof.length, SEED_BYTES, 4 * ANSWER

    @property
    def soundness(self) -> float:
        """Largest probability that one invalid ballot is accepted."""
        return self.proof.soundness

    def shard(self, ballot: IntVector, secrets: SecretSource) -> Shards:
        """Share a ballot and its proof.

        Raises:
            ParameterError: It is no valid ballot.
        """
        return self.share(self.layout.encode(ballot), secrets)

    def share(self, bits: npt.NDArray[np.integer], secrets: SecretSource) -> Shards:
        """Share any vector with a proof that holds if all of it are bits; unchecked."""
        proof, seed = self.proof, secrets.take(SEED_BYTES)
        mask, drawn = FAST.uniform([seed, secrets.take(SEED_BYTES)], proof.length)
        whole = proof.prove(bits, drawn[:BLINDS])
        rest = (whole + (np.uint64(self.modulus) - mask)) % self.modulus
        return Shards(rest.astype("<u4").tobytes(), seed)

    def well_formed(self, who: int, share: bytes) -> bool:
        """Say whether bytes are a seed, or elements of the field."""
        if who == HELPER or len(share) != self.sizes[LEADER]:
            return len(share) == self.sizes[who]
        return int(np.frombuffer(share, dtype="<u4").max()) < self.modulus

    def examine(self, who: int, key: bytes, shares: Sequence[bytes]) -> "Examination":
        """Answer the query of one point for the whole batch.

        Args:
            who: The leader or the helper.
            key: 32 bytes that leader and helper share and no client knows.
            shares: Each report's well-formed share.
        """
        proof = self.proof
        if who == HELPER:
            rows = FAST.uniform(shares, proof.length)
        else:
            rows = np.frombuffer(b"".join(shares), dtype="<u4").astype(np.uint32)
            rows = rows.reshape(len(shares), proof.length)
        asked = proof.ask(FAST.query(key))
        answers = proof.answer(rows, asked)
        return Examination(self, rows[:, : self.layout.bits], asked, answers)


@dataclass(frozen=True, slots=True)
class Examination:
    """One party's shares of a batch, and what it can say of them without the other's."""

    codec: Codec
    bits: npt.NDArray[np.uint32] = field(repr=False)
    asked: Questions = field(repr=False)
    answered: Elements = field(repr=False)

    @property
    def answers(self) -> list[bytes]:
        """What the other is told of each report. A report is answered once only."""
        return [row.tobytes() for row in self.answered.astype("<u4")]

    def decide(self, theirs: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Say of each report whether both answers prove it valid; both parties say the same."""
        shape = self.answered.shape
        other = np.frombuffer(b"".join(theirs), dtype="<u4").astype(np.uint64).reshape(shape)
        right = self.codec.proof.decide(self.answered, other, self.asked)
        inside = (other < self.codec.modulus).all(axis=1)
        return np.asarray(right & inside)

    def exact_share(self, chosen: Sequence[int]) -> list[int]:
        """Return the share of the sum of the levels of chosen reports."""
        sums = self.bits[np.asarray(chosen, dtype=np.intp)].sum(axis=0, dtype=np.uint64)
        return [int(v) for v in self.codec.layout.levels_of(sums, self.codec.modulus)]


_MOST = 1 << 20  # clients of one count


@dataclass(frozen=True, slots=True)
class CountPlan:
    """What a valid ballot is, and who must be there.

    Args:
        layout: What a valid ballot is.
        clients: How many are invited.
        least: Fewest valid ballots with which a count goes on.
    """

    layout: BallotLayout
    clients: int
    least: int

    def __post_init__(self) -> None:
        counts = (self.clients, self.least)
        if any(type(n) is not int or n < 1 for n in counts) or self.clients > _MOST:
            raise ParameterError(f"numbers of clients lie in 1..{_MOST:,}, got {counts}")
        if not 2 <= self.least <= self.clients:
            raise ParameterError(
                f"a count needs at least 2 valid ballots and at most those of all {self.clients} "
                f"clients, got {self.least}"
            )
        if self.clients * self.layout.levels >= self.codec.modulus:
            raise ParameterError(
                f"a sum of {self.clients:,} ballots does not fit into the field of {CODEC}. Use "
                "lower levels."
            )

    @property
    def codec(self) -> Codec:
        """How ballots of this layout are shared and proven."""
        return Codec(self.layout)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read` makes the same plan."""
        return {
            "layout": self.layout.as_mapping(),
            "clients": self.clients,
            "least": self.least,
            "codec": CODEC,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "CountPlan":
        """Read what `as_mapping` wrote; what is missing or malformed raises."""
        if mapping["codec"] != CODEC:
            raise ParameterError(
                f"ballots are proven by {CODEC}, the statement says {mapping['codec']!r:.50}"
            )
        layout = mapping["layout"]
        made = BallotLayout(layout["candidates"], layout["levels"])
        return cls(made, mapping["clients"], mapping["least"])
