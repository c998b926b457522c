"""The server of an encrypted combination: it invites, adds up, computes, and opens with help.

It sees ciphertexts, what is opened, who took part and when. `conduct` is its whole part; a
transport carries the letters, whether parties are in this process or behind a network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from urna.errors import ParameterError, ProtocolError, RoundAborted, RoundUnfinished
from urna.protocols.he import (
    Ciphertext,
    DecryptionShare,
    Evaluator,
    KeyShare,
    PartyId,
    PublicKey,
    RelinearisationShare,
    Session,
    add_key_shares,
    ask_to_decrypt,
    combine,
    join_public_key,
    join_relinearisation_key,
)
from urna.protocols.he.messages import ChannelKey, EncryptedShares, Message
from urna.protocols.he.threshold import pass_on_channel_keys, pass_on_shares
from urna.protocols.he.wire import decode, encode
from urna.randomness import SEED_BYTES, SecretSource
from urna.systems.combine.frame import Integers
from urna.systems.combine.letters import (
    LetterKind,
    OpeningStatement,
    PartyLetter,
    RunName,
    Verifier,
    digest,
    invitation,
    kind_of,
    pack_opened,
    unsigned,
)
from urna.systems.combine.party import PartySession, Seat
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.strategies import Combined
from urna.systems.combine.tasks import Task

_ANSWERS: Mapping[LetterKind, LetterKind] = {
    LetterKind.KEY_SUMS: LetterKind.KEY_REST,
    LetterKind.GIVE: LetterKind.GIVEN,
    LetterKind.OPEN: LetterKind.HELP,
    LetterKind.END: LetterKind.ENDED,
}
_REFUSAL = 1000  # bytes

MessageT = TypeVar("MessageT", bound=Message)


class PartyTransport(Protocol):
    """Carries one exchange."""

    def exchange(self, stage: str, letters: Mapping[PartyId, bytes]) -> Mapping[PartyId, bytes]:
        """Deliver letters to parties and return the replies that came in time.

        Args:
            stage: What is being done, for progress and logs.
            letters: By party; silence is no reply.
        """
        ...


class MemoryParties:
    """Parties in this process."""

    def __init__(self, parties: Mapping[PartyId, PartySession]) -> None:
        self._parties = parties

    def exchange(self, stage: str, letters: Mapping[PartyId, bytes]) -> dict[PartyId, bytes]:
        """Deliver letters and return the replies."""
        del stage
        return {party: self._parties[party].handle(data) for party, data in letters.items()}


@dataclass(frozen=True, slots=True)
class EncryptedOutcome:
    """What came of a run."""

    combined: Combined
    task: Task
    shown: tuple[Integers, ...]
    """What each step opened: everything that became public."""
    took_part: tuple[PartyId, ...]
    """Whose vectors are in the last total."""
    lost: Mapping[PartyId, str]
    """Who is not, and why."""
    traffic: Mapping[PartyId, int]
    """Bytes each party sent and received."""
    key_traffic: Mapping[PartyId, int]
    """Of these, the keys'."""


def play(
    task: Task, searches: Sequence[LocalSearch], secrets: SecretSource, *, recomputes: bool = False
) -> EncryptedOutcome:
    """Play all parties and the server of a task in this process.

    Args:
        task: What is computed.
        searches: Each party's search.
        secrets: Where everybody's randomness comes from.
        recomputes: Whether parties compute results again before they help to open them.
    """
    if len(searches) != task.parties:
        raise ParameterError(f"the task is for {task.parties} parties, got {len(searches)}")
    run = RunName(task, secrets.take(SEED_BYTES))
    seats = [Seat(run, party, search, recomputes) for party, search in enumerate(searches)]
    parties = MemoryParties({seat.party: PartySession(seat, secrets) for seat in seats})
    return conduct(run, parties, witnesses=recomputes)


