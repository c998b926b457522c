"""Simulated clients in stacks of arrays, on the processor or on a GPU.

A stack is numpy's unless a device is named; then it is torch's. The trainers are written once for
both.

Guarantee:
    What the trainers compute for a client is, to the last bit, what they compute for it alone. A
    client's array has a shape that follows from its own number of rows, and only clients of one
    shape are stacked. numpy multiplies the matrices of a stack one by one; all other operations
    are elementwise or within one client. Torch's batched products may round by the size of the
    stack, so on a device every client is a stack of its own.

Assumes:
    The number of threads of the BLAS library stays the same while the process runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from urna.errors import ParameterError
from urna.systems.average.losses import Array, Namespace
from urna.systems.average.schema import PreparedRows

__all__ = ["PaddedRows", "batches", "check_device", "to_numpy"]

_ROOM = 1 << 20  # float64 numbers in one stack: 8 MB, so that steps stay near the cache
_VECTORS = 40  # arrays of a model's size that a trainer keeps


@dataclass(frozen=True, slots=True, eq=False)
class PaddedRows:
    """Some clients' rows and classes, padded with rows of zeros."""

    places: tuple[int, ...]
    """Which clients these are."""
    rows: Array
    """Shape (clients, rows, width), norms at most c."""
    signs: Array
    """1 at each row's class, −1 elsewhere: (clients, K, rows)."""
    records: Array
    """How many records each client has: (clients, 1, 1)."""
    clip: float
    xp: Namespace

    @property
    def outputs(self) -> int:
        """K."""
        return int(self.signs.shape[1])

    def halved(self) -> "PaddedRows":
        """Return the same in single precision, in which steps take half the time."""
        low = self.xp.float32
        rows, signs, records = (
            self.xp.asarray(array, dtype=low) for array in (self.rows, self.signs, self.records)
        )
        return PaddedRows(self.places, rows, signs, records, self.clip, self.xp)

    @property
    def squares(self) -> Array:
        """Each client's mean of squared norms of rows, over its records: (clients, 1, 1)."""
        return self.xp.einsum("uij,uij->u", self.rows, self.rows)[:, None, None] / self.records

    def only(self, slot: int) -> "PaddedRows":
        """Return the stack of one of the clients."""
        one = slice(slot, slot + 1)
        return replace(
            self,
            places=self.places[one],
            rows=self.rows[one],
            signs=self.signs[one],
            records=self.records[one],
        )


def batches(
    clients: Sequence[PreparedRows],
    *,
    clip: float,
    outputs: int,
    device: str | None = None,
    padded: bool = True,
) -> Iterator[PaddedRows]:
    """Stack clients of one shape, few enough at a time for the memory there is.

    Args:
        clients: Everybody's rows.
        clip: c; rows are multiplied by it.
        outputs: K.
        device: A torch device such as "cuda"; numpy on the processor by default. On a device
            each client is alone.
        padded: Whether rows of zeros may be added, so that more clients are of one shape.
    """
    shapes: dict[int, list[int]] = {}
    for place, client in enumerate(clients):
        rows = max(len(client.rows), 1)
        shapes.setdefault(_padded(rows) if padded else rows, []).append(place)
    for rows, places in sorted(shapes.items()):
        width = clients[places[0]].rows.shape[1]
        each = rows * (width + min(rows, width) + 4 * outputs)
        each += _VECTORS * outputs * min(rows, width)
        together = max(_ROOM // each, 1) if device is None else 1
        for start in range(0, len(places), together):
            some = tuple(places[start : start + together])
            yield _stacked(clients, some, rows, clip, outputs, device)


def _padded(rows: int) -> int:
    """Return to how many rows a client of so many is padded: at most an eighth more.

    Example:
        >>> [_padded(rows) for rows in (1, 16, 17, 33, 100)]
        [1, 16, 18, 36, 104]
    """
    grain = max((1 << (rows - 1).bit_length()) // 16, 1)
    return -(-rows // grain) * grain


def _stacked(
    clients: Sequence[PreparedRows],
    places: tuple[int, ...],
    most: int,
    clip: float,
    outputs: int,
    device: str | None,
) -> PaddedRows:
    width = clients[places[0]].rows.shape[1]
    rows = np.zeros((len(places), most, width))
    signs = np.full((len(places), outputs, most), -1.0)
    for slot, place in enumerate(places):
        client = clients[place]
        rows[slot, : len(client.rows)] = client.rows
        signs[slot, client.targets.astype(np.int64), np.arange(len(client.rows))] = 1.0
    rows *= clip
    records = np.array([max(clients[place].records, 1) for place in places], dtype=np.float64)
    if device is None:
        return PaddedRows(places, rows, signs, records.reshape(-1, 1, 1), clip, np)
    torch = _torch()

    def moved(array: Array) -> Array:
        return torch.as_tensor(array, device=device)

    return PaddedRows(
        places, moved(rows), moved(signs), moved(records.reshape(-1, 1, 1)), clip, torch
    )


def to_numpy(array: Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return an array of numpy's, from wherever it is."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def check_device(device: str | None) -> None:
    """Refuse a device on which nothing can be computed here, before anything is spent.

    Raises:
        ParameterError: There is no such device, or no torch.
    """
    if device is None:
        return
    torch = _torch()
    try:
        torch.zeros(1, dtype=torch.float64, device=device).cpu().numpy()
    except Exception as error:  # whatever torch and its drivers make of it
        raise ParameterError(
            f"nothing can be computed in float64 on the device {device!r} here; name another, or "
            "none for the processor"
        ) from error


def _torch() -> Namespace:
    try:
        import torch  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise ParameterError(
            "a device is torch's: pip install 'urna[torch]', or name no device"
        ) from error
    return torch
