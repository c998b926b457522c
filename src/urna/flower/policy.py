"""What a node agrees to: its limits, its ledger, its keys. The node decides, not the server."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from urna.data import PUBLIC_SHARD_KEY
from urna.errors import BudgetExceeded, LedgerError, ParameterError, Refused
from urna.flower.announcement import Announcement
from urna.flower.identities import DirectoryFile, NodeKey, read_public_key, verify
from urna.flower.shard_key import kept_key
from urna.privacy import Adjacency, Budget, Ledger, NonPrivateRelease, Release, Unit
from urna.randomness import OsSecrets
from urna.secagg import ServerModel
from urna.vote.shards import LEAST_RECORDS

__all__ = ["Policy", "label_of", "release_of", "server_statement"]

_SECTIONS: Mapping[str, frozenset[str]] = {
    "privacy": frozenset({"epsilon", "delta", "relation", "data", "ledger"}),
    "limits": frozenset(
        {"fewest_clients", "largest_dropout", "least_colluding", "most_candidates"}
    ),
    "records": frozenset({"smallest_shard", "key"}),
    "server": frozenset({"key", "model"}),
    "identity": frozenset({"key", "directory", "required"}),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """A node's own limits. A request outside them is refused before any training happens.

    Guarantee:
        With a ledger, everything the node ever released about its data set under this policy
        is together (epsilon, delta)-DP under `relation`, towards whomever the protocol
        protects against. A vote is entered before the node's masked vector leaves it.

    Args:
        epsilon: Largest epsilon, for the data set's lifetime.
        delta: The delta that goes with it.
        relation: The neighbouring relation votes must be accounted under.
        data: Names the data set, for people.
        ledger: File of the node's ledger; None counts nothing over time (simulations).
        fewest_clients: A vote among fewer is refused.
        largest_dropout: A plan that tolerates more lost clients is refused.
        least_colluding: A plan that counts out fewer colluding clients is refused.
        most_candidates: A larger space is refused.
        smallest_shard: Must be named where `relation` is `replace-one-record`, and only there.
            A vote that would leave this node's shards with fewer records is refused; a single
            shard that has fewer abstains.
        shard_key: File of the key that decides which record is in which shard; made on first
            use. None uses a key that everybody knows, which is no less private.
        server_key: The server's public key; its announcements must be signed by it.
        server_model: `dishonest` refuses votes that trust the server more than that.
        key: File of the node's identity key.
        directory: File of the identity keys this node accepts.
        directory_required: Whether votes without signed keys are refused.
    """

    epsilon: float
    delta: float
    relation: Adjacency = Adjacency.REPLACE_ONE_CLIENT
    data: str = ""
    ledger: Path | None = None
    fewest_clients: int = 2
    largest_dropout: float = 0.5
    least_colluding: float = 0.0
    most_candidates: int = 10_000
    smallest_shard: int | None = None
    shard_key: Path | None = None
    server_key: bytes | None = None
    server_model: ServerModel = ServerModel.HONEST_BUT_CURIOUS
    key: Path | None = None
    directory: Path | None = None
    directory_required: bool = False

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        if self.fewest_clients < 2 or self.most_candidates < 1:
            raise ParameterError("a policy asks for 2 clients or more and allows 1 candidate")
        for part in (self.largest_dropout, self.least_colluding):
            if not (math.isfinite(part) and 0 <= part < 1):
                raise ParameterError(f"parts of the clients lie in [0, 1), got {part}")
        self._check_unit()
        if (self.key is None) != (self.directory is None):
            raise ParameterError("an identity key and a directory are used together or not at all")
        if self.directory_required and self.directory is None:
            raise ParameterError("a policy that requires a directory must name one")

    def _check_unit(self) -> None:
        by_record = self.relation.unit is Unit.RECORD
        if by_record and self.smallest_shard is None:
            raise ParameterError(
                f"a policy that accepts {self.relation} protects single records and not this node "
                "as a whole: it must name its `smallest_shard`, the fewest records that vote "
                "together"
            )
        if not by_record and (self.smallest_shard is not None or self.shard_key is not None):
            raise ParameterError(
                f"`smallest_shard` and a key of shards mean nothing under {self.relation}; leave "
                f"them out, or accept {Adjacency.REPLACE_ONE_RECORD}"
            )
        if self.smallest_shard is not None and (
            type(self.smallest_shard) is not int or self.smallest_shard < LEAST_RECORDS
        ):
            raise ParameterError(
                f"the smallest shard has at least {LEAST_RECORDS} records, got "
                f"{self.smallest_shard}"
            )

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a policy file. Files it names are looked for beside it.

        Raises:
            ParameterError: The file is not there, or holds something it should not.
        """
        path = Path(path)
        try:
            mapping = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ParameterError(f"cannot read the policy {path}: {error.strerror}") from error
        except ValueError as error:
            raise ParameterError(f"the policy {path} is no TOML file: {error}") from error
        try:
            return cls._from(mapping, path)
        except (KeyError, TypeError, ValueError) as error:
            raise ParameterError(f"the policy {path}: {error}") from error

    @classmethod
    def _from(cls, mapping: Mapping[str, Any], path: Path) -> Self:
        for section, entries in mapping.items():
            known = _SECTIONS.get(section)
            if known is None or not isinstance(entries, dict):
                raise ParameterError(f"sections are {', '.join(_SECTIONS)}, got {section!r}")
            if unknown := entries.keys() - known:
                raise ParameterError(
                    f"[{section}] knows {', '.join(sorted(known))}, got "
                    f"{', '.join(sorted(unknown))}"
                )
        privacy, server = mapping.get("privacy", {}), mapping.get("server", {})
        identity = mapping.get("identity", {})
        if not {"epsilon", "delta"} <= privacy.keys():
            raise ParameterError("[privacy] must name `epsilon` and `delta`")
        beside, records = path.parent, mapping.get("records", {})
        shards = f"{path.stem}.shards" if "smallest_shard" in records else None
        shard_key = records.get("key", shards)
        return cls(
            epsilon=float(privacy["epsilon"]),
            delta=float(privacy["delta"]),
            relation=Adjacency(privacy.get("relation", Adjacency.REPLACE_ONE_CLIENT)),
            data=str(privacy.get("data", "")),
            ledger=beside / privacy.get("ledger", f"{path.stem}.ledger"),
            **mapping.get("limits", {}),
            smallest_shard=records.get("smallest_shard"),
            shard_key=None if shard_key is None else beside / shard_key,
            server_key=read_public_key(server["key"]) if "key" in server else None,
            server_model=ServerModel(server.get("model", ServerModel.HONEST_BUT_CURIOUS)),
            key=beside / identity["key"] if "key" in identity else None,
            directory=beside / identity["directory"] if "directory" in identity else None,
            directory_required=bool(identity.get("required", "directory" in identity)),
        )

    def check(self, announcement: Announcement, signature: bytes) -> None:
        """Refuse an announcement outside the node's limits; nothing is computed before.

        Raises:
            Refused: With a reason for the server.
        """
        if self.server_key is not None and not verify(
            self.server_key, signature, server_statement(announcement)
        ):
            raise Refused("the announcement is not signed by the server this node trusts")
        if announcement.clients < self.fewest_clients:
            raise Refused(
                f"{announcement.clients} clients take part; this node asks for "
                f"{self.fewest_clients} or more"
            )
        if len(announcement.space) > self.most_candidates:
            raise Refused(
                f"{len(announcement.space)} candidates are announced; this node allows "
                f"{self.most_candidates}"
            )
        if announcement.dropout > self.largest_dropout:
            raise Refused(
                f"a dropout of {announcement.dropout:g} is allowed for; this node accepts "
                f"{self.largest_dropout:g}"
            )
        if announcement.colluding < self.least_colluding:
            raise Refused(
                f"a part of {announcement.colluding:g} is counted out as colluding; this node "
                f"asks for {self.least_colluding:g}"
            )
        if announcement.adjacency is not self.relation:
            raise Refused(
                f"the vote is private under {announcement.adjacency}; this node asks for "
                f"{self.relation}"
            )
        if announcement.budget.epsilon > self.epsilon or announcement.budget.delta > self.delta:
            raise Refused("the vote costs more privacy than this node allows")
        self._check_trust(announcement)

    def check_budget(self, announcement: Announcement, *, private: bool) -> None:
        """Refuse a vote that the node's ledger has no room for; enter nothing.

        Raises:
            Refused: With a reason that says nothing about the ledger's contents.
        """
        with _ledger_refusals():
            if (ledger := self.open_ledger()) is not None:
                ledger.check(release_of(announcement, private=private))

    def enter(self, announcement: Announcement, round_id: bytes, *, private: bool) -> None:
        """Count a vote in the node's ledger, before its masked vector leaves the node.

        Raises:
            Refused: The cap would be passed, or this round was answered before.
        """
        with _ledger_refusals():
            if (ledger := self.open_ledger()) is None:
                return
            name = f"round {announcement.number} {round_id.hex()}"
            if any(entry.id == name for entry in ledger.entries()):
                raise Refused("this node has answered this round before")
            release = release_of(announcement, private=private)
            ledger.enter(release, label=label_of(announcement), id=name)

    def claim(self, announcement: Announcement, stage: str) -> None:
        """Take the one right to answer a stage of a round, before the answer leaves the node.

        Flower may run two messages of a node at the same time, each on the same old state; a
        file that only one of them can create lets only one answer out.

        Raises:
            Refused: The stage was answered before, or the claim cannot be written.
        """
        if self.ledger is None:
            return
        folder = self.ledger.with_name(f"{self.ledger.name}.answered")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / f"{announcement.coin.hex()}.{stage}").touch(mode=0o600, exist_ok=False)
        except FileExistsError as error:
            raise Refused("this node has answered this stage of the round before") from error
        except OSError as error:
            raise Refused("this node cannot note that it answers") from error

    def latest_round(self) -> int:
        """Return the highest round number the ledger knows: none up to it is answered again."""
        with _ledger_refusals():
            if (ledger := self.open_ledger()) is None:
                return 0
            words = [entry.id.split(" ") for entry in ledger.entries()]
            return max((int(w[1]) for w in words if len(w) == 3 and w[0] == "round"), default=0)

    def open_ledger(self) -> Ledger | None:
        """Return the node's ledger, created on first use; None where none is kept."""
        if self.ledger is None:
            return None
        cap = Budget(self.epsilon, self.delta)
        return Ledger.open(self.ledger, cap, adjacency=self.relation, subject=self.data)

    def key_of_shards(self) -> bytes:
        """Return the key that decides which record is in which shard, made on first use.

        Raises:
            Refused: The file cannot be made or read, or does not hold 32 bytes.
        """
        if self.shard_key is None:
            return PUBLIC_SHARD_KEY
        return kept_key(self.shard_key, OsSecrets())

    def node_key(self) -> NodeKey | None:
        """Return the node's identity key, where it has one."""
        return None if self.key is None else NodeKey.read(self.key)

    def directory_file(self) -> DirectoryFile | None:
        """Return the directory of keys this node accepts, where it has one."""
        return None if self.directory is None else DirectoryFile.read(self.directory)

    def _check_trust(self, announcement: Announcement) -> None:
        if announcement.signed and self.directory is None:
            raise Refused("the vote is signed; this node has no identity key and no directory")
        if announcement.signed and self.ledger is None:
            raise Refused("the vote is signed; this node keeps no ledger to note its answers in")
        if self.directory_required and not announcement.signed:
            raise Refused("the vote is not signed; this node asks for keys from its directory")
        if (
            self.server_model is ServerModel.DISHONEST
            and announcement.server is not ServerModel.DISHONEST
        ):
            raise Refused("the vote trusts its server; this node asks for a plan that does not")


class _ledger_refusals:  # noqa: N801 - reads as a clause
    """Turn a ledger's errors into refusals without its figures or its path."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Refuse in the node's own words."""
        if isinstance(error, BudgetExceeded):
            raise Refused("what is left of this node's privacy budget is too little") from error
        if isinstance(error, LedgerError):
            raise Refused("this node's ledger cannot be used") from error


def release_of(announcement: Announcement, *, private: bool) -> Release:
    """Return what taking part in the announced vote releases."""
    if not private:
        return NonPrivateRelease("scripted secrets")
    return announcement.plan.tally.calibration.release


def label_of(announcement: Announcement) -> str:
    """Return a few words about a vote for a ledger."""
    shards = f", {announcement.shards} shards" if announcement.shards > 1 else ""
    return f"vote on {len(announcement.space)} candidates{shards} over Flower"


def server_statement(announcement: Announcement) -> bytes:
    """Return the bytes a server signs."""
    return b"urna flower announcement\0" + announcement.as_bytes()
