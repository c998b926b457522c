"""Hold out a test part, and scale features, the same way everywhere.

Both are public and repeatable. The order comes from SHA-256, because NumPy does not promise
that a generator draws the same permutation in its next release.
"""

import hashlib

import numpy as np
import numpy.typing as npt

__all__ = ["hold_out", "standardise"]

_TEST_SHARE = 0.2


def hold_out(
    name: str, targets: npt.NDArray[np.integer] | npt.NDArray[np.floating]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return training rows (about 80 %) and test rows, both in a fixed mixed order.

    Each class gives a fifth of its rows to the test part; real-valued targets are one class.

    Args:
        name: Name of the data set. Sets under different names are mixed differently.
        targets: One target per row.

    Example:
        >>> train, test = hold_out("example", np.array([0, 1] * 10))
        >>> len(train), len(test)
        (16, 4)
    """
    keys = [
        hashlib.sha256(f"urna test part\0{name}\0{row}".encode()) for row in range(len(targets))
    ]
    order = np.array(sorted(range(len(targets)), key=lambda row: keys[row].digest()), dtype=np.intp)
    labels = targets if np.issubdtype(targets.dtype, np.integer) else np.zeros(len(targets), int)
    test = np.zeros(len(targets), dtype=bool)
    for label in np.unique(labels):
        members = order[labels[order] == label]
        test[members[: round(_TEST_SHARE * len(members))]] = True
    return order[~test[order]], order[test[order]]


def standardise(
    train: npt.NDArray[np.float64], test: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return both parts with the training part's mean taken off and its deviation made 1.

    A column that is constant in the training part becomes zero there and is only shifted in
    the test part.
    """
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    scaled_train = ((train - mean) / deviation).astype(np.float32)
    return scaled_train, ((test - mean) / deviation).astype(np.float32)
