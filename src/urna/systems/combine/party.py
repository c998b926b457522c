"""One party of an encrypted combination: a function for each stage, and a session around them.

A party checks before it answers. It draws keys for the very task it agreed to; it encrypts each
step's vectors once; and it helps to open only what is said to be the result of the step it is in:
over enough parties, its own ciphertexts among them, with the noise that the step's circuit
leaves. Where the task says so, it computes the result again from all ciphertexts itself.

Assumes:
    The server follows the protocol: what it says it opens is what it opens. The checks
    find mistakes and crude attempts. Against a server that lies they do not suffice: it could
    hand out a joint key of its own, or name the right inputs and show another ciphertext. A party
    that computes again is shown all parties' letters, and takes no joint key but the sum of all
    parties' shares and helps to open no result but that of all parties' ciphertexts. Without
    signatures the server could still play the other parties; with them, it cannot. What an
    earlier step showed stays the server's word, and who colludes with such a server can choose
    its share of a key after seeing the others'.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from urna.errors import ParameterError, ProtocolError
from urna.protocols.he import (
    Ciphertext,
    DecryptionRequest,
    Drawn,
    Evaluator,
    KeyHolder,
    KeyShare,
    KeySum,
    RelinearisationKey,
    RelinearisationShare,
    add_key_shares,
    draw_key,
    encrypt,
    finish_key,
    help_to_decrypt,
)
from urna.protocols.he.decryption import request_digest
from urna.protocols.he.messages import ChannelBook, ChannelKey, EncryptedShareBox
from urna.protocols.he.ntt import Residues
from urna.protocols.he.session import PartyId
from urna.protocols.he.threshold import Channel, open_channel, share_secret, take_shares
from urna.protocols.he.wire import decode, encode
from urna.randomness import SEED_BYTES, SecretSource
from urna.systems.combine.federated import Integers
from urna.systems.combine.letters import (
    LetterKind,
    LetterSigner,
    OpeningStatement,
    PartyLetter,
    RunName,
    digest,
    kind_of,
    signed,
    unpack_opened,
    witnessed,
)
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.tasks import Task, digest_of

__all__ = [
    "Given",
    "InvitedParty",
    "Joined",
    "KeyedParty",
    "Over",
    "PartySession",
    "Place",
    "State",
]

_INVITATION = 1000  # bytes, more than it needs
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Place:
    """A party's place in a run that was agreed on together with the task."""

    nonce: bytes
    """What names the run."""
    party: PartyId
    signer: LetterSigner | None = field(default=None, repr=False)
    """Where letters are signed."""


