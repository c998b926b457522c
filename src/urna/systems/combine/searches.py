"""What clients found alone: settings they tried and how good each was, as a table holds them."""

import csv
import gzip
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.space import Axis, Space
from urna.systems.combine.frame import Floats, Frame, Integers

_FEDERATED = -1  # the client number of a search that the federation itself ran
_SCORES = ("accuracy", "train_accuracy", "loss")
_RATES = ("lr", "learning_rate", "eta", "eta0")
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class LocalSearch:
    """One client's settings and scores."""

    settings: Floats = field(repr=False)
    """One row per setting that was tried, one column per axis."""
    scores: Floats = field(repr=False)
    """How good each was, the higher the better. What is not finite failed, and is never kept."""

    def __post_init__(self) -> None:
        if self.settings.ndim != 2 or self.scores.shape != self.settings.shape[:1]:
            raise ParameterError(
                f"a search has one score per setting, got {self.settings.shape} settings and "
                f"{self.scores.shape} scores"
            )
        if not np.isfinite(self.settings).all():
            raise ParameterError("settings must be finite numbers")

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, slots=True, eq=False)
class Searches:
    """All clients' searches, over the same axes.

    Axes that were `measured`, read off the clients' own settings, are no public facts: one client
    can move their ends, and nothing is private over them.
    """

    frame: Frame
    clients: tuple[LocalSearch, ...]
    measured: bool = False

    def __post_init__(self) -> None:
        if not self.clients:
            raise ParameterError("there is nothing to combine: no client has searched")
        for client in self.clients:
            self.frame.units(client.settings)  # refuses what is not on the axes
        if not any(np.isfinite(client.scores).any() for client in self.clients):
            raise ParameterError("there is nothing to combine: every run of every client failed")

    def check_public(self) -> None:
        """Refuse to promise clients anything over axes that their own settings decide."""
        if self.measured:
            raise ParameterError(
                "the axes were read off the clients' own settings, so one client could move them: "
                "where clients are protected, name the space that all of them searched (--space "
                "FILE.toml; `read_searches(..., space=...)`)"
            )

    def __len__(self) -> int:
        return len(self.clients)

    def usable(self) -> list[int]:
        """Return the places of the clients of whom some run ended in a score."""
        return [n for n, client in enumerate(self.clients) if np.isfinite(client.scores).any()]


@dataclass(frozen=True, slots=True, eq=False)
class KeptSettings:
    """The settings of one client that it puts into the combination."""

    settings: Floats = field(repr=False)
    scores: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    """How much each counts; one each, except where settings share a place as equals."""

    def __len__(self) -> int:
        return len(self.scores)

    def sums(self, frame: Frame) -> Integers:
        """Return the sums of the settings in whole steps, and last how many they are.

        Equals that share a place are averaged first, and rounded to a step.
        """
        sums = self.weights @ frame.places(self.settings)
        rounded = np.rint(np.append(sums, self.weights.sum()))
        return np.asarray(rounded, dtype=np.int64)

    @staticmethod
    def together(some: Iterable["KeptSettings"]) -> "KeptSettings":
        """Return the settings of several clients as one; refuse where there are none."""
        listed = list(some)
        if not any(map(len, listed)):
            raise ParameterError("no client kept a setting, so there is nothing to combine")
        return KeptSettings(
            np.concatenate([kept.settings for kept in listed]),
            np.concatenate([kept.scores for kept in listed]),
            np.concatenate([kept.weights for kept in listed]),
        )


def keep_best(search: LocalSearch, share: float | None = None) -> KeptSettings:
    """Keep a client's best setting, or its best ones.

    Equals at the border share what room is left there: two settings that are both the best
    count a half each. So the order of the list plays no part, and every client weighs the same.
    A `share` is a part of its settings, rounded up.

    Example:
        >>> search = LocalSearch(np.array([[1.0], [2.0], [3.0]]), np.array([0.9, 0.9, 0.5]))
        >>> keep_best(search).weights
        array([0.5, 0.5])
    """
    if share is not None and not 0 < share <= 1:
        raise ParameterError(f"a client keeps a part of its settings in (0, 1], got {share}")
    finite = np.flatnonzero(np.isfinite(search.scores))
    count = 1 if share is None else math.ceil(share * len(search) - 1e-9)
    if not len(finite):
        return _chosen(search, finite, np.zeros(0))
    scores = search.scores[finite]
    border = np.sort(scores)[::-1][min(count, len(scores)) - 1]
    above, equal = scores > border, scores == border
    room = min(count, len(scores)) - int(above.sum())
    weights = np.where(above, 1.0, room / int(equal.sum()))
    taken = above | equal
    return _chosen(search, finite[taken], weights[taken])


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingRule:
    """Which settings a client keeps for density clusters: those nearly as good as its best.

    PrivTuna's rule. A client for which every setting is good says nothing and keeps none.

    Args:
        min_points: How many make a place dense.
        tolerance: Clients keep what is within this part of their best score.
        most: How many settings a client keeps at most: the best, equals in the order of trial.
        least: A client whose best score is lower keeps nothing.
    """

    min_points: int = 4
    tolerance: float = 0.15
    most: int = 10
    least: float = 0.0

    @property
    def rule(self) -> dict[str, Any]:
        """The rule alone, by name."""
        return {each.name: getattr(self, each.name) for each in fields(KeepingRule)}

    def kept(self, search: LocalSearch) -> KeptSettings:
        """Return what a client keeps."""
        finite = np.isfinite(search.scores)
        best = float(search.scores[finite].max(initial=-np.inf))
        border = best - self.tolerance * abs(best)
        good = np.flatnonzero(finite & (search.scores > border))
        if best < self.least or len(good) == len(search):
            good = good[:0]
        order = np.argsort(-search.scores[good], kind="stable")[: self.most]
        return _chosen(search, good[order], np.ones(len(order)))


def _chosen(
    search: LocalSearch, rows: npt.NDArray[np.signedinteger[Any]], weights: Floats
) -> KeptSettings:
    return KeptSettings(search.settings[rows], search.scores[rows], weights)


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
