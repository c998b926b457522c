"""One party of an encrypted combination: a function for each stage, and a session around them.

A party checks before it answers. It draws keys for the very run it agreed to; it encrypts each
step's vectors once; and it helps to open only what is said to be the result of the step it is in:
over enough parties, its own ciphertexts among them, with the noise that the step's circuit
leaves. Where it was asked to, it computes the result again from all ciphertexts itself.

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
    DecryptionRequest,
    Drawn,
    Evaluator,
    KeyHolder,
    KeySum,
    PartyId,
    RelinearisationKey,
    RelinearisationShare,
    draw_key,
    encrypt,
    finish_key,
    help_to_decrypt,
)
from urna.protocols.he.decryption import request_digest
from urna.protocols.he.keys import Channel, open_channel, share_secret, take_shares
from urna.protocols.he.messages import ChannelBook, EncryptedShareBox
from urna.protocols.he.ntt import Residues
from urna.protocols.he.wire import decode, encode
from urna.randomness import SecretSource
from urna.systems.combine.frame import Integers
from urna.systems.combine.letters import (
    LetterKind,
    LetterSigner,
    OpeningStatement,
    PartyLetter,
    RunName,
    check_invitation,
    digest,
    refusal,
    signed,
    unpack_opened,
    witnessed,
)
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.server import key_sums, result_of


@dataclass(frozen=True, slots=True)
class Seat:
    """A party's place in the one run that it agreed to, and what it puts in."""

    run: RunName
    party: PartyId
    search: LocalSearch = field(repr=False)
    recomputes: bool = False
    """Whether it takes only keys, and opens only results, that it has computed again."""
    signer: LetterSigner | None = field(default=None, repr=False)
    """Who signs its letters; nobody where the others cannot check it."""


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """It has drawn its part of every key."""

    drawn: tuple[Drawn, ...] = field(repr=False)
    channels: tuple[Channel, ...] = field(repr=False)
    sent: str
    """Digest of its own shares of the keys."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyedParty:
    """It holds its share of every key, and waits for the next step."""

    holders: tuple[KeyHolder, ...] = field(repr=False)
    channels: tuple[Channel, ...] = field(repr=False)
    books: tuple[ChannelBook, ...]
    switching: tuple[str, ...]
    """Of each step, a digest of the half of the key for products that is known by now."""
    shown: tuple[Integers, ...] = ()
    """What the steps so far have opened."""
    contributed: frozenset[int] = frozenset()
    """Who was in the total of the last step that this party helped to open."""

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


State = Joined | KeyedParty | Given | Over


def join(seat: Seat, secrets: SecretSource) -> tuple[Joined, PartyLetter]:
    """Draw keys for the run that was agreed on."""
    run, party = seat.run, seat.party
    drawn, shares, channels, keys = [], [], [], []
    for session in run.sessions:
        some, share = draw_key(session, secrets)
        drawn.append(some)
        shares.append(encode(share, session, sender=party))
    for session in run.sessions if run.shares_secrets else ():
        channel, key = open_channel(session, party, secrets)
        channels.append(channel)
        keys.append(encode(key, session, sender=party))
    answer = PartyLetter(LetterKind.KEY_SHARES, (tuple(shares), tuple(keys)), party)
    return Joined(tuple(drawn), tuple(channels), digest(answer.encode(run.binding))), answer


def finish_keys(
    seat: Seat, state: Joined, letter: PartyLetter, secrets: SecretSource
) -> tuple[KeyedParty, PartyLetter]:
    """Take the joint keys, and send the rest of what the server needs for them."""
    sessions, party = seat.run.sessions, seat.party
    if seat.recomputes:
        _add_up_again(seat, state, letter)
    holders, rest, sealed, books, switching = [], [], [], [], []
    for session, drawn, data in zip(
        sessions, state.drawn, letter.group(0, len(sessions)), strict=True
    ):
        sums = decode(data, session, KeySum)
        holder, share = finish_key(party, drawn, sums, secrets)
        holders.append(holder)
        rest.append(b"" if share is None else encode(share, session, sender=party))
        half = sums.relinearisation
        switching.append("" if half is None else _array_digest(half[1]))
    listed = letter.group(1, len(state.channels))
    for session, drawn, channel, data in zip(
        sessions, state.drawn, state.channels, listed, strict=bool(state.channels)
    ):
        book = decode(data, session, ChannelBook)
        books.append(book)
        sealed.append(encode(share_secret(drawn, channel, book, secrets), session, sender=party))
    keyed = KeyedParty(tuple(holders), state.channels, tuple(books), tuple(switching))
    return keyed, PartyLetter(LetterKind.KEY_REST, (tuple(rest), tuple(sealed)), party)


def give(
    seat: Seat, state: KeyedParty, letter: PartyLetter, secrets: SecretSource
) -> tuple[Given, PartyLetter]:
    """Encrypt the vectors of the next step, once."""
    run, party = seat.run, seat.party
    state = _with_boxes(seat, state, letter.group(1))
    if state.number >= len(run.task.steps):
        raise ProtocolError("all steps of the task are done")
    session, key = run.sessions[state.number], state.holders[state.number].public_key
    vectors = run.task.vectors(state.number, seat.search, state.shown, secrets)
    sent = tuple(encode(encrypt(key, vector, secrets), session, sender=party) for vector in vectors)
    return Given(state, tuple(map(digest, sent))), PartyLetter(LetterKind.GIVEN, (sent,), party)


def help_to_open(
    seat: Seat, state: Given, letter: PartyLetter, secrets: SecretSource
) -> tuple[Given, PartyLetter]:
    """Help to open the step's result, after checking that it is said to be just that.

    Raises:
        ProtocolError: It is not, or another result of this step was opened before.
    """
    keyed, party = state.keyed, seat.party
    session, holder = seat.run.sessions[keyed.number], keyed.holders[keyed.number]
    data, asked = letter.group(0, 2)
    request, said = decode(asked, session, DecryptionRequest), OpeningStatement.decode(data)
    check_statement(seat, state, said, request)
    same = request_digest(replace(request, helpers=frozenset()))
    if state.opened not in (b"", same):
        raise ProtocolError("this party has helped to open another result of this step")
    if seat.recomputes:
        _compute_again(seat, state, said, request, letter)
    answer = encode(help_to_decrypt(holder, request, secrets), session, sender=party)
    given = replace(state, opened=same, contributed=frozenset(said.inputs))
    return given, PartyLetter(LetterKind.HELP, ((answer,),), party)


def go_on(seat: Seat, state: Given, letter: PartyLetter) -> KeyedParty:
    """Take in what the step showed."""
    (data,) = letter.group(0, 1)
    if not state.opened and not seat.run.shares_secrets:
        raise ProtocolError("a step was opened without this party, which is not possible")
    shown = (*state.keyed.shown, unpack_opened(data))
    return replace(state.keyed, shown=shown, contributed=state.contributed)


def check_statement(
    seat: Seat, state: Given, said: OpeningStatement, request: DecryptionRequest
) -> None:
    """Refuse to open what is not said to be the step's result over enough parties.

    Raises:
        ProtocolError: It says which rule is broken.
    """
    keyed, task = state.keyed, seat.run.task
    number, step = keyed.number, task.steps[keyed.number]
    if said.step != number:
        raise ProtocolError(f"step {said.step} is to be opened; this party is in step {number}")
    if said.inputs.get(seat.party) != state.sent:
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


def _add_up_again(seat: Seat, state: Joined, letter: PartyLetter) -> None:
    """Add up all parties' shares of the keys, and compare."""
    run = seat.run
    shown = dict(enumerate(letter.group(2, run.task.parties)))
    letters = witnessed(shown, LetterKind.KEY_SHARES, run, seat.signer)
    if digest(letters[seat.party].encode(run.binding)) != state.sent:
        raise ProtocolError("this party's own shares of the keys are not what is shown")
    _, (sums, books) = key_sums(run, letters)
    if letter.group(0) != sums:
        raise ProtocolError("the joint key is not the sum of all parties' shares")
    if letter.group(1) != books:
        raise ProtocolError("the channel keys are not those that the parties sent")


