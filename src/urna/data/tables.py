"""Tables from files that a user names: one file for each client, or one with a column of clients.

- `.csv`, `.tsv`: a header, then a row for each record; columns apart by commas, semicolons, tabs or
  bars, in UTF-8, UTF-16 or else Latin-1. `1,5` is read as 1.5; `1,234` is so too, unless commas
  part the columns: then it is 1234. Columns without a name are left out.
- `.parquet`: the same as columns; pyarrow comes with the extra `urna[files]`.
- `.npz`: `features` (or `x`), `targets` (or `y`), and perhaps `ids`; read without pickle.

No cell is refused: what is no number becomes one that is not finite. What a cell means depends on
that cell and on the header, never on other rows: one record's cell must not move another record.
Errors are about forms alone: columns that are missing, rows of another length. A column that is
mostly of no use is told to the file's owner, in the log.
"""

import codecs
import csv
import io
import logging
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

__all__ = ["Columns", "Tables", "read_columns", "read_tables", "table_files"]

_Table = dict[str, npt.NDArray[Any]]

_log = logging.getLogger(__name__)

_DECIMAL = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")


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

    A client's file without rows is no error, which would tell others of it: its owner is warned.

    Args:
        source: The folder, whose files are read in the order of their names; or the file.
        columns: Which columns are no features. All others are, in the order of the first file.
        texts: Whether targets are the names of classes, kept as they are written.
        features: The features' names, where they are known already.
        coding: How columns become numbers; as they are written by default.

    Raises:
        DataMissing: There is nothing to read, or the package that reads it is not there.
        ParameterError: A file has another form than the first, or a file of all clients no row.
    """
    parts, names = [], tuple(features or ())
    files = table_files(source) if source.is_dir() else [source]
    for path in files:
        table = _read(path)
        if not _has_rows(table):
            _log.warning("note: %s", _no_rows(path))
        names = names or _features(table, columns)
        parts.append(_samples(table, names, columns, path, texts, coding))
    if source.is_dir() or columns.client is None:
        return Tables(parts, [path.stem for path in files], _known(names))
    (whole,) = parts
    if not len(whole):
        raise ParameterError(_no_rows(source))
    owners = _column(table, columns.client, source).astype(str)
    found = sorted(set(owners.tolist()))
    return Tables(
        [whole.take(np.flatnonzero(owners == one)) for one in found], found, _known(names)
    )


def table_files(folder: Path) -> list[Path]:
    """Return the tables in a folder, by name; hidden files are none.

    Raises:
        DataMissing: There are none.
    """
    files = sorted(path for path in folder.iterdir() if _is_table(path))
    if not files:
        raise DataMissing(
            f"{folder} holds no .csv, .tsv, .parquet or .npz file. Put one file for each client "
            "there; a spreadsheet can be saved as .csv"
        )
    return files


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in _READERS and not path.name.startswith((".", "~"))


def read_columns(path: Path) -> _Table:
    """Read one file's columns as they are written, for a first look on its owner's machine.

    Raises:
        DataMissing: There is no such file, or the package that reads it is not there.
        ParameterError: It cannot be read, or has no row.
    """
    table = _read(path)
    if not _has_rows(table):
        raise ParameterError(_no_rows(path))
    return table


def _has_rows(table: _Table) -> bool:
    return all(len(column) for column in table.values())


def _no_rows(path: Path) -> str:
    return f"{path} has columns and no rows"


def _read(path: Path) -> _Table:
    if path.suffix.lower() not in _READERS:
        raise ParameterError(f"tables are .csv, .tsv, .parquet or .npz files, got {path}")
    if not path.is_file():
        raise DataMissing(f"there is no file {path}")
    try:
        return _READERS[path.suffix.lower()](path)
    except (ParameterError, DataMissing):
        raise
    except OSError as error:
        raise DataMissing(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # whatever a damaged file makes of its readers
        raise ParameterError(
            f"{path} cannot be read ({type(error).__name__}): it is damaged; fetch it again"
        ) from error


def _known(names: tuple[str, ...]) -> tuple[str, ...] | None:
    return None if names == ("features",) else names


def _features(table: _Table, columns: Columns) -> tuple[str, ...]:
    if "features" in table and table["features"].ndim == 2:
        return ("features",)
    return tuple(name for name in table if name not in columns._apart)


def _samples(
    table: _Table,
    names: tuple[str, ...],
    columns: Columns,
    path: Path,
    texts: bool,
    coding: Coding | None,
) -> Samples:
    target = "targets" if "targets" in table and columns.target not in table else columns.target
    parts = {name: _column(table, name, path) for name in names}
    if not parts:
        raise ParameterError(f"{path}: there is no column beside {columns.target!r}")
    coded = coding or Coding()
    if coding is not None:
        _complain(coding, parts, path)
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


def _complain(coding: Coding, parts: _Table, path: Path) -> None:
    """Tell the file's owner which columns are mostly of no use: of another kind, or unit."""
    for name, part in parts.items():
        usable = coding.usable(name, part).sum() if part.ndim == 1 else len(part)
        if 2 * usable < len(part):
            _log.warning(
                "note: %s: only %d of %d cells of %r are %s: check the column",
                path.name, usable, len(part), name, coding.wanted(name),
            )  # fmt: skip


