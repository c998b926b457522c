"""All parties in memory: the executable specification.

`make_keys` is the whole of key generation, `decrypt` a collective decryption, and `run` plays a
computation from vectors to its result. Every message passes through `wire`, and what each
side spends is counted.
"""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from urna.errors import ParameterError
from urna.protocols.he.decryption import ask_to_decrypt, combine, help_to_decrypt
from urna.protocols.he.encoding import Entries
from urna.protocols.he.evaluator import Evaluator, encrypt
from urna.protocols.he.keys import (
    Drawn,
    KeyHolder,
    KeyMember,
    add_key_shares,
    draw_key,
    finish_key,
    join_public_key,
    join_relinearisation_key,
)
from urna.protocols.he.messages import (
    ChannelBook,
    ChannelKey,
    Ciphertext,
    DecryptionRequest,
    DecryptionShare,
    EncryptedShareBox,
    EncryptedShares,
    KeyShare,
    KeySum,
    Message,
    PublicKey,
    RelinearisationKey,
    RelinearisationShare,
)
from urna.protocols.he.plan import ArithmeticCircuit
from urna.protocols.he.session import PartyId, Session
from urna.protocols.he.threshold import (
    open_channel,
    pass_on_channel_keys,
    pass_on_shares,
    share_secret,
    take_shares,
)
from urna.protocols.he.wire import decode, encode
from urna.randomness import SecretSource

__all__ = ["Keys", "MessageDesk", "Traffic", "decrypt", "make_keys", "run"]

Kind = TypeVar("Kind", bound=Message)


@dataclass(slots=True)
class Traffic:
    """What the parties and the server spent so far."""

    party_seconds: float = 0.0
    """CPU time of all parties together."""
    server_seconds: float = 0.0
    """CPU time of the server."""
    traffic: dict[PartyId, int] = field(default_factory=dict)
    """Bytes each party sent and received."""

    @property
    def bytes_per_party(self) -> int:
        """Most bytes any party sent and received."""
        return max(self.traffic.values(), default=0)


class MessageDesk:
    """Where letters between the parties and the server pass, and costs are counted."""

    def __init__(self, session: Session) -> None:
        self.session, self.cost = session, Traffic()

    @contextlib.contextmanager
    def party(self) -> Iterator[None]:
        """Count what happens here as parties' work."""
        start = time.process_time()
        yield
        self.cost.party_seconds += time.process_time() - start

    @contextlib.contextmanager
    def server(self) -> Iterator[None]:
        """Count what happens here as the server's work."""
        start = time.process_time()
        yield
        self.cost.server_seconds += time.process_time() - start

    def up(self, party: PartyId, message: Message, kind: type[Kind]) -> Kind:
        """Carry a party's letter to the server."""
        with self.party():
            data = encode(message, self.session, sender=party)
        self._count(party, data)
        with self.server():
            return decode(data, self.session, kind, sender=party)

    def down(self, message: Message, kind: type[Kind]) -> dict[PartyId, Kind]:
        """Carry one letter of the server to every party."""
        with self.server():
            data = encode(message, self.session)
        return {party: self._deliver(party, data, kind) for party in self._everyone}

    def down_each(self, messages: Mapping[PartyId, Kind], kind: type[Kind]) -> dict[PartyId, Kind]:
        """Carry a letter of its own to each party."""
        letters = {}
        for party, message in messages.items():
            with self.server():
                data = encode(message, self.session)
            letters[party] = self._deliver(party, data, kind)
        return letters

    @property
    def _everyone(self) -> range:
        return range(self.session.parameters.parties)

    def _deliver(self, party: PartyId, data: bytes, kind: type[Kind]) -> Kind:
        self._count(party, data)
        with self.party():
            return decode(data, self.session, kind)

    def _count(self, party: PartyId, data: bytes) -> None:
        self.cost.traffic[party] = self.cost.traffic.get(party, 0) + len(data)


@dataclass(frozen=True, slots=True)
class Keys:
    """A joint key, with everyone who holds a share of it."""

    public_key: PublicKey
    relinearisation_key: RelinearisationKey | None
    holders: Mapping[PartyId, KeyHolder] = field(repr=False)

    def evaluator(self) -> Evaluator:
        """Return what computes under this key."""
        return Evaluator(self.public_key, self.relinearisation_key)


