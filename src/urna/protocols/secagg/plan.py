"""The plan of a round: everything public, checked once, held alike by every party.

And rounds that came to nothing: when it is certain that nothing of them can ever be opened. A
client that has revealed nothing can forget the round and sign that it did (`client.give_up`). With
enough of these receipts a round is closed for good, and nobody need count it any more.

Guarantee:
    If `closed` holds for a client, nothing about its vector was or will be learned in this
    round, but with the probability that the graph fails (`graph`).

    Proof. What left the client is its vector under a self-mask, uniform over the ring, whose
    seed was shared among its neighbours with threshold t. An honest neighbour that signed a
    receipt had handed out nothing and holds nothing any more. Those who could still hand out
    shares are the neighbours without a receipt and the colluding ones, whose receipts mean
    nothing; of these a client has at most C but with that probability. Fewer than t together
    know nothing of the seed, so the masked vector stays uniform whatever else becomes known.

    If `closed` holds for more survivors than there are colluders, then for an honest one, and
    the sum of all survivors stays uniform; no other sum can be learned (`client`).

Assumes:
    Receipts are signed and were checked against a directory, or come from a server that
    follows the protocol.
"""

import functools
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from urna.errors import ParameterError
from urna.noise import SKELLAM, Noise
from urna.protocols.secagg.graph import (
    GRINDING_BITS,
    SECURITY_BITS,
    ServerModel,
    choose,
    largest_likely,
    threshold_range,
)
from urna.protocols.secagg.keys import SIGNATURE_BYTES
from urna.protocols.secagg.messages import ClientId
from urna.protocols.secagg.shares import DIGEST_BYTES, TAG_BYTES
from urna.protocols.secagg.xnoise import NoisePlan, Removal
from urna.randomness import SEED_BYTES

_RINGS = (16, 32, 64)
_LARGEST = 2**31 - 1
_EXCHANGE = 52e-6  # seconds for one X25519 exchange with HKDF on a core of 2026
_STREAM = 0.7e-9  # seconds to expand and add one byte of mask
_DRAW = 8e-9  # seconds to draw one number of noise
_CALL = 20e-6  # seconds for a mask or a noise component however short


