"""A helper that answers base transfers with half the offer, reads what comes back, and is gone."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from urna.errors import ProtocolError
from urna.protocols.winner.session import Answered
from urna.protocols.winner.transfer import COLUMNS, POINT_BYTES, BaseReceiver
from urna.protocols.winner.wire import CircuitStage, decode

__all__ = ["NO_POINTS", "CheatingHelper", "half_of"]

# No coordinate on the curve, one that is not below the prime, and an unknown way of writing.
NO_POINTS = {
    "off the curve": b"\2" + (1).to_bytes(32, "big"),
    "not reduced": b"\2" + bytes([255]) * 32,
    "unknown": b"\5" + bytes(32),
}

_CURVE = ec.SECP256R1()
_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def half_of(offer: bytes) -> bytes:
    """Return the encoding of the point A with A + A = S: nobody needs the logarithm of S."""
    point = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, offer)
    half = ec.derive_private_key(pow(2, -1, _ORDER), _CURVE).exchange(ec.ECDH(), point)
    for sign in (b"\2", b"\3"):
        found = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, sign + half).public_numbers()
        slope = 3 * (found.x**2 - 1) * pow(2 * found.y, -1, _PRIME)
        x = (slope**2 - 2 * found.x) % _PRIME
        if (x, (slope * (found.x - x) - found.y) % _PRIME) == (
            point.public_numbers().x,
            point.public_numbers().y,
        ):
            return sign + half
    raise AssertionError("every point of this curve has a half")


@dataclass
class CheatingHelper:
    """Honest but for some of its base transfers, and silent once it has the leader's.

    Where both seeds of a transfer are equal, its column is the leader's bits in the clear.
    """

    places: Iterable[int] = (0,)
    point: bytes = b""
    """What it answers in these places, in place of half the offer."""
    heard: list[bytes] = field(default_factory=list)
    """Transfers that reached it."""
    totals: list[list[int]] = field(default_factory=list)
    """What it makes of them."""

    def answers(self, offer: bytes, honest: bytes) -> bytes:
        """Return its answers."""
        parts = [honest[POINT_BYTES * at : POINT_BYTES * (at + 1)] for at in range(COLUMNS)]
        for place in self.places:
            parts[place] = self.point or half_of(offer)
        return b"".join(parts)

    def leave(self, state: Answered, transfer: bytes, shares: Any, source: Any) -> Any:
        """Read the transfers in the place of garbling, and be gone."""
        del source
        self.heard.append(transfer)
        circuit = state.circuit
        columns, _ = decode(transfer, CircuitStage.TRANSFER, circuit, state.session, state.sent)
        modulus = circuit.modulus or 1 << circuit.share_width
        for place in self.places:
            column = np.frombuffer(columns, dtype=np.uint8).reshape(COLUMNS, -1)[place]
            bits = np.unpackbits(column, bitorder="little")[: circuit.share_bits]
            weights = [1 << at for at in range(circuit.share_width)]
            own = bits.reshape(circuit.share_width, -1).astype(object)
            both = np.array(weights, dtype=object) @ own + shares.astype(object)
            self.totals.append([int(total) % modulus for total in both])
        raise ProtocolError("the helper is lost")

    def installed(self, monkeypatch: pytest.MonkeyPatch, garble: str) -> "CheatingHelper":
        """Take the place of every helper in this process."""
        honest = BaseReceiver.of

        def of(session: bytes, offer: bytes, offset: Any, source: Any) -> BaseReceiver:
            made = honest(session, offer, offset, source)
            return replace(made, answers=self.answers(offer, made.answers))

        monkeypatch.setattr(BaseReceiver, "of", of)
        monkeypatch.setattr(garble, self.leave)
        return self
