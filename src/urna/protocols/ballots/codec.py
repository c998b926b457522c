"""A ballot as two shares and a proof, and one party's part in checking many of them.

The proof is Urna's own (`proof`). An independent reference that shares and proves the same
ballots, Prio3SumVec of draft-irtf-cfrg-vdaf, is in `tests/reference`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from urna.noise import IntVector
from urna.protocols.ballots.field import FAST, Elements
from urna.protocols.ballots.layout import BallotLayout
from urna.protocols.ballots.proof import ANSWER, BLINDS, BitProof, Questions
from urna.randomness import SEED_BYTES, SecretSource

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
