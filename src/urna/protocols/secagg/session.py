"""A client that speaks bytes, and its state as bytes for where no process lives that long.

Whatever carries the bytes (memory, a Flower grid) hands each message to `ClientSession.handle`
and sends back what it returns. What `freeze` writes holds secrets: keys, seeds, shares. Keep it
where only the client can read it, use it once, and delete it when the round is over.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from urna.errors import ProtocolError, UrnaError
from urna.noise import IntVector
from urna.protocols.secagg.client import (
    Advertised,
    Agreed,
    BadShares,
    Complained,
    Finished,
    Masked,
    Member,
    Shared,
    advertise,
    agree,
    check_vector,
    complain,
    give_up,
    mask_vector,
    reveal_shares,
    share_keys,
)
from urna.protocols.secagg.keys import KeyPair, sign_reply
from urna.protocols.secagg.messages import (
    AgreeRequest,
    Invitation,
    KeyBook,
    Message,
    Parts,
    Refusal,
    ShareBox,
    UnmaskRequest,
    Void,
)
from urna.protocols.secagg.wire import decode, encode
from urna.protocols.wire import DIGEST, Form, MessageForm, Reader
from urna.randomness import SEED_BYTES, SecretSource

Vector = IntVector | Callable[[], IntVector]
"""A client's vector, or what produces it."""

ClientState = Member | Advertised | Shared | Masked | Agreed | Complained | Finished
"""What a client knows between two stages."""


class ClientSession:
    """One client in one round.

    A message that breaks the protocol is answered with a refusal, and the client takes no
    further part in a round it had joined. A message that is not the one it waits for is refused
    and changes nothing. With an identity key, each answer but a refusal is signed as a whole, and
    with it the message that it answers. A message that comes twice in a row is answered with the
    same bytes again: a network that repeats itself does no harm, and a second, different request
    gets nothing.

    Args:
        member: What the client knows before the round.
        vector: What it puts in, or what produces it once it is asked for.
        source: Where its keys, seeds and polynomials come from.
        state: Where an interrupted session stood (`state`); a fresh one begins with `member`.

    Raises:
        ParameterError: The vector does not have the planned length or does not fit the ring.
    """

    def __init__(
        self,
        member: Member,
        vector: Vector,
        source: SecretSource,
        state: ClientState | None = None,
    ) -> None:
        if not callable(vector):
            check_vector(vector, member.plan)
        self._member, self._vector, self._source = member, vector, source
        self._state: ClientState = member if state is None else state
        self._last: tuple[bytes, bytes] | None = None
        self._latest_round = member.latest_round

    @property
    def state(self) -> ClientState:
        """Where the session stands: to be kept, secretly, where it must be taken up again."""
        return self._state

    @property
    def latest_round(self) -> int:
        """The number to keep across restarts: no round up to it is answered again."""
        return self._latest_round

    def handle(self, data: bytes) -> bytes:
        """Answer one message of the server."""
        if self._last is not None and data == self._last[0]:
            return self._last[1]
        plan = self._member.plan
        try:
            message = decode(data, plan)
        except ProtocolError as error:
            return self._refusal(str(error))
        try:
            reply = self._step(message)
        except UrnaError as error:
            if not isinstance(self._state, Member):  # a wrong invitation costs nothing yet
                self._state = Finished(b"")  # forgets every secret of the round
            return self._refusal(str(error))
        if reply is None:
            return self._refusal(
                f"a client in state {type(self._state).__name__} does not wait for "
                f"{type(message).__name__}"
            )
        answer = encode(reply, plan)
        if self._member.identity is not None:
            answer += sign_reply(self._member.identity, data, answer)
        self._last = data, answer
        return answer

    def _step(self, message: Message) -> Message | None:
        """Take the step the state and the message call for, or none."""
        reply: Message
        match self._state, message:
            case Member() as member, Invitation() as invitation:
                self._state, reply = advertise(member, invitation, self._source)
                self._latest_round = invitation.number
            case Advertised() as state, KeyBook() as book:
                self._state, reply = share_keys(state, book, self._source)
            case Shared() as state, ShareBox() as box:
                self._state, reply = self._mask(state, box)
            case Masked() as state, AgreeRequest() as request:
                self._state, reply = agree(state, request)
            case (Masked() | Agreed()) as state, UnmaskRequest() as request:
                self._state, reply = reveal_shares(state, request)
            case (
                (Advertised() | Shared() | Masked() | Agreed() | Complained()) as state,
                Void() as request,
            ):
                self._state, reply = give_up(state, request)
            case _:
                return None
        return reply

    def _mask(self, state: Shared, box: ShareBox) -> tuple[ClientState, Message]:
        vector = self._vector() if callable(self._vector) else self._vector
        try:
            return mask_vector(state, box, vector)
        except BadShares as bad:
            return complain(state, box, bad.peer, self._source)

    def _refusal(self, reason: str) -> bytes:
        return encode(Refusal(self._member.client, reason), self._member.plan)


