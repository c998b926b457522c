"""Collective decryption: every helper gives a smudged share, and together they reveal a result.

Let v = c₀ + c₁·S be what a ciphertext decrypts to: message m and t·e, its noise. Helper i sends
σ_i·c₁ + t·η_i on the decrypted coefficients, where the σ_i add up to S and η_i is wide uniform
noise. The sum with c₀ is v + t·Ση_i, which is m modulo t.

Guarantee:
    Let all helpers but one collude with the server, and give them all their secrets. The honest
    helper's share is then v + t·η minus what they can compute themselves. By
    `sampling.noise_limit` it differs from m + t·η, which they could make from the result alone, by
    at most 2^-smudging_bits in statistical distance, whatever e is. So noise, which depends on the
    secret and on inputs, does not leak. Coefficients that carry no entry are not sent at all.

Assumes:
    The server states the noise bound of the ciphertext it computed correctly, asks for what was
    agreed, and shows each helper the same. A server that asks to decrypt one party's own
    ciphertext would be answered: the caller checks which results may be decrypted.
    Every decryption leaks anew; k of them at most k·2^-smudging_bits.
"""

import hashlib
from collections.abc import Collection, Mapping

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.he.evaluator import Entries, decode
from urna.protocols.he.keys import KeyHolder, lagrange
from urna.protocols.he.messages import (
    Ciphertext,
    DecryptionRequest,
    DecryptionShare,
    PartyId,
    PublicKey,
)
from urna.protocols.he.plan import NoiseModel
from urna.protocols.he.sampling import Sampler
from urna.randomness import SecretSource


def ask_to_decrypt(
    public_key: PublicKey, ciphertext: Ciphertext, helpers: Collection[PartyId] | None = None
) -> DecryptionRequest:
    """Server: ask exactly `threshold` parties for the shares that decrypt a ciphertext.

    `helpers` may be left out where all must help.
    """
    parameters = public_key.session.parameters
    asked = frozenset(range(parameters.parties) if helpers is None else helpers)
    request = DecryptionRequest(ciphertext.key, ciphertext.noise, asked, ciphertext.parts[1])
    _check_request(public_key, request)
    return request


def help_to_decrypt(
    holder: KeyHolder, request: DecryptionRequest, source: SecretSource
) -> DecryptionShare:
    """Party: return its smudged share of a result.

    Raises:
        ProtocolError: The request is of another key, does not name this party or the right
            number of helpers, or its noise is more than smudging hides.
    """
    parameters, party = holder.public_key.session.parameters, holder.party
    _check_request(holder.public_key, request)
    if party not in request.helpers:
        raise ProtocolError(f"party {party} is not among those asked to help")
    if holder.shared != (parameters.threshold < parameters.parties):
        raise ProtocolError(f"party {party} has not taken the others' shares yet")
    ring = parameters.basis(request.noise.level)
    product = ring.multiply(request.second, holder.secret[: len(ring)])
    share = ring.inverse(product)[:, parameters.opened]
    if holder.shared:
        share = ring.multiply_each(share, lagrange(ring.primes, request.helpers, party))
    smudging = Sampler.of(source).wide(ring, parameters.smudging_exponent, parameters.width)
    scaled = ring.multiply_by(smudging, parameters.plaintext_modulus)
    return DecryptionShare(
        request.key, request_digest(request), request.noise.level, ring.add(share, scaled)
    )


def combine(
    public_key: PublicKey, ciphertext: Ciphertext, shares: Mapping[PartyId, DecryptionShare]
) -> Entries:
    """Decrypt a ciphertext with the shares of all helpers of one request, by party.

    Returns:
        `width` integers 0 … t − 1.

    Raises:
        ProtocolError: A share is missing, or of another request.
    """
    parameters = public_key.session.parameters
    expected = request_digest(ask_to_decrypt(public_key, ciphertext, shares.keys()))
    for party, share in shares.items():
        if (share.key, share.request, share.level) != (ciphertext.key, expected, ciphertext.level):
            raise ProtocolError(f"the share of party {party} answers another request")
    ring = parameters.basis(ciphertext.level)
    first = ring.inverse(ciphertext.parts[0])[:, parameters.opened]
    total = ring.total([first, *(shares[party].residues for party in sorted(shares))])
    return decode(parameters, total, ciphertext.level)


def request_digest(request: DecryptionRequest) -> bytes:
    """Return 32 bytes that stand for a request: what is decrypted, and by which parties."""
    digest = hashlib.sha256(b"urna he decryption\0" + request.key)
    digest.update(request.noise.level.to_bytes(2, "big"))
    for party in sorted(request.helpers):
        digest.update(party.to_bytes(4, "big"))
    digest.update(np.ascontiguousarray(request.second, dtype="<i8").data)
    return digest.digest()


def _check_request(public_key: PublicKey, request: DecryptionRequest) -> None:
    parameters = public_key.session.parameters
    if request.key != public_key.digest:
        raise ProtocolError("the ciphertext belongs to another joint key")
    if len(request.helpers) != parameters.threshold:
        raise ProtocolError(
            f"exactly {parameters.threshold} parties help to decrypt, got {len(request.helpers)}"
        )
    if unknown := request.helpers - set(range(parameters.parties)):
        raise ProtocolError(f"there are no parties {sorted(unknown)}")
    if not NoiseModel(parameters).hidden(request.noise):
        raise ProtocolError(
            f"noise of up to {request.noise.error.bit_length()} bits at level "
            f"{request.noise.level} is more than smudging hides; nothing was decrypted"
        )