@dataclass(frozen=True, slots=True)
class InvitedParty:
    """A party that agreed to a task and holds nothing yet."""

    task: Task
    search: LocalSearch = field(repr=False)
    fewest: int = 2
    """With fewer parties it does not take part."""
    recomputes: bool = False
    """Whether it takes only keys, and opens only results, that it has computed again."""
    place: Place | None = None
    """The run it agreed to and its place in it; any, where it is left out."""

    @property
    def signer(self) -> LetterSigner | None:
        """Who signs its letters; nobody where the others cannot check it."""
        return None if self.place is None else self.place.signer


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """It has drawn its part of every key."""

    invited: InvitedParty
    run: RunName
    party: int
    drawn: tuple[Drawn, ...] = field(repr=False)
    channels: tuple[Channel, ...] = field(repr=False)
    sent: str = ""
    """Digest of its own shares of the keys."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyedParty:
    """It holds its share of every key, and waits for the next step."""

    joined: Joined
    holders: tuple[KeyHolder, ...] = field(repr=False)
    books: tuple[ChannelBook, ...] = ()
    shown: tuple[Integers, ...] = ()
    """What the steps so far have opened."""
    contributed: frozenset[int] = frozenset()
    """Who was in the total of the last step that this party helped to open."""
    switching: tuple[str, ...] = ()
    """Of each step, a digest of the half of the key for products that is known by now."""

    @property
    def number(self) -> int:
        """The step that comes next."""
        return len(self.shown)


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """It has encrypted its vectors of a step, and may be asked to help to open the result."""

    keyed: KeyedParty
    sent: tuple[str, ...]
    """Digests of its ciphertexts."""
    opened: bytes = b""
    """What it has helped to open: the same again for other helpers, and nothing else."""
    contributed: frozenset[int] = frozenset()
    """Who was in it."""


@dataclass(frozen=True, slots=True)
class Over:
    """The run is over; all secrets are gone."""

    shown: tuple[Integers, ...]


State = InvitedParty | Joined | KeyedParty | Given | Over


def join(state: InvitedParty, letter: bytes, secrets: SecretSource) -> tuple[Joined, PartyLetter]:
    """Draw keys for the task that was agreed on, and for no other."""
    run, party = read_invitation(state, letter)
    sessions = run.sessions
    drawn, shares = [], []
    for session in sessions:
        some, share = draw_key(session, secrets)
        drawn.append(some)
        shares.append(encode(share, session, sender=party))
    channels, keys = [], []
    if run.task.threshold < run.task.parties:
        for session in sessions:
            channel, key = open_channel(session, party, secrets)
            channels.append(channel)
            keys.append(encode(key, session, sender=party))
    answer = PartyLetter(LetterKind.KEY_SHARES, (tuple(shares), tuple(keys)), party)
    sent = digest(answer.encode(run.binding))
    return Joined(state, run, party, tuple(drawn), tuple(channels), sent), answer


def finish_keys(
    state: Joined, letter: PartyLetter, secrets: SecretSource
) -> tuple[KeyedParty, PartyLetter]:
    """Take the joint keys, and send the rest of what the server needs for them."""
    sessions = state.run.sessions
    if state.invited.recomputes:
        _add_up_again(state, letter)
    holders, rest, sealed, books, switching = [], [], [], [], []
    for session, drawn, data in zip(
        sessions, state.drawn, letter.group(0, len(sessions)), strict=True
    ):
        sums = decode(data, session, KeySum)
        holder, share = finish_key(state.party, drawn, sums, secrets)
        holders.append(holder)
        rest.append(b"" if share is None else encode(share, session, sender=state.party))
        half = sums.relinearisation
        switching.append("" if half is None else _array_digest(half[1]))
    listed = letter.group(1, len(state.channels))
    for session, drawn, channel, data in zip(
        sessions, state.drawn, state.channels, listed, strict=bool(state.channels)
    ):
        book = decode(data, session, ChannelBook)
        books.append(book)
        sealed.append(
            encode(share_secret(drawn, channel, book, secrets), session, sender=state.party)
        )
    keyed = KeyedParty(state, tuple(holders), tuple(books), switching=tuple(switching))
    return keyed, PartyLetter(LetterKind.KEY_REST, (tuple(rest), tuple(sealed)), state.party)


def give(
    state: KeyedParty, letter: PartyLetter, secrets: SecretSource
) -> tuple[Given, PartyLetter]:
    """Encrypt the vectors of the next step, once."""
    run, party = state.joined.run, state.joined.party
    state = _with_boxes(state, letter.group(1))
    if state.number >= len(run.task.steps):
        raise ProtocolError("all steps of the task are done")
    session, key = run.sessions[state.number], state.holders[state.number].public_key
    vectors = run.task.vectors(state.number, state.joined.invited.search, state.shown, secrets)
    sent = tuple(encode(encrypt(key, vector, secrets), session, sender=party) for vector in vectors)
    return Given(state, tuple(map(digest, sent))), PartyLetter(LetterKind.GIVEN, (sent,), party)


def help_to_open(
    state: Given, letter: PartyLetter, secrets: SecretSource
) -> tuple[Given, PartyLetter]:
    """Help to open the step's result, after checking that it is said to be just that.

    Raises:
        ProtocolError: It is not, or another result of this step was opened before.
    """
    keyed = state.keyed
    run, party, number = keyed.joined.run, keyed.joined.party, keyed.number
    session, holder = run.sessions[number], keyed.holders[number]
    said, asked = letter.group(0, 2)
    request = decode(asked, session, DecryptionRequest)
    check_statement(state, OpeningStatement.decode(said), request)
    same = request_digest(replace(request, helpers=frozenset()))
    if state.opened not in (b"", same):
        raise ProtocolError("this party has helped to open another result of this step")
    if keyed.joined.invited.recomputes:
        _compute_again(state, OpeningStatement.decode(said), request, letter)
    share = help_to_decrypt(holder, request, secrets)
    answer = encode(share, session, sender=party)
    given = replace(state, opened=same, contributed=frozenset(OpeningStatement.decode(said).inputs))
    return given, PartyLetter(LetterKind.HELP, ((answer,),), party)


def go_on(state: Given, letter: PartyLetter) -> KeyedParty:
    """Take in what the step showed."""
    (data,) = letter.group(0, 1)
    if not state.opened and state.keyed.joined.run.task.threshold == (
        state.keyed.joined.run.task.parties
    ):
        raise ProtocolError("a step was opened without this party, which is not possible")
    shown = (*state.keyed.shown, unpack_opened(data))
    return replace(state.keyed, shown=shown, contributed=state.contributed)


def read_invitation(state: InvitedParty, data: bytes) -> tuple[RunName, int]:
    """Return the run a party is invited to and its number in it.

    Raises:
        ProtocolError: It is another task than agreed on, or among too few.
    """
    letter = PartyLetter.decode(data, digest_of(state.task), longest=_INVITATION)
    if letter.kind is not LetterKind.INVITE:
        raise ProtocolError("an invitation is expected here")
    (nonce, number), party = letter.group(0, 2), letter.party
    parties = int.from_bytes(number, "big")
    if not max(2, state.fewest) <= parties <= state.task.parties:
        raise ProtocolError(
            f"{parties} parties are to take part; this one agreed to {state.fewest} to "
            f"{state.task.parties}"
        )
    place = state.place
    if place is not None and (place.nonce, place.party, state.task.parties) != (
        nonce,
        party,
        parties,
    ):
        raise ProtocolError("the invitation is not to the run and the place that were announced")
    if len(nonce) != SEED_BYTES or party is None or party >= parties or letter.exchange:
        raise ProtocolError("the invitation has no proper nonce, or no place for this party")
    return RunName(state.task.among(parties), nonce), party


def invitation(agreed: Task, run: RunName, party: int) -> bytes:
    """Return the letter that invites a party to a run among those who are there.

    Args:
        agreed: The task all agreed to, with everybody invited.
        run: The run, perhaps among fewer.
        party: The party's number in the run.
    """
    parties = run.task.parties.to_bytes(4, "big")
    return PartyLetter(LetterKind.INVITE, ((run.nonce, parties),), party).encode(digest_of(agreed))


def check_statement(state: Given, said: OpeningStatement, request: DecryptionRequest) -> None:
    """Refuse to open what is not said to be the step's result over enough parties.

    Raises:
        ProtocolError: It says which rule is broken.
    """
    keyed = state.keyed
    run, party, number = keyed.joined.run, keyed.joined.party, keyed.number
    task, step = run.task, run.task.steps[number]
    if said.step != number:
        raise ProtocolError(f"step {said.step} is to be opened; this party is in step {number}")
    if said.inputs.get(party) != state.sent:
        raise ProtocolError("this party's own ciphertexts are not what is said to be summed")
    if not said.inputs.keys() <= set(range(task.parties)):
        raise ProtocolError("the sum is said to hold parties there are not")
    if len(said.inputs) < task.threshold:
        raise ProtocolError(
            f"the result is said to be of {len(said.inputs)} parties; {task.threshold} are needed"
        )
    if missing := keyed.contributed - said.inputs.keys():
        raise ProtocolError(
            f"the sum leaves out {len(missing)} parties of the step before: it could hold fewer "
            "clients than were agreed on"
        )
    named = [each for digests in said.inputs.values() for each in digests]
    if len(set(named)) < len(named) or len(named) != step.inputs * len(said.inputs):
        raise ProtocolError("a ciphertext is named twice, or too many are named")
    if request.noise != step.expected_noise(len(said.inputs)):
        raise ProtocolError(
            "what is to be opened does not carry the noise of this step's circuit: it is not its "
            "result"
        )


def _add_up_again(state: Joined, letter: PartyLetter) -> None:
    """Add up all parties' shares of the keys, and compare."""
    run, signer = state.run, state.invited.signer
    everyone = range(run.task.parties)
    shown = dict(zip(everyone, letter.group(2, run.task.parties), strict=True))
    letters = witnessed(shown, LetterKind.KEY_SHARES, run, signer)
    if digest(letters[state.party].encode(run.binding)) != state.sent:
        raise ProtocolError("this party's own shares of the keys are not what is shown")
    sessions = run.sessions
    for number, (session, data) in enumerate(
        zip(sessions, letter.group(0, len(sessions)), strict=True)
    ):
        shares = {
            party: decode(each.group(0, len(sessions))[number], session, KeyShare, sender=party)
            for party, each in letters.items()
        }
        if encode(add_key_shares(session, shares), session) != data:
            raise ProtocolError("the joint key is not the sum of all parties' shares")
    for number, data in enumerate(letter.group(1, len(state.channels))):
        session = sessions[number]
        keys = [
            decode(
                letters[party].group(1, len(sessions))[number], session, ChannelKey, sender=party
            ).key
            for party in everyone
        ]
        if decode(data, session, ChannelBook).keys != tuple(keys):
            raise ProtocolError("the channel keys are not those that the parties sent")


