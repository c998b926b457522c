"""Searches from a table: one row per client and setting, one column per hyperparameter."""

import csv
import gzip
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from urna.errors import ParameterError
from urna.space import Axis, Space
from urna.systems.combine.frame import Frame
from urna.systems.combine.searches import LocalSearch, Searches

_FEDERATED = -1  # the client number of a search that the federation itself ran
_SCORES = ("accuracy", "train_accuracy", "loss")
_RATES = ("lr", "learning_rate", "eta", "eta0")
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Recorded:
    """Clients' searches, as a table holds them."""

    searches: Searches
    space: Space
    """Every value of every axis that occurs, or the space that was named."""
    clients: tuple[int, ...]
    """The clients' numbers in the table, in the order of the searches."""


def read_searches(
    path: Path | str,
    *,
    where: Mapping[str, str] | None = None,
    axes: Sequence[str] | None = None,
    score: str = "accuracy",
    space: Space | None = None,
    log: bool = False,
) -> Recorded:
    """Read a table of local searches, .csv or .csv.gz.

    Under a space that was named, runs with settings beyond its axes are left out: what one client
    tried does not decide whether others are heard.

    A column `client` numbers the clients; rows of client −1, a search that the federation itself
    ran, are left out. Other columns are hyperparameters, but for `accuracy`, `train_accuracy` and
    `loss`. A rate (`lr`, `learning_rate`, `eta`, `eta0`) has a log scale. Scores are fractions
    from 0 to 1; what is better the smaller it is, is a `loss`.

    Args:
        path: The file.
        where: Columns and the value rows must have there; such columns are no axes.
        axes: Columns that are; all that are left by default.
        score: The column that says how good a setting is.
        space: The axes and their scales; from the table by default.
        log: Whether axes with a log scale are averaged on it; as they are by default.

    Raises:
        ParameterError: The table cannot be read, or has no such rows or columns.
    """
    path = Path(path)
    rows = _rows(path)
    chosen = dict(where or {})
    columns = list(rows[0]) if rows else []
    for name in (*chosen, *(axes or ()), "client", score):
        if name not in columns:
            raise ParameterError(
                f"{path.name} has no column {name!r}; its columns are {', '.join(columns)}"
            )
    rows = [row for row in rows if all(_same(row[k], v) for k, v in chosen.items())]
    if not rows:
        raise ParameterError(f"no row of {path.name} has {_named(chosen)}")
    names = list(space.axes) if space is not None else _axes(columns, chosen, axes)
    by_client: dict[int, list[dict[str, str]]] = {}
    for row in rows:
        by_client.setdefault(_client(row, path), []).append(row)
    by_client.pop(_FEDERATED, None)
    if not by_client:
        raise ParameterError(f"{path.name} holds no client's search, only the federation's")
    found = {
        client: LocalSearch(
            np.array([[_number(row, name, path) for name in names] for row in some]),
            np.array([_score(row, score, path) for row in some]),
        )
        for client, some in sorted(by_client.items())
    }
    known = space or _space(names, found.values())
    frame = Frame.of(known, log=log)
    if space is not None:
        found = {client: _within(search, frame) for client, search in found.items()}
    searches = Searches(frame, tuple(found.values()), measured=space is None)
    return Recorded(searches, known, tuple(found))


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ParameterError(f"{path.name} holds more than a gigabyte")
        table = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        rows = list(table)
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, EOFError, csv.Error, ValueError) as error:
        raise ParameterError(f"{path.name} is no table of comma-separated values") from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise ParameterError(f"line {number} of {path.name} has not as many values as the head")
    if not rows:
        raise ParameterError(f"{path.name} holds no row")
    return rows


def _axes(
    columns: Sequence[str], where: Mapping[str, str], axes: Sequence[str] | None
) -> list[str]:
    known = {"client", *_SCORES, *where}
    names = [name for name in columns if name not in known] if axes is None else list(axes)
    if not names:
        raise ParameterError("no column is left that could be a hyperparameter")
    return names


def _within(search: LocalSearch, frame: Frame) -> LocalSearch:
    """Return a search without the runs that are not on the axes."""
    there = np.array([frame.holds(row) for row in search.settings], dtype=bool)
    return LocalSearch(search.settings[there], search.scores[there])


def _space(names: Sequence[str], searches: Iterable[LocalSearch]) -> Space:
    """Return all values that occur; a rate has a log scale."""
    settings = np.concatenate([search.settings for search in searches])
    axes = {}
    for place, name in enumerate(names):
        values = np.unique(settings[:, place]).tolist()
        log = name in _RATES and values[0] > 0
        axes[name] = Axis.log(values) if log else Axis.linear(values)
    return Space(**axes)


def _number(row: Mapping[str, str], name: str, path: Path) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ParameterError(
            f"column {name!r} of {path.name} holds {row[name]!r}, which is no number. Name the "
            "hyperparameters (--axes), or choose rows (--where)"
        )
    return value


def _client(row: Mapping[str, str], path: Path) -> int:
    number = _number(row, "client", path)
    if number != int(number) or number < _FEDERATED:
        raise ParameterError(
            f"column 'client' of {path.name} holds {row['client']!r}: clients are numbered 0, 1, 2 "
            f"and so on, and {_FEDERATED} is the federation's own search"
        )
    return int(number)


def _score(row: Mapping[str, str], name: str, path: Path) -> float:
    """Return a score, the higher the better; an empty one, or one not finite, is a failed run."""
    text = row[name].strip()
    try:
        score = float(text) if text else math.nan
    except ValueError as error:
        raise ParameterError(
            f"column {name!r} of {path.name} holds {text!r}, which is no number. Leave the scores "
            "of runs that failed empty"
        ) from error
    if name != "loss" and math.isfinite(score) and not 0 <= score <= 1:
        raise ParameterError(
            f"column {name!r} of {path.name} holds {text!r}: a score is a fraction from 0 to 1. "
            "Divide per cent by 100; what is better the smaller it is goes into a column `loss` "
            "(--score loss)"
        )
    return -score if name == "loss" else score


def _same(found: str, wanted: str) -> bool:
    if found == wanted:
        return True
    try:
        return float(found) == float(wanted)
    except ValueError:
        return False


def _named(where: Mapping[str, str]) -> str:
    return " and ".join(f"{name} = {value}" for name, value in where.items()) or "what is needed"