def _column(table: _Table, name: str, path: Path) -> npt.NDArray[Any]:
    if name not in table:
        raise ParameterError(f"{path} has no column {name!r}; it has {', '.join(list(table)[:12])}")
    return table[name]


def _csv(path: Path) -> _Table:
    text = _decoded(path.read_bytes())
    if not text.strip():
        raise ParameterError(f"{path} is empty: it begins with a line of names of columns")
    sign = max(",;\t|", key=lambda one: len(next(_rows(text, one))))
    rows = _rows(text, sign)
    header = [name.strip() for name in next(rows)]
    named = [name for name in header if name]
    if len(set(named)) < len(named) or not named:
        twice = next((name for name in named if named.count(name) > 1), "")
        raise ParameterError(
            f"{path} begins with a line of different names of columns; {twice!r} is there "
            f"{named.count(twice)} times"
        )
    cells = []
    for row in rows:
        if row and len(row) != len(header):
            raise ParameterError(
                f"{path}:{rows.line_num}: every row has {len(header)} cells, as the header has; "
                f"this one has {len(row)}"
            )
        if row:
            cells.append([cell.strip() for cell in row])
    table = np.array(cells, dtype=object).reshape(len(cells), len(header))
    return {name: _plain(table[:, place], sign) for place, name in enumerate(header) if name}


def _plain(column: npt.NDArray[Any], sign: str) -> npt.NDArray[Any]:
    """Return cells with points for decimal commas; beside commas, without those of thousands."""
    return np.array([_point(cell, sign) for cell in column], dtype=object)


def _point(cell: str, sign: str) -> str:
    if sign == "," and _THOUSANDS.fullmatch(cell):
        return cell.replace(",", "")
    return cell.replace(".", "").replace(",", ".") if _DECIMAL.fullmatch(cell) else cell


def _rows(text: str, sign: str) -> Any:  # noqa: ANN401 - the module's reader has no public name
    return csv.reader(io.StringIO(text, newline=""), delimiter=sign)


def _decoded(held: bytes) -> str:
    """Return a text file's text; a mark at its beginning names its encoding.

    Each line is UTF-8 or else Latin-1 by itself.
    """
    if held.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return held.decode("utf-16", errors="replace")
    lines = held.removeprefix(codecs.BOM_UTF8).splitlines(keepends=True)
    return "".join(map(_line, lines))


def _line(held: bytes) -> str:
    try:
        return held.decode("utf-8")
    except UnicodeDecodeError:
        return held.decode("latin-1")


def _parquet(path: Path) -> _Table:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise DataMissing("parquet files need pyarrow: pip install 'urna[files]'") from error
    read = parquet.read_table(path)
    return {n: np.fromiter(read[n].to_pylist(), object, len(read)) for n in read.column_names}


def _npz(path: Path) -> _Table:
    short = {"x": "features", "y": "targets"}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        found = {short.get(name, name): archive[name] for name in archive.files}
    features = found.get("features", np.zeros(0))
    if features.ndim != 2 or features.dtype.kind not in "fiub" or "targets" not in found:
        raise ParameterError(f"{path} holds `features`, a matrix of numbers, and `targets`")
    return found


_READERS: Mapping[str, Callable[[Path], _Table]] = {
    ".csv": _csv,
    ".npz": _npz,
    ".parquet": _parquet,
    ".tsv": _csv,
}
