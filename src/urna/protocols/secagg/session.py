"""A client that speaks bytes: the stages of `client` behind one method.

Whatever carries the bytes (memory, a Flower grid) hands each message to `ClientSession.handle`
and sends back what it returns.
"""

from collections.abc import Callable

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
from urna.protocols.secagg.keys import sign_reply
from urna.protocols.secagg.messages import (
    AgreeRequest,
    Invitation,
    KeyBook,
    Message,
    Refusal,
    ShareBox,
    UnmaskRequest,
    Void,
)
from urna.protocols.secagg.wire import decode, encode
from urna.randomness import SecretSource

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