def freeze(state: ClientState) -> bytes:
    """Write a state down, without what the member knows by its own means.

    Raises:
        ProtocolError: The round has not begun, or it is over: there is nothing to keep.
    """
    form = _OF_TYPE.get(type(state))
    if form is None:
        raise ProtocolError("a round that has not begun or is over has no state to keep")
    return bytes([form.number]) + form.write(state, None)


def thaw(data: bytes, member: Member) -> ClientState:
    """Read what `freeze` wrote.

    Raises:
        ProtocolError: It is no state of a round.
    """
    kept = _Kept(data, member)
    try:
        state = kept.state()
        kept.end()
    except (ProtocolError, ValueError, OverflowError) as error:
        raise ProtocolError("what was kept of a round cannot be read") from error
    return state


class _Kept(Reader):
    """A state as bytes, and whose it is."""

    def __init__(self, data: bytes, member: Member) -> None:
        super().__init__(data, 0)
        self.member = member

    def state(self, *kinds: type) -> ClientState:
        """Read a state, of certain kinds if any are given."""
        form = _OF_NUMBER.get(self.number(1))
        if form is None or (kinds and form.kind not in kinds):
            raise ProtocolError("no state is written so")
        state: ClientState = form.read(self)
        size = SEED_BYTES * self.member.plan.secrets
        if isinstance(state, Masked) and state.bundles.size != size:
            raise ProtocolError("a bundle holds a share of each secret")
        return state


def _sized(write: Callable[[Any], bytes], read: Callable[[bytes], Any]) -> Form:
    """Return a field behind its length."""

    def put(value: Any, _: None) -> bytes:  # noqa: ANN401 - whatever the field holds
        data = write(value)
        return len(data).to_bytes(4, "big") + data

    return Form(put, lambda kept: read(kept.take(kept.number(4))))


def _ids(clients: Iterable[int]) -> bytes:
    return np.array(sorted(clients), dtype=">u4").tobytes()


def _read_ids(packed: bytes) -> list[int]:
    found: list[int] = np.frombuffer(packed, dtype=">u4").tolist()
    return found


def _write_parts(parts: Parts) -> bytes:
    return len(parts).to_bytes(4, "big") + _ids(parts) + parts.rows.tobytes()


def _read_parts(packed: bytes) -> Parts:
    rows = 4 + 4 * int.from_bytes(packed[:4], "big")
    clients = np.array(_read_ids(packed[4:rows]), dtype=np.int64)
    return Parts(clients, np.frombuffer(packed[rows:], dtype=np.uint8).reshape(len(clients), -1))


def _cut(packed: bytes) -> tuple[bytes, ...]:
    return tuple(packed[at : at + SEED_BYTES] for at in range(0, len(packed), SEED_BYTES))


_MEMBER = Form(lambda *_: b"", lambda kept: kept.member)
_MASKED = Form(lambda held, _: freeze(held), lambda kept: kept.state(Masked))
_BYTES = _sized(bytes, bytes)
_NUMBER = _sized(lambda number: number.to_bytes(8, "big"), int.from_bytes)
_IDS = _sized(_ids, lambda packed: tuple(_read_ids(packed)))
_SET = _sized(_ids, lambda packed: frozenset(_read_ids(packed)))
_PAIR = _sized(lambda pair: pair.private, KeyPair.of)
_KEYS = _sized(
    lambda keys: _write_parts(Parts.of(keys, SEED_BYTES)),
    lambda packed: dict(_read_parts(packed).pairs()),
)
_SEEDS = _sized(b"".join, _cut)
_PARTS = _sized(_write_parts, _read_parts)
_ADVERTISED = (_MEMBER, _BYTES, _NUMBER, _IDS, _PAIR, _PAIR)
_SHARED = (_MEMBER, _BYTES, _SET, _PAIR, _PAIR, _KEYS, _KEYS, _KEYS, _BYTES, _SEEDS)
_STATES = (
    MessageForm.of(ord("A"), Advertised, *_ADVERTISED),
    MessageForm.of(ord("S"), Shared, *_SHARED),
    MessageForm.of(ord("M"), Masked, _MEMBER, _BYTES, _SET, _PARTS),
    MessageForm.of(ord("G"), Agreed, DIGEST, _MASKED),
    MessageForm.of(ord("C"), Complained, _MEMBER, _BYTES),
)
_OF_TYPE = {form.kind: form for form in _STATES}
_OF_NUMBER = {form.number: form for form in _STATES}
