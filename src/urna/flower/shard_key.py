"""The key that decides, at one node and for good, which record is in which shard."""

import os
import uuid
from contextlib import suppress
from pathlib import Path

from urna.errors import Refused
from urna.randomness import SEED_BYTES, SecretSource

__all__ = ["kept_key"]


def kept_key(path: Path, secrets: SecretSource) -> bytes:
    """Return the key in a file; where there is none yet, draw one and keep it.

    Written beside its place and linked into it: of two processes that come first at the same
    time, one wins and both read its key.

    Raises:
        Refused: The file cannot be made or read, or holds no key.
    """
    try:
        if not path.exists():
            _write(path, secrets.take(SEED_BYTES))
        key = path.read_bytes()
    except OSError as error:
        raise Refused("this node's key of shards cannot be used") from error
    if len(key) != SEED_BYTES:
        raise Refused("this node's key of shards is damaged")
    return key


def _write(path: Path, key: bytes) -> None:
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(beside)
    finally:
        with suppress(OSError):  # what went wrong above is what the node needs to hear
            beside.unlink(missing_ok=True)