def _compute_again(
    state: Given, said: OpeningStatement, request: DecryptionRequest, letter: PartyLetter
) -> None:
    """Compute the result from all ciphertexts, and compare."""
    keyed = state.keyed
    run, number = keyed.joined.run, keyed.number
    session, step = run.sessions[number], run.task.steps[number]
    public_key = keyed.holders[number].public_key
    inputs: list[list[Ciphertext]] = [[] for _ in range(step.inputs)]
    shown = dict(zip(sorted(said.inputs), letter.group(1, len(said.inputs)), strict=True))
    signer = keyed.joined.invited.signer
    for party, given in witnessed(shown, LetterKind.GIVEN, run, signer).items():
        for place, data in enumerate(given.group(0, step.inputs)):
            if digest(data) != said.inputs[party][place]:
                raise ProtocolError(f"a ciphertext of party {party} is not the one that was named")
            inputs[place].append(decode(data, session, Ciphertext, sender=party))
    key = None
    if session.parameters.levels:
        key = _key_again(keyed, number, letter)
    result = step.evaluate(Evaluator(public_key, key), inputs)
    if not np.array_equal(result.parts[1], request.second):
        raise ProtocolError("what is to be opened is not what these ciphertexts give")


def _key_again(keyed: KeyedParty, number: int, letter: PartyLetter) -> RelinearisationKey:
    """Return the key for products that is shown, if it is made of all parties' parts."""
    run, steps = keyed.joined.run, len(keyed.holders)
    session, public_key = run.sessions[number], keyed.holders[number].public_key
    data, *rest = letter.group(2, 1 + run.task.parties)
    key = decode(data, session, RelinearisationKey)
    letters = witnessed(
        dict(enumerate(rest)), LetterKind.KEY_REST, run, keyed.joined.invited.signer
    )
    parts = [
        decode(each.group(0, steps)[number], session, RelinearisationShare, sender=party).parts
        for party, each in letters.items()
    ]
    total = session.parameters.extended(session.parameters.depth).total(parts)
    if (
        key.key != public_key.digest
        or _array_digest(key.parts[1]) != keyed.switching[number]
        or not np.array_equal(key.parts[0], total)
    ):
        raise ProtocolError("the key for products is not made of all parties' parts")
    return key


