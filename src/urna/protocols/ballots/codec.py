"""The seam between ballots and how they are proven: Urna's fast proof, or the standard's.

A codec turns a ballot into a share for each of the two who count, and lets them examine many
such shares together. `FastCodec` is Urna's own (`proof`), `StandardCodec` is Prio3SumVec
(`prio3`), which knows neither coins nor limits.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName
from urna.noise import IntVector
from urna.protocols.ballots.field import FAST, Elements, Field
from urna.protocols.ballots.layout import Bits, Layout
from urna.protocols.ballots.prio3 import FIELD128, Prio3SumVec, Verified
from urna.protocols.ballots.proof import ANSWER, BLINDS, BitProof, Questions
from urna.randomness import SEED_BYTES, SecretSource

__all__ = [
    "CODECS",
    "FAST_CODEC",
    "HELPER",
    "LEADER",
    "STANDARD_CODEC",
    "Codec",
    "Examination",
    "Shards",
    "codec_for",
]

LEADER, HELPER = 0, 1
FAST_CODEC, STANDARD_CODEC = "urna-bits", "prio3-sum-vec"
CODECS = (FAST_CODEC, STANDARD_CODEC)

_TOGETHER = 1024  # reports of the standard's that are in memory as integers at a time


@dataclass(frozen=True, slots=True)
class Shards:
    """One ballot, shared."""

    public: bytes
    """What both may see."""
    leader: bytes = field(repr=False)
    helper: bytes = field(repr=False)


class Examination(Protocol):
    """One party's shares of a batch, and what it can say of them without the other's."""

    @property
    def answers(self) -> list[bytes]:
        """What the other is told of each report. A report is answered once only."""
        ...

    def decide(self, theirs: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Say of each report whether both answers prove it valid; both parties say the same."""
        ...

    def exact_share(self, chosen: Sequence[int]) -> list[int]:
        """Return the share of the sum of the levels of chosen reports."""
        ...

    def noise_share(self, chosen: Sequence[int], flips: Bits) -> list[int]:
        """Return the share of the noise of chosen reports, their coins flipped."""
        ...