def conduct(
    run: RunName,
    transport: PartyTransport,
    *,
    witnesses: bool = False,
    verifier: Verifier | None = None,
) -> EncryptedOutcome:
    """Play the server of a run.

    A joint key needs all parties. Where fewer than all must help to open, one that vanishes later
    need not help, but whoever is in the total of one step must be in that of the next.

    Args:
        run: The task that all agreed to, and what names the run.
        transport: Reaches parties 0 … parties − 1.
        witnesses: Whether parties are shown each other's letters, to compute keys and results
            again.
        verifier: Knows whether parties signed their letters, where they do. One that the network
            altered costs its sender its place, and nobody else. Without one, a channel that
            alters nothing is assumed.

    Raises:
        RoundAborted: Too few parties stayed; nothing was opened. Others may begin another run.
        RoundUnfinished: Too few stayed to go on after something was opened or shares of it were
            given.
        ParameterError: The opened totals leave nothing to combine.
    """
    return _Server(run, transport, witnesses, verifier).play()


class _Server:
    """The server's part, with what it knows so far."""

    def __init__(
        self, run: RunName, transport: PartyTransport, witnesses: bool, verifier: Verifier | None
    ) -> None:
        self._run, self._transport = run, transport
        self._witnesses, self._verifier = witnesses, verifier
        self._task, self._sessions = run.task, run.sessions
        self._binding, self._longest = run.binding, run.longest
        self._lost: dict[PartyId, str] = {}
        self._public: list[PublicKey] = []
        self._boxes: dict[PartyId, tuple[bytes, ...]] = {}
        self._rest: tuple[bytes, ...] = ()
        """Of those who compute again, everybody's second letter about the keys."""
        self._exchanges = 0
        self._begun = False
        """Whether somebody has been asked to open something."""
        self._traffic = dict.fromkeys(range(run.task.parties), 0)

    @property
    def _live(self) -> list[PartyId]:
        """Who has answered everything so far."""
        return [party for party in range(self._task.parties) if party not in self._lost]

    def play(self) -> EncryptedOutcome:
        """Make the keys, and go through all steps."""
        evaluators, relinearisation = self._make_keys()
        key_traffic = dict(self._traffic)
        shown: list[Integers] = []
        contributors: Sequence[PartyId] = ()
        for number in range(len(self._task.steps)):
            given = self._collect(shown)
            if missing := set(contributors) - given.keys():
                raise RoundUnfinished(
                    f"{len(missing)} of the {len(contributors)} parties of step {number} gave "
                    f"nothing in step {number + 1}: its sums could hold fewer clients than were "
                    f"agreed on. Only step {number} was opened",
                    self._lost,
                )
            contributors = sorted(given)
            shown.append(self._open(number, evaluators[number], relinearisation[number], given))
        self._ask("ending", LetterKind.END, {p: ((pack_opened(shown[-1]),),) for p in self._live})
        return EncryptedOutcome(
            self._task.read(shown),
            self._task,
            tuple(shown),
            tuple(contributors),
            {p: why for p, why in sorted(self._lost.items()) if p not in contributors},
            self._traffic,
            key_traffic,
        )

    def _make_keys(self) -> tuple[list[Evaluator], list[bytes]]:
        """Two exchanges with everybody; whoever is missing ends the run."""
        invitations = {p: invitation(self._run, p) for p in self._live}
        first = self._exchange("making keys", LetterKind.KEY_SHARES, invitations)
        self._insist(first, "before the keys were made")
        sums = [
            add_key_shares(session, self._parts(first, 0, number, KeyShare))
            for number, session in enumerate(self._sessions)
        ]
        shared = self._sessions if self._run.shares_secrets else ()
        books = tuple(
            encode(
                pass_on_channel_keys(session, self._parts(first, 1, number, ChannelKey)), session
            )
            for number, session in enumerate(shared)
        )
        pairs = list(zip(self._sessions, sums, strict=True))
        letter = (
            tuple(encode(total, session) for session, total in pairs),
            books,
            *((self._shown(first),) if self._witnesses else ()),
        )
        second = self._ask("finishing keys", LetterKind.KEY_SUMS, dict.fromkeys(self._live, letter))
        self._insist(second, "before the keys were finished")
        if self._witnesses:
            self._rest = self._shown(second)
        evaluators, keys = [], []
        for number, (session, total) in enumerate(pairs):
            public_key, key = join_public_key(session, total), None
            if session.parameters.levels:
                rest = self._parts(second, 0, number, RelinearisationShare)
                key = join_relinearisation_key(session, total, rest)
            self._public.append(public_key)
            evaluators.append(Evaluator(public_key, key))
            keys.append(encode(key, session) if key is not None and self._witnesses else b"")
        for number, session in enumerate(shared):
            sealed = self._parts(second, 1, number, EncryptedShares)
            for p, box in pass_on_shares(session, sealed).items():  # out with the first step
                self._boxes[p] = (*self._boxes.get(p, ()), encode(box, session))
        return evaluators, keys

    def _shown(self, letters: Mapping[PartyId, PartyLetter]) -> tuple[bytes, ...]:
        """Return parties' letters as they came, in order: there is one encoding of each."""
        return tuple(letters[p].encode(self._binding) for p in sorted(letters))

    def _collect(self, shown: Sequence[Integers]) -> dict[PartyId, PartyLetter]:
        """Get the ciphertexts of the next step."""
        number = len(shown)
        before = (pack_opened(shown[-1]),) if shown else ()
        letters = {p: (before, self._boxes.get(p, ()) if not shown else ()) for p in self._live}
        replies = self._ask(f"step {number + 1}: encrypting", LetterKind.GIVE, letters)
        inputs = self._task.steps[number].inputs
        for party, letter in replies.items():
            self._group(party, letter, 0, inputs)
        if len(replies) < self._task.threshold:
            raise self._ended(f"{len(replies)} parties gave their vectors")
        return replies

    def _open(
        self,
        number: int,
        evaluator: Evaluator,
        key: bytes,
        letters: Mapping[PartyId, PartyLetter],
    ) -> Integers:
        """Compute a step's result and open it with as many helpers as needed."""
        session, step = self._sessions[number], self._task.steps[number]
        given = {p: letter.group(0, step.inputs) for p, letter in letters.items()}
        inputs = [
            [self._decoded(p, given[p][place], session, Ciphertext) for p in sorted(given)]
            for place in range(step.inputs)
        ]
        result = step.evaluate(evaluator, inputs)
        said = OpeningStatement(
            number, {p: tuple(map(digest, given[p])) for p in sorted(given)}
        ).encode()
        shown: tuple[tuple[bytes, ...], ...] = ()
        if self._witnesses:
            shown = (self._shown(letters), (key, *self._rest) if key else ())
        public_key = self._public[number]
        while len(able := [p for p in self._live if p in given]) >= self._task.threshold:
            helpers = able[: self._task.threshold]
            request = ask_to_decrypt(public_key, result, helpers)
            asked = ((said, encode(request, session)), *shown)
            self._begun = True
            replies = self._ask(
                f"step {number + 1}: opening", LetterKind.OPEN, dict.fromkeys(helpers, asked)
            )
            if len(replies) == len(helpers):
                shares = {
                    p: self._decoded(p, self._group(p, letter, 0, 1)[0], session, DecryptionShare)
                    for p, letter in replies.items()
                }
                try:
                    opened = combine(public_key, result, shares)
                except ProtocolError as error:
                    reason = f"step {number + 1} cannot be opened: {error}"
                    raise RoundUnfinished(reason, self._lost) from error
                return self._task.shown(number, opened)
        raise self._ended(f"{len(able)} parties were left to open step {number + 1}")

    def _parts(
        self,
        letters: Mapping[PartyId, PartyLetter],
        place: int,
        number: int,
        kind: type[MessageT],
    ) -> dict[PartyId, MessageT]:
        """Return every party's message for one step's key."""
        steps, session = len(self._sessions), self._sessions[number]
        return {
            p: self._decoded(p, self._group(p, letter, place, steps)[number], session, kind)
            for p, letter in letters.items()
        }

    def _group(
        self, party: PartyId, letter: PartyLetter, place: int, count: int
    ) -> tuple[bytes, ...]:
        try:
            return letter.group(place, count)
        except ProtocolError as error:
            raise self._blamed(party, error) from error

    def _decoded(
        self, party: PartyId, data: bytes, session: Session, kind: type[MessageT]
    ) -> MessageT:
        try:
            return decode(data, session, kind, sender=party)
        except ProtocolError as error:
            raise self._blamed(party, error) from error

    def _blamed(self, party: PartyId, error: ProtocolError) -> RoundAborted | RoundUnfinished:
        self._lost[party] = f"sent what is not due: {error}"
        return self._ended("a party broke the protocol, all others")

    def _ask(
        self, stage: str, kind: LetterKind, letters: Mapping[PartyId, tuple[tuple[bytes, ...], ...]]
    ) -> dict[PartyId, PartyLetter]:
        """Send a letter to each of some parties; return the proper answers."""
        sent = {
            p: PartyLetter(kind, groups, p, self._exchanges).encode(self._binding)
            for p, groups in letters.items()
        }
        return self._exchange(stage, _ANSWERS[kind], sent)

    def _exchange(
        self, stage: str, expected: LetterKind, sent: Mapping[PartyId, bytes]
    ) -> dict[PartyId, PartyLetter]:
        replies = self._transport.exchange(stage, sent)
        answers = {}
        for party, data in sent.items():
            reply = replies.get(party)
            self._traffic[party] += len(data) + len(reply or b"")
            try:
                answers[party] = self._answer(party, reply, expected)
            except ProtocolError as error:
                self._lost[party] = f"{error} ({stage})"
        self._exchanges += 1
        return answers

    def _answer(self, party: PartyId, reply: bytes | None, expected: LetterKind) -> PartyLetter:
        """Read one party's answer."""
        if reply is None:
            raise ProtocolError("did not answer")
        try:
            letter = self._read(party, reply)
        except ProtocolError as error:
            if self._verifier is None:
                raise
            raise ProtocolError(f"its letter arrived altered: {error}") from error
        if letter.kind is LetterKind.REFUSAL:
            said = letter.group(0, 1)[0].decode(errors="replace")
            raise ProtocolError(f"refused: {said}")
        if letter.exchange != self._exchanges:  # sent again by whoever carries letters
            raise ProtocolError("its letter is not one of this step")
        if letter.kind is not expected:
            raise ProtocolError(f"answered with a letter of the kind {letter.kind.name}")
        return letter

    def _read(self, party: PartyId, reply: bytes) -> PartyLetter:
        """Return a letter as it came; refusals, which name no run, are not signed."""
        if kind_of(reply, self._longest) is LetterKind.REFUSAL:
            return PartyLetter.decode(reply, bytes(32), longest=_REFUSAL)
        letter = PartyLetter.decode(reply, self._binding, longest=self._longest, party=party)
        if self._verifier is not None:
            unsigned(letter, party, self._binding, self._verifier)
        return letter

    def _insist(self, letters: Mapping[PartyId, PartyLetter], when: str) -> None:
        """Insist on everybody: a joint key needs them all."""
        if len(letters) < self._task.parties:
            raise RoundAborted(f"a party was lost {when}. Nothing was opened", self._lost)

    def _ended(self, reason: str) -> RoundAborted | RoundUnfinished:
        needed = f"{reason}; {self._task.threshold} are needed"
        if self._begun:
            return RoundUnfinished(f"{needed}. Something may have been opened", self._lost)
        return RoundAborted(f"{needed}. Nothing was opened", self._lost)
