"""What a server keeps of its sums, so that one that was killed can go on with them.

Two files in one folder. `series.json` says what was announced, who takes part and which round
was begun last; it is written whole or not at all. `round.journal` holds the replies of that
round in the order they came. The server of a round does nothing but what replies make it do, so
one that reads them again stands where the killed one stood, and asks for the rest.
"""

import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Any, BinaryIO, Self

from urna.errors import OutputError, ParameterError, ProtocolError
from urna.files import check_folder, read_json, write_json
from urna.flower.announcement import Announcement
from urna.flower.gathering import Gathering
from urna.flower.identities import DirectoryFile
from urna.flower.subjects import MALFORMED
from urna.protocols.secagg import ClientId, Stage, Transport

_SERIES, _JOURNAL = "series.json", "round.journal"
_VERSION = 1
_PLACE = ("entry", "number", "inputs", "before", "after")  # fields that stand there as they are
_HEAD = Struct("<BIII")  # what it is, stage or client, bytes that follow, their checksum
_STAGE, _REPLY, _OVER = 1, 2, 3
_STAGES = tuple(Stage)


@dataclass(frozen=True, slots=True)
class SeriesState:
    """Where a series stands: who takes part, and the round that was begun last."""

    gathering: Gathering[Announcement]
    entry: str
    """The series' id in the server's ledger."""
    number: int = 0
    """The round that was begun last; zero before the first."""
    inputs: str = ""
    """Digest of what it started from."""
    before: int = 0
    """Rounds that counted before it."""
    after: int | None = 0
    """Rounds that count after it; None while it is not over."""

    def begun(self, number: int, inputs: str, before: int) -> "SeriesState":
        """Return where it stands when a round begins."""
        return replace(self, number=number, inputs=inputs, before=before, after=None)

    def over(self, after: int) -> "SeriesState":
        """Return where it stands when the round is over."""
        return replace(self, after=after)

    def write(self, folder: Path) -> None:
        """Write it, synced, in place of the one before."""
        gathering = self.gathering
        values = {
            "version": _VERSION,
            "announced": gathering.announced.as_bytes().decode(),
            "ready": gathering.ready,
            "proofs": {name: proof.hex() for name, proof in gathering.proofs.items()},
            "keeping": sorted(gathering.keeping),
            "scripted": sorted(gathering.scripted),
            "missing": gathering.missing,
        }
        check_folder(folder)
        write_json(folder / _SERIES, values | {name: getattr(self, name) for name in _PLACE})

    @staticmethod
    def drop(folder: Path) -> None:
        """Forget a series of which nothing counts."""
        for name in (_SERIES, _JOURNAL):
            (folder / name).unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path, keys: DirectoryFile | None) -> "SeriesState | None":
        """Read it; None where nothing is kept."""
        path = folder / _SERIES
        if not path.exists():
            return None
        said = read_json(path)
        try:
            if said["version"] != _VERSION:
                raise ParameterError(f"{path} is of another version")
            return cls(_gathering(said, keys), **{name: said[name] for name in _PLACE})
        except (*MALFORMED, ProtocolError) as error:
            raise ParameterError(f"{path} is no series of sums: {error!r}") from error


def _gathering(said: dict[str, Any], keys: DirectoryFile | None) -> Gathering[Announcement]:
    return Gathering(
        Announcement.read(said["announced"].encode()),
        keys,
        {int(node): str(why) for node, why in said["missing"].items()},
        {str(name): int(node) for name, node in said["ready"].items()},
        {str(name): bytes.fromhex(proof) for name, proof in said["proofs"].items()},
        set(map(int, said["keeping"])),
        set(map(str, said["scripted"])),
    )


@dataclass(slots=True)
class RoundJournal:
    """A transport whose replies are written down, and read again by a server that goes on.

    Stage by stage, in the order they came; what a killed server had half written is left out.
    Everything is on the disk before the next stage's letters leave, because nodes keep no more
    than their latest answer.

    Args:
        folder: Where it is kept. The journal of another round is replaced.
        coin: The round's coin.
        inner: Reaches the clients.
    """

    folder: Path
    coin: bytes
    inner: Transport | None = None
    found: list[tuple[Stage, list[tuple[ClientId, bytes]]]] = field(default_factory=list)
    """What was there when it was opened."""
    complete: bool = False
    """Whether the round was over by then: nobody is asked again."""
    client_seconds: float = 0.0
    own_seconds: float = 0.0
    _file: BinaryIO | None = field(default=None, repr=False)
    _read_again: int = 0

    def __enter__(self) -> Self:
        """Read what is there, and go on writing behind it."""
        path = self.folder / _JOURNAL
        data = path.read_bytes() if path.exists() else b""
        whole = self._read(data)
        try:
            if not whole:
                path.write_bytes(self.coin)
            elif whole < len(data):
                os.truncate(path, whole)
            self._file = path.open("ab")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def exchange(
        self, stage: Stage, letters: Iterable[tuple[ClientId, bytes]]
    ) -> Iterator[tuple[ClientId, bytes]]:
        """Yield the replies that are written down, then those of clients asked (again)."""
        told: list[tuple[ClientId, bytes]] = []
        over = False
        if self._read_again < len(self.found):
            noted, told = self.found[self._read_again]
            self._read_again += 1
            if noted is not stage:
                raise ParameterError("the journal is of a round that went another way")
            over = self._read_again < len(self.found) or self.complete
        else:
            self.stage(stage)
        heard = {client for client, _ in told}
        rest = [letter for letter in letters if letter[0] not in heard]
        yield from told
        if over or not rest or self.inner is None:
            return
        for client, data in self.inner.exchange(stage, rest):
            self.reply(client, data)
            yield client, data

    def stage(self, stage: Stage) -> None:
        """Note that a stage begins, and so that the one before is over."""
        self._write(_STAGE, _STAGES.index(stage), b"")
        self._sync()

    def reply(self, client: ClientId, data: bytes) -> None:
        """Note a reply before it is used."""
        self._write(_REPLY, client, data)

    def over(self) -> None:
        """Note that the round is over, before nodes are told."""
        if not self.complete:
            self._write(_OVER, 0, b"")
            self._sync()

    def _sync(self) -> None:
        """See that everything is on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def _write(self, kind: int, place: int, data: bytes) -> None:
        if self._file is None:
            raise ParameterError("the journal is not open")
        self._file.write(_HEAD.pack(kind, place, len(data), zlib.crc32(data)) + data)
        self._file.flush()

    def _read(self, data: bytes) -> int:
        """Take what is whole; return how many bytes that is, none for another round's."""
        if data[: len(self.coin)] != self.coin:
            return 0
        at = len(self.coin)
        while at + _HEAD.size <= len(data):
            kind, place, size, check = _HEAD.unpack_from(data, at)
            body = data[at + _HEAD.size : at + _HEAD.size + size]
            if len(body) < size or zlib.crc32(body) != check:
                break
            if kind == _STAGE and place < len(_STAGES):
                self.found.append((_STAGES[place], []))
            elif kind == _REPLY and self.found:
                self.found[-1][1].append((place, body))
            elif kind == _OVER:
                self.complete = True
            else:
                break
            at += _HEAD.size + size
        return at
