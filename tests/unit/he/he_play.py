"""Keys for tests, and an oracle that knows the joint secret nobody should know."""

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from urna.protocols import he
from urna.protocols.he.ntt import Residues
from urna.protocols.he.plan import Arithmetic
from urna.protocols.he.rns import Basis
from urna.randomness import ScriptedSecrets

Value = TypeVar("Value")


class Play:
    """All parties of one joint key, stage by stage."""

    def __init__(self, parameters: he.Parameters, label: bytes = b"play") -> None:
        self.parameters = parameters
        self.secrets = ScriptedSecrets(label)
        self.session = he.Session(parameters, self.secrets.take(32))
        self.drawn, self.shares = {}, {}
        for party in range(parameters.parties):
            self.drawn[party], self.shares[party] = he.draw_key(self.session, self.secrets)
        self.sums = he.add_key_shares(self.session, self.shares)
        self.holders: dict[int, he.KeyHolder] = {}
        self.second: dict[int, he.RelinearisationShare] = {}
        for party, state in self.drawn.items():
            holder, share = he.finish_key(party, state, self.sums, self.secrets)
            self.holders[party] = holder
            if share is not None:
                self.second[party] = share
        self.public_key = self.holders[0].public_key
        self.relinearisation_key = None
        if parameters.levels:
            self.relinearisation_key = he.join_relinearisation_key(
                self.session, self.sums, self.second
            )
        self.evaluator = he.Evaluator(self.public_key, self.relinearisation_key)

    @property
    def joint_secret(self) -> Residues:
        """The sum of all secrets, transformed, special primes included."""
        wide = self.parameters.extended(self.parameters.depth)
        return wide.total([state.secret for state in self.drawn.values()])

    def encrypt(self, entries: Sequence[int], level: int | None = None) -> he.Ciphertext:
        fresh = he.encrypt(self.public_key, entries, self.secrets)
        return fresh if level is None else self.evaluator.lower(fresh, level)

    def decrypt(self, ciphertext: he.Ciphertext) -> list[int]:
        """Decrypt by the protocol."""
        request = he.ask_to_decrypt(self.public_key, ciphertext)
        shares = {p: he.help_to_decrypt(h, request, self.secrets) for p, h in self.holders.items()}
        return he.combine(self.public_key, ciphertext, shares).tolist()

    def inside(self, ciphertext: he.Ciphertext) -> npt.NDArray[np.object_]:
        """Return c₀ + c₁·S as integers: message and noise, as only an oracle sees them."""
        ring = self.parameters.basis(ciphertext.level)
        product = ring.multiply(ciphertext.parts[1], self.joint_secret[: len(ring)])
        return integers(ring, ring.inverse(ring.add(ciphertext.parts[0], product)))


def integers(ring: Basis, residues: Residues) -> npt.NDArray[np.object_]:
    """Return the integers within ±Q/2 behind residues, as Python's own: exact, slow."""
    total = np.zeros((*residues.shape[:-2], residues.shape[-1]), dtype=object)
    radix, digits = 1, ring.digits(residues)
    for row, prime in enumerate(ring.primes):
        total = total + digits[..., row, :].astype(object) * radix
        radix *= prime
    return total


def fourth_power(arithmetic: Arithmetic[Value], inputs: Sequence[Value]) -> Value:
    square = arithmetic.multiply(inputs[0], inputs[0])
    return arithmetic.multiply(square, square)


@functools.cache
def exact() -> Play:
    """BGV with 16 slots and two multiplications in a row."""
    return Play(he.levelled(fourth_power, parties=3, width=16, depth=2))


@functools.cache
def sums() -> Play:
    """BGV without multiplications, sums modulo 2^32."""
    return Play(he.additive(parties=3, width=5))
