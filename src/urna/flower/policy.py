"""What a node agrees to: its limits, its ledger, its keys. The node decides, not the server."""

import math
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from urna.data import PUBLIC_SHARD_KEY
from urna.errors import ParameterError, Refused
from urna.flower.accounts import LARGEST_SKEW, NodeAccount
from urna.flower.announcement import LONGEST, Announcement, server_statement
from urna.flower.identities import DirectoryFile, NodeKey, kept_key, read_public_key, verify
from urna.privacy import Adjacency, Budget, Unit
from urna.protocols.secagg import ServerModel
from urna.randomness import OsSecrets
from urna.systems.vote.fill import LEAST_RECORDS
from urna.tally import Part, Terms, exact_part

if TYPE_CHECKING:  # a node that combines nothing need not load what combines
    from urna.flower.exact import ExactAnnouncement

EXACT = "exact-settings"
"""What a policy calls exact combinations of nodes' own searches: `[grant.exact-settings]`."""

_LIMITS = (
    "fewest_clients",
    "most_clients",
    "largest_dropout",
    "least_colluding",
    "most_colluders",
    "most_missing",
    "most_bytes",
    "reports_failures",
)
_SECTIONS: Mapping[str, Mapping[str, str]] = {  # of a policy file: field by key
    "privacy": {name: name for name in ("epsilon", "delta", "relation", "data", "ledger")},
    "limits": {name: name for name in _LIMITS},
    "records": {"smallest_shard": "smallest_shard", "key": "shard_key"},
    "server": {"key": "server_key", "model": "server_model"},
    "identity": {"key": "key", "directory": "directory", "required": "directory_required"},
    "transcripts": {"folder": "transcripts"},
}
_FILES = frozenset({"ledger", "shard_key", "key", "directory", "transcripts"})
_GRANTS = ("most_entries", "most_rounds", "most_runs", "names", "fewest_in_cluster")
_IN_CLUSTER = 4
_WHOLE = "mean"  # opened of all who take part; anything else may be opened of fewer


def _require(right: bool, otherwise: str) -> None:
    """Refuse a policy that cannot be."""
    if not right:
        raise ParameterError(otherwise)


