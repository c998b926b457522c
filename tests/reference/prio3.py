"""Prio3SumVec for two aggregators, after draft-irtf-cfrg-vdaf (20; its version byte is 18).

Byte for byte the standard: `tests/vectors` holds the draft's own. Many reports at a time: their
hashes are computed together (`turboshake`), their field arithmetic one by one in Python's
integers, because the 128-bit field has no fast form in NumPy.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import mul

from reference.turboshake import turboshake128

__all__ = ["FIELD128", "Prio3SumVec", "Verified"]

FIELD128 = (1 << 66) * 4611686018427387897 + 1
"""The prime of the draft's Field128."""

_P = FIELD128
_SIZE = 16  # bytes of an element
_SEED = 32
_NONCE = 16
_VERSION = 18
_ALGORITHM = 3
_MEASUREMENT, _PROOF, _JOINT, _PROVE, _QUERY, _JOINT_SEED, _JOINT_PART = range(1, 8)

Vector = list[int]


@dataclass(frozen=True, slots=True)
class Verified:
    """What one aggregator holds of a report after its first step."""

    out_share: Vector
    joint_seed: bytes
    """What it computed; the report is valid only if both computed the same."""
    verifier_share: bytes


@dataclass(frozen=True, slots=True)
class Prio3SumVec:
    """Vectors of `length` integers in 0..max_measurement; their sum is what is learnt.

    Args:
        length: Entries of a measurement.
        max_measurement: Largest entry.
        chunk_length: How many bits one call of the gadget checks; about the root of all bits.
    """

    length: int
    max_measurement: int
    chunk_length: int

    nonce_size = _NONCE
    rand_size = 4 * _SEED
    verify_key_size = _SEED

    def __post_init__(self) -> None:
        if min(self.length, self.max_measurement, self.chunk_length) < 1:
            raise ValueError(f"lengths and bounds are at least 1, got {self}")

    @property
    def bits(self) -> int:
        """Bits of one entry."""
        return self.max_measurement.bit_length()

    @property
    def measurement_length(self) -> int:
        """Elements of an encoded measurement."""
        return self.length * self.bits

    @property
    def calls(self) -> int:
        """Calls of the gadget."""
        return -(-self.measurement_length // self.chunk_length)

    @property
    def wire_length(self) -> int:
        """Values of a wire polynomial: a power of two above the calls and the seed."""
        return 1 << self.calls.bit_length()

    @property
    def proof_length(self) -> int:
        """Elements of a proof: a seed for each wire, and the gadget polynomial's values."""
        return 2 * self.chunk_length + 2 * self.wire_length - 1

    @property
    def leader_size(self) -> int:
        """Bytes of the leader's input share."""
        return _SIZE * (self.measurement_length + self.proof_length) + _SEED

    @property
    def helper_size(self) -> int:
        """Bytes of the helper's input share."""
        return 2 * _SEED

    @property
    def public_size(self) -> int:
        """Bytes of the public share."""
        return 2 * _SEED

    @property
    def verifier_size(self) -> int:
        """Bytes of a verifier share."""
        return _SIZE * (2 * self.chunk_length + 2) + _SEED

    @property
    def weights(self) -> Vector:
        """What each bit of an entry counts: powers of two, the last such that all add up."""
        rest = [1 << place for place in range(self.bits - 1)]
        return [*rest, self.max_measurement - sum(rest)]

    def encode(self, measurement: Sequence[int]) -> Vector:
        """Return a measurement as bits.

        Raises:
            ValueError: It is none: nothing is sent.
        """
        if len(measurement) != self.length:
            raise ValueError(f"a measurement has {self.length} entries, got {len(measurement)}")
        bits: Vector = []
        last = self.weights[-1]
        for value in measurement:
            if not 0 <= value <= self.max_measurement:
                raise ValueError(f"entries are in 0..{self.max_measurement}, got {value}")
            top = int(value > (1 << self.bits - 1) - 1)
            rest = value - top * last
            bits += [rest >> place & 1 for place in range(self.bits - 1)]
            bits.append(top)
        return bits

    def shard(
        self,
        ctx: bytes,
        measurements: Sequence[Sequence[int]],
        nonces: Sequence[bytes],
        rands: Sequence[bytes],
    ) -> list[tuple[bytes, bytes, bytes]]:
        """Return each measurement's public share, leader's share and helper's share.

        Args:
            ctx: The application's context.
            measurements: What is to be summed.
            nonces: 16 bytes for each report, never used twice.
            rands: 128 secret random bytes for each report.
        """
        encoded = [self.encode(measurement) for measurement in measurements]
        helper_seeds, helper_blinds, leader_blinds, prove_seeds = (
            [rand[at : at + _SEED] for rand in rands] for at in range(0, self.rand_size, _SEED)
        )
        helper_meas = self._helper_measurements(ctx, helper_seeds)
        helper_proofs = self._helper_proofs(ctx, helper_seeds)
        leader_meas = [
            _less(ours, theirs) for ours, theirs in zip(encoded, helper_meas, strict=True)
        ]
        parts = [
            self._joint_parts(ctx, who, blinds, [_bytes(m) for m in shares], nonces)
            for who, blinds, shares in (
                (0, leader_blinds, leader_meas),
                (1, helper_blinds, helper_meas),
            )
        ]
        publics = [leader + helper for leader, helper in zip(*parts, strict=True)]
        joint = self._joint_rands(ctx, self._joint_seeds(ctx, publics))
        seeds = self._expand(ctx, _PROVE, prove_seeds, repeat(b"\1"), 2 * self.chunk_length)
        found = []
        for place, public in enumerate(publics):
            proof = self._prove(encoded[place], seeds[place], joint[place])
            leader = _bytes(leader_meas[place]) + _bytes(_less(proof, helper_proofs[place]))
            helper = helper_seeds[place] + helper_blinds[place]
            found.append((public, leader + leader_blinds[place], helper))
        return found

    def verify_init(
        self,
        verify_key: bytes,
        ctx: bytes,
        aggregator: int,
        nonces: Sequence[bytes],
        publics: Sequence[bytes],
        shares: Sequence[bytes],
    ) -> list[Verified]:
        """Return each report's state and verifier share, for the leader (0) or helper (1).

        Raises:
            ValueError: A share is not of the right size, or holds what is no element; check
                with `well_formed` first.
        """
        blinds = [share[-_SEED:] for share in shares]
        if aggregator == 0:
            if not all(map(self.well_formed, shares)):
                raise ValueError("a leader's share is malformed")
            whole = [_elements(share[:-_SEED]) for share in shares]
            meas = [vector[: self.measurement_length] for vector in whole]
            proofs = [vector[self.measurement_length :] for vector in whole]
        else:
            seeds = [share[:_SEED] for share in shares]
            meas, proofs = self._helper_measurements(ctx, seeds), self._helper_proofs(ctx, seeds)
        parts = self._joint_parts(ctx, aggregator, blinds, [_bytes(m) for m in meas], nonces)
        corrected = [
            part + public[_SEED:] if aggregator == 0 else public[:_SEED] + part
            for part, public in zip(parts, publics, strict=True)
        ]
        joint_seeds = self._joint_seeds(ctx, corrected)
        joint = self._joint_rands(ctx, joint_seeds)
        binders = (b"\1" + nonce for nonce in nonces)
        points = self._expand(ctx, _QUERY, [verify_key] * len(shares), binders, 1)
        found = []
        for place, share in enumerate(meas):
            verifier = self._query(share, proofs[place], points[place][0], joint[place])
            state = self._truncate(share), joint_seeds[place]
            found.append(Verified(*state, _bytes(verifier) + parts[place]))
        return found

    def well_formed(self, leader_share: bytes) -> bool:
        """Say whether bytes are a leader's share."""
        if len(leader_share) != self.leader_size:
            return False
        return max(_elements(leader_share[:-_SEED])) < _P

    def verifier_shares_to_message(
        self, ctx: bytes, pairs: Sequence[tuple[bytes, bytes]]
    ) -> list[bytes | None]:
        """Return each report's joint randomness seed; None where the proof fails.

        Args:
            ctx: The application's context.
            pairs: Leader's and helper's verifier shares.
        """
        parts = [leader[-_SEED:] + helper[-_SEED:] for leader, helper in pairs]
        seeds: list[bytes | None] = [*self._joint_seeds(ctx, parts)]
        for place, (leader, helper) in enumerate(pairs):
            ours, theirs = _elements(leader[:-_SEED]), _elements(helper[:-_SEED])
            output, *wires, gadget = map(sum, zip(ours, theirs, strict=True))
            inside = max(*ours, *theirs) < _P
            right = (sum(map(mul, wires[::2], wires[1::2])) - gadget) % _P == 0
            if not (inside and right and output % _P == 0):
                seeds[place] = None
        return seeds

    def aggregate(self, out_shares: Iterable[Vector]) -> Vector:
        """Return the sum of output shares."""
        total = [0] * self.length
        for share in out_shares:
            total = [a + b for a, b in zip(total, share, strict=True)]
        return [value % _P for value in total]

    def unshard(self, shares: Sequence[Vector]) -> Vector:
        """Return the sum of all measurements from both aggregators' shares."""
        return self.aggregate(shares)

    def _prove(self, meas: Vector, seeds: Vector, joint: Vector) -> Vector:
        """Return the proof: the wires' seeds and the gadget polynomial's values."""
        size, chunk = self.wire_length, self.chunk_length
        even, odd = [0] * size, [0] * size  # of the gadget polynomial: at even and odd powers
        rows = _doubling(size)
        for place in range(chunk):
            values = self._column(meas, place)
            weighted = [
                pow(r, place + 1, _P) if bit else 0 for r, bit in zip(joint, values, strict=True)
            ]
            left = [seeds[2 * place], *weighted]
            right = [seeds[2 * place + 1], *(bit - 1 for bit in values)]
            pad = [0] * (size - len(left))
            for k, (x, y) in enumerate(zip(left + pad, right + pad, strict=True)):
                even[k] += x * y
            for k, row in enumerate(rows):
                odd[k] += sum(map(mul, left, row)) % _P * (sum(map(mul, right, row)) % _P)
        both = [value % _P for pair in zip(even, odd, strict=True) for value in pair]
        return seeds + both[:-1]

    def _query(self, meas: Vector, proof: Vector, t: int, joint: Vector) -> Vector:
        """Return the verifier's share: the output, the wires and the gadget at t."""
        size, chunk, calls = self.wire_length, self.chunk_length, self.calls
        if pow(t, size, _P) == 1:
            raise ValueError("the query point is a root of unity: draw another key")
        seeds, gadget = proof[: 2 * chunk], proof[2 * chunk :]
        roots = _roots(2 * size)
        gadget = [*gadget, -roots[1] * sum(map(mul, gadget, roots)) % _P]
        output = sum(gadget[2 : 2 * calls + 2 : 2]) % _P
        at_wires, at_gadget = _lagrange(size, t), _lagrange(2 * size, t)
        used = at_wires[1 : calls + 1]
        half = -pow(2, -1, _P) * sum(used)
        powers, wires = used, []
        for place in range(chunk):
            values = self._column(meas, place)
            powers = [power * r % _P for power, r in zip(powers, joint, strict=True)]
            left = seeds[2 * place] * at_wires[0] + sum(map(mul, values, powers))
            right = seeds[2 * place + 1] * at_wires[0] + sum(map(mul, values, used)) + half
            wires += [left % _P, right % _P]
        return [output, *wires, sum(map(mul, gadget, at_gadget)) % _P]

    def _column(self, meas: Vector, place: int) -> Vector:
        """Return what enters the gadget's call after call at one place; zeros at the end."""
        column = meas[place :: self.chunk_length]
        return column + [0] * (self.calls - len(column))

    def _truncate(self, meas: Vector) -> Vector:
        columns = (meas[place :: self.bits] for place in range(self.bits))
        weighted = ([w * v for v in c] for w, c in zip(self.weights, columns, strict=True))
        return [sum(values) % _P for values in zip(*weighted, strict=True)]

    def _helper_measurements(self, ctx: bytes, seeds: Sequence[bytes]) -> list[Vector]:
        return self._expand(ctx, _MEASUREMENT, seeds, repeat(b"\1"), self.measurement_length)

    def _helper_proofs(self, ctx: bytes, seeds: Sequence[bytes]) -> list[Vector]:
        return self._expand(ctx, _PROOF, seeds, repeat(b"\1\1"), self.proof_length)

    def _joint_parts(
        self,
        ctx: bytes,
        aggregator: int,
        blinds: Sequence[bytes],
        shares: Iterable[bytes],
        nonces: Sequence[bytes],
    ) -> list[bytes]:
        who = bytes([aggregator])
        binders = (who + nonce + share for nonce, share in zip(nonces, shares, strict=True))
        return self._hash(ctx, _JOINT_PART, blinds, binders, _SEED)

    def _joint_seeds(self, ctx: bytes, parts: Sequence[bytes]) -> list[bytes]:
        return self._hash(ctx, _JOINT_SEED, [bytes(_SEED)] * len(parts), parts, _SEED)

    def _joint_rands(self, ctx: bytes, seeds: Sequence[bytes]) -> list[Vector]:
        return self._expand(ctx, _JOINT, seeds, repeat(b"\1"), self.calls)

    def _expand(
        self, ctx: bytes, usage: int, seeds: Sequence[bytes], binders: Iterable[bytes], count: int
    ) -> list[Vector]:
        """Return each seed's stream as elements; what is no element is skipped."""
        listed = [binder for _, binder in zip(seeds, binders, strict=False)]
        found = []
        for place, stream in enumerate(self._hash(ctx, usage, seeds, listed, _SIZE * count)):
            vector, size = _elements(stream), count
            while len(vector := [value for value in vector if value < _P]) < count:  # about never
                size += count
                again = self._hash(ctx, usage, [seeds[place]], [listed[place]], _SIZE * size)
                vector = _elements(again[0])
            found.append(vector[:count])
        return found

    @staticmethod
    def _hash(
        ctx: bytes, usage: int, seeds: Sequence[bytes], binders: Iterable[bytes], count: int
    ) -> list[bytes]:
        """Return streams of the draft's XofTurboShake128."""
        tag = bytes([_VERSION, 0]) + _ALGORITHM.to_bytes(4, "big") + usage.to_bytes(2, "big") + ctx
        head = len(tag).to_bytes(2, "little") + tag + bytes([_SEED])
        return turboshake128(
            [head + seed + binder for seed, binder in zip(seeds, binders, strict=True)], 1, count
        )


def _elements(data: bytes) -> Vector:
    return [int.from_bytes(data[at : at + _SIZE], "little") for at in range(0, len(data), _SIZE)]


def _bytes(vector: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(_SIZE, "little") for value in vector)


def _less(left: Vector, right: Vector) -> Vector:
    return [(a - b) % _P for a, b in zip(left, right, strict=True)]


@functools.lru_cache(maxsize=16)
def _roots(order: int) -> tuple[int, ...]:
    """Return the powers of the draft's root of unity of this order, a power of two."""
    root = pow(pow(7, 4611686018427387897, _P), (1 << 66) // order, _P)
    powers = [1]
    for _ in range(order - 1):
        powers.append(powers[-1] * root % _P)
    return tuple(powers)


def _lagrange(order: int, t: int) -> Vector:
    """Return the Lagrange polynomials of the roots of unity at t, which is none of them."""
    roots = _roots(order)
    # All inverses by one: products up to each, then back.
    products, product = [], 1
    for root in roots:
        products.append(product)
        product = product * (t - root) % _P
    inverse = pow(product, -1, _P)
    scale = (pow(t, order, _P) - 1) * pow(order, -1, _P) % _P
    found = [0] * order
    for place in range(order - 1, -1, -1):
        found[place] = products[place] * inverse % _P * scale % _P * roots[place] % _P
        inverse = inverse * (t - roots[place]) % _P
    return found


@functools.lru_cache(maxsize=16)
def _doubling(order: int) -> list[Vector]:
    """Return the matrix from values at roots of unity to those half-way to the next."""
    return [_lagrange(order, point) for point in _roots(2 * order)[1::2]]
