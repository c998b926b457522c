"""What a server announces: the terms of a sum, its subject, and who takes part.

An announcement is one line of JSON. Its digest enters the coin of every round, so every key and
every signature of the protocol is bound to the very subject, terms and names a node was shown:
two nodes that were told different things have no round in common. It is read in two steps: terms
first, which are cheap and which a node's policy judges, and the subject only if they are within
its limits.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

from urna.errors import ParameterError, ProtocolError
from urna.flower.subjects import MALFORMED, Subject, read_subject, size_of
from urna.protocols.secagg import Plan, ServerModel
from urna.protocols.secagg.messages import Invitation
from urna.tally import TallyPlan, Terms

LONGEST = 4_000_000
"""Bytes of announcement a node is ever willing to parse; its policy may say less."""

_VERSION = 3
_NONCE_BYTES = 32
_MOST_ROUNDS = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def check_name(name: object) -> str:
    """Return the name of a node, or refuse it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(
            "a node's name has 1 to 64 letters, digits, points, dashes and underscores, and begins "
            f"and ends with a letter or digit; got {str(name)[:70]!r}"
        )
    return name


class Announced(Protocol):
    """What nodes are asked to take part in, whatever it is."""

    @property
    def signed(self) -> bool:
        """Whether nodes check each other against their own directories."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Who takes part; empty while gathering."""
        ...

    @property
    def offer(self) -> bytes:
        """A digest of what is offered, whoever takes part in the end."""
        ...

    def with_names(self, names: tuple[str, ...], /) -> Self:
        """Return the announcement for those who take part."""
        ...

    def as_bytes(self) -> bytes:
        """Return the announcement as it travels."""
        ...


AnnouncedT = TypeVar("AnnouncedT", bound=Announced)


@dataclass(frozen=True, slots=True)
class Announcement:
    """Everything public about one sum, or a series, as a node is told."""

    nonce: bytes
    """Fresh public bytes: no two announcements have the same coins."""
    issued: int
    """When, in seconds since the epoch; a node answers only what is about its own time."""
    kind: str
    """What kind of thing is summed."""
    detail: str = field(repr=False)
    """The subject as JSON text, read only once the terms are acceptable."""
    terms: Terms
    rounds: int
    seconds: float
    """How long a node may take to compute its contribution."""
    signed: bool
    """Whether nodes check each other's keys against their own directories."""
    names: tuple[str, ...] = ()
    """Who takes part; a node's place is its number in the protocol. Empty while gathering."""

    def __post_init__(self) -> None:
        check_names(self.names, self.terms.clients, "clients")
        if self.terms.server is ServerModel.DISHONEST and not self.signed:
            raise ParameterError(
                "a sum against a dishonest server needs a directory of identity keys"
            )

    @classmethod
    def of(
        cls,
        subject: Subject,
        terms: Terms,
        *,
        nonce: bytes,
        issued: int,
        rounds: int,
        seconds: float,
        signed: bool,
    ) -> "Announcement":
        """Announce a subject."""
        return cls(
            nonce,
            issued,
            subject.kind,
            _dumped(subject.as_mapping()),
            terms,
            rounds,
            seconds,
            signed,
        )

    @property
    def subject(self) -> Subject:
        """What is summed."""
        return _subject(self.kind, self.detail)

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        shards = f", {self.terms.shards} shards" if self.terms.shards > 1 else ""
        rounds = f", {self.rounds} rounds" if self.rounds > 1 else ""
        return f"{self.subject.label}{shards}{rounds}"

    @property
    def size(self) -> int:
        """How many entries the summed vector has, before the subject is made."""
        return size_of(self.kind, json.loads(self.detail))

    @property
    def plan(self) -> TallyPlan:
        """The plan of one round: its noise, ring and accounting."""
        return _plan(self.kind, self.detail, self.terms, self.rounds)

    @property
    def round_plan(self) -> Plan:
        """The protocol's plan: graph, threshold, noise components."""
        plan = _round_plan(self.kind, self.detail, self.terms, self.rounds)
        if not plan.required or not self.names:
            return plan
        helper = getattr(self.subject, "helper", None)
        if helper not in self.names:
            raise ParameterError("the helper announced is not among those who take part")
        return replace(plan, required=frozenset({self.names.index(helper)}))

    @property
    def offer(self) -> bytes:
        """A digest of what is offered, whoever takes part in the end."""
        mapping = self._mapping()
        del mapping["names"], mapping["terms"]["clients"]
        return hashlib.sha256(b"urna flower offer\0" + _dumped(mapping).encode()).digest()

    @property
    def digest(self) -> bytes:
        """A digest of all that is announced."""
        return hashlib.sha256(b"urna flower announcement\0" + self.as_bytes()).digest()

    def coin(self, number: int, inputs: bytes = b"") -> bytes:
        """Return the coin of one round: all that is announced, its number and its inputs."""
        return self.coin_of(number, hashlib.sha256(inputs).digest())

    def coin_of(self, number: int, inputs_digest: bytes) -> bytes:
        """Return the coin of a round whose inputs have this digest."""
        bound = self.digest + number.to_bytes(8, "big") + inputs_digest
        return hashlib.sha256(b"urna flower coin\0" + bound).digest()

    def place(self, number: int) -> bytes:
        """Return what names one round of the series, whatever its inputs are."""
        return hashlib.sha256(
            b"urna flower place\0" + self.digest + number.to_bytes(8, "big")
        ).digest()

    def round_id(self, number: int, coin: bytes) -> bytes:
        """Return the id that a round's messages and receipts carry."""
        return Invitation(number, coin, self.round_plan.digest).round_id

    def with_names(self, names: tuple[str, ...]) -> "Announcement":
        """Return the announcement for those who take part."""
        return replace(self, terms=self.terms.for_some(len(names)), names=names)

    def as_bytes(self) -> bytes:
        """Return the announcement as it travels."""
        return _written(self)

    @staticmethod
    def read(data: bytes) -> "Announcement":
        """Read what `as_bytes` wrote; the subject is not looked at yet."""
        return _read(data)

    def _mapping(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "nonce": self.nonce.hex(),
            "issued": self.issued,
            "kind": self.kind,
            "subject": json.loads(self.detail),
            "terms": self.terms.as_mapping(),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "signed": self.signed,
            "names": list(self.names),
        }


