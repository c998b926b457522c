"""Many simulated clients in one stack of arrays, on the processor or on a GPU.

A stack is numpy's unless a device is named; then it is torch's. The trainers are written once for
both. Each client's numbers are computed from its own slice of the stack.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.average.losses import Array, Namespace
from urna.average.schema import Prepared
from urna.errors import ParameterError

__all__ = ["Batch", "batches", "check_device", "to_numpy"]

_ROOM = 1 << 20  # float64 numbers in one stack: 8 MB, so that steps stay near the cache


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
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

    def halved(self) -> "Batch":
        """Return the same in single precision, in which steps take half the time."""
        low = self.xp.float32
        rows, signs, records = (
            self.xp.asarray(array, dtype=low) for array in (self.rows, self.signs, self.records)
        )
        return Batch(self.places, rows, signs, records, self.clip, self.xp)

    @property
    def longest(self) -> float:
        """Largest mean of squared norms of a client's rows, over its records."""
        squares = self.xp.einsum("uij,uij->u", self.rows, self.rows)[:, None, None]
        return float(self.xp.amax(squares / self.records, axis=(0, 1, 2)))


def batches(
    clients: Sequence[Prepared],
    *,
    clip: float,
    outputs: int,
    device: str | None = None,
    equal: bool = False,
    vectors: int = 40,
) -> Iterator[Batch]:
    """Stack clients of similar size, few enough at a time for the memory there is.

    Args:
        clients: Everybody's rows.
        clip: c; rows are multiplied by it.
        outputs: K.
        device: A torch device such as "cuda"; numpy on the processor by default.
        equal: Whether the clients of a stack must have equally many rows.
        vectors: How many arrays of a model's size the trainer keeps.
    """
    order = sorted(range(len(clients)), key=lambda place: len(clients[place].rows))
    start = 0
    while start < len(order):
        size = max(len(clients[order[start]].rows), 1)
        stop = start
        while stop < len(order):
            rows, width = clients[order[stop]].rows.shape
            each = rows * (width + min(rows, width) + 4 * outputs)
            each += vectors * outputs * min(max(rows, 1), width)
            if stop > start and (
                (equal and rows != len(clients[order[start]].rows))
                or each * (stop - start + 1) > _ROOM
                or rows > 2 * size
            ):
                break
            stop += 1
        yield _stacked(clients, tuple(order[start:stop]), clip, outputs, device)
        start = stop


def _stacked(
    clients: Sequence[Prepared],
    places: tuple[int, ...],
    clip: float,
    outputs: int,
    device: str | None,
) -> Batch:
    most = max(1, *(len(clients[place].rows) for place in places))
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
        return Batch(places, rows, signs, records.reshape(-1, 1, 1), clip, np)
    torch = _torch()

    def moved(array: Array) -> Array:
        return torch.as_tensor(array, device=device)

    return Batch(places, moved(rows), moved(signs), moved(records.reshape(-1, 1, 1)), clip, torch)


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
