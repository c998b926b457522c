"""The server of an encrypted combination: it invites, adds up, computes, and opens with help.

It sees ciphertexts, what is opened, who took part and when. `conduct` is its whole part; a
transport carries the letters, whether parties are in this process or behind a network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from urna.errors import ProtocolError, RoundAborted, RoundUnfinished
from urna.protocols.he import (
    Ciphertext,
    DecryptionShare,
    Evaluator,
    KeyShare,
    KeySum,
    PartyId,
    PublicKey,
    RelinearisationKey,
    RelinearisationShare,
    add_key_shares,
    ask_to_decrypt,
    combine,
    join_public_key,
    join_relinearisation_key,
)
from urna.protocols.he.keys import pass_on_channel_keys, pass_on_shares
from urna.protocols.he.messages import ChannelKey, EncryptedShares
from urna.protocols.he.wire import encode
from urna.systems.combine.frame import Integers
from urna.systems.combine.letters import (
    LetterKind,
    OpeningStatement,
    PartyLetter,
    RunName,
    Undue,
    Verifier,
    invitation,
    pack_opened,
    reason_of,
    unsigned,
)
from urna.systems.combine.strategies import Combined
from urna.systems.combine.tasks import Task

_ANSWERS: Mapping[LetterKind, LetterKind] = {
    LetterKind.KEY_SUMS: LetterKind.KEY_REST,
    LetterKind.GIVE: LetterKind.GIVEN,
    LetterKind.OPEN: LetterKind.HELP,
    LetterKind.END: LetterKind.ENDED,
}


class PartyTransport(Protocol):
    """Carries one exchange."""

    def exchange(self, stage: str, letters: Mapping[PartyId, bytes]) -> Mapping[PartyId, bytes]:
        """Deliver letters to parties and return the replies that came in time.

        Args:
            stage: What is being done, for progress and logs.
            letters: By party; silence is no reply.
        """
        ...


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


def key_sums(
    run: RunName, letters: Mapping[PartyId, PartyLetter]
) -> tuple[list[KeySum], tuple[tuple[bytes, ...], tuple[bytes, ...]]]:
    """Add up all parties' shares of the keys; anybody who has their letters can.

    Returns:
        The sums, and what travels: these and, where t of n may open, all channel keys.
    """
    sessions, sums, books = run.sessions, [], []
    for number, session in enumerate(sessions):
        shares = {
            party: letter.message(0, len(sessions), number, session, KeyShare)
            for party, letter in letters.items()
        }
        sums.append(add_key_shares(session, shares))
        if run.shares_secrets:
            keys = {
                party: letter.message(1, len(sessions), number, session, ChannelKey)
                for party, letter in letters.items()
            }
            books.append(encode(pass_on_channel_keys(session, keys), session))
    written = tuple(encode(each, session) for each, session in zip(sums, sessions, strict=True))
    return sums, (written, tuple(books))


def result_of(
    run: RunName, number: int, given: Mapping[PartyId, PartyLetter], evaluator: Evaluator
) -> Ciphertext:
    """Compute a step's result from all ciphertexts; anybody who has the letters can."""
    session, step = run.sessions[number], run.task.steps[number]
    inputs = [
        [
            given[party].message(0, step.inputs, place, session, Ciphertext)
            for party in sorted(given)
        ]
        for place in range(step.inputs)
    ]
    return step.evaluate(evaluator, inputs)


class _StepKey(NamedTuple):
    """The joint key of one step, and what turns products under it back into ciphertexts."""

    public: PublicKey
    products: RelinearisationKey | None