def _array_digest(values: Residues) -> str:
    return digest(np.ascontiguousarray(values, dtype="<i8").tobytes())


def _with_boxes(state: KeyedParty, boxes: Sequence[bytes]) -> KeyedParty:
    """Take the others' shares of their secrets, where t of n may open; they come once."""
    joined = state.joined
    if not boxes:
        return state
    sessions = joined.run.sessions
    if len(boxes) != len(joined.channels) or any(holder.shared for holder in state.holders):
        raise ProtocolError("shares of secrets come once, and where t of n may open")
    holders = [
        take_shares(holder, channel, book, decode(data, session, EncryptedShareBox))
        for holder, channel, book, session, data in zip(
            state.holders, joined.channels, state.books, sessions, boxes, strict=True
        )
    ]
    return replace(state, holders=tuple(holders))


class PartySession:
    """A party's whole part in a run: letters in, letters out.

    Args:
        invited: The task it agreed to, its search, and what else it asks for.
        secrets: Where keys, encryptions and smudging come from.
        state: Where it stands; at the beginning by default.
    """

    def __init__(
        self, invited: InvitedParty, secrets: SecretSource, state: State | None = None
    ) -> None:
        self._invited, self._secrets = invited, secrets
        self.state: State = state or invited

    def handle(self, data: bytes) -> bytes:
        """Answer one letter; what breaks the protocol is answered with a reason, no more.

        Settings and scores enter no reason.
        """
        try:
            return self._answer(data)
        except ProtocolError as error:
            return refusal(str(error))
        except ParameterError:  # its text may tell what this party found
            return refusal("this party's search does not fit the task")

    def _answer(self, data: bytes) -> bytes:
        state = self.state
        if isinstance(state, InvitedParty) or kind_of(data, 1 << 40) is LetterKind.INVITE:
            # A new invitation begins anew: keys of a run that came to nothing are dropped.
            joined, answer = join(self._invited, data, self._secrets)
            self.state = joined
            return signed(answer, joined.run.binding, self._invited.signer)
        if isinstance(state, Over):
            raise ProtocolError("the run is over")
        run, party = _run_of(state)
        letter = PartyLetter.decode(data, run.binding, longest=run.longest, party=party)
        match state, letter.kind:
            case Joined(), LetterKind.KEY_SUMS:
                self.state, answer = finish_keys(state, letter, self._secrets)
            case KeyedParty(), LetterKind.GIVE if not state.shown:
                self.state, answer = give(state, letter, self._secrets)
            case Given(), LetterKind.GIVE:
                self.state, answer = give(go_on(state, letter), letter, self._secrets)
            case Given(), LetterKind.OPEN:
                self.state, answer = help_to_open(state, letter, self._secrets)
            case Given(), LetterKind.END:
                done = go_on(state, letter)
                self.state, answer = Over(done.shown), PartyLetter(LetterKind.ENDED, (), party)
            case _:
                raise ProtocolError(f"a letter of the kind {letter.kind.name} is not due")
        answer = replace(answer, exchange=letter.exchange)
        return signed(answer, run.binding, self._invited.signer)


def refusal(reason: str) -> bytes:
    """Return a letter that says why a party does not answer."""
    return PartyLetter(LetterKind.REFUSAL, ((reason.encode()[:_LONGEST_REASON],),)).encode(
        bytes(32)
    )


def _run_of(state: Joined | KeyedParty | Given) -> tuple[RunName, int]:
    joined = (
        state
        if isinstance(state, Joined)
        else (state.joined if isinstance(state, KeyedParty) else state.keyed.joined)
    )
    return joined.run, joined.party
