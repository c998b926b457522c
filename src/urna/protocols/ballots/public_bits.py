"""Public bits that neither leader nor helper chose, and what they do to clients' coins.

A client's coin counts as its own bit xor a public one that is drawn after everybody's coins are
fixed. Whatever a client put in, its noise is then a fair coin; an honest client's is secret
as well.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from urna.protocols.ballots.codec import Examination
from urna.protocols.ballots.layout import Bits
from urna.protocols.ballots.report import Statement
from urna.protocols.secagg.messages import ClientId
from urna.randomness import derive_seed, expand

__all__ = ["commitment_to", "flips", "noisy_share", "public_seed"]


def commitment_to(who: int, reveal: bytes, batch: bytes) -> bytes:
    """Return what binds one party to its half of the public bits; the half has 256 bits."""
    return hashlib.sha256(b"urna verified public\0" + bytes([who]) + batch + reveal).digest()


def public_seed(leader: bytes, helper: bytes, batch: bytes, accepted: Sequence[ClientId]) -> bytes:
    """Return the seed of the public bits, from both halves and from who is accepted."""
    listed = b"".join(client.to_bytes(4, "big") for client in accepted)
    return derive_seed(hashlib.sha256(leader + helper).digest(), b"public bits" + batch + listed)


def flips(seed: bytes, statement: Statement) -> Bits:
    """Return a public bit for every coin that is used: those of `tossing` clients."""
    count = statement.plan.tossing * statement.plan.layout.coin_bits
    room = np.frombuffer(expand(seed, (count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(room)[:count].reshape(statement.plan.tossing, -1)


def noisy_share(
    examination: Examination, statement: Statement, accepted: Sequence[int], seed: bytes
) -> tuple[int, ...]:
    """Return one party's share of the noisy sum, in half levels.

    Args:
        examination: The party's shares.
        statement: What was announced.
        accepted: Places of the accepted reports.
        seed: Of the public bits.

    The coins of the first `tossing` accepted reports are used and no others: more would be more
    noise than was planned, and so many hold those of `honest` clients whoever they are.
    """
    modulus = statement.plan.proven.modulus
    exact = examination.exact_share(accepted)
    noise = examination.noise_share(accepted[: statement.plan.tossing], flips(seed, statement))
    return tuple((2 * a + b) % modulus for a, b in zip(exact, noise, strict=True))