def _refuse(wrong: bool, why: str) -> None:
    """Refuse a request, with a reason for the server."""
    if wrong:
        raise Refused(why)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a node takes part in, of one kind of subject."""

    most_entries: int = 10_000
    """Longer vectors are refused: more candidates, larger models."""
    most_rounds: int = 1
    """Longer series are refused."""
    names: tuple[str, ...] | None = None
    """Of named subjects, which; None for any."""
    most_runs: int | None = 1
    """How many exact results it takes part in, whatever their names, for the data set's lifetime:
    two among different nodes can be subtracted. None counts none, for simulations."""
    fewest_in_cluster: int = _IN_CLUSTER
    """Of exact results, how many clients at least must be in every cluster whose sums are opened:
    all but one of them can subtract what they put in."""

    def __post_init__(self) -> None:
        runs = 1 if self.most_runs is None else self.most_runs
        limits = (self.most_entries, self.most_rounds, runs)
        if any(type(n) is not int or n < 1 for n in limits):
            raise ParameterError("a grant allows at least one entry, one round and one run")
        if type(self.fewest_in_cluster) is not int or self.fewest_in_cluster < 2:
            raise ParameterError(
                "`fewest_in_cluster` is 2 or more: sums of one client are that client's; got "
                f"{self.fewest_in_cluster!r}"
            )


@dataclass(frozen=True, slots=True)
class Policy:
    """A node's own limits. A request outside them is refused before any training happens.

    Guarantee:
        With a ledger, everything the node ever released about its data set under this policy
        is together (epsilon, delta)-DP under `relation`, whatever the server asks and however
        it chooses, towards whomever the protocol protects against. A sum is entered before
        the node's masked vector leaves it. Outside this are exact results, of which it takes
        part in none that is not granted by name, and in no more than are granted by number.

    Assumes:
        At most `most_colluders` nodes (or `least_colluding` of those who take part) collude
        with the server.

    Args:
        epsilon: Largest epsilon, for the data set's lifetime.
        delta: The delta that goes with it.
        relation: The neighbouring relation sums must be accounted under.
        data: Names the data set, for people.
        ledger: File of the node's ledger. A node without one refuses, unless `forgets`.
        forgets: Whether the node remembers nothing from one sum to the next: no limit over
            time, no protection from answering twice. For simulations. It takes part in no exact
            results unless `most_runs` is None: it could not count them.
        grants: The kinds of subject the node takes part in, each with its limits; votes by
            default.
        fewest_clients: A sum that may be opened with fewer nodes in it is refused. For sums of
            clusters `Grant.fewest_in_cluster` says it.
        most_clients: A sum among more is refused: planning it takes too long.
        largest_dropout: A plan that tolerates more lost clients is refused.
        least_colluding: A plan that counts out a smaller part of the clients is refused.
        most_colluders: How many nodes in all may collude with the server. A plan that counts
            out fewer is refused, however few take part: the server may have chosen those.
        most_missing: In a signed sum, how many of the node's directory may be left out, helpers
            not counted.
        most_bytes: Longer announcements are refused unread.
        reports_failures: Whether the node refuses a round in which its own code raised, in place
            of contributing nothing. The server learns that it did, which depends on the node's
            data and is covered by no epsilon; not what was raised.
        smallest_shard: Must be named where `relation` is `replace-one-record`, and only there.
            A vote that would leave this node's shards with fewer records is refused; a single
            shard that has fewer abstains.
        shard_key: File of the key that decides which record is in which shard; made on first
            use. None uses a key that everybody knows, which is no less private.
        server_key: The server's public key; its announcements must be signed by it.
        server_model: `dishonest` refuses sums that trust the server more than that.
        key: File of the node's identity key.
        directory: File of the identity keys this node accepts.
        directory_required: Whether sums without signed keys are refused.
        transcripts: Folder in which the node keeps a transcript of every sum it took part in.
    """

    epsilon: float
    delta: float
    relation: Adjacency = Adjacency.REPLACE_ONE_CLIENT
    data: str = ""
    ledger: Path | None = None
    forgets: bool = False
    grants: Mapping[str, Grant] = field(default_factory=lambda: {"vote": Grant()})
    fewest_clients: int = 10
    most_clients: int = 10_000
    largest_dropout: Part = 0.5
    least_colluding: Part = 0.1
    most_colluders: int | None = None
    most_missing: int = 0
    most_bytes: int = 1_000_000
    reports_failures: bool = False
    smallest_shard: int | None = None
    shard_key: Path | None = None
    server_key: bytes | None = None
    server_model: ServerModel = ServerModel.HONEST_BUT_CURIOUS
    key: Path | None = None
    directory: Path | None = None
    directory_required: bool = False
    transcripts: Path | None = None

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        # Their names are as good as themselves to a caller.
        object.__setattr__(self, "relation", Adjacency(self.relation))
        object.__setattr__(self, "server_model", ServerModel(self.server_model))
        _require(self.fewest_clients >= 2, "a policy asks for 2 clients or more")
        _require(
            1 <= self.most_bytes <= LONGEST and self.most_clients >= self.fewest_clients,
            f"a policy allows 1 to {LONGEST:,} bytes, and as many clients as it asks for",
        )
        exact_part("largest_dropout", self.largest_dropout)
        exact_part("least_colluding", self.least_colluding)
        _require(
            self.most_missing >= 0 and (self.most_colluders or 0) >= 0,
            "numbers of nodes are not negative",
        )
        _require(
            type(self.reports_failures) is bool,
            f"`reports_failures` is true or false, got {self.reports_failures!r}",
        )
        self._check_unit()
        _require(
            EXACT not in self.grants or self.grants[EXACT].names is not None,
            f"[grant.{EXACT}] must name what may be opened exactly, as in names = "
            '["mean", "dbscan"]: no privacy budget covers it',
        )
        others = [grant for kind, grant in self.grants.items() if kind != EXACT]
        _require(
            all(grant.most_runs == 1 for grant in others),
            f"`most_runs` counts exact results and belongs to [grant.{EXACT}]; a ledger limits "
            "everything else",
        )
        _require(
            all(grant.fewest_in_cluster == _IN_CLUSTER for grant in others),
            f"`fewest_in_cluster` is about exact results and belongs to [grant.{EXACT}]",
        )
        _require(
            (self.key is None) == (self.directory is None),
            "an identity key and a directory are used together or not at all",
        )
        _require(
            self.directory is not None or not self.directory_required,
            "a policy that requires a directory must name one",
        )

    def _check_unit(self) -> None:
        by_record, smallest = self.relation.unit is Unit.RECORD, self.smallest_shard
        _require(
            not by_record or smallest is not None,
            f"a policy that accepts {self.relation} protects single records and not this node "
            "as a whole: it must name its `smallest_shard`, the fewest records that vote together",
        )
        _require(
            by_record or (smallest is None and self.shard_key is None),
            f"`smallest_shard` and a key of shards mean nothing under {self.relation}; leave "
            f"them out, or accept {Adjacency.REPLACE_ONE_RECORD}",
        )
        _require(
            smallest is None or (type(smallest) is int and smallest >= LEAST_RECORDS),
            f"the smallest shard has at least {LEAST_RECORDS} records, got {smallest}",
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
            where = path.absolute()  # a node's app does not run where its SuperNode was started
            raise ParameterError(f"cannot read the policy {where}: {error.strerror}") from error
        except ValueError as error:
            raise ParameterError(f"the policy {path} is no TOML file: {error}") from error
        try:
            return cls(**_fields(mapping, path))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ParameterError(f"the policy {path}: {error}") from error

    def read_announcement(self, data: bytes, signature: bytes) -> Announcement:
        """Read an announcement that is within the node's limits, cheapest checks first.

        Nothing is parsed that the server this node trusts has not signed, and no subject is
        made and no sum planned whose terms and size are not allowed.

        Raises:
            Refused: With a reason for the server.
            ProtocolError: It is no announcement.
        """
        self.check_source(data, signature)
        announcement = Announcement.read(data)
        terms = announcement.terms
        _check_time(announcement.issued)
        self._check_participants(terms)
        _refuse(
            terms.adjacency is not self.relation,
            f"the sum is private under {terms.adjacency}; this node asks for {self.relation}",
        )
        _refuse(
            terms.budget.epsilon > self.epsilon or terms.budget.delta > self.delta,
            "the sum costs more privacy than this node allows",
        )
        self._check_grant(announcement)
        self._check_trust(terms, announcement.signed, announcement.names)
        try:
            announcement.round_plan  # noqa: B018 - kept; what cannot be planned is refused
        except (ParameterError, ArithmeticError) as error:
            raise Refused(f"the sum announced cannot be planned: {error}") from error
        return announcement

    def check_source(self, data: bytes, signature: bytes, body: bytes = b"") -> None:
        """Refuse what is unread and too long, or not of the server this node trusts.

        Args:
            data: The announcement.
            signature: The server's; over the body as well, where there is one.
            body: What the letter carries besides.

        Raises:
            Refused: With a reason for the server.
        """
        _refuse(
            len(data) > self.most_bytes,
            f"the announcement is longer than the {self.most_bytes:,} bytes allowed",
        )
        key, said = self.server_key, server_statement(data, body)
        _refuse(
            key is not None and not verify(key, signature, said),
            f"the {'letter' if body else 'announcement'} is not signed by the server this node "
            "trusts",
        )

    def check_exact(self, request: "ExactAnnouncement", run: bytes) -> Grant:
        """Refuse an exact result that is outside the node's limits; return what is granted.

        Args:
            request: What is announced.
            run: What names the run.

        Raises:
            Refused: With a reason for the server.
        """
        grant, exact = self.grants.get(EXACT), "what is opened would be exact"
        if grant is None:
            raise Refused(
                f"{exact}, and this node's policy does not grant that: it has no [grant.{EXACT}]"
            )
        _refuse(
            grant.names is not None and request.name not in grant.names,
            f"{exact}, and this node does not grant it by name",
        )
        _check_time(request.issued)
        self._check_participants(request)
        self._check_trust(request, request.signed, request.names)
        _refuse(
            request.name != _WHOLE and request.fewest_in_result < grant.fewest_in_cluster,
            f"exact sums of clusters of {request.fewest_in_result} clients may be opened; this "
            f"node asks for {grant.fewest_in_cluster} or more in each (`fewest_in_cluster`)",
        )
        _refuse(
            self.ledger is None and grant.most_runs is not None,
            f"{exact}; this node keeps no ledger to count it in, and its policy grants a number "
            "of exact results",
        )
        self.account.claims.check_run(run, grant.most_runs)
        _check_size(request.size, grant)  # last: it takes planning to know
        return grant

    def _check_participants(self, terms: "Terms | ExactAnnouncement") -> None:
        _refuse(
            terms.clients > self.most_clients,
            f"{terms.clients:,} clients are invited; this node allows {self.most_clients:,}",
        )
        _refuse(
            terms.fewest < self.fewest_clients,
            f"the sum may be opened with {terms.fewest} clients in it; this node asks for "
            f"{self.fewest_clients} or more",
        )
        largest = exact_part("largest_dropout", self.largest_dropout)
        _refuse(
            terms.dropout > largest,
            f"a dropout of {float(terms.dropout):g} is allowed for; this node accepts "
            f"{float(largest):g}",
        )
        least = exact_part("least_colluding", self.least_colluding)
        _refuse(
            terms.colluding < least,
            f"a part of {float(terms.colluding):g} is counted out as colluding; this node asks "
            f"for {float(least):g}",
        )
        _refuse(
            terms.colluders < (self.most_colluders or 0),
            f"{terms.colluders} clients are counted out as colluding; this node asks for "
            f"{self.most_colluders}, however few take part",
        )

    def _check_grant(self, announcement: Announcement) -> None:
        grant = self.grants.get(announcement.kind)
        if grant is None:
            raise Refused(f"this node takes no part in sums of the kind {announcement.kind[:40]}")
        _check_size(announcement.size, grant)
        _refuse(
            announcement.rounds > grant.most_rounds,
            f"{announcement.rounds:,} rounds are announced; this node allows {grant.most_rounds:,}",
        )
        if grant.names is not None:
            _refuse(
                getattr(announcement.subject, "name", None) not in grant.names,
                "the subject announced is none of those this node grants by name",
            )

    def _check_trust(
        self, terms: "Terms | ExactAnnouncement", signed: bool, names: tuple[str, ...]
    ) -> None:
        dishonest = ServerModel.DISHONEST
        for wrong, why in (
            (
                self.ledger is None and not self.forgets,
                "this node keeps no ledger, and its policy does not say that it forgets",
            ),
            (
                signed and self.directory is None,
                "the sum is signed; this node has no identity key and no directory",
            ),
            (
                signed and self.ledger is None,
                "the sum is signed; this node keeps no ledger to note its answers in",
            ),
            (
                self.directory_required and not signed,
                "the sum is not signed; this node asks for keys from its directory",
            ),
            (
                self.server_model is dishonest and terms.server is not dishonest,
                "the sum trusts its server; this node asks for a plan that does not",
            ),
        ):
            _refuse(wrong, why)
        if signed:
            self._check_directory(terms.colluders, names)

    def _check_directory(self, colluders: int, names: tuple[str, ...]) -> None:
        """Refuse clients that the server picked out of the directory.

        Whoever colludes is in the directory, so colluders are a part of the directory and not
        of those whom the server chose. Helpers stand in the directory and have no data: where
        they do not help, nobody misses them.
        """
        directory = self.directory_file()
        known = frozenset() if directory is None else frozenset(directory.keys)
        needed = math.ceil(len(known) * exact_part("least_colluding", self.least_colluding))
        _refuse(
            self.most_colluders is None and colluders < needed,
            f"{colluders} clients are counted out as colluding; this node asks for {needed}, "
            "a part of its directory, however few take part",
        )
        missing = len(known - self._helpers - set(names)) if names else 0
        _refuse(
            missing > self.most_missing,
            f"{missing} of this node's directory are left out; it allows {self.most_missing}",
        )

    @property
    def _helpers(self) -> frozenset[str]:
        """Who helps to open winners, by what this node grants."""
        grants = [self.grants.get(kind, Grant()) for kind in ("winner", "verified")]
        return frozenset(name for grant in grants for name in grant.names or ())

    @property
    def account(self) -> NodeAccount:
        """The node's ledger and what it has answered."""
        return NodeAccount(self.ledger, Budget(self.epsilon, self.delta), self.relation, self.data)

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