def _compute_again(
    seat: Seat,
    state: Given,
    said: OpeningStatement,
    request: DecryptionRequest,
    letter: PartyLetter,
) -> None:
    """Compute the result from all ciphertexts, and compare."""
    run, keyed = seat.run, state.keyed
    shown = dict(zip(sorted(said.inputs), letter.group(1, len(said.inputs)), strict=True))
    given = witnessed(shown, LetterKind.GIVEN, run, seat.signer)
    if OpeningStatement.of(keyed.number, given) != said:
        raise ProtocolError("a ciphertext that is shown is not the one that was named")
    levels = run.sessions[keyed.number].parameters.levels
    key = _key_again(seat, keyed, letter) if levels else None
    evaluator = Evaluator(keyed.holders[keyed.number].public_key, key)
    if not np.array_equal(result_of(run, keyed.number, given, evaluator).parts[1], request.second):
        raise ProtocolError("what is to be opened is not what these ciphertexts give")


def _key_again(seat: Seat, keyed: KeyedParty, letter: PartyLetter) -> RelinearisationKey:
    """Return the key for products that is shown, if it is made of all parties' parts."""
    run, number, steps = seat.run, keyed.number, len(keyed.holders)
    session, public_key = run.sessions[number], keyed.holders[number].public_key
    data, *rest = letter.group(2, 1 + run.task.parties)
    key = decode(data, session, RelinearisationKey)
    letters = witnessed(dict(enumerate(rest)), LetterKind.KEY_REST, run, seat.signer)
    parts = [
        each.message(0, steps, number, session, RelinearisationShare).parts
        for each in letters.values()
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


def _with_boxes(seat: Seat, state: KeyedParty, boxes: Sequence[bytes]) -> KeyedParty:
    """Take the others' shares of their secrets, where t of n may open; they come once."""
    if not boxes:
        return state
    if len(boxes) != len(state.channels) or any(holder.shared for holder in state.holders):
        raise ProtocolError("shares of secrets come once, and where t of n may open")
    holders = [
        take_shares(holder, channel, book, decode(data, session, EncryptedShareBox))
        for holder, channel, book, session, data in zip(
            state.holders, state.channels, state.books, seat.run.sessions, boxes, strict=True
        )
    ]
    return replace(state, holders=tuple(holders))


class PartySession:
    """A party's whole part in a run: letters in, letters out.

    Args:
        seat: Its place in the run.
        secrets: Where keys, encryptions and smudging come from.
        state: Where it stands; None before it was invited.
    """

    def __init__(self, seat: Seat, secrets: SecretSource, state: State | None = None) -> None:
        self.seat, self._secrets, self.state = seat, secrets, state

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
        seat, secrets, state = self.seat, self._secrets, self.state
        run, party = seat.run, seat.party
        if state is None:
            check_invitation(data, run, party)
            self.state, answer = join(seat, secrets)
            return signed(answer, run.binding, seat.signer)
        if isinstance(state, Over):
            raise ProtocolError("the run is over")
        letter = run.read(data, party)
        match state, letter.kind:
            case Joined(), LetterKind.KEY_SUMS:
                self.state, answer = finish_keys(seat, state, letter, secrets)
            case KeyedParty(), LetterKind.GIVE if not state.shown:
                self.state, answer = give(seat, state, letter, secrets)
            case Given(), LetterKind.GIVE:
                self.state, answer = give(seat, go_on(seat, state, letter), letter, secrets)
            case Given(), LetterKind.OPEN:
                self.state, answer = help_to_open(seat, state, letter, secrets)
            case Given(), LetterKind.END:
                self.state = Over(go_on(seat, state, letter).shown)
                answer = PartyLetter(LetterKind.ENDED, (), party)
            case _:
                raise ProtocolError(f"a letter of the kind {letter.kind.name} is not due")
        return signed(replace(answer, exchange=letter.exchange), run.binding, seat.signer)
