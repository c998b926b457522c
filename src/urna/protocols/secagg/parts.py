"""Byte strings of one length, one for each of some clients, kept as one block.

Bundles of shares and what is rebuilt from them travel in these. A round of 10,000 clients moves a
million of them; in one block they are checked, passed on and stacked without touching each.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from urna.errors import ProtocolError

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Parts(Mapping[int, bytes]):
    """A map from clients to byte strings of one length, sorted by client.

    It reads like any other mapping and never changes.

    Raises:
        ProtocolError: The clients do not ascend, or there is not one row of bytes for each.

    Example:
        >>> shares = Parts.of({7: b"four", 2: b"five"}, size=4)
        >>> list(shares), shares[7], shares.size
        ([2, 7], b'four', 4)
    """

    clients: npt.NDArray[np.int64]
    """Whose they are, or for whom: ascending."""
    rows: npt.NDArray[np.uint8] = field(repr=False)
    """The byte strings, one row per client."""

    def __post_init__(self) -> None:
        clients, rows = self.clients, self.rows
        if rows.ndim != 2 or not rows.shape[1] or clients.shape != rows.shape[:1]:
            raise ProtocolError("a map must hold one part of at least one byte for each client")
        if len(clients) and (clients[0] < 0 or not (clients[1:] > clients[:-1]).all()):
            raise ProtocolError("the clients of a map must ascend and be no less than zero")
        # A frozen value: what it holds cannot be written through it.
        object.__setattr__(self, "clients", _read_only(clients))
        object.__setattr__(self, "rows", _read_only(rows))

    @classmethod
    def of(cls, parts: Mapping[int, bytes], size: int) -> "Parts":
        """Pack byte strings of `size` bytes.

        Raises:
            ProtocolError: One of them has another length.
        """
        if set(map(len, parts.values())) - {size}:
            raise ProtocolError(f"all parts must have {size} bytes")
        order = sorted(parts)
        packed = b"".join([parts[client] for client in order])
        rows = np.frombuffer(packed, dtype=np.uint8).reshape(len(order), size)
        return cls(np.array(order, dtype=np.int64), rows)

    @property
    def size(self) -> int:
        """Length of each byte string."""
        return int(self.rows.shape[1])

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Yield each client and its byte string, ascending: `items`, cut in one pass."""
        packed, size = self.rows.tobytes(), self.size
        cut = (packed[at : at + size] for at in range(0, len(packed), size))
        return zip(self.clients.tolist(), cut, strict=True)

    def __getitem__(self, client: int) -> bytes:
        place = int(np.searchsorted(self.clients, client))
        if place == len(self.clients) or self.clients[place] != client:
            raise KeyError(client)
        return bytes(self.rows[place])

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients.tolist())

    def __len__(self) -> int:
        return len(self.clients)


def turned(parts: Mapping[int, Parts]) -> dict[int, Parts]:
    """Return the same byte strings by recipient instead of by sender.

    What `parts[a]` holds for b is what the result's `[b]` holds from a.

    Raises:
        ProtocolError: They are not all of one length.

    Example:
        >>> sent = {1: Parts.of({2: b"x", 3: b"y"}, 1), 2: Parts.of({3: b"z"}, 1)}
        >>> {client: dict(came) for client, came in turned(sent).items()}
        {2: {1: b'x'}, 3: {1: b'y', 2: b'z'}}
    """
    senders = sorted(parts)
    sizes = {parts[sender].size for sender in senders if parts[sender]}
    if not sizes:
        return {}
    if len(sizes) > 1:
        raise ProtocolError("parts that are passed on must all have one length")
    recipients = np.concatenate([parts[sender].clients for sender in senders])
    # Stable: the parts of one recipient stay sorted by sender.
    order = np.argsort(recipients, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    rows = np.empty((len(order), sizes.pop()), dtype=np.uint8)
    start = 0
    for sender in senders:
        block = parts[sender].rows
        rows[places[start : start + len(block)]] = block
        start += len(block)
    origins = np.repeat(senders, [len(parts[sender]) for sender in senders])[order]
    found, starts = np.unique(recipients[order], return_index=True)
    bounds = itertools.pairwise([*starts.tolist(), len(order)])
    return {
        recipient: Parts(origins[start:end], rows[start:end])
        for recipient, (start, end) in zip(found.tolist(), bounds, strict=True)
    }


def _read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
