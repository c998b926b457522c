"""What a server announces of an encrypted combination, whose result is exact.

An announcement is one line of JSON, like that of a private sum. Its digest names the run, and
with it every key and every letter: two nodes that were told of different tasks or different
names have no run in common.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from urna.flower.announcement import check_name, check_names, read_whole
from urna.protocols.secagg import ServerModel
from urna.systems.combine.tasks import Task, read_task

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ExactAnnouncement:
    """Everything public about one encrypted combination, as a node is told."""

    nonce: bytes
    """Fresh public bytes: no two announcements name the same run."""
    issued: int
    """When, in seconds since the epoch."""
    task: Task
    signed: bool
    """Whether parties sign their letters and check the others' against their own directories."""
    names: tuple[str, ...] = ()
    """Who takes part; a node's place is its number. Empty while gathering."""

    def __post_init__(self) -> None:
        check_names(self.names, self.task.parties, "parties")

    @property
    def name(self) -> str:
        """What is opened, as a grant names it."""
        return str(self.task.as_mapping()["kind"])

    @property
    def size(self) -> int:
        """How many entries the widest vector has."""
        return max(step.parameters.width for step in self.task.steps)

    @property
    def clients(self) -> int:
        """How many take part."""
        return self.task.parties

    @property
    def fewest(self) -> int:
        """With how many parties' vectors at least a result may be opened."""
        return self.task.threshold

    @property
    def fewest_in_result(self) -> int:
        """Of how many clients at least every sum is that is opened."""
        return self.task.fewest_in_result

    @property
    def dropout(self) -> Fraction:
        """Which part may be missing in it."""
        return Fraction(self.task.parties - self.task.threshold, self.task.parties)

    @property
    def colluders(self) -> int:
        """How many may collude: one more of them would decrypt everything."""
        return self.task.threshold - 1

    @property
    def colluding(self) -> Fraction:
        """Which part of the parties that is."""
        return Fraction(self.colluders, self.task.parties)

    @property
    def server(self) -> ServerModel:
        """Threshold encryption is for a server that follows the protocol."""
        return ServerModel.HONEST_BUT_CURIOUS

    @property
    def offer(self) -> bytes:
        """A digest of what is offered, whoever takes part in the end."""
        mapping = self._mapping()
        del mapping["names"], mapping["task"]["parties"], mapping["task"]["threshold"]
        return hashlib.sha256(b"urna flower exact offer\0" + _dumped(mapping)).digest()

    @property
    def digest(self) -> bytes:
        """A digest of all that is announced: it names the run."""
        return hashlib.sha256(b"urna flower exact\0" + self.as_bytes()).digest()

    def with_names(self, names: tuple[str, ...]) -> "ExactAnnouncement":
        """Return the announcement for those who take part."""
        return replace(self, task=self.task.among(len(names)), names=names)

    def as_bytes(self) -> bytes:
        """Return the announcement as it travels."""
        return _dumped(self._mapping())

    @staticmethod
    def read(data: bytes) -> "ExactAnnouncement":
        """Read what `as_bytes` wrote."""
        return _read(data)

    def _mapping(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "nonce": self.nonce.hex(),
            "issued": self.issued,
            "task": dict(self.task.as_mapping()),
            "signed": self.signed,
            "names": list(self.names),
        }


@functools.lru_cache(maxsize=8)
def _read(data: bytes) -> ExactAnnouncement:
    return read_whole(data, _VERSION, "exact announcements", _made)


def _made(mapping: Mapping[str, Any], nonce: bytes, issued: int) -> ExactAnnouncement:
    names = tuple(check_name(name) for name in mapping["names"])
    signed = mapping["signed"] is True
    return ExactAnnouncement(nonce, issued, read_task(mapping["task"]), signed, names)


def _dumped(values: Any) -> bytes:  # noqa: ANN401 - plain values
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()