def make_keys(desk: MessageDesk, secrets: SecretSource) -> Keys:
    """Make a joint key: two exchanges, and two more where fewer than all shall decrypt.

    Args:
        desk: Carries the letters.
        secrets: Where all parties' randomness comes from.
    """
    session = desk.session
    parameters = session.parameters
    drawn, shares = {}, {}
    for party in range(parameters.parties):
        with desk.party():
            drawn[party], share = draw_key(KeyMember(session, party), secrets)
        shares[party] = desk.up(party, share, KeyShare)
    with desk.server():
        sums = add_key_shares(session, shares)
        public_key = join_public_key(session, sums)
    del shares
    holders, second = {}, {}
    for party, received in desk.down(sums, KeySum).items():
        with desk.party():
            holders[party], finished = finish_key(drawn[party], received, secrets)
        if finished is not None:
            second[party] = desk.up(party, finished, RelinearisationShare)
    relinearisation_key = None
    if parameters.levels:
        with desk.server():
            relinearisation_key = join_relinearisation_key(session, sums, second)
    if parameters.threshold < parameters.parties:
        holders = _share_secrets(desk, drawn, holders, secrets)
    return Keys(public_key, relinearisation_key, holders)


def decrypt(
    desk: MessageDesk,
    keys: Keys,
    ciphertext: Ciphertext,
    secrets: SecretSource,
    *,
    helpers: Collection[PartyId] | None = None,
) -> Entries:
    """Decrypt together.

    Args:
        desk: Carries the letters.
        keys: The joint key.
        ciphertext: What to open.
        secrets: Where all parties' smudging noise comes from.
        helpers: Exactly `threshold` parties; may be left out where all must help.
    """
    with desk.server():
        request = ask_to_decrypt(keys.public_key, ciphertext, helpers)
    letters = desk.down_each(dict.fromkeys(sorted(request.helpers), request), DecryptionRequest)
    shares = {}
    for party, received in letters.items():
        with desk.party():
            share = help_to_decrypt(keys.holders[party], received, secrets)
        shares[party] = desk.up(party, share, DecryptionShare)
    with desk.server():
        return combine(keys.public_key, ciphertext, shares)


def run(
    desk: MessageDesk,
    keys: Keys,
    vectors: Mapping[PartyId, Sequence[Sequence[int] | Entries]],
    secrets: SecretSource,
    *,
    circuit: ArithmeticCircuit | None = None,
    helpers: Collection[PartyId] | None = None,
) -> Entries:
    """Play a computation: all encrypt, the server adds up and computes, all decrypt.

    Args:
        desk: Carries the letters.
        keys: The joint key.
        vectors: What each party gives: one vector per input of the circuit.
        secrets: Where all parties' randomness comes from.
        circuit: What is computed from the sums; left out, the first sum is opened.
        helpers: Who decrypts, where not all must.

    Example:
        >>> from urna.protocols.he.plan import additive
        >>> from urna.randomness import ScriptedSecrets
        >>> secrets = ScriptedSecrets(b"sum")
        >>> desk = MessageDesk(Session(additive(parties=3, width=2), secrets.take(32)))
        >>> keys = make_keys(desk, secrets)
        >>> run(desk, keys, {0: [[1, 10]], 1: [[2, 20]], 2: [[3, 30]]}, secrets).tolist()
        [6, 60]
    """
    counts = {len(given) for given in vectors.values()}
    if len(counts) != 1 or 0 in counts:
        raise ParameterError("every party gives the same number of vectors, and at least one")
    arrived: list[list[Ciphertext]] = [[] for _ in range(counts.pop())]
    for party, given in vectors.items():
        for place, vector in enumerate(given):
            with desk.party():
                ciphertext = encrypt(keys.public_key, vector, secrets)
            arrived[place].append(desk.up(party, ciphertext, Ciphertext))
    with desk.server():
        evaluator = keys.evaluator()
        totals = [evaluator.total(terms) for terms in arrived]
        result = totals[0] if circuit is None else circuit(evaluator, totals)
        result = evaluator.lower(result, 0)  # fewer bytes to send and less noise to hide
    return decrypt(desk, keys, result, secrets, helpers=helpers)


def _share_secrets(
    desk: MessageDesk,
    drawn: Mapping[PartyId, Drawn],
    holders: Mapping[PartyId, KeyHolder],
    secrets: SecretSource,
) -> dict[PartyId, KeyHolder]:
    """Let every party share its secret with all others, sealed."""
    session = desk.session
    channels, keys = {}, {}
    for party in drawn:
        with desk.party():
            channels[party], key = open_channel(session, party, secrets)
        keys[party] = desk.up(party, key, ChannelKey)
    with desk.server():
        book = pass_on_channel_keys(session, keys)
    books = desk.down(book, ChannelBook)
    sealed = {}
    for party, state in drawn.items():
        with desk.party():
            shares = share_secret(state, channels[party], books[party], secrets)
        sealed[party] = desk.up(party, shares, EncryptedShares)
    with desk.server():
        boxes = pass_on_shares(session, sealed)
    finished = {}
    for party, box in desk.down_each(boxes, EncryptedShareBox).items():
        with desk.party():
            finished[party] = take_shares(holders[party], channels[party], books[party], box)
    return finished
