"""What travels between a party and the server of an encrypted combination, as bytes.

A letter is `URCO`, one byte of version, one of kind, the length of the rest (8 bytes), 32 bytes
that stand for the task and this very run, the party that it is from or goes to (or `ffffffff`,
nobody), the number of the exchange it belongs to, and groups of parts, each counted and
length-prefixed. A signature is over all of this, so a letter is one of its own run, sender and
exchange and of no other. Parts are messages of `urna.protocols.he.wire` or small
texts. There is one encoding for a letter; anything else, trailing bytes included, is refused.
"""

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.he.messages import Message, PartyId, Session
from urna.protocols.he.wire import decode, largest_message
from urna.protocols.wire import Reader
from urna.randomness import SEED_BYTES
from urna.systems.combine.frame import Integers
from urna.systems.combine.tasks import Task, digest_of

VERSION: Final = 3

_MAGIC = b"URCO"
_HEAD = len(_MAGIC) + 2 + 8
_NOBODY = 0xFFFFFFFF
_LONGEST_TEXT = 4_000_000
_LONGEST_REASON = 500
_SHORT = 1000  # bytes, more than an invitation or a refusal needs
_STATEMENT = b"urna combine letter\0"
_NO_RUN = bytes(32)

MessageT = TypeVar("MessageT", bound=Message)


class LetterKind(enum.IntEnum):
    """What a letter is, in the order of the protocol."""

    INVITE = 1
    """Server: a run begins; draw your part of the keys."""
    KEY_SHARES = 2
    KEY_SUMS = 3
    """Server: the summed keys; finish them, and share your secret where t of n may open. Parties
    that compute again are shown everybody's `KEY_SHARES`."""
    KEY_REST = 4
    GIVE = 5
    """Server: encrypt your vectors of the next step; what the last one showed comes with it."""
    GIVEN = 6
    OPEN = 7
    """Server: help to open the step's result. Parties that compute again are shown everybody's
    `GIVEN`, and where something is multiplied the key for it and everybody's `KEY_REST`."""
    HELP = 8
    END = 9
    """Server: it is over, and this came out."""
    ENDED = 10
    REFUSAL = 11


class Undue(ProtocolError):
    """A party's letter holds something else than is due."""

    def __init__(self, party: PartyId, error: ProtocolError) -> None:
        """Keep who sent it."""
        self.party = party
        super().__init__(str(error))


@dataclass(frozen=True, slots=True)
class PartyLetter:
    """One letter: its kind, whose it is, and groups of parts."""

    kind: LetterKind
    groups: tuple[tuple[bytes, ...], ...] = field(default=(), repr=False)
    party: PartyId | None = None
    """The party that it is from or goes to; its kind says which. None for refusals."""
    exchange: int = 0
    """Which of the exchanges that the server holds in this run it belongs to."""

    def encode(self, binding: bytes) -> bytes:
        """Return the one encoding of the letter."""
        numbers = (_NOBODY if self.party is None else self.party, self.exchange)
        pieces = [binding, *(number.to_bytes(4, "big") for number in numbers)]
        pieces.append(len(self.groups).to_bytes(1, "big"))
        for group in self.groups:
            pieces.append(len(group).to_bytes(4, "big"))
            for part in group:
                pieces += [len(part).to_bytes(8, "big"), part]
        length = sum(map(len, pieces))
        head = _MAGIC + bytes([VERSION, self.kind]) + length.to_bytes(8, "big")
        return b"".join([head, *pieces])

    @staticmethod
    def decode(
        data: bytes, binding: bytes, *, longest: int, party: PartyId | None = None
    ) -> "PartyLetter":
        """Return the letter of an encoding; refuse what is none of this run, or too long.

        It must be from or go to a party, or to anybody where none is named.
        """
        kind = kind_of(data, longest)
        if data[_HEAD : _HEAD + 32] != binding:
            raise ProtocolError("the letter belongs to another task or another run")
        reader = Reader(data, _HEAD + 32)
        whose, exchange = reader.number(4), reader.number(4)
        if party is not None and whose != party:
            raise ProtocolError("the letter is from another sender, or goes to another party")
        groups = tuple(
            tuple(reader.take(reader.number(8)) for _ in range(reader.number(4)))
            for _ in range(reader.number(1))
        )
        reader.end()
        return PartyLetter(kind, groups, None if whose == _NOBODY else whose, exchange)

    def group(self, place: int, count: int | None = None) -> tuple[bytes, ...]:
        """Return one group of parts, of a certain length where that is known."""
        if place >= len(self.groups) or (count is not None and len(self.groups[place]) != count):
            raise ProtocolError(f"a letter of the kind {self.kind.name} lacks some of its parts")
        return self.groups[place]

    def message(
        self, place: int, count: int, number: int, session: Session, kind: type[MessageT]
    ) -> MessageT:
        """Return the message that is one part of a group of so many, sent by a party.

        Raises:
            Undue: It is not there, or another one.
        """
        try:
            return decode(self.group(place, count)[number], session, kind, sender=self.party)
        except ProtocolError as error:
            raise Undue(_NOBODY if self.party is None else self.party, error) from error