def _fields(mapping: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of the policy that a file holds."""
    beside, stem, found = path.parent, path.stem, dict[str, Any]()
    for section, entries in mapping.items():
        if not (section in _SECTIONS or section == "grant") or not isinstance(entries, dict):
            names = ", ".join([*_SECTIONS, "grant.KIND"])
            raise ParameterError(f"sections are {names}, got {section!r}")
        known = _SECTIONS.get(section, dict.fromkeys(_GRANTS, ""))
        for named, inner in entries.items() if section == "grant" else [(section, entries)]:
            _require(
                inner.keys() <= known.keys(),
                f"[{named}] knows {', '.join(sorted(known))}, got "
                f"{', '.join(sorted(inner.keys() - known.keys()))}",
            )
        if section != "grant":
            found |= {known[key]: value for key, value in entries.items()}
    grants = mapping.get("grant", {})
    _require({"epsilon", "delta"} <= found.keys(), "[privacy] must name `epsilon` and `delta`")
    _require(bool(grants), "this policy grants nothing: add [grant.vote] for votes")
    found["epsilon"], found["delta"] = float(found["epsilon"]), float(found["delta"])
    found["data"] = str(found.get("data", ""))
    found.setdefault("ledger", f"{stem}.ledger")
    if "smallest_shard" in found:
        found.setdefault("shard_key", f"{stem}.shards")
    found.setdefault("directory_required", "directory" in found)
    if "server_key" in found:
        found["server_key"] = read_public_key(found["server_key"])
    found |= {name: beside / found[name] for name in _FILES & found.keys()}
    found["grants"] = {
        kind: Grant(**(grant | ({"names": tuple(grant["names"])} if "names" in grant else {})))
        for kind, grant in grants.items()
    }
    return found


def _check_size(size: int, grant: Grant) -> None:
    _refuse(
        size > grant.most_entries,
        f"{size:,} entries are announced; this node allows {grant.most_entries:,}",
    )


def _check_time(issued: int) -> None:
    _refuse(
        abs(issued - time.time()) > LARGEST_SKEW,
        "the announcement is not of about this node's time",
    )
