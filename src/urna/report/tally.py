"""A vote's noisy tally over its space: bars, values of single axes, heat maps of pairs.

Every figure has the noise it carries beside it. Means over candidates are shown, never their
maximum: the largest of many noisy figures is too large on average.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.report.figures import WIDE, Curve, Picture, curves
from urna.report.words import said, settings
from urna.systems.vote import VoteResult

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

STEPS = (1, 2, 3, 5, 8, 13, 21, 34)
"""Deviations of noise above the mean from which on a cell has the next colour."""

_LEADING = 12  # candidates with a bar
_MOST_GROUPS = 16  # values of an axis that are shown one by one
_MOST_ROWS = 1000  # candidates that are listed
_OPEN = 4  # heat maps that are seen at once
_IN_FULL = 2  # axes of which all values are named
_DRAWS = 400
_DOTS = 90  # in a picture of ranks


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure with its error bar; places are per cent of the room."""

    label: tuple[tuple[str, str], ...]
    """Names and values."""
    value: float
    error: float
    mark: str
    """`winner`, `near` or nothing."""
    start: float
    width: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Bars:
    """Figures beside each other, on one scale."""

    name: str
    bars: tuple[Bar, ...]
    zero: float


@dataclass(frozen=True, slots=True)
class Cell:
    """The candidates that have one pair of values."""

    value: float | None
    """Mean noisy votes; None where the space has no such candidate."""
    level: int
    mark: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A heat map over two axes."""

    down: str
    across: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    of: str
    """What a cell's figure is."""
    strength: float
    """How far the strongest cell stands out."""


