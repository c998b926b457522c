"""Full MNIST, CIFAR-10 and Adult from a folder of files a user names, or from the Hugging Face hub.

- `mnist`: `mnist.npz` with `x_train`, `y_train`, `x_test`, `y_test`; `writer_train` if known.
- `cifar10`: `cifar10_small.npz` with `y_train`, `y_test` and JPEG sheets of 32×32 tiles,
  `jpeg_train_<i>` and `jpeg_test_<i>`, tiles row by row in the order of the labels.
- `cifar10-features`: `cifar10_features.npz` with `x_train`, `y_train`, `x_test`, `y_test`.
- `adult`: `adult.parquet` with the 14 columns, `income`, and `split` (train or test).

pyarrow and Pillow come with the extra `urna[files]`. Arrays are read without pickle, so a
file cannot run code.

The hub needs the extra `urna[hub]`; nothing is fetched before `load_hub` is called. Its MNIST names
no writers, and its Adult is the 32,561 training rows only, of which a fixed fifth is held out.
"""

import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from urna.data.adult import adult
from urna.data.dataset import Dataset, Samples
from urna.data.embedded import hold_out
from urna.data.tables import read_columns
from urna.errors import DataMissing, ParameterError

__all__ = ["FILES", "HUB", "Rows", "load_file", "load_hub", "pictures"]

