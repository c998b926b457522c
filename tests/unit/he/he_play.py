"""Keys for tests, and an oracle that knows the joint secret nobody should know."""

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from urna.protocols import he
from urna.protocols.he.noise import Arithmetic
from urna.protocols.he.ntt import Residues
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
            member = he.KeyMember(self.session, party)
            self.drawn[party], self.shares[party] = he.draw_key(member, self.secrets)
        self.sums = he.add_key_shares(self.session, self.shares)
        self.holders: dict[int, he.KeyHolder] = {}
        self.second: dict[int, he.RelinearisationShare] = {}
        for party, state in self.drawn.items():
            holder, share = he.finish_key(state, self.sums, self.secrets)
            self.holders[party] = holder
            if share is not None:
                self.second[party] = share
        self.public_key = self.holders[0].public_key
        self.relinearisation_key = None
        if parameters.levels:
            self.relinearisation_key = he.join_relinearisation_key(
                self.session, self.sums, self.second
            )
        self.keys = he.Keys(self.public_key, self.relinearisation_key, self.holders)
        self.evaluator = self.keys.evaluator()

    @property
    def joint_secret(self) -> Residues:
        """The sum of all secrets, transformed, special primes included."""
        wide = self.parameters.extended(self.parameters.depth)
        return wide.total([state.secret for state in self.drawn.values()])

    def encrypt(self, entries: Sequence[int], level: int | None = None) -> he.Ciphertext:
        return he.encrypt(self.public_key, entries, self.secrets, level=level)

    def decrypt(self, ciphertext: he.Ciphertext) -> list[int]:
        """Decrypt by the protocol."""
        desk = he.MessageDesk(self.session)
        return he.decrypt(desk, self.keys, ciphertext, self.secrets).tolist()

    def inside(self, ciphertext: he.Ciphertext) -> npt.NDArray[np.object_]:
        """Return c₀ + c₁·S as integers: message and noise, as only an oracle sees them."""
        ring = self.parameters.basis(ciphertext.level)
        product = ring.multiply(ciphertext.parts[1], self.joint_secret[: len(ring)])
        return ring.integers(ring.inverse(ring.add(ciphertext.parts[0], product)))


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