class TallyView:
    """What a page shows of a vote's tally."""

    def __init__(self, result: VoteResult, key: str = "vote") -> None:
        self.key = key
        self.result = result
        self.votes, self.std = result.votes, result.standard_error
        self.near = set(result.credible_set[1:])
        self._axes = {name: axis.values for name, axis in result.space.axes.items()}
        self._places: Places = np.array(
            [
                [
                    values.index(value)
                    for values, value in zip(self._axes.values(), c.values(), strict=True)
                ]
                for c in result.space
            ]
        )

    @property
    def star(self) -> str:
        """What the foremost candidate is called: a guess, where the vote cannot tell."""
        return "guess" if self.result.inconclusive else "winner"

    def mark(self, place: int) -> str:
        """Return whether a candidate won, or may lead as well."""
        return "winner" if place == self.result.winner else "near" if place in self.near else ""

    @property
    def leading(self) -> Bars:
        """The candidates with the most noisy votes."""
        places = self.result.places(min(_LEADING, len(self.votes)))
        labels = [self._label(place) for place in places]
        return bars(
            "candidate",
            labels,
            [float(self.votes[place]) for place in places],
            [WIDE * self.std] * len(places),
            [self.mark(place) for place in places],
        )

    def _label(self, place: int) -> list[tuple[str, str]]:
        """Return a candidate's names and values; with many axes, what sets it apart."""
        best = self.result.best
        own = settings(self.result.space[place])
        if place == self.result.winner or not self.shortened:
            return own
        return [(name, value) for name, value in own if value != said(best[name])]

    @property
    def shortened(self) -> bool:
        """Whether candidates beside the winner are named by what differs from it."""
        return len(self._axes) > _IN_FULL

    @property
    def axes(self) -> list[Bars]:
        """Mean noisy votes of each value of each axis that has several."""
        found = []
        for number, name in enumerate(self._axes):
            groups = self._groups(number)
            if len(groups) < 2 or len(self._axes) < 2:
                continue
            held = [np.isin(self._places[:, number], members) for _, members in groups]
            kept = [
                (label, some) for (label, _), some in zip(groups, held, strict=True) if some.any()
            ]
            found.append(
                bars(
                    name,
                    [[(name, label)] for label, _ in kept],
                    [float(self.votes[some].mean()) for _, some in kept],
                    [WIDE * self.std / math.sqrt(int(some.sum())) for _, some in kept],
                    [self._mark_of(some) for _, some in kept],
                )
            )
        return found

    @property
    def line(self) -> Picture | None:
        """Noisy votes along the only axis that has several values, where there is one."""
        several = [n for n, values in enumerate(self._axes.values()) if len(values) > 1]
        if len(several) != 1 or len(self.votes) <= _LEADING:
            return None
        name, values = list(self._axes.items())[several[0]]
        shown = [values[place] for place in self._places[:, several[0]].tolist()]
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in shown)
        at = [float(v) for v in shown] if numbers else list(map(float, range(len(shown))))
        log = numbers and min(at) > 0 and max(at) / min(at) > 100
        winner = self.result.winner
        svg = curves(
            f"{self.key}-axis",
            [Curve("noisy votes", at, self.votes, [WIDE * self.std] * len(at), "dots")],
            across=name if numbers else f"{name}, in the order of the space",
            up="noisy votes",
            log=log,
            mark=(at[winner], float(self.votes[winner])),
        )
        return Picture(
            svg,
            f"Noisy votes along {name}; whiskers hold 95 % of the noise. The large dot is the "
            "winner.",
            f"Noisy votes of {len(at)} values of {name}",
            (name, "noisy votes", "95 % of the noise"),
            tuple(
                (said(value), f"{vote:.1f}", f"± {WIDE * self.std:.1f}")
                for value, vote in zip(shown, self.votes, strict=True)
            ),
        )

    @property
    def grids(self) -> tuple[list[HeatMap], list[HeatMap]]:
        """Heat maps of all pairs of axes, those that stand out most first; and the rest."""
        several = [n for n, values in enumerate(self._axes.values()) if len(values) > 1]
        found = [self._grid(a, b) for a, b in itertools.combinations(several, 2)]
        found.sort(key=lambda grid: -grid.strength)
        return found[:_OPEN], found[_OPEN:]

    @property
    def ranked(self) -> Picture | None:
        """All noisy votes by rank, beside what noise alone would look like."""
        many = len(self.votes)
        if many < 4 or self.std <= 0:
            return None
        falling = np.sort(self.votes)[::-1]
        # Everybody who has the page can repeat it; only how a band is drawn hangs on it.
        rng = np.random.default_rng(many)
        alone = -np.sort(-rng.standard_normal((_DRAWS, many)), axis=1) * self.std
        low, high = np.quantile(alone, [0.025, 0.975], axis=0) + float(self.votes.mean())
        rank = np.arange(1, many + 1, dtype=np.float64)
        above = int((falling > high).sum())
        drawn = _spread(many, _DOTS)
        svg = curves(
            f"{self.key}-ranked",
            [Curve("noisy votes", rank[drawn], falling[drawn], kind="dots")],
            across="candidates, most noisy votes first",
            up="noisy votes",
            band=(rank[drawn], low[drawn], high[drawn]),
        )
        shown = _spread(many, 24)
        return Picture(
            svg,
            "Noisy votes by rank. The grey band is where 95 % of the figures at each rank "
            "would be if "
            "all candidates were equally good and everything were noise: dots above it on the left "
            "are a signal.",
            f"Noisy votes of {many} candidates by rank; {above} stand above what noise alone "
            "would show",
            ("rank", "noisy votes", "noise alone, 95 %"),
            tuple(
                (f"{rank[i]:.0f}", f"{falling[i]:.1f}", f"{low[i]:.1f} to {high[i]:.1f}")
                for i in shown
            ),
        )

    @property
    def rows(self) -> list[tuple[list[str], str, str]]:
        """All candidates, or as many as a page holds, most noisy votes first."""
        return [
            (
                [said(v) for v in self.result.space[place].values()],
                f"{self.votes[place]:.1f}",
                self.mark(place),
            )
            for place in self.result.places(min(_MOST_ROWS, len(self.votes)))
        ]

    @property
    def hidden(self) -> int:
        """How many candidates are not listed."""
        return max(0, len(self.votes) - _MOST_ROWS)

    def _groups(self, number: int) -> list[tuple[str, list[int]]]:
        """Return an axis's values one by one, or neighbours together where there are many."""
        values = list(self._axes.values())[number]
        if len(values) <= _MOST_GROUPS:
            return [(said(value), [place]) for place, value in enumerate(values)]
        parts = np.array_split(np.arange(len(values)), _MOST_GROUPS)
        return [
            (f"{_brief(values[part[0]])} … {_brief(values[part[-1]])}", part.tolist())
            for part in parts
        ]

    def _grid(self, first: int, second: int) -> HeatMap:
        names = list(self._axes)
        rows, columns = self._groups(first), self._groups(second)
        if len(columns) > len(rows):  # the longer one down: telephones are narrow
            first, second, rows, columns = second, first, columns, rows
        counts = np.zeros((len(rows), len(columns)))
        sums, marks = np.zeros_like(counts), np.full(counts.shape, "", dtype="U6")
        for place, (down, across) in enumerate(self._places[:, [first, second]].tolist()):
            i = next(n for n, (_, members) in enumerate(rows) if down in members)
            j = next(n for n, (_, members) in enumerate(columns) if across in members)
            counts[i, j] += 1
            sums[i, j] += self.votes[place]
            if (mark := self.mark(place)) and marks[i, j] != "winner":
                marks[i, j] = mark
        with np.errstate(invalid="ignore", divide="ignore"):
            means = sums / counts
            far = (means - float(self.votes.mean())) / (self.std / np.sqrt(counts))
        if self.std <= 0:  # nothing is noise: the strongest colour is the most
            far = STEPS[-1] * means / max(float(np.nanmax(means)), 1e-9)
        levels = np.searchsorted(STEPS, np.nan_to_num(far, nan=0.0), side="right")
        most, least = int(counts.max()), int(counts[counts > 0].min())
        if most == 1:
            of = f"noisy votes of one candidate, ± {WIDE * self.std:.1f}"
        else:
            many = f"{most}" if most == least else f"{least} to {most}"
            spread = WIDE * self.std / math.sqrt(least)
            of = f"mean of {many} candidates' noisy votes, ± {spread:.1f}"
        return HeatMap(
            names[first],
            names[second],
            tuple(label for label, _ in columns),
            tuple(
                (
                    label,
                    tuple(
                        Cell(
                            float(means[i, j]) if counts[i, j] else None,
                            int(levels[i, j]),
                            str(marks[i, j]),
                        )
                        for j in range(len(columns))
                    ),
                )
                for i, (label, _) in enumerate(rows)
            ),
            of,
            float(np.nanmax(far)),
        )

    def _mark_of(self, some: npt.NDArray[np.bool_]) -> str:
        places = set(np.flatnonzero(some).tolist())
        return "winner" if self.result.winner in places else "near" if places & self.near else ""


def _spread(many: int, most: int) -> list[int]:
    """Return some of so many ranks: all of the first, fewer of the rest."""
    first = min(many, most // 2)
    rest = np.linspace(first, many - 1, most - first).round().astype(int).tolist()
    return sorted({*range(first), *rest} & set(range(many)))


def _brief(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else said(value)


def bars(
    name: str,
    labels: Sequence[Sequence[tuple[str, str]]],
    values: Sequence[float],
    errors: Sequence[float],
    marks: Sequence[str],
) -> Bars:
    """Put figures on one scale that holds zero and all error bars."""
    low = min([0.0, *(v - e for v, e in zip(values, errors, strict=True))])
    high = max([1e-9, *(v + e for v, e in zip(values, errors, strict=True))])

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    made = []
    for label, value, error, mark in zip(labels, values, errors, marks, strict=True):
        left, right = sorted((place(0.0), place(value)))
        ends = place(value - error), place(value + error)
        made.append(Bar(tuple(label), value, error, mark, left, round(right - left, 2), *ends))
    return Bars(name, tuple(made), place(0.0))