@dataclass(frozen=True, slots=True)
class RunName:
    """One run of a task: its name, and the sessions of its steps' keys."""

    task: Task
    nonce: bytes
    """32 fresh bytes, drawn by the server, which follows the protocol."""

    def __post_init__(self) -> None:
        if len(self.nonce) != SEED_BYTES:
            raise ProtocolError(f"a run's nonce has {SEED_BYTES} bytes, got {len(self.nonce)}")

    @property
    def binding(self) -> bytes:
        """32 bytes that stand for task and run in every letter."""
        return hashlib.sha256(b"urna combine run\0" + digest_of(self.task) + self.nonce).digest()

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of the steps' keys, in order."""
        binding = self.binding
        return tuple(
            Session(step.parameters, hashlib.sha256(binding + number.to_bytes(2, "big")).digest())
            for number, step in enumerate(self.task.steps)
        )

    @property
    def shares_secrets(self) -> bool:
        """Whether fewer than all may open: then parties share their secrets."""
        return self.task.threshold < self.task.parties

    @property
    def longest(self) -> int:
        """Bytes that no letter of this run exceeds."""
        largest = max(largest_message(session) for session in self.sessions)
        steps, inputs = len(self.task.steps), max(step.inputs for step in self.task.steps)
        return _LONGEST_TEXT + largest * (2 * steps + (steps + inputs) * (self.task.parties + 1))

    def read(self, data: bytes, party: PartyId) -> PartyLetter:
        """Return the letter of an encoding, which must be of this run and from or to a party."""
        return PartyLetter.decode(data, self.binding, longest=self.longest, party=party)


def invitation(run: RunName, party: PartyId) -> bytes:
    """Return the letter that invites a party to a run; its binding is the task's alone."""
    groups = ((run.nonce, run.task.parties.to_bytes(4, "big")),)
    return PartyLetter(LetterKind.INVITE, groups, party).encode(digest_of(run.task))


def check_invitation(data: bytes, run: RunName, party: PartyId) -> None:
    """Refuse what is not the invitation to this task, run and place, among so many parties."""
    PartyLetter.decode(data, digest_of(run.task), longest=_SHORT)
    if data != invitation(run, party):
        raise ProtocolError("the invitation is not to the run and the place that were announced")


def refusal(reason: str) -> bytes:
    """Return a letter that says why a party does not answer; it names no run, so is not signed."""
    groups = ((reason.encode()[:_LONGEST_REASON],),)
    return PartyLetter(LetterKind.REFUSAL, groups).encode(_NO_RUN)


def reason_of(data: bytes) -> str | None:
    """Return what a refusal says; None of any other letter."""
    if kind_of(data, len(data)) is not LetterKind.REFUSAL:
        return None
    letter = PartyLetter.decode(data, _NO_RUN, longest=_SHORT)
    return letter.group(0, 1)[0].decode(errors="replace")


class Verifier(Protocol):
    """Knows whether parties signed their letters."""

    def verify(self, party: PartyId, signature: bytes, message: bytes) -> None:
        """Refuse a message that this party did not sign, by a ProtocolError."""
        ...


class LetterSigner(Verifier, Protocol):
    """Signs a party's letters, and knows whether the others signed theirs."""

    def sign(self, message: bytes) -> bytes:
        """Return the party's signature."""
        ...