class _Server:
    """The server's part, with what it knows so far."""

    def __init__(
        self, run: RunName, transport: PartyTransport, witnesses: bool, verifier: Verifier | None
    ) -> None:
        self._run, self._transport = run, transport
        self._witnesses, self._verifier = witnesses, verifier
        self._task, self._sessions, self._binding = run.task, run.sessions, run.binding
        self._lost: dict[PartyId, str] = {}
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
        try:
            return self._play()
        except Undue as error:
            self._lost[error.party] = f"sent what is not due: {error}"
            raise self._ended("a party broke the protocol, all others") from error

    def _play(self) -> EncryptedOutcome:
        keys = self._make_keys()
        key_traffic = dict(self._traffic)
        shown: list[Integers] = []
        contributors: Sequence[PartyId] = ()
        for number, key in enumerate(keys):
            given = self._collect(shown)
            if missing := set(contributors) - given.keys():
                raise RoundUnfinished(
                    f"{len(missing)} of the {len(contributors)} parties of step {number} gave "
                    f"nothing in step {number + 1}: its sums could hold fewer clients than were "
                    f"agreed on. Only step {number} was opened",
                    self._lost,
                )
            contributors = sorted(given)
            shown.append(self._open(number, key, given))
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

    def _make_keys(self) -> list[_StepKey]:
        """Make all steps' keys, in two exchanges with everybody."""
        invitations = {p: invitation(self._run, p) for p in self._live}
        first = self._exchange("making keys", LetterKind.KEY_SHARES, invitations)
        self._insist(first, "before the keys were made")
        sums, groups = key_sums(self._run, first)
        letter = (*groups, *((self._shown(first),) if self._witnesses else ()))
        second = self._ask("finishing keys", LetterKind.KEY_SUMS, dict.fromkeys(self._live, letter))
        self._insist(second, "before the keys were finished")
        if self._witnesses:
            self._rest = self._shown(second)
        keys, steps = [], len(sums)
        for number, (session, total) in enumerate(zip(self._sessions, sums, strict=True)):
            key = None
            if session.parameters.levels:
                rest = {
                    p: each.message(0, steps, number, session, RelinearisationShare)
                    for p, each in second.items()
                }
                key = join_relinearisation_key(session, total, rest)
            keys.append(_StepKey(join_public_key(session, total), key))
        for number, session in enumerate(self._sessions if self._run.shares_secrets else ()):
            sealed = {
                p: each.message(1, steps, number, session, EncryptedShares)
                for p, each in second.items()
            }
            for p, box in pass_on_shares(session, sealed).items():  # out with the first step
                self._boxes[p] = (*self._boxes.get(p, ()), encode(box, session))
        return keys

    def _shown(self, letters: Mapping[PartyId, PartyLetter]) -> tuple[bytes, ...]:
        """Return parties' letters as they came, in order: there is one encoding of each."""
        return tuple(letters[p].encode(self._binding) for p in sorted(letters))

    def _collect(self, shown: Sequence[Integers]) -> dict[PartyId, PartyLetter]:
        """Get the ciphertexts of the next step."""
        number = len(shown)
        before = (pack_opened(shown[-1]),) if shown else ()
        letters = {p: (before, self._boxes.get(p, ()) if not shown else ()) for p in self._live}
        replies = self._ask(f"step {number + 1}: encrypting", LetterKind.GIVE, letters)
        if len(replies) < self._task.threshold:
            raise self._ended(f"{len(replies)} parties gave their vectors")
        return replies

    def _open(self, number: int, key: _StepKey, given: Mapping[PartyId, PartyLetter]) -> Integers:
        """Compute a step's result and open it with as many helpers as needed."""
        session = self._sessions[number]
        result = result_of(self._run, number, given, Evaluator(key.public, key.products))
        said = OpeningStatement.of(number, given).encode()
        shown: tuple[tuple[bytes, ...], ...] = ()
        if self._witnesses:
            written = () if key.products is None else (encode(key.products, session), *self._rest)
            shown = (self._shown(given), written)
        while len(able := [p for p in self._live if p in given]) >= self._task.threshold:
            helpers = able[: self._task.threshold]
            request = ask_to_decrypt(key.public, result, helpers)
            asked = ((said, encode(request, session)), *shown)
            self._begun = True
            replies = self._ask(
                f"step {number + 1}: opening", LetterKind.OPEN, dict.fromkeys(helpers, asked)
            )
            if len(replies) == len(helpers):
                shares = {
                    p: each.message(0, 1, 0, session, DecryptionShare)
                    for p, each in replies.items()
                }
                try:
                    opened = combine(key.public, result, shares)
                except ProtocolError as error:
                    reason = f"step {number + 1} cannot be opened: {error}"
                    raise RoundUnfinished(reason, self._lost) from error
                return self._task.shown(number, opened)
        raise self._ended(f"{len(able)} parties were left to open step {number + 1}")

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
            if (reason := reason_of(reply)) is None:
                letter = self._run.read(reply, party)
                if self._verifier is not None:
                    unsigned(letter, party, self._binding, self._verifier)
        except ProtocolError as error:
            if self._verifier is None:
                raise
            raise ProtocolError(f"its letter arrived altered: {error}") from error
        if reason is not None:
            raise ProtocolError(f"refused: {reason}")
        if letter.exchange != self._exchanges:  # sent again by whoever carries letters
            raise ProtocolError("its letter is not one of this step")
        if letter.kind is not expected:
            raise ProtocolError(f"answered with a letter of the kind {letter.kind.name}")
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
