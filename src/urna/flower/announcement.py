"""What a server announces: the space, the terms of the vote, and who takes part.

An announcement is one line of JSON. Its digest is the coin of the round, so every key and every
signature of the protocol is bound to the very space, terms and names a node was shown: two nodes
that were told different things have no round in common.
"""

import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from urna.errors import ParameterError, ProtocolError
from urna.noise import FAMILIES
from urna.privacy import Adjacency, Ballot, Budget, check_shards, read_ballot
from urna.secagg import Plan, ServerModel
from urna.space import Space
from urna.tally import SecureSummation
from urna.vote import VotePlan
from urna.vote import plan as plan_vote

__all__ = ["Announcement", "check_name"]

_VERSION = 2
_NONCE_BYTES = 32
_LONGEST = 4_000_000  # bytes of announcement a node is willing to parse
_MOST_CLIENTS = 100_000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def check_name(name: str) -> str:
    """Return the name of a node, or refuse it.

    Raises:
        ParameterError: It is no name of 1 to 64 letters, digits, points, dashes.
    """
    if not _NAME.fullmatch(name):
        raise ParameterError(
            "a node's name has 1 to 64 letters, digits, points, dashes and underscores, and begins "
            f"and ends with a letter or digit; got {name[:70]!r}"
        )
    return name


@dataclass(frozen=True, slots=True)
class Announcement:
    """Everything public about one vote, as a node is told."""

    nonce: bytes
    """Fresh public bytes: no two votes have the same coin."""
    number: int
    """Rounds are numbered upwards; a node answers each number at most once."""
    space: Space
    budget: Budget
    ballot: Ballot
    dropout: float
    colluding: float
    adjacency: Adjacency
    family: str
    server: ServerModel
    signed: bool
    """Whether nodes check each other's keys against their own directories."""
    seed: int
    """Public seed of the nodes' local training."""
    clients: int
    """How many nodes are invited, or, once `names` are known, take part."""
    shards: int = 1
    """Ballots each node adds up, one for each shard of its records."""
    names: tuple[str, ...] = ()
    """Who takes part; a node's place is its number in the protocol. Empty while gathering."""

    def __post_init__(self) -> None:
        if self.names and len(self.names) != self.clients:
            raise ParameterError(f"{self.clients} clients need as many names")
        if self.family not in FAMILIES:
            raise ParameterError(f"the noise is one of {', '.join(FAMILIES)}")
        check_shards(self.adjacency, self.shards)
        if self.server is ServerModel.DISHONEST and not self.signed:
            raise ParameterError(
                "a vote against a dishonest server needs a directory of identity keys"
            )

    @property
    def plan(self) -> VotePlan:
        """The vote's plan: its noise, ring and accounting."""
        return _plans(self._terms())[0]

    @property
    def round_plan(self) -> Plan:
        """The protocol's plan: graph, threshold, noise components."""
        return _plans(self._terms())[1]

    @property
    def coin(self) -> bytes:
        """The coin of the round: a digest of all that is announced."""
        return hashlib.sha256(b"urna flower coin\0" + self.as_bytes()).digest()

    def with_names(self, names: tuple[str, ...]) -> Self:
        """Return the announcement for those who take part."""
        return replace(self, clients=len(names), names=names)

    def as_bytes(self) -> bytes:
        """Return the announcement as it travels."""
        return _written(self)

    @staticmethod
    def read(data: bytes) -> "Announcement":
        """Read what `as_bytes` wrote.

        Raises:
            ProtocolError: It is no announcement, or of another version, or its space is not
                the one its fingerprint names.
        """
        return _read(data)

    @staticmethod
    def _from(mapping: Mapping[str, Any]) -> "Announcement":
        terms, nonce = mapping["terms"], bytes.fromhex(mapping["nonce"])
        clients, number = terms["clients"], mapping["number"]
        if len(nonce) != _NONCE_BYTES or type(number) is not int or not 0 < number < 2**63:
            raise ProtocolError("the announcement has no proper nonce and number")
        if type(clients) is not int or not 2 <= clients <= _MOST_CLIENTS:
            raise ProtocolError(f"a vote has 2 to {_MOST_CLIENTS:,} clients")
        space = Space.from_mapping(mapping["space"])
        if space.fingerprint != mapping["fingerprint"]:
            raise ProtocolError("the space announced is not the one its fingerprint names")
        return Announcement(
            nonce=nonce,
            number=number,
            space=space,
            budget=Budget(float(terms["epsilon"]), float(terms["delta"])),
            ballot=read_ballot(terms["ballot"], len(space)),
            dropout=_part(terms["dropout"]),
            colluding=_part(terms["colluding"]),
            adjacency=Adjacency(terms["adjacency"]),
            family=str(terms["family"]),
            server=ServerModel(terms["server"]),
            signed=bool(mapping["signed"]),
            seed=int(mapping["seed"]),
            clients=clients,
            shards=terms["shards"],
            names=tuple(check_name(name) for name in mapping["names"]),
        )

    def _terms_mapping(self) -> dict[str, Any]:
        return {
            "clients": self.clients,
            "epsilon": float(self.budget.epsilon),
            "delta": float(self.budget.delta),
            "ballot": self.ballot.as_mapping(),
            "dropout": float(self.dropout),
            "colluding": float(self.colluding),
            "adjacency": str(self.adjacency),
            "shards": self.shards,
            "family": self.family,
            "server": str(self.server),
        }

    def _terms(self) -> str:
        return json.dumps({"candidates": len(self.space), **self._terms_mapping()})