class Codec(Protocol):
    """A way to share and to prove ballots."""

    @property
    def modulus(self) -> int:
        """Shares of sums add up modulo this prime."""
        ...

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Bytes of the public part, of the leader's, of the helper's, and of an answer."""
        ...

    @property
    def soundness(self) -> float:
        """Largest probability that one invalid ballot is accepted."""
        ...

    def shard(self, ballot: IntVector, context: bytes, secrets: SecretSource) -> Shards:
        """Share a ballot and its proof.

        Raises:
            ParameterError: It is no valid ballot.
        """
        ...

    def well_formed(self, who: int, share: bytes) -> bool:
        """Say whether bytes are a share at all."""
        ...

    def examine(
        self,
        who: int,
        key: bytes,
        context: bytes,
        publics: Sequence[bytes],
        shares: Sequence[bytes],
    ) -> Examination:
        """Return one party's answers to the query of a key.

        Args:
            who: The leader or the helper.
            key: 32 bytes that leader and helper share and no client knows.
            context: What the batch belongs to.
            publics: Each report's public part.
            shares: Each report's well-formed share.
        """
        ...


@functools.lru_cache(maxsize=64)
def codec_for(name: str, layout: Layout) -> Codec:
    """Return the codec of this name for ballots of a layout.

    Raises:
        ParameterError: This codec does not provide for such ballots.
    """
    if name == FAST_CODEC:
        return FastCodec(layout)
    if name == STANDARD_CODEC:
        return StandardCodec(layout)
    raise UnknownName("codec", name, CODECS)


@dataclass(frozen=True, slots=True)
class FastCodec:
    """Urna's own proof that all bits of a ballot are bits, and that it keeps within its limit."""

    layout: Layout
    field: Field = FAST

    @property
    def proof(self) -> BitProof:
        """The proof."""
        return BitProof(self.field, self.layout.bits)

    @property
    def modulus(self) -> int:
        """The field's."""
        return self.field.modulus

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Four bytes for each element; the helper's share is a seed."""
        return 0, 4 * self.proof.length, SEED_BYTES, 4 * (ANSWER + self._limited)

    @property
    def soundness(self) -> float:
        """That of the proof; a sum of bits beyond the limit is always refused."""
        return self.proof.soundness

    @property
    def _limited(self) -> int:
        return int(self.layout.limit is not None)

    def shard(self, ballot: IntVector, context: bytes, secrets: SecretSource) -> Shards:
        """Share a ballot, fresh coins, and the proof of both."""
        del context  # what seals the shares is bound to it
        coins = np.frombuffer(secrets.take((self.layout.coin_bits + 7) // 8), dtype=np.uint8)
        flat = np.unpackbits(coins)[: self.layout.coin_bits]
        return self.share(self.layout.encode(ballot, flat), secrets)

    def share(self, bits: npt.NDArray[np.integer], secrets: SecretSource) -> Shards:
        """Share any vector with a proof that holds if all of it are bits; unchecked."""
        proof, seed = self.proof, secrets.take(SEED_BYTES)
        mask, drawn = self.field.uniform([seed, secrets.take(SEED_BYTES)], proof.length)
        whole = proof.prove(bits, drawn[:BLINDS])
        rest = (whole + (np.uint64(self.modulus) - mask)) % self.modulus
        return Shards(b"", rest.astype("<u4").tobytes(), seed)

    def well_formed(self, who: int, share: bytes) -> bool:
        """Say whether bytes are a seed, or elements of the field."""
        if who == HELPER or len(share) != self.sizes[1]:
            return len(share) == self.sizes[1 + who]
        return int(np.frombuffer(share, dtype="<u4").max()) < self.modulus

    def examine(
        self,
        who: int,
        key: bytes,
        context: bytes,
        publics: Sequence[bytes],
        shares: Sequence[bytes],
    ) -> "_FastExamination":
        """Answer the query of one point for the whole batch."""
        del context, publics
        proof = self.proof
        if who == HELPER:
            rows = self.field.uniform(shares, proof.length)
        else:
            rows = np.frombuffer(b"".join(shares), dtype="<u4").astype(np.uint32)
            rows = rows.reshape(len(shares), proof.length)
        asked = proof.ask(self.field.query(key))
        answers = proof.answer(rows, asked)
        if self._limited:
            weights = self.layout.sum_weights[:, None]
            sums = self.field.products(rows[:, : self.layout.bits], weights)
            if who == LEADER:
                sums = (sums + np.uint64(self.modulus - int(self.layout.limit or 0))) % self.modulus
            answers = np.hstack([answers, sums])
        return _FastExamination(self, who, rows[:, : self.layout.bits], asked, answers)


@dataclass(frozen=True, slots=True)
class _FastExamination:
    codec: FastCodec
    who: int
    bits: npt.NDArray[np.uint32] = field(repr=False)
    asked: Questions = field(repr=False)
    answered: Elements = field(repr=False)

    @property
    def answers(self) -> list[bytes]:
        """Four bytes for each element."""
        return [row.tobytes() for row in self.answered.astype("<u4")]

    def decide(self, theirs: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Decide by the proof's equation, and by the limit's."""
        shape = self.answered.shape
        other = np.frombuffer(b"".join(theirs), dtype="<u4").astype(np.uint64).reshape(shape)
        right = self.codec.proof.decide(self.answered[:, :ANSWER], other[:, :ANSWER], self.asked)
        q = self.codec.modulus
        summed = (self.answered[:, ANSWER:] + other[:, ANSWER:]) % q
        inside = (other < q).all(axis=1)
        return np.asarray(right & inside & (summed == 0).all(axis=1))

    def exact_share(self, chosen: Sequence[int]) -> list[int]:
        """Add the shares of bits up, and weigh them."""
        layout = self.codec.layout
        sums = self.bits[np.asarray(chosen, dtype=np.intp), : layout.level_bits].sum(
            axis=0, dtype=np.uint64
        )
        return [int(v) for v in layout.levels_of(sums, self.codec.modulus)]

    def noise_share(self, chosen: Sequence[int], flips: Bits) -> list[int]:
        """Return shares of Σ w·(1 − 2·flip)·(2·coin − 1), which is ±w for each coin."""
        layout, q = self.codec.layout, self.codec.modulus
        coins = self.bits[np.asarray(chosen, dtype=np.intp), layout.bits - layout.coin_bits :]
        signs = 1 - 2 * flips.astype(np.int64)
        sums = 2 * (coins * signs).sum(axis=0, dtype=np.int64)
        if self.who == LEADER:
            sums = sums - signs.sum(axis=0)
        return [int(v) for v in layout.noise_of(sums, q)]


@dataclass(frozen=True, slots=True)
class StandardCodec:
    """Prio3SumVec of draft-irtf-cfrg-vdaf, as deployments of the standard have it."""

    layout: Layout

    def __post_init__(self) -> None:
        if self.layout.coins or self.layout.limit is not None:
            raise ParameterError(
                f"{STANDARD_CODEC} proves levels alone, neither coins nor a limit; use "
                f"{FAST_CODEC} for these"
            )

    @property
    def vdaf(self) -> Prio3SumVec:
        """The standard's scheme; its chunks have about as many bits as there are chunks."""
        layout = self.layout
        chunk = max(1, round(layout.level_bits**0.5))
        return Prio3SumVec(layout.candidates, layout.levels, chunk)

    @property
    def modulus(self) -> int:
        """The prime of Field128."""
        return FIELD128

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The standard's; the nonce is public too."""
        vdaf = self.vdaf
        public = vdaf.nonce_size + vdaf.public_size
        return public, vdaf.leader_size, vdaf.helper_size, vdaf.verifier_size

    @property
    def soundness(self) -> float:
        """Bound of one online query: chunk + 1 for the joint, 2·wires for the query randomness.

        A client may also search for joint randomness that suits it, one hash for a try; see the
        draft's security considerations.
        """
        return (self.vdaf.chunk_length + 1 + 2 * self.vdaf.wire_length) / FIELD128

    def shard(self, ballot: IntVector, context: bytes, secrets: SecretSource) -> Shards:
        """Share a ballot as the standard says."""
        self.layout.check(ballot)
        vdaf = self.vdaf
        nonce = secrets.take(vdaf.nonce_size)
        rand = secrets.take(vdaf.rand_size)
        values = [int(value) for value in ballot]
        public, leader, helper = vdaf.shard(context, [values], [nonce], [rand])[0]
        return Shards(nonce + public, leader, helper)

    def well_formed(self, who: int, share: bytes) -> bool:
        """Say whether bytes are an input share of the standard."""
        return len(share) == self.sizes[1 + who] and (who == HELPER or self.vdaf.well_formed(share))

    def examine(
        self,
        who: int,
        key: bytes,
        context: bytes,
        publics: Sequence[bytes],
        shares: Sequence[bytes],
    ) -> "_StandardExamination":
        """Return the verifier shares."""
        vdaf = self.vdaf
        nonces = [public[: vdaf.nonce_size] for public in publics]
        parts = [public[vdaf.nonce_size :] for public in publics]
        states: list[Verified] = []
        for start in range(0, len(shares), _TOGETHER):
            some = slice(start, start + _TOGETHER)
            states += vdaf.verify_init(key, context, who, nonces[some], parts[some], shares[some])
        return _StandardExamination(self, who, context, parts, states)


@dataclass(frozen=True, slots=True)
class _StandardExamination:
    codec: StandardCodec
    who: int
    context: bytes
    parts: Sequence[bytes]
    states: list[Verified] = field(repr=False)

    @property
    def answers(self) -> list[bytes]:
        """The verifier shares."""
        return [state.verifier_share for state in self.states]

    def decide(self, theirs: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Decide as the standard does for both parties at once.

        The leader refuses where the client named another part for the helper than the helper
        computed, and the other way round: both parts are in the verifier shares.
        """
        ours = self.answers
        pairs = list(zip(ours, theirs, strict=True))
        if self.who == HELPER:
            pairs = [(other, own) for own, other in pairs]
        messages = self.codec.vdaf.verifier_shares_to_message(self.context, pairs)
        named = [
            part == leader[-SEED_BYTES:] + helper[-SEED_BYTES:]
            for part, (leader, helper) in zip(self.parts, pairs, strict=True)
        ]
        right = [
            message == state.joint_seed
            for message, state in zip(messages, self.states, strict=True)
        ]
        return np.array(named, dtype=np.bool_) & np.array(right, dtype=np.bool_)

    def exact_share(self, chosen: Sequence[int]) -> list[int]:
        """Aggregate the output shares."""
        return self.codec.vdaf.aggregate(self.states[place].out_share for place in chosen)

    def noise_share(self, chosen: Sequence[int], flips: Bits) -> list[int]:
        """There are no coins in the standard's ballots."""
        raise ParameterError(f"{STANDARD_CODEC} has no coins")