def signed(letter: PartyLetter, binding: bytes, signer: LetterSigner | None) -> bytes:
    """Return a party's letter as it travels, with a signature behind it where there is a signer."""
    data = letter.encode(binding)
    if signer is None:
        return data
    signature = signer.sign(_STATEMENT + data)
    return replace(letter, groups=(*letter.groups, (signature,))).encode(binding)


def unsigned(
    letter: PartyLetter, party: PartyId, binding: bytes, verifier: Verifier
) -> PartyLetter:
    """Return a party's letter without its signature; refuse what the party did not sign."""
    *groups, last = letter.groups or ((),)
    bare = replace(letter, groups=tuple(groups))
    signature = last[0] if len(last) == 1 else b""
    verifier.verify(party, signature, _STATEMENT + bare.encode(binding))
    return bare


def witnessed(
    shown: Mapping[PartyId, bytes], kind: LetterKind, run: RunName, signer: LetterSigner | None
) -> dict[PartyId, PartyLetter]:
    """Read the letters that parties are said to have sent to the server, by sender.

    All must be of one kind, run and exchange, and signed by their senders where letters are.
    """
    found = {}
    for party, data in shown.items():
        letter = run.read(data, party)
        if letter.kind is not kind:
            raise ProtocolError(f"party {party} is shown with a letter of the wrong kind")
        found[party] = unsigned(letter, party, run.binding, signer) if signer else letter
    if len({letter.exchange for letter in found.values()}) > 1:
        raise ProtocolError("parties are shown with letters of different steps")
    return found


def kind_of(data: bytes, longest: int) -> LetterKind:
    """Return the kind of a letter, after looking at its head and its length alone."""
    if not _HEAD <= len(data) <= longest:
        raise ProtocolError(f"a letter has {_HEAD} to {longest:,} bytes, got {len(data):,}")
    if data[:4] != _MAGIC or data[4] != VERSION:
        raise ProtocolError(f"these bytes are no letter of a combination of version {VERSION}")
    if int.from_bytes(data[6:_HEAD], "big") != len(data) - _HEAD:
        raise ProtocolError("the letter is shorter or longer than its head says")
    try:
        return LetterKind(data[5])
    except ValueError as error:
        raise ProtocolError("the letter is of an unknown kind") from error


@dataclass(frozen=True, slots=True)
class OpeningStatement:
    """What the server says it opens: a step of the task, computed from these ciphertexts."""

    step: int
    inputs: Mapping[PartyId, tuple[str, ...]]
    """For each contributor the digests of its ciphertexts, as it sent them."""

    @staticmethod
    def of(step: int, given: Mapping[PartyId, PartyLetter]) -> "OpeningStatement":
        """Return the statement about what parties gave in a step."""
        inputs = {party: tuple(map(digest, given[party].group(0))) for party in sorted(given)}
        return OpeningStatement(step, inputs)

    def encode(self) -> bytes:
        """Return the one encoding of the statement."""
        inputs = {str(party): list(self.inputs[party]) for party in sorted(self.inputs)}
        return json.dumps({"step": self.step, "inputs": inputs}).encode()

    @staticmethod
    def decode(data: bytes) -> "OpeningStatement":
        """Return the statement of an encoding."""
        try:
            found: Any = json.loads(data)
            inputs = {int(p): tuple(map(str, d)) for p, d in found["inputs"].items()}
            statement = OpeningStatement(int(found["step"]), inputs)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ProtocolError("the statement of what is opened cannot be read") from error
        if statement.encode() != data:
            raise ProtocolError("the statement is not written as it should be")
        return statement


def digest(ciphertext: bytes) -> str:
    """Return what stands for a ciphertext in a statement."""
    return hashlib.sha256(b"urna combine input\0" + ciphertext).hexdigest()


def pack_opened(opened: Integers) -> bytes:
    """Return what a step showed as bytes."""
    return opened.astype("<i8").tobytes()


def unpack_opened(data: bytes) -> Integers:
    """Return what a step showed."""
    if not data or len(data) % 8:
        raise ProtocolError("what a step showed cannot be read")
    return np.frombuffer(data, "<i8").astype(np.int64)