@functools.lru_cache(maxsize=8)
def _read(data: bytes) -> Announcement:
    """Read an announcement once: a node is shown it again with every stage."""
    if len(data) > _LONGEST:
        raise ProtocolError(f"an announcement has at most {_LONGEST:,} bytes")
    try:
        mapping = json.loads(data)
        if not isinstance(mapping, dict) or mapping.get("version") != _VERSION:
            raise ProtocolError(f"this node reads announcements of version {_VERSION}")
        read = Announcement._from(mapping)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError("the announcement cannot be read") from error
    if read.as_bytes() != data:
        raise ProtocolError("the announcement is not written as it should be")
    return read


@functools.lru_cache(maxsize=8)
def _written(announcement: Announcement) -> bytes:
    """Write an announcement once: it is sent to many, and every check needs its digest."""
    mapping = {
        "version": _VERSION,
        "nonce": announcement.nonce.hex(),
        "number": announcement.number,
        "space": announcement.space.as_mapping(),
        "fingerprint": announcement.space.fingerprint,
        "terms": announcement._terms_mapping(),
        "signed": announcement.signed,
        "seed": announcement.seed,
        "names": list(announcement.names),
    }
    return json.dumps(mapping, ensure_ascii=True, separators=(",", ":")).encode()


def _part(value: object) -> float:
    if not isinstance(value, float | int) or not math.isfinite(value) or not 0 <= value < 1:
        raise ProtocolError("parts of the clients lie in [0, 1)")
    return float(value)


@functools.lru_cache(maxsize=16)
def _plans(terms: str) -> tuple[VotePlan, Plan]:
    """Plan a vote once: sizing the noise takes a while and every stage needs the plan."""
    wanted = json.loads(terms)
    vote = plan_vote(
        clients=wanted["clients"],
        candidates=wanted["candidates"],
        budget=Budget(wanted["epsilon"], wanted["delta"]),
        ballot=read_ballot(wanted["ballot"], wanted["candidates"]),
        dropout=wanted["dropout"],
        colluding=wanted["colluding"],
        adjacency=Adjacency(wanted["adjacency"]),
        shards=wanted["shards"],
        family=wanted["family"],
    )
    return vote, SecureSummation(ServerModel(wanted["server"])).round_plan(vote.tally)
