"""What is random in local training, defined by seed, epoch and step alone.

Batches and dropout masks depend on the public seed and on where in the training a step
stands; not on the candidate, the device, the number of workers or what ran before. So all
candidates of a client see the same batches and the same masks (which makes their losses
comparable), and a batched run gives the answer of a plain loop.
"""

import contextlib
from collections.abc import Iterator
from threading import RLock

import numpy as np
import numpy.typing as npt

from urna.local.generators import own_generators

__all__ = ["count_steps", "epoch_batches", "epoch_order", "seeded_module", "step_key"]

_ORDER = 0x4F524452  # keeps the shuffles apart from other streams of the same seed
_WORD = 2**64
_GENERATOR = RLock()


def epoch_order(rows: int, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the order in which one epoch visits the training rows."""
    return np.random.default_rng([_ORDER, seed, epoch]).permutation(rows)


def epoch_batches(
    rows: int, batch_size: int, *, seed: int, epoch: int
) -> list[npt.NDArray[np.int64]]:
    """Return the rows of every batch of one epoch.

    The last batch may be smaller. If it would hold a single row, that row waits for the next
    epoch: batch norm cannot normalise one row by itself.
    """
    order = epoch_order(rows, seed=seed, epoch=epoch)
    if _leaves_one(rows, batch_size):
        order = order[:-1]
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def count_steps(rows: int, batch_size: int) -> int:
    """Return how many batches an epoch has.

    Example:
        >>> [count_steps(rows, 32) for rows in (0, 32, 33, 34)]
        [0, 1, 1, 2]
    """
    return -(-(rows - _leaves_one(rows, batch_size)) // batch_size)


def _leaves_one(rows: int, batch_size: int) -> bool:
    return batch_size > 1 and rows > 1 and rows % batch_size == 1


def step_key(seed: int, step: int) -> int:
    """Return the key of one step's dropout masks, a signed 64-bit number.

    Args:
        seed: The client's public seed.
        step: Steps taken before, counted over all epochs.
    """
    key = _finalise(_finalise(seed % _WORD) + step * 0x9E3779B97F4A7C15)
    return key - _WORD if key >= _WORD // 2 else key


def _finalise(z: int) -> int:
    """Mix 64 bits (SplitMix64's last step; Steele, Lea and Flood 2014)."""
    z %= _WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % _WORD
    return z ^ (z >> 31)


@contextlib.contextmanager
def seeded_module(seed: int, device: str = "cpu") -> Iterator[None]:
    """Let modules built or run inside draw from `seed`.

    PyTorch's initialisers, and layers that draw numbers of their own, know only the global
    generators; their state is put back after, and one thread has them at a time.

    Args:
        seed: Of what is drawn inside.
        device: Where modules are run inside; they are built on the CPU.
    """
    import torch  # noqa: F401, PLC0415 - the core imports urna.local without torch

    with _GENERATOR, own_generators(seed, device):
        yield
