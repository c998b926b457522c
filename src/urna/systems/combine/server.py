"""The server of an encrypted combination: it invites, adds up, computes, and opens with help.

It sees ciphertexts, what is opened, who took part and when. `conduct` is its whole part; a
transport carries the letters, whether parties are in this process, in processes of their own or
behind a network.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from urna.errors import ParameterError, ProtocolError, RoundAborted, RoundUnfinished
from urna.protocols.he import (
    Ciphertext,
    DecryptionShare,
    Evaluator,
    KeyShare,
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
from urna.systems.combine.federated import Integers
from urna.systems.combine.letters import (
    LetterKind,
    OpeningStatement,
    PartyLetter,
    RunName,
    Verifier,
    digest,
    kind_of,
    pack_opened,
    unsigned,
)
from urna.systems.combine.party import invitation
from urna.systems.combine.strategies import Combined
from urna.systems.combine.tasks import Task

__all__ = ["EncryptedOutcome", "PartyTransport", "conduct"]

_ANSWERS: Mapping[LetterKind, LetterKind] = {
    LetterKind.KEY_SUMS: LetterKind.KEY_REST,
    LetterKind.GIVE: LetterKind.GIVEN,
    LetterKind.OPEN: LetterKind.HELP,
    LetterKind.END: LetterKind.ENDED,
}
_REFUSAL = 1000  # bytes

Place = int
"""A party's place among those the transport reaches."""

MessageT = TypeVar("MessageT", bound=Message)


class PartyTransport(Protocol):
    """Carries one exchange."""

    def exchange(self, stage: str, letters: Mapping[Place, bytes]) -> Mapping[Place, bytes]:
        """Deliver letters to parties and return the replies that came in time.

        Args:
            stage: What is being done, for progress and logs.
            letters: By place; silence is no reply.
        """
        ...


@dataclass(frozen=True, slots=True)
class EncryptedOutcome:
    """What came of a run."""

    combined: Combined
    task: Task
    """As it was played, perhaps among fewer than were invited."""
    shown: tuple[Integers, ...]
    """What each step opened: everything that became public."""
    took_part: tuple[Place, ...]
    """Whose vectors are in the last total."""
    lost: Mapping[Place, str] = field(default_factory=dict)
    """Who is not, and why."""
    server_seconds: float = 0.0
    """CPU time of the server's part."""
    traffic: Mapping[Place, int] = field(default_factory=dict)
    """Bytes each party sent and received."""
    key_traffic: Mapping[Place, int] = field(default_factory=dict)
    """Of these, the keys'."""


def conduct(
    task: Task,
    transport: PartyTransport,
    secrets: SecretSource,
    *,
    fewest: int | None = None,
    witnesses: bool = False,
    attempts: int = 2,
    nonce: bytes | None = None,
    verifier: Verifier | None = None,
) -> EncryptedOutcome:
    """Play the server of a task.

    Whoever vanishes before anything is opened is left out, and the run begins anew with fresh
    keys among the others, if they are enough. Where all had to help to open, all who are left
    must then. Where fewer must, one that vanishes later need not help, but whoever is in the
    total of one step must be in that of the next.

    Args:
        task: What all parties agreed to.
        transport: Reaches parties 0 … parties − 1.
        secrets: Where the run's public nonce comes from.
        fewest: With fewer parties nothing is begun; the task's threshold by default.
        witnesses: Whether parties are shown each other's letters, to compute keys and results
            again.
        attempts: How often a run may begin.
        nonce: What names the only run, where that was announced; drawn by default.
        verifier: Knows whether parties signed their letters, where they do. One that the network
            altered costs its sender its place, and nobody else. Without one, a channel that
            alters nothing is assumed.

    Raises:
        RoundAborted: Too few parties stayed; nothing was opened.
        RoundUnfinished: Too few stayed to go on after something was opened or shares of it were
            given.
        ParameterError: The opened totals leave nothing to combine.
    """
    if (nonce is not None or verifier is not None) and attempts > 1:
        raise ParameterError("a run that was announced is begun once: attempts=1")
    there, fewest = tuple(range(task.parties)), max(2, fewest or task.threshold)
    lost: dict[Place, str] = {}
    for attempt in range(1, attempts + 1):
        named = secrets.take(SEED_BYTES) if nonce is None else nonce
        run = _Run(task, there, transport, named, witnesses, lost, verifier)
        try:
            return run.play()
        except RoundAborted:
            there = tuple(place for place in there if place not in lost)
            if attempt == attempts or len(there) < fewest:
                raise
    raise RoundAborted("no attempt was made", lost)