_TILE = 32
# What NumPy and zipfile raise for damaged, foreign, encrypted and unreadable archives.
_UNREADABLE = (
    OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_Arrays = Mapping[str, npt.NDArray[Any]]

FILES: Mapping[str, str] = {
    "adult": "adult.parquet",
    "cifar10": "cifar10_small.npz",
    "cifar10-features": "cifar10_features.npz",
    "mnist": "mnist.npz",
}
"""The file that holds each set, by name of the set."""

HUB: Mapping[str, str] = {
    "adult": "scikit-learn/adult-census-income",
    "cifar10": "uoft-cs/cifar10",
    "mnist": "ylecun/mnist",
}
"""Where each set lies on the hub, by name of the set."""


def load_file(name: str, folder: Path) -> Dataset:
    """Read one of `FILES` from a folder.

    Args:
        name: A key of `FILES`.
        folder: Where the file lies.

    Raises:
        DataMissing: The folder, the file or the package that reads it is not there.
        ParameterError: The file is there but does not hold what it should.
    """
    path = _existing(name, folder)
    try:
        return _READERS[name](path)
    except DataMissing:
        raise
    except ParameterError as error:
        raise ParameterError(f"{path} cannot be read as {name!r}: {error}") from error


def pictures(
    name: str,
    train: tuple[npt.NDArray[np.uint8], npt.NDArray[Any]],
    test: tuple[npt.NDArray[np.uint8], npt.NDArray[Any]],
    *,
    shape: tuple[int, int, int],
    writers: npt.NDArray[np.int64] | None = None,
) -> Dataset:
    """Return a data set of ten classes of pictures, pixels scaled to [0, 1].

    Args:
        name: Name of the data set.
        train: Pixels with channels first, or flat, one row per picture; and labels.
        test: The same for the test part.
        shape: Channels, height and width.
        writers: Who made each training picture.
    """
    parts = []
    for pixels, labels in (train, test):
        whole = pixels.ndim > 0 and len(pixels) and pixels.size == len(pixels) * math.prod(shape)
        if pixels.dtype != np.uint8 or not whole:
            raise ParameterError(
                f"pictures must be bytes of shape (rows, {', '.join(map(str, shape))}), got "
                f"{pixels.dtype} of shape {pixels.shape}"
            )
        flat = pixels.reshape(len(pixels), -1)
        # Divided, not multiplied by 1/255: white is then exactly 1.
        parts.append(Samples(np.divide(flat, 255, dtype=np.float32), _labels(labels)))
    return Dataset(name, parts[0], parts[1], classes=10, writers=writers, shape=shape)


def _mnist(path: Path) -> Dataset:
    arrays = _arrays(path, "x_train", "y_train", "x_test", "y_test")
    writers = arrays.get("writer_train")
    if writers is not None:
        if writers.ndim != 1 or not np.issubdtype(writers.dtype, np.integer):
            raise ParameterError("`writer_train` must hold one whole number per training row")
        writers = writers.astype(np.int64)
    return pictures(
        "mnist",
        (arrays["x_train"], arrays["y_train"]),
        (arrays["x_test"], arrays["y_test"]),
        shape=(1, 28, 28),
        writers=writers,
    )


def _cifar10_features(path: Path) -> Dataset:
    arrays = _arrays(path, "x_train", "y_train", "x_test", "y_test")
    parts = []
    for part in ("train", "test"):
        features = arrays[f"x_{part}"]
        if features.ndim != 2 or not np.issubdtype(features.dtype, np.floating):
            raise ParameterError(
                f"`x_{part}` must be a matrix of real numbers, got {features.dtype} in "
                f"{features.ndim} dimensions"
            )
        features = features.astype(np.float32)
        if not np.isfinite(features).all():
            raise ParameterError(f"`x_{part}` must hold finite numbers only")
        parts.append(Samples(features, _labels(arrays[f"y_{part}"])))
    if parts[0].features.shape[1] != parts[1].features.shape[1]:
        raise ParameterError("`x_train` and `x_test` must have equally many columns")
    return Dataset("cifar10-features", parts[0], parts[1], classes=10)


def _cifar10(path: Path) -> Dataset:
    _needs("PIL", "Pillow", "cifar10")
    arrays = _arrays(path, "y_train", "y_test")
    labels = {part: _labels(arrays[f"y_{part}"]) for part in ("train", "test")}
    train, test = ((_tiles(arrays, part, len(rows)), rows) for part, rows in labels.items())
    return pictures("cifar10", train, test, shape=(3, _TILE, _TILE))


def _tiles(arrays: _Arrays, part: str, rows: int) -> npt.NDArray[np.uint8]:
    """Cut the sheets of one part into tiles, row by row, channels first."""
    from PIL import Image

    cut: list[npt.NDArray[np.uint8]] = []
    while f"jpeg_{part}_{len(cut)}" in arrays:
        key = f"jpeg_{part}_{len(cut)}"
        try:
            with Image.open(io.BytesIO(arrays[key].tobytes()), formats=["JPEG"]) as picture:
                sheet = np.asarray(picture.convert("RGB"))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise ParameterError(f"`{key}` is no whole JPEG picture") from error
        down, across = sheet.shape[0] // _TILE, sheet.shape[1] // _TILE
        if sheet.shape != (down * _TILE, across * _TILE, 3):
            raise ParameterError(
                f"`{key}` must be a sheet of {_TILE}×{_TILE} tiles, got {sheet.shape[0]}×"
                f"{sheet.shape[1]} pixels"
            )
        tiles = sheet.reshape(down, _TILE, across, _TILE, 3).transpose(0, 2, 4, 1, 3)
        cut.append(tiles.reshape(-1, 3, _TILE, _TILE))
    held = sum(len(tiles) for tiles in cut)
    if not cut or held < rows:
        raise ParameterError(
            f"{rows} labels need as many tiles; `jpeg_{part}_0` onwards hold {held} on "
            f"{len(cut)} sheets"
        )
    return np.concatenate(cut)[:rows]


def _adult(path: Path) -> Dataset:
    columns = read_columns(path)
    if "split" not in columns:
        raise ParameterError("a column `split` must say which rows are train and which are test")
    parts = np.array(columns.pop("split"), dtype=str)
    if not np.isin(parts, ["train", "test"]).all():
        raise ParameterError("the column `split` must hold 'train' or 'test' in every row")
    return adult({name: cells.tolist() for name, cells in columns.items()}, parts == "train")


_READERS: Mapping[str, Callable[[Path], Dataset]] = {
    "adult": _adult,
    "cifar10": _cifar10,
    "cifar10-features": _cifar10_features,
    "mnist": _mnist,
}


def _existing(name: str, folder: Path) -> Path:
    # os.path answers no where a folder above may not be read; pathlib would raise.
    if not os.path.isdir(folder):
        what = "is a file" if os.path.exists(folder) else "does not exist or may not be read"
        raise DataMissing(
            f"{name!r} is read from {FILES[name]} in a folder, but {folder} {what}; "
            "name the folder that holds the file"
        )
    path = folder / FILES[name]
    if not os.path.isfile(path):
        known = [file for file in sorted(FILES.values()) if os.path.isfile(folder / file)]
        held = (
            f"of the known files it holds {', '.join(known)}" if known else "it holds none of them"
        )
        raise DataMissing(
            f"{name!r} is read from {FILES[name]}, which is not in {folder}; {held}. "
            "Put the file there or name another folder"
        )
    return path


def _needs(module: str, package: str, name: str) -> None:
    try:
        __import__(module)
    except ImportError as error:
        raise DataMissing(
            f"{name!r} is read with the package {package}, which is not installed; "
            "install it with: pip install 'urna[files]'"
        ) from error


def _arrays(path: Path, *wanted: str) -> _Arrays:
    try:
        # Opened here: NumPy leaves its own handle open when an archive is damaged.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ParameterError("it is a single array, not an archive of named arrays")
            with archive:
                arrays = {key: archive[key] for key in archive.files}
    except ParameterError:
        raise
    except _UNREADABLE as error:
        raise ParameterError(
            "it is no whole .npz archive of plain arrays, or may not be read; fetch it again"
        ) from error
    if lacking := [key for key in wanted if key not in arrays]:
        raise ParameterError(
            f"arrays {', '.join(lacking)} are missing; found are "
            f"{', '.join(sorted(arrays)) or 'none'}"
        )
    return arrays


def _labels(labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or not len(labels):
        raise ParameterError(
            f"labels must be a list of whole numbers, got {labels.dtype} of shape {labels.shape}"
        )
    if labels.min() < 0 or labels.max() > 9:
        raise ParameterError(
            f"labels must lie in 0..9, got {int(labels.min())}..{int(labels.max())}"
        )
    return labels.astype(np.int64)


class Rows(Protocol):
    """What is used of a `datasets.Dataset`: its columns, by name."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        ...

    def __getitem__(self, column: str) -> Iterable[Any]:
        """Return one column."""
        ...


Fetch = Callable[[str, str], Rows]
"""Called with a place on the hub and a split; returns its rows."""


def load_hub(name: str, *, fetch: Fetch | None = None) -> Dataset:
    """Fetch one of `HUB`, or read it from the hub's cache on this machine.

    Args:
        name: A key of `HUB`.
        fetch: How rows are fetched; by default the package `datasets` does it.

    Raises:
        DataMissing: The package is not installed, or the hub does not answer.
        ParameterError: What the hub sent is not what the set should hold.
    """
    fetch = fetch or _fetch
    try:
        if name == "adult":
            return _adult_of_hub(fetch(HUB[name], "train"))
        column = {"cifar10": "img", "mnist": "image"}[name]
        shape = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}[name]
        train, test = (_pixels(fetch(HUB[name], part), column, shape) for part in ("train", "test"))
        return pictures(name, train, test, shape=shape)
    except DataMissing:
        raise
    except ParameterError as error:
        raise ParameterError(f"{HUB[name]} on the hub is not {name!r} as known: {error}") from error


def _fetch(place: str, part: str) -> Rows:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DataMissing(
            "the hub is read with the package flwr-datasets, which is not installed; "
            "install it with: pip install 'urna[hub]'"
        ) from error
    try:
        rows: Rows = load_dataset(place, split=part)
    except (OSError, ValueError) as error:
        raise DataMissing(
            f"{place} could not be fetched from the Hugging Face hub ({type(error).__name__}); "
            "check the connection, or read the set from a folder"
        ) from error
    return rows


def _column(rows: Rows, name: str) -> list[Any]:
    if name not in rows.column_names:
        raise ParameterError(
            f"a column {name!r} is missing; found are {', '.join(rows.column_names) or 'none'}"
        )
    return list(rows[name])


def _pixels(
    rows: Rows, column: str, shape: tuple[int, int, int]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    channels, height, width = shape
    seen = (height, width) if channels == 1 else (height, width, channels)
    images = [np.asarray(image) for image in _column(rows, column)]
    if any(image.shape != seen or image.dtype != np.uint8 for image in images):
        raise ParameterError(f"every picture must hold bytes of shape {seen}")
    if not images:
        raise ParameterError("a part holds no pictures")
    stack = np.stack(images).reshape(-1, height, width, channels)
    # The hub's pictures hold channels last; torch and our shape have them first.
    return np.moveaxis(stack, 3, 1), np.array(_column(rows, "label"))


def _adult_of_hub(rows: Rows) -> Dataset:
    # The hub's copy writes education.num where the set's description writes education-num.
    columns = {
        name.replace(".", "_").replace("-", "_"): _column(rows, name) for name in rows.column_names
    }
    if "income" not in columns:
        raise ParameterError("a column 'income' is missing")
    incomes = np.array([str(income).strip().startswith(">") for income in columns["income"]])
    train_rows, _ = hold_out("adult", incomes.astype(np.int64))
    train = np.zeros(len(incomes), dtype=bool)
    train[train_rows] = True
    return adult(columns, train)
