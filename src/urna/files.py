"""Files that are written whole, or not at all, and are on the disk before anybody is told."""

import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from urna.errors import OutputError, ParameterError

__all__ = [
    "check_folder",
    "digest_of",
    "held_alone",
    "read_json",
    "today",
    "write_json",
    "write_whole",
]

_DAY = 86_400
_PROBE = 1 << 20  # bytes that a folder must have room for; a full disk still makes empty files

LOCK = ".lock"
"""The file by which a process holds a folder alone."""


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> str:
    """Write a file whole or not at all, and synced; return the digest of what it holds.

    Args:
        path: Where to.
        content: What it holds.
        mode: Who may read it.

    Raises:
        OutputError: It could not be written; what was there before is still there.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(path)
            _sync_folder(path.parent)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    return hashlib.sha256(data).hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> str:
    """Write plain values as JSON, whole and synced; return the file's digest."""
    return write_whole(path, json.dumps(values, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of one JSON object.

    Raises:
        ParameterError: It is not there, or is none.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path} is no JSON file: {error}") from error
    if not isinstance(values, dict):
        raise ParameterError(f"{path} holds no JSON object")
    return values


def today() -> float:
    """Return the beginning of this day (UTC) in seconds since the epoch, for results.

    Guarantee:
        Two dates of one study do not tell how long a stage took, which depends on the data,
        unless a day ended between them.
    """
    return float(time.time() // _DAY * _DAY)


def digest_of(path: Path) -> str:
    """Return the digest of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_folder(folder: Path) -> None:
    """Make a folder and see that files can be written into it, before work is done for it.

    Raises:
        OutputError: They cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error


@contextmanager
def held_alone(folder: Path, what: str) -> Iterator[None]:
    """Keep every other process out of a folder while the block runs, if it asks here too.

    The lock ends with the process, however that ends; its empty file stays.

    Args:
        folder: Where files can be written.
        what: What runs in it, for who is refused.

    Raises:
        ParameterError: Somebody else holds it.
    """
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ParameterError(
                f"another process is at work on {what} in {folder}: wait until it ends"
            ) from error
        except OSError as error:
            raise OutputError(f"cannot lock {path}: {error.strerror or error}") from error
        yield
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not every file system can; the file itself is synced
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