class _Run:
    """One attempt."""

    def __init__(
        self,
        agreed: Task,
        there: Sequence[Place],
        transport: PartyTransport,
        nonce: bytes,
        witnesses: bool,
        lost: dict[Place, str],
        verifier: Verifier | None,
    ) -> None:
        self._agreed, self._transport, self._witnesses = agreed, transport, witnesses
        self._places = tuple(there)
        self._lost, self._verifier = lost, verifier
        self.run = RunName(agreed.among(len(there)), nonce)
        self._task, self._sessions = self.run.task, self.run.sessions
        self._binding, self._longest = self.run.binding, self.run.longest
        self._live = dict(enumerate(self._places))
        self._public: list[PublicKey] = []
        self._boxes: dict[int, tuple[bytes, ...]] = {}
        self._rest: tuple[bytes, ...] = ()
        """Of those who compute again, everybody's second letter about the keys."""
        self._exchanges = 0
        self._begun = False
        """Whether somebody has been asked to open something."""
        self._traffic: dict[Place, int] = dict.fromkeys(self._places, 0)
        self._key_traffic: dict[Place, int] = {}
        self._start = time.process_time()
        self._away = 0.0

    def play(self) -> EncryptedOutcome:
        """Make the keys, and go through all steps."""
        evaluators, relinearisation = self._make_keys()
        self._key_traffic = dict(self._traffic)
        shown: list[Integers] = []
        contributors: Sequence[int] = ()
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
        seconds = time.process_time() - self._start - self._away
        self._ask("ending", LetterKind.END, {p: ((pack_opened(shown[-1]),),) for p in self._live})
        took_part = tuple(self._places[party] for party in contributors)
        return EncryptedOutcome(
            self._task.read(shown),
            self._task,
            tuple(shown),
            took_part,
            {p: why for p, why in sorted(self._lost.items()) if p not in took_part},
            seconds,
            self._traffic,
            self._key_traffic,
        )

    def _make_keys(self) -> tuple[list[Evaluator], list[bytes]]:
        """Two exchanges with everybody; whoever is missing ends the attempt."""
        invitations = {p: invitation(self._agreed, self.run, p) for p in self._live}
        first = self._exchange("making keys", LetterKind.KEY_SHARES, invitations)
        self._insist(first, "before the keys were made")
        sums = [
            add_key_shares(session, self._parts(first, 0, number, KeyShare))
            for number, session in enumerate(self._sessions)
        ]
        shared = self._task.threshold < self._task.parties
        books = tuple(
            encode(
                pass_on_channel_keys(session, self._parts(first, 1, number, ChannelKey)), session
            )
            for number, session in enumerate(self._sessions if shared else ())
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
        for number, session in enumerate(self._sessions if shared else ()):
            sealed = self._parts(second, 1, number, EncryptedShares)
            for p, box in pass_on_shares(session, sealed).items():  # out with the first step
                self._boxes[p] = (*self._boxes.get(p, ()), encode(box, session))
        return evaluators, keys

    def _shown(self, letters: Mapping[int, PartyLetter]) -> tuple[bytes, ...]:
        """Return parties' letters as they came, in order: there is one encoding of each."""
        return tuple(letters[p].encode(self._binding) for p in sorted(letters))

    def _collect(self, shown: Sequence[Integers]) -> dict[int, PartyLetter]:
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
        letters: Mapping[int, PartyLetter],
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
        while len(able := sorted(self._live.keys() & given.keys())) >= self._task.threshold:
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
        self, letters: Mapping[int, PartyLetter], place: int, number: int, kind: type[MessageT]
    ) -> dict[int, MessageT]:
        """Return every party's message for one step's key."""
        steps, session = len(self._sessions), self._sessions[number]
        return {
            p: self._decoded(p, self._group(p, letter, place, steps)[number], session, kind)
            for p, letter in letters.items()
        }

    def _group(self, party: int, letter: PartyLetter, place: int, count: int) -> tuple[bytes, ...]:
        try:
            return letter.group(place, count)
        except ProtocolError as error:
            raise self._blamed(party, error) from error

    def _decoded(self, party: int, data: bytes, session: Session, kind: type[MessageT]) -> MessageT:
        try:
            return decode(data, session, kind, sender=party)
        except ProtocolError as error:
            raise self._blamed(party, error) from error

    def _blamed(self, party: int, error: ProtocolError) -> RoundAborted | RoundUnfinished:
        self._lost[self._places[party]] = f"sent what is not due: {error}"
        self._live.pop(party, None)
        return self._ended("a party broke the protocol, all others")

    def _ask(
        self, stage: str, kind: LetterKind, letters: Mapping[int, tuple[tuple[bytes, ...], ...]]
    ) -> dict[int, PartyLetter]:
        """Send a letter to each of some parties; return the proper answers."""
        sent = {
            p: PartyLetter(kind, groups, p, self._exchanges).encode(self._binding)
            for p, groups in letters.items()
        }
        return self._exchange(stage, _ANSWERS[kind], sent)

    def _exchange(
        self, stage: str, expected: LetterKind, sent: Mapping[int, bytes]
    ) -> dict[int, PartyLetter]:
        start = time.process_time()
        replies = self._transport.exchange(stage, {self._places[p]: d for p, d in sent.items()})
        self._away += time.process_time() - start
        answers = {}
        for party, data in sent.items():
            place = self._places[party]
            reply = replies.get(place)
            self._traffic[place] += len(data) + len(reply or b"")
            try:
                answers[party] = self._answer(party, reply, expected)
            except ProtocolError as error:
                self._lost[place] = f"{error} ({stage})"
                self._live.pop(party, None)
        self._exchanges += 1
        return answers

    def _answer(self, party: int, reply: bytes | None, expected: LetterKind) -> PartyLetter:
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

    def _read(self, party: int, reply: bytes) -> PartyLetter:
        """Return a letter as it came; refusals, which name no run, are not signed."""
        if kind_of(reply, self._longest) is LetterKind.REFUSAL:
            return PartyLetter.decode(reply, bytes(32), longest=_REFUSAL)
        letter = PartyLetter.decode(reply, self._binding, longest=self._longest, party=party)
        if self._verifier is not None:
            unsigned(letter, party, self._binding, self._verifier)
        return letter

    def _insist(self, letters: Mapping[int, PartyLetter], when: str) -> None:
        """Insist on everybody: a joint key needs them all."""
        if len(letters) < len(self._places):
            raise RoundAborted(f"a party was lost {when}. Nothing was opened", self._lost)

    def _ended(self, reason: str) -> RoundAborted | RoundUnfinished:
        needed = f"{reason}; {self._task.threshold} are needed"
        if self._begun:
            return RoundUnfinished(f"{needed}. Something may have been opened", self._lost)
        return RoundAborted(f"{needed}. Nothing was opened", self._lost)