@dataclass(frozen=True, slots=True)
class Plan:
    """What every party of a round must agree on. Build it with `plan`.

    Guarantee:
        `neighbours` and `threshold` meet the bounds in `graph` for these clients, colluders
        and dropouts; a plan that does not cannot be built.
    """

    clients: int
    dimension: int
    ring_bits: int
    colluders: int
    """How many clients may collude with the server."""
    dropouts: int
    """How many clients may be lost before the round is aborted."""
    neighbours: int
    threshold: int
    server: ServerModel
    noise: NoisePlan | None
    required: frozenset[int] = frozenset()
    """Clients without whose vectors no sum is opened: one that holds a mask of it, say."""
    secrets: int = field(init=False, repr=False)
    """How many secrets a client shares: mask key, self-mask seed, noise seeds."""
    bundle_bytes: int = field(init=False, repr=False)
    """Length of one encrypted bundle of shares with its digest, and its signature if any."""

    def __post_init__(self) -> None:
        _check_numbers(self.clients, self.dimension, self.ring_bits, self.colluders, self.dropouts)
        complete = self.neighbours == self.clients - 1
        if not 1 <= self.neighbours < self.clients or (self.neighbours % 2 and not complete):
            raise ParameterError(
                "the number of neighbours is even and below the number of clients, or all "
                f"others; got {self.neighbours} of {self.clients}"
            )
        low, high = threshold_range(
            self.clients, self.colluders, self.dropouts, self.neighbours, self.server
        )
        if not low <= self.threshold <= high:
            allowed = f"{low} to {high}" if low <= high else "none"
            raise ParameterError(
                f"with {self.neighbours} neighbours the threshold may be: {allowed}; "
                f"got {self.threshold}"
            )
        if self.required and not 0 <= min(self.required) <= max(self.required) < self.clients:
            raise ParameterError(f"required clients are numbered below {self.clients}")
        noise = self.noise
        if noise is not None and (noise.clients, noise.colluders, noise.dropouts) != (
            self.clients,
            self.colluders,
            self.dropouts,
        ):
            raise ParameterError("the noise must be planned for the clients of the plan")
        # Kept rather than computed: every message read or written asks for them.
        secrets = 2 + (noise.shared if noise else 0)
        object.__setattr__(self, "secrets", secrets)
        size = SEED_BYTES * secrets + TAG_BYTES + DIGEST_BYTES
        if self.server is ServerModel.DISHONEST:
            size += SIGNATURE_BYTES
        object.__setattr__(self, "bundle_bytes", size)

    @property
    def sealed_bytes(self) -> int:
        """Length of one encrypted bundle alone."""
        return SEED_BYTES * self.secrets + TAG_BYTES

    @property
    def least_survivors(self) -> int:
        """How many vectors must be in the sum for a client to help with unmasking it."""
        return self.clients - self.dropouts

    @property
    def signers(self) -> int:
        """How many signed agreements a client asks for, where the server may be dishonest.

        More than half of the honest clients and all colluders: two different lists cannot
        both have them, because no honest client signs twice.
        """
        return (self.clients + self.colluders) // 2 + 1

    @property
    def vector_bytes(self) -> int:
        """Length of one masked vector."""
        return self.dimension * self.ring_bits // 8

    @property
    def digest(self) -> bytes:
        """A digest of the whole plan; equal digests mean equal plans."""
        return _digest(self)

    @property
    def bytes_per_client(self) -> int:
        """Most bytes one client sends and receives in a round, without transport headers."""
        k, survivors = self.neighbours, SEED_BYTES * (self.secrets - 1)
        keys = 88 + (172 * k + 50) + 172  # invitation, key book, advertisement
        signatures = 5 * SIGNATURE_BYTES  # of whole replies, where clients have identity keys
        shares = 2 * (k * (self.bundle_bytes + 4) + 60) + SEED_BYTES * (self.secrets - 1)
        lists = 2 * ((self.clients + 7) // 8)
        agreement = 120 + lists + 68 * self.clients if self.server is ServerModel.DISHONEST else 0
        reply = k * (survivors + DIGEST_BYTES + 4) + 60
        return keys + signatures + shares + self.vector_bytes + 92 + agreement + lists + 60 + reply

    @property
    def client_seconds(self) -> float:
        """Rough time one client computes, on one core."""
        masks = (self.neighbours + 1) * (_CALL + _STREAM * self.vector_bytes)
        components = 1 + self.noise.shared if self.noise else 0
        noise = components * (_CALL + _DRAW * self.dimension)
        return 2 * self.neighbours * _EXCHANGE + masks + noise

    @property
    def server_seconds(self) -> float:
        """Rough time the server computes if every tolerated dropout happens, on one core."""
        mask = _CALL + _STREAM * self.vector_bytes
        dropped = self.dropouts * self.neighbours * (_EXCHANGE + mask)
        components = self.noise.shared if self.noise else 0
        noise = self.clients * components * (_CALL + _DRAW * self.dimension)
        return self.clients * (mask + 2 * _CALL) + dropped + noise


def plan(
    *,
    clients: int,
    dimension: int,
    ring_bits: int = 32,
    colluders: int = 0,
    dropouts: int = 0,
    noise_variance: Fraction | None = None,
    xnoise: Removal | str = Removal.PRECISE,
    server: ServerModel | str = ServerModel.HONEST_BUT_CURIOUS,
    family: Noise = SKELLAM,
    required: frozenset[int] = frozenset(),
) -> Plan:
    """Plan a round with the fewest neighbours that are safe.

    Args:
        clients: How many take part.
        dimension: Entries of each vector.
        ring_bits: Sums are taken modulo 2^16, 2^32 or 2^64.
        colluders: How many clients may tell the server all they know.
        dropouts: How many clients may be lost, at any stage.
        noise_variance: Variance the honest survivors alone must leave in every entry of the
            sum, in grid steps squared; None for no noise.
        xnoise: How noise that is not needed is removed.
        server: What the server is trusted with.
        family: The family of noise; removal needs one closed under addition.
        required: Clients without whose vectors no sum is opened.

    Raises:
        ParameterError: No graph can do this; the message says what would be possible.

    Example:
        >>> small = plan(clients=250, dimension=200, colluders=25, dropouts=50)
        >>> small.neighbours, small.threshold
        (56, 23)
    """
    _check_numbers(clients, dimension, ring_bits, colluders, dropouts)
    removal, server = Removal(xnoise), ServerModel(server)
    chosen = choose(clients, colluders, dropouts, server)
    quorum = (clients + colluders) // 2 + 1
    if server is ServerModel.DISHONEST and clients - dropouts < quorum:
        chosen = None
    if chosen is None:
        raise ParameterError(_what_is_possible(clients, colluders, dropouts, server))
    noise = None
    if noise_variance is not None:
        noise = NoisePlan(removal, noise_variance, clients, colluders, dropouts, family)
    return Plan(
        clients,
        dimension,
        ring_bits,
        colluders,
        dropouts,
        *chosen,
        server,
        noise,
        required,
    )


def _check_numbers(
    clients: int, dimension: int, ring_bits: int, colluders: int, dropouts: int
) -> None:
    if not 2 <= clients <= _LARGEST:
        raise ParameterError(
            f"a secure sum needs at least 2 clients, got {clients}: the sum of one is its vector"
        )
    if not 1 <= dimension <= _LARGEST:
        raise ParameterError(f"a vector has 1 to {_LARGEST} entries, got {dimension}")
    if ring_bits not in _RINGS:
        raise ParameterError(f"the ring has 16, 32 or 64 bits, got {ring_bits}")
    for name, number in (("colluders", colluders), ("dropouts", dropouts)):
        if type(number) is not int or not 0 <= number < clients:
            raise ParameterError(
                f"`{name}` is a whole number of the {clients} clients, got {number!r}"
            )


def _what_is_possible(clients: int, colluders: int, dropouts: int, server: ServerModel) -> str:
    if server is ServerModel.DISHONEST:
        most = (clients - colluders - 1) // 2
        rule = "more than half of the honest clients and all colluders must sign the lists"
    else:
        most = clients - 2 - colluders
        rule = "a client needs one more neighbour that stays than neighbours that collude"
    allowed = (d for d in range(most, -1, -1) if _possible(clients, colluders, d, server))
    most = next(allowed, -1)
    start = (
        f"{clients} clients with {colluders} colluding and {dropouts} dropping out cannot be "
        f"summed securely with a {server} server: {rule}. "
    )
    if most >= 0:
        return start + f"With {colluders} colluding, at most {most} may drop out."
    return start + "Plan for fewer colluding clients, or ask more clients."


def _possible(clients: int, colluders: int, dropouts: int, server: ServerModel) -> bool:
    low, high = threshold_range(clients, colluders, dropouts, clients - 1, server)
    return low <= high


@functools.lru_cache(maxsize=16)
def _digest(held: Plan) -> bytes:
    noise = held.noise
    parts: list[object] = [
        held.clients,
        held.dimension,
        held.ring_bits,
        held.colluders,
        held.dropouts,
        held.neighbours,
        held.threshold,
        held.server.value,
        noise and (noise.removal.value, str(noise.target), noise.family.name),
    ]
    if held.required:
        parts.append(("required", *sorted(held.required)))
    return hashlib.sha256(b"urna secagg plan 2\0" + repr([str(p) for p in parts]).encode()).digest()


def closed(plan: Plan, holders: Iterable[ClientId], receipts: Collection[ClientId]) -> bool:
    """Say whether a client's vector can never be unmasked any more.

    Args:
        plan: The round's plan.
        holders: Those who may hold shares of the client's secrets: its neighbours.
        receipts: Who has signed that it revealed nothing and forgot the round.
    """
    open_still = sum(holder not in receipts for holder in holders)
    return open_still + _most_colluding(plan) < plan.threshold


def closed_for_all(
    plan: Plan,
    holders: Iterable[tuple[ClientId, Iterable[ClientId]]],
    receipts: Collection[ClientId],
) -> bool:
    """Say whether the sum of some survivors, each with its holders, can never be opened."""
    stuck = sum(closed(plan, some, receipts) for _, some in holders)
    return stuck > plan.colluders


def _most_colluding(plan: Plan) -> int:
    """Return how many neighbours of one client collude, but with the graph's own probability."""
    bits = SECURITY_BITS
    if plan.server is ServerModel.DISHONEST:
        bits += GRINDING_BITS
    return largest_likely(
        plan.clients - 1,
        plan.colluders,
        plan.neighbours,
        draws=max(1, plan.clients - plan.colluders),
        failure=Fraction(1, 2**bits),
    )
