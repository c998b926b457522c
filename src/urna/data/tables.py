"""Tables from files that a user names: one file for each client, or one with a column of clients.

- `.csv`: a header, then a row for each record; columns apart by commas, semicolons, tabs or bars,
  in UTF-8, UTF-16 or else Latin-1. Beside semicolons a decimal comma is read as a point.
- `.parquet`: the same as columns; pyarrow comes with the extra `urna[files]`.
- `.npz`: `features` (or `x`), `targets` (or `y`), and perhaps `ids`; read without pickle.

What a cell holds is never complained about: what is no number becomes one that is not finite, and
whoever computes with it decides what that means. Complaints are about forms alone: columns that
are missing, rows of another length.
"""

import codecs
import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data.coding import Coding, as_numbers, as_texts
from urna.data.dataset import Samples
from urna.errors import DataMissing, ParameterError

__all__ = ["TABLES", "Columns", "Tables", "read_columns", "read_tables"]

_Table = dict[str, npt.NDArray[Any]]

_DECIMAL = re.compile(r"^([-+]?\d+),(\d+)$")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are no features.

    Args:
        target: What is to be predicted.
        client: Whose each row is, in a file of all clients.
        record: Which record each row belongs to, where records have several rows.
    """

    target: str = "target"
    client: str | None = None
    record: str | None = None

    @property
    def _apart(self) -> set[str]:
        return {name for name in (self.target, self.client, self.record) if name is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Every client's samples, and what the files call them."""

    clients: list[Samples]
    names: list[str]
    features: tuple[str, ...] | None
    """Names of the features, where files name them."""


def read_tables(
    source: Path,
    columns: Columns,
    *,
    texts: bool = False,
    features: Sequence[str] | None = None,
    coding: Coding | None = None,
) -> Tables:
    """Read a folder with one file for each client, or one file of all clients.

    Args:
        source: The folder, whose files are read in the order of their names; or the file.
        columns: Which columns are no features. All others are, in the order of the first file.
        texts: Whether targets are the names of classes, kept as they are written.
        features: The features' names, where they are known already.
        coding: How columns become numbers; as they are written by default.

    Raises:
        DataMissing: There is nothing to read, or the package that reads it is not there.
        ParameterError: A file has another form than the first.
    """
    if source.is_dir():
        files = sorted(path for path in source.iterdir() if path.suffix in _READERS)
        if not files:
            raise DataMissing(
                f"{source} holds no .csv, .parquet or .npz file. Put one file for each client there"
            )
        parts, names = [], None if features is None else tuple(features)
        for path in files:
            table = _read(path)
            names = names or _features(table, columns)
            parts.append(_samples(table, names, columns, path, texts, coding))
        return Tables(parts, [path.stem for path in files], _known(names))
    table = _read(source)
    names = tuple(features) if features is not None else _features(table, columns)
    whole = _samples(table, names, columns, source, texts, coding)
    if columns.client is None:
        return Tables([whole], [source.stem], _known(names))
    owners = _column(table, columns.client, source).astype(str)
    found = sorted(set(owners.tolist()))
    return Tables(
        [whole.take(np.flatnonzero(owners == one)) for one in found], found, _known(names)
    )


def read_columns(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read one file's columns as they are written, for who looks at a table before it is used.

    Raises:
        DataMissing: There is no such file, or the package that reads it is not there.
        ParameterError: It cannot be read.
    """
    return _read(path)


def _known(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if not names or names == ("features",) else names


def _features(table: _Table, columns: Columns) -> tuple[str, ...]:
    if "features" in table and table["features"].ndim == 2:
        return ("features",)
    return tuple(name for name in table if name not in columns._apart)


def _samples(
    table: _Table,
    names: tuple[str, ...] | None,
    columns: Columns,
    path: Path,
    texts: bool,
    coding: Coding | None,
) -> Samples:
    target = "targets" if "targets" in table and columns.target not in table else columns.target
    parts = {name: _column(table, name, path) for name in names or ()}
    if not parts:
        raise ParameterError(f"{path}: there is no column beside {columns.target!r}")
    coded = coding or Coding()
    whole = [p if p.ndim == 2 else coded.columns(name, p) for name, p in parts.items()]
    given = _column(table, target, path)
    targets = as_texts(given) if texts else as_numbers(given)
    ids = None
    if columns.record is not None:
        ids = _column(table, columns.record, path).astype(str)
    elif "ids" in table and "targets" in table:
        ids = table["ids"]
    if any(len(part) != len(targets) for part in whole):
        raise ParameterError(f"{path}: columns have different lengths")
    return Samples(np.concatenate(whole, axis=1), targets, ids)


def _column(table: _Table, name: str, path: Path) -> npt.NDArray[Any]:
    if name not in table:
        raise ParameterError(f"{path} has no column {name!r}; it has {', '.join(list(table)[:12])}")
    return table[name]


def _read(path: Path) -> _Table:
    if path.suffix not in _READERS:
        raise ParameterError(f"tables are .csv, .parquet or .npz files, got {path}")
    if not path.is_file():
        raise DataMissing(f"there is no file {path}")
    try:
        return _READERS[path.suffix](path)
    except ParameterError:
        raise
    except DataMissing:
        raise
    except OSError as error:
        raise DataMissing(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # whatever a damaged file makes of its readers
        raise ParameterError(f"{path} cannot be read: {type(error).__name__}") from error


def _csv(path: Path) -> _Table:
    text = _decoded(path.read_bytes())
    sign = max(",;\t|", key=lambda one: len(next(_rows(text, one), [])))
    rows = _rows(text, sign)
    header = [name.strip() for name in next(rows, [])]
    if not header or len(set(header)) < len(header):
        raise ParameterError(f"{path} begins with a line of different names of columns")
    cells = []
    for row in rows:
        if row and len(row) != len(header):
            raise ParameterError(
                f"{path}:{rows.line_num}: every row has {len(header)} cells, as the header has; "
                f"this one has {len(row)}"
            )
        if row:
            cells.append([cell.strip() for cell in row])
    if sign == ";":
        cells = [[_DECIMAL.sub(r"\1.\2", cell) for cell in row] for row in cells]
    table = np.array(cells, dtype=object).reshape(len(cells), len(header))
    return {name: table[:, place] for place, name in enumerate(header)}


def _rows(text: str, sign: str) -> Any:  # noqa: ANN401 - the module's reader has no public name
    return csv.reader(io.StringIO(text, newline=""), delimiter=sign)


def _decoded(held: bytes) -> str:
    """Return a text file's text; a mark at its beginning names its encoding."""
    if held.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return held.decode("utf-16")
    try:
        return held.decode("utf-8-sig")
    except UnicodeDecodeError:
        return held.decode("latin-1")


def _parquet(path: Path) -> _Table:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise DataMissing("parquet files need pyarrow: pip install 'urna[files]'") from error
    read = parquet.read_table(path)
    return {name: np.asarray(read[name].to_pylist(), dtype=object) for name in read.column_names}


def _npz(path: Path) -> _Table:
    short = {"x": "features", "y": "targets"}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        found = {short.get(name, name): archive[name] for name in archive.files}
    if found.get("features", np.zeros(0)).ndim != 2 or "targets" not in found:
        raise ParameterError(f"{path} holds `features`, a matrix, and `targets`")
    return found


_READERS: Mapping[str, Callable[[Path], _Table]] = {
    ".csv": _csv,
    ".npz": _npz,
    ".parquet": _parquet,
}

TABLES = frozenset(_READERS)
"""How files of tables end."""
