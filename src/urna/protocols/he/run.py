"""All parties in this process: the executable specification.

Every message passes through `wire`, and each party's bytes are counted.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from urna.errors import ParameterError
from urna.protocols.he.decryption import ask_to_decrypt, combine, help_to_decrypt
from urna.protocols.he.evaluator import Entries, Evaluator, encrypt
from urna.protocols.he.keys import (
    Drawn,
    KeyHolder,
    add_key_shares,
    draw_key,
    finish_key,
    join_public_key,
    join_relinearisation_key,
    open_channel,
    pass_on_channel_keys,
    pass_on_shares,
    share_secret,
    take_shares,
)
from urna.protocols.he.messages import Ciphertext, Message, PartyId, Session
from urna.protocols.he.parameters import Parameters
from urna.protocols.he.plan import ArithmeticCircuit
from urna.protocols.he.wire import decode, encode
from urna.randomness import SecretSource

Kind = TypeVar("Kind", bound=Message)


class Parties:
    """All parties of a fresh joint key, and the server.

    The key takes two exchanges, and two more where fewer than all can decrypt.

    Example:
        >>> from urna.protocols.he.plan import additive
        >>> from urna.randomness import ScriptedSecrets
        >>> parties = Parties(additive(parties=3, width=2), ScriptedSecrets(b"sum"))
        >>> parties.run({0: [[1, 10]], 1: [[2, 20]], 2: [[3, 30]]}).tolist()
        [6, 60]
    """

    def __init__(self, parameters: Parameters, secrets: SecretSource) -> None:
        self.session = session = Session(parameters, secrets.take(32))
        self.traffic = dict.fromkeys(range(parameters.parties), 0)
        """Bytes each party sent and received."""
        self._secrets = secrets
        drawn, shares = {}, {}
        for party in self.traffic:
            drawn[party], share = draw_key(session, secrets)
            shares[party] = self._up(party, share)
        sums = add_key_shares(session, shares)
        del shares  # megabytes each
        self.public_key = join_public_key(session, sums)
        self.holders: dict[PartyId, KeyHolder] = {}
        second = {}
        for party, state in drawn.items():
            self.holders[party], rest = finish_key(party, state, self._down(party, sums), secrets)
            if rest is not None:
                second[party] = self._up(party, rest)
        self.relinearisation_key = (
            join_relinearisation_key(session, sums, second) if parameters.levels else None
        )
        if parameters.threshold < parameters.parties:
            self._share_secrets(drawn)

    def evaluator(self) -> Evaluator:
        """Return what computes under this key."""
        return Evaluator(self.public_key, self.relinearisation_key)

    def encrypt(self, party: PartyId, vector: Sequence[int] | Entries) -> Ciphertext:
        """Return a party's encrypted vector, as the server gets it."""
        return self._up(party, encrypt(self.public_key, vector, self._secrets))

    def decrypt(
        self, ciphertext: Ciphertext, helpers: Collection[PartyId] | None = None
    ) -> Entries:
        """Decrypt together, with exactly `threshold` helpers; all by default."""
        request = ask_to_decrypt(self.public_key, ciphertext, helpers)
        asked = {party: self._down(party, request) for party in sorted(request.helpers)}
        shares = {
            party: self._up(party, help_to_decrypt(self.holders[party], received, self._secrets))
            for party, received in asked.items()
        }
        return combine(self.public_key, ciphertext, shares)

    def run(
        self,
        vectors: Mapping[PartyId, Sequence[Sequence[int] | Entries]],
        *,
        circuit: ArithmeticCircuit | None = None,
        helpers: Collection[PartyId] | None = None,
    ) -> Entries:
        """Let all encrypt, the server compute, and all decrypt.

        Args:
            vectors: What each party gives: one vector per input of the circuit.
            circuit: What is computed from the sums; left out, the first sum is decrypted.
            helpers: Which parties decrypt, where not all must.
        """
        counts = {len(given) for given in vectors.values()}
        if len(counts) != 1 or 0 in counts:
            raise ParameterError("every party gives the same number of vectors, and at least one")
        given = {p: [self.encrypt(p, vector) for vector in some] for p, some in vectors.items()}
        evaluator = self.evaluator()
        totals = [evaluator.total(terms) for terms in zip(*given.values(), strict=True)]
        result = totals[0] if circuit is None else circuit(evaluator, totals)
        # Lower: fewer bytes to send and less noise to hide.
        return self.decrypt(evaluator.lower(result, 0), helpers)

    def _share_secrets(self, drawn: Mapping[PartyId, Drawn]) -> None:
        """Let every party share its secret with all others, sealed."""
        session, secrets = self.session, self._secrets
        channels, keys = {}, {}
        for party in drawn:
            channels[party], key = open_channel(session, party, secrets)
            keys[party] = self._up(party, key)
        book = pass_on_channel_keys(session, keys)
        books = {party: self._down(party, book) for party in drawn}
        sealed = {
            party: self._up(party, share_secret(state, channels[party], books[party], secrets))
            for party, state in drawn.items()
        }
        for party, box in pass_on_shares(session, sealed).items():
            received = self._down(party, box)
            self.holders[party] = take_shares(
                self.holders[party], channels[party], books[party], received
            )

    def _up(self, party: PartyId, message: Kind) -> Kind:
        """Carry a party's message to the server."""
        data = encode(message, self.session, sender=party)
        self.traffic[party] += len(data)
        return decode(data, self.session, type(message), sender=party)

    def _down(self, party: PartyId, message: Kind) -> Kind:
        """Carry a message of the server to a party."""
        data = encode(message, self.session)
        self.traffic[party] += len(data)
        return decode(data, self.session, type(message))
