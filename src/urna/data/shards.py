"""Split one client's records into disjoint shards, for protection of single records.

Where a record goes is decided by its id and a key, never by its content and never by other
records. So replacing, adding or removing the content of one id changes one shard and leaves
all others as they were, row for row.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.randomness import SEED_BYTES, derive_seed, expand_words

__all__ = ["PUBLIC_SHARD_KEY", "Records", "Shard", "count_records", "split_records"]

PUBLIC_SHARD_KEY = hashlib.sha256(b"urna shards").digest()
"""A key everybody knows, for simulations. The guarantee needs no secret key; a key that the
client keeps also denies whoever chooses ids the choice of their shard."""

_DIGEST_BYTES = 16
_PERSON = b"urna shard"


class Records(Protocol):
    """Data made of rows that can be told apart, such as `Samples`.

    Where it has an attribute `ids` that is not None, that says which record each row is of;
    otherwise every row is a record, and its place is its id.
    """

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def take(self, rows: npt.NDArray[np.integer], /) -> Self:
        """Return the given rows, in the given order."""
        ...


RecordsT = TypeVar("RecordsT", bound=Records)


@dataclass(frozen=True, slots=True, eq=False)
class Shard(Generic[RecordsT]):
    """One part of a client's records."""

    data: RecordsT
    records: int
    """How many different records are in it; rows of one id count once."""


def split_records(
    data: RecordsT, *, shards: int, key: bytes = PUBLIC_SHARD_KEY
) -> list[Shard[RecordsT]]:
    """Split a client's records into disjoint shards, by id.

    With ids, the shard of a record is a keyed hash of its id, so sizes vary as dice do. A
    shard's rows stand in the order of those hashes: moving rows about changes nothing.
    Without ids, a record is a row and its id the row's place: every run of `shards` rows is
    dealt out by a keyed permutation of its own, so sizes differ by one at most.

    Guarantee:
        If two clients' data agree in the rows of all ids but one (which may have any rows, or
        none, in either), all shards but one are equal, row for row. Without ids this holds
        for another content of one row, or for a row more at the end; taking a row out moves
        those behind it and is not covered.

    Assumes:
        Ids do not depend on the content of records: a digest of a row is no id.

    Args:
        data: One client's data.
        shards: How many parts.
        key: 32 bytes that stay the same over rounds.

    Raises:
        ParameterError: The data is not made of records, or ids are neither integers nor texts.

    Example:
        >>> from urna.data.dataset import Samples
        >>> rows = Samples(np.zeros((7, 2)), np.arange(7))
        >>> [shard.records for shard in split_records(rows, shards=3)]
        [3, 2, 2]
    """
    if type(shards) is not int or shards < 1:
        raise ParameterError(f"shards must be a whole number of at least 1, got {shards}")
    if len(key) != SEED_BYTES:
        raise ParameterError(f"the key of the shards has {SEED_BYTES} bytes, got {len(key)}")
    ids = _ids(data)
    if ids is None:
        owner = _shards_of_places(len(data), shards, key)
        parts = [np.flatnonzero(owner == shard) for shard in range(shards)]
        return [Shard(data.take(rows), len(rows)) for rows in parts]
    digests = [_digest(value, key) for value in ids]
    # By digest, not by place: where a row stands may depend on other records.
    order = sorted(range(len(digests)), key=digests.__getitem__)
    members: list[list[int]] = [[] for _ in range(shards)]
    for row in order:
        members[int.from_bytes(digests[row]) % shards].append(row)
    return [
        Shard(data.take(np.array(rows, dtype=np.intp)), len({digests[row] for row in rows}))
        for rows in members
    ]


def count_records(data: Records) -> int:
    """Return how many records a client has: different ids, or rows where there are none.

    Raises:
        ParameterError: The data is not made of records, or ids are neither integers nor texts.
    """
    ids = _ids(data)
    return len(data) if ids is None else len(set(ids))


def _shards_of_places(rows: int, shards: int, key: bytes) -> npt.NDArray[np.intp]:
    """Deal every run of `shards` places out by its own permutation.

    The key stream is the same however many rows there are, so a place keeps its shard when
    rows are added behind it.
    """
    runs = -(-rows // shards)
    words = expand_words(derive_seed(key, b"places of rows"), runs * shards, 64)
    dealt = np.argsort(words.reshape(runs, shards), axis=1, kind="stable")
    return np.asarray(dealt.reshape(-1)[:rows], dtype=np.intp)


def _ids(data: Records) -> list[int | str | bytes] | None:
    if not (hasattr(data, "take") and hasattr(data, "__len__")):
        raise ParameterError(
            "records can be told apart only where data has a length and `take(rows)`, as `Samples` "
            f"has; {type(data).__name__} has not. Protect clients instead, or give it both."
        )
    found = getattr(data, "ids", None)
    if found is None:
        return None
    ids: list[Any] = np.asarray(found).tolist()
    if len(ids) != len(data):
        raise ParameterError(f"{len(data)} rows need as many ids, got {len(ids)}")
    if kinds := sorted({type(i).__name__ for i in ids} - {"int", "str", "bytes"}):
        raise ParameterError(f"ids of records are integers or texts, got {', '.join(kinds)}")
    return ids


def _digest(value: int | str | bytes, key: bytes) -> bytes:
    text = f"{type(value).__name__} ".encode()
    text += value if isinstance(value, bytes) else str(value).encode()
    return hashlib.blake2b(text, key=key, digest_size=_DIGEST_BYTES, person=_PERSON).digest()
