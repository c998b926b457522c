"""The helper of one count, speaking bytes: what a network wraps."""

from collections.abc import Callable

from urna.errors import ProtocolError
from urna.protocols.ballots.helper import (
    Confirmed,
    Examined,
    HelperMember,
    Vouched,
    confirm,
    examine,
    vouch,
)
from urna.protocols.ballots.messages import (
    Batch,
    Verdict,
    encode_announcement,
    open_letter,
    seal_letter,
)
from urna.protocols.ballots.report import PublicParameters
from urna.randomness import SecretSource


class HelperSession:
    """Takes the leader's letters in their order, each once, and writes the answers.

    Guarantee:
        No report is answered twice: a letter that comes again, or a second one of its kind, is
        refused, also after one that was refused. A letter out of order changes nothing.

    Args:
        member: Who the helper is and what it insists on.
        secrets: Where its key for this count comes from.
        agree: Looks at the statement before the helper vouches for it, and raises to refuse it:
            the place for a policy.
        enter: Called before a verdict is confirmed, with the statement: the place for a ledger.
    """

    def __init__(
        self,
        member: HelperMember,
        secrets: SecretSource,
        *,
        agree: Callable[[PublicParameters], None] | None = None,
        enter: Callable[[PublicParameters], None] | None = None,
    ) -> None:
        self._member, self._secrets = member, secrets
        self._agree, self._enter = agree, enter
        self._state: Vouched | Examined | Confirmed | None = None
        self._vouched: Vouched | None = None
        self._begun = False

    @property
    def share(self) -> list[int]:
        """The helper's share of the exact sum, once all is confirmed."""
        if not isinstance(self._state, Confirmed):
            raise ProtocolError("there is no sum yet")
        return self._state.share

    def vouch(self, statement: bytes) -> bytes:
        """Return the announcement of a statement, signed.

        Raises:
            Refused: The helper does not take part in such a count.
            ProtocolError: This is no statement, or not the first.
        """
        if self._begun:
            raise ProtocolError("the helper has vouched for a statement of this count already")
        self._begun = True
        found = PublicParameters.read(statement)
        if self._agree is not None:
            self._agree(found)
        self._vouched, announcement = vouch(self._member, found, self._secrets)
        self._state = self._vouched
        return encode_announcement(announcement)

    def examine(self, letter: bytes) -> bytes:
        """Answer the batch.

        Raises:
            ProtocolError: It is none of the leader's, or not the first.
            RoundAborted: Too few reports stand.
        """
        state = self._state
        if not isinstance(state, Vouched):
            raise ProtocolError("the helper expects no batch now: each is answered once")
        self._state = None  # whatever happens, there is no second answer
        statement = state.statement
        batch = open_letter(letter, Batch, statement, state.pair, statement.leader_key)
        examined, answers = examine(state, batch)
        self._state = examined
        return seal_letter(answers, statement, state.pair, statement.leader_key)

    def confirm(self, letter: bytes) -> bytes:
        """Decide again, and confirm the verdict.

        Raises:
            ProtocolError: It is no verdict of the leader's, or does not follow. Nothing was opened.
        """
        state = self._state
        if not isinstance(state, Examined) or self._vouched is None:
            raise ProtocolError("the helper expects no verdict now: each count is confirmed once")
        self._state = None
        statement, pair = state.statement, self._vouched.pair
        verdict = open_letter(letter, Verdict, statement, pair, statement.leader_key)
        confirmed, confirmation = confirm(state, verdict)
        if self._enter is not None:
            self._enter(statement)
        self._state = confirmed
        return seal_letter(confirmation, statement, pair, statement.leader_key)