@functools.lru_cache(maxsize=8)
def _read(data: bytes) -> Announcement:
    """Read an announcement once: a node is shown it again with every stage."""
    return read_whole(data, _VERSION, "announcements", _made)


def _made(mapping: Mapping[str, Any], nonce: bytes, issued: int) -> Announcement:
    rounds, seconds = mapping["rounds"], float(mapping["seconds"])
    if type(rounds) is not int or not 1 <= rounds <= _MOST_ROUNDS or not 0 < seconds < 1e7:
        raise ProtocolError("the announcement has no proper rounds and seconds")
    if not isinstance(mapping["subject"], dict) or not isinstance(mapping["names"], list):
        raise ProtocolError("the announcement has no proper subject and names")
    return Announcement(
        nonce=nonce,
        issued=issued,
        kind=str(mapping["kind"]),
        detail=_dumped(mapping["subject"]),
        terms=Terms.read(mapping["terms"]),
        rounds=rounds,
        seconds=seconds,
        signed=mapping["signed"] is True,
        names=tuple(check_name(name) for name in mapping["names"]),
    )


def read_whole(
    data: bytes,
    version: int,
    what: str,
    make: Callable[[Mapping[str, Any], bytes, int], AnnouncedT],
) -> AnnouncedT:
    """Read an announcement that is written exactly as its `as_bytes` writes it."""
    if len(data) > LONGEST:
        raise ProtocolError(f"an announcement has at most {LONGEST:,} bytes")
    try:
        mapping = json.loads(data)
        if not isinstance(mapping, dict) or mapping.get("version") != version:
            raise ProtocolError(f"this node reads {what} of version {version}")
        nonce, issued = bytes.fromhex(mapping["nonce"]), mapping["issued"]
        if len(nonce) != _NONCE_BYTES or type(issued) is not int or not 0 < issued < 2**40:
            raise ProtocolError("the announcement has no proper nonce and time")
        read = make(mapping, nonce, issued)
        written = read.as_bytes()
    except MALFORMED as error:
        raise ProtocolError("the announcement cannot be read") from error
    if written != data:
        raise ProtocolError("the announcement is not written as it should be")
    return read


def check_names(names: tuple[str, ...], clients: int, what: str) -> None:
    """Refuse names of those who take part that are not as many, or not all different."""
    if names and len(names) != clients:
        raise ParameterError(f"{clients} {what} need as many names")
    if len(set(names)) < len(names):
        raise ParameterError("a name is listed twice among those who take part")


@functools.lru_cache(maxsize=8)
def _written(announcement: Announcement) -> bytes:
    """Write an announcement once: it is sent to many, and every check needs its digest."""
    return _dumped(announcement._mapping()).encode()


def _dumped(values: Any) -> str:  # noqa: ANN401 - plain values
    return json.dumps(values, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


@functools.lru_cache(maxsize=8)
def _subject(kind: str, detail: str) -> Subject:
    return read_subject(kind, json.loads(detail))


@functools.lru_cache(maxsize=16)
def _plan(kind: str, detail: str, terms: Terms, rounds: int) -> TallyPlan:
    """Plan a sum once: every stage needs the plan."""
    return _subject(kind, detail).plan(terms, rounds)


@functools.lru_cache(maxsize=16)
def _round_plan(kind: str, detail: str, terms: Terms, rounds: int) -> Plan:
    return _plan(kind, detail, terms, rounds).round_plan


def server_statement(announcement: bytes, body: bytes = b"") -> bytes:
    """Return what a server signs: the announcement as it travels, or a letter's body under it."""
    if not body:
        return b"urna flower announcement\0" + announcement
    return b"urna flower letter\0" + hashlib.sha256(announcement).digest() + body
