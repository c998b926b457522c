"""The record of one round over Flower: what was announced, who took part, how it ended.

The server writes it when a round is over and hands it to the nodes, who can keep it and check it
(`urna verify`). It holds nothing that is not public among those who took part.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from urna.errors import ParameterError, ProtocolError
from urna.files import write_whole
from urna.flower.announcement import LONGEST, Announced, Announcement, check_name, server_statement
from urna.flower.identities import DirectoryFile, NodeKey, verify
from urna.flower.vote_subject import is_verified, vote_of
from urna.noise import IntVector
from urna.protocols.secagg import closed
from urna.protocols.secagg.graph import ring

if TYPE_CHECKING:
    from urna.flower.policy import Policy

_VERSION = 1
_LONGEST = 8 * LONGEST
_BYTES = ("signature", "inputs_digest")
_BY_NAME: Mapping[str, Callable[[str], Any]] = {
    "presence": bytes.fromhex,
    "lost": str,
    "faults": str,
    "receipts": bytes.fromhex,
}


class Ending(StrEnum):
    """How a round ended."""

    RELEASED = "released"
    """The sum was opened."""
    VOID = "void"
    """Nothing was opened; the receipts say who has forgotten the round."""
    UNFINISHED = "unfinished"
    """Opening it had begun. It counts as released."""
    SPOILED = "spoiled"
    """What was opened is no sum of valid contributions. It counts as released."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What everybody who took part may know of a round."""

    announcement: Announcement
    """As it was when names were known."""
    signature: bytes
    """The server's over the announcement; empty where it has no key."""
    number: int
    inputs_digest: bytes
    presence: Mapping[str, bytes]
    """Each node's signature that it was there, in signed sums."""
    ending: Ending
    survivors: tuple[str, ...]
    """Whose contribution is in the sum."""
    lost: Mapping[str, str]
    faults: Mapping[str, str]
    receipts: Mapping[str, bytes]
    """Of those who have revealed nothing and forgot the round."""
    sum_digest: str
    """Digest of the opened sum; empty where none was."""
    sealed: bytes = field(default=b"", repr=False)
    """The server's signature over all of the above; empty where it has no key."""

    @property
    def coin(self) -> bytes:
        """The round's coin."""
        return self.announcement.coin_of(self.number, self.inputs_digest)

    @property
    def round_id(self) -> bytes:
        """The id that the protocol's messages carried."""
        return self.announcement.round_id(self.number, self.coin)

    def sealed_by(self, key: NodeKey | None) -> "Transcript":
        """Return the transcript with the server's signature, where it has a key."""
        if key is None:
            return self
        return replace(self, sealed=key.sign(self._statement()))

    def problems(
        self, *, directory: DirectoryFile | None = None, server_key: bytes | None = None
    ) -> list[str]:
        """Return what is wrong with it, in whole sentences; nothing if all checks hold.

        Args:
            directory: The identity keys that the reader accepts.
            server_key: The server's public key, from elsewhere than the transcript.
        """
        found, names = [], set(self.announcement.names)
        if server_key is not None:
            announced = server_statement(self.announcement.as_bytes())
            if not verify(server_key, self.signature, announced):
                found.append("The announcement is not signed by this server.")
            if not verify(server_key, self.sealed, self._statement()):
                found.append("The transcript is not signed by this server.")
        if not 1 <= self.number <= self.announcement.rounds:
            found.append(f"A series of {self.announcement.rounds} has no round {self.number}.")
        for what, mentioned in (
            ("survivors", self.survivors),
            ("lost", self.lost),
            ("faults", self.faults),
            ("receipts", self.receipts),
            ("presence", self.presence),
        ):
            if strangers := set(mentioned) - names:
                found.append(f"Its {what} name {len(strangers)} who did not take part.")
        if len(set(self.survivors)) < len(self.survivors) or set(self.survivors) & set(self.lost):
            found.append("Somebody is in the sum twice, or in it and lost.")
        if directory is not None and self.announcement.signed:
            found += self._unsigned(directory)
        released = self.ending is Ending.RELEASED
        if released and len(self.survivors) < self.announcement.terms.fewest:
            found.append("The sum was opened with fewer nodes in it than the terms allow.")
        if released != bool(self.sum_digest) and self.ending is not Ending.SPOILED:
            found.append("An opened sum has a digest, and no other.")
        return found

    def _unsigned(self, directory: DirectoryFile) -> list[str]:
        found = []
        for name in self.announcement.names:
            key = directory.keys.get(name, b"")
            proof = self.presence.get(name, b"")
            if not verify(key, proof, presence(self.announcement, name)):
                found.append(f"{name} has not signed that it was there, by the directory's key.")
        try:
            keys = directory.for_round(self.announcement.names)
        except ParameterError as error:
            return [*found, f"{error}."]
        for name, receipt in self.receipts.items():
            if name not in self.announcement.names:
                continue
            try:
                client = self.announcement.names.index(name)
                keys.verify_receipt(client, receipt, self.round_id)
            except ProtocolError:
                found.append(f"The receipt of {name} is not signed by it.")
        return found

    def void_for(self, name: str, policy: "Policy") -> bool:
        """Say whether a node may stop counting this round: it can never be opened.

        In a signed sum by receipts that the node's own directory vouches for. Without signatures
        the server is trusted to follow the protocol, and so to tell the truth about them. A
        verified count is void by the helper's own receipt: without the helper nothing opens it.
        """
        if self.ending is not Ending.VOID or name not in self.announcement.names:
            return False
        directory = policy.directory_file() if self.announcement.signed else None
        if self.announcement.signed and directory is None:
            return False
        if self.problems(directory=directory, server_key=policy.server_key):
            return False
        if is_verified(self.announcement):
            return vote_of(self.announcement).helper in self.receipts
        plan, names = self.announcement.round_plan, self.announcement.names
        neighbours = ring(self.round_id, plan.clients, plan.neighbours).of(names.index(name))
        given = {names.index(other) for other in self.receipts}
        return closed(plan, neighbours, given)

    def keep(self, folder: Path) -> Path:
        """Write it into a folder, under the round's coin; return the file.

        The first of a round stays: another that comes later is kept beside it, once.
        """
        folder.mkdir(parents=True, exist_ok=True)
        data, name = self.as_bytes(), self.coin.hex()[:32]
        path = folder / f"{name}.json"
        if path.exists() and path.read_bytes() != data:
            path = folder / f"{name}.other.json"
        if not path.exists():
            write_whole(path, data)
        return path

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read` makes it again."""
        return {**self._mapping(), "sealed": self.sealed.hex()}

    def as_bytes(self) -> bytes:
        """Return the transcript as it travels and is kept."""
        return (json.dumps(self.as_mapping(), indent=1) + "\n").encode()

    @classmethod
    def read(cls, data: bytes) -> "Transcript":
        """Read what `as_bytes` wrote.

        Raises:
            ProtocolError: It is no transcript.
        """
        if len(data) > _LONGEST:
            raise ProtocolError(f"a transcript has at most {_LONGEST:,} bytes")
        try:
            return cls._from(json.loads(data))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ProtocolError("the transcript cannot be read") from error

    @classmethod
    def _from(cls, mapping: Mapping[str, Any]) -> "Transcript":
        if (mapping["kind"], mapping["version"]) != ("transcript", _VERSION):
            raise ProtocolError(f"transcripts of version {_VERSION} are read here")

        number = mapping["number"]
        if type(number) is not int or not 1 <= number < 2**31:
            raise ProtocolError("rounds are numbered from one")
        said: dict[str, Any] = {
            name: {check_name(who): read(what) for who, what in mapping[name].items()}
            for name, read in _BY_NAME.items()
        }
        said |= {name: bytes.fromhex(mapping[name]) for name in (*_BYTES, "sealed")}
        return cls(
            announcement=Announcement.read(str(mapping["announcement"]).encode()),
            number=number,
            ending=Ending(mapping["ending"]),
            survivors=tuple(check_name(name) for name in mapping["survivors"]),
            sum_digest=str(mapping["sum_digest"]),
            **said,
        )

    def _mapping(self) -> dict[str, Any]:
        return {
            "kind": "transcript",
            "version": _VERSION,
            "announcement": self.announcement.as_bytes().decode(),
            "signature": self.signature.hex(),
            "number": self.number,
            "inputs_digest": self.inputs_digest.hex(),
            "presence": {name: proof.hex() for name, proof in self.presence.items()},
            "ending": str(self.ending),
            "survivors": list(self.survivors),
            "lost": dict(self.lost),
            "faults": dict(self.faults),
            "receipts": {name: receipt.hex() for name, receipt in self.receipts.items()},
            "sum_digest": self.sum_digest,
        }

    def _statement(self) -> bytes:
        text = json.dumps(self._mapping(), separators=(",", ":"))
        return b"urna flower transcript\0" + hashlib.sha256(text.encode()).digest()


def presence(announcement: Announced, name: str) -> bytes:
    """Return the bytes by which a node proves at the gathering that it holds its key."""
    return b"urna flower presence\0" + announcement.offer + name.encode()


def sum_digest(total: IntVector) -> str:
    """Return the digest of an opened sum, in grid steps."""
    return hashlib.sha256(b"urna sum\0" + total.astype("<i8").tobytes()).hexdigest()
