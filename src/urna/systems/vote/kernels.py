"""Gaussian-process priors over a space of candidates, ready to be compared.

Good candidates are neighbours. How far that reaches differs from axis to axis and from task to
task, so there is one prior for each combination of ranges, and a decoder weighs them by how well
they explain the tally. Where an axis can be expected to work (`windows`) there are priors for
each window too. All of this depends on the public space alone.

On a full grid a correlation matrix is a Kronecker product of one small matrix per axis and is
never written out. Subsets and long axes use the largest eigenvectors of such a product, at
the candidates that there are; what is beyond them is treated as unrelated.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from urna.space import Axis, AxisKind, Space
from urna.systems.vote.windows import Window, merged, windows_of

Array = npt.NDArray[np.float64]

RANGES = ((), (3.0,), (1.0, 4.0), (0.8, 2.0, 8.0), (0.7, 1.5, 4.0, 12.0))
"""By how many an axis gets: over how many of its steps votes stay alike."""

_KNOTS = 48  # values of an axis beyond which neighbours are merged for its eigenvectors
_WIDEST = 1024  # categories of an axis beyond which its matrix takes seconds
_RANK = 160  # eigenvectors kept where there is no full grid
_MOST_ENTRIES = 1 << 19  # of all priors' eigenvalues together, on a grid
_MOST_LISTED = 1 << 25  # of all priors' eigenvectors together, elsewhere
_MOST_PRIORS = 1 << 11  # of one shape: a winner is read in a tenth of a second
_MOST_RANGES = 256  # combinations of all axes' ranges
_FEWEST_RANGES = 16  # combinations for which windows make room


SHAPES: tuple[Callable[[Array, float], Array], ...] = (
    lambda steps, reach: np.asarray(np.exp(-0.5 * (steps / reach) ** 2)),
    lambda steps, reach: np.asarray(np.exp(-steps / reach)),
)
"""How the correlation of two values falls with the steps between them."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Correlation matrices of one shape, by their eigenvectors and eigenvalues."""

    vectors: tuple[Array, ...]
    """For each axis, shape (matrices, places, eigenvectors); a listed space has one axis."""
    values: Array
    """Shape (priors, coordinates). The last coordinate is all that no eigenvector spans, where
    there is such a rest."""
    shares: Array
    """Weight of each prior before a tally is seen; together one."""
    rest: int = 0
    """How many dimensions no eigenvector spans."""

    @property
    def copies(self) -> Array:
        """How many dimensions each coordinate stands for."""
        copies = np.ones(self.values.shape[1])
        if self.rest:
            copies[-1] = self.rest
        return copies

    def project(self, votes: Array) -> Array:
        """Return the coordinates of `votes` in each prior's eigenvectors, as `values` is.

        The last coordinate of a family with a rest is the rest's length.
        """
        spread, before = votes[None], 1
        for vectors in self.vectors:
            _, places, kept = vectors.shape
            grid = spread.reshape(len(spread), before, places, -1)
            turned = np.einsum("rjk,cbja->crbka", vectors, grid)
            spread = turned.reshape(len(spread) * len(vectors), -1)
            before *= kept
        if self.rest:
            beyond = np.sqrt(np.maximum(votes @ votes - (spread**2).sum(axis=1), 0.0))
            spread = np.concatenate([spread, beyond[:, None]], axis=1)
        return np.asarray(spread)

    def restore(self, coordinates: Array) -> Array:
        """Return the sum over all priors of the vectors with these coordinates.

        They are as `values` without the rest, or several such one after the other; each set gives a
        vector.
        """
        spread, size = coordinates, coordinates.shape[-1]
        after = 1
        for vectors in reversed(self.vectors):
            ranges, places, kept = vectors.shape
            grid = spread.reshape(-1, ranges, size // kept // after, kept, after)
            spread = np.einsum("rjk,crbka->cbja", vectors, grid)
            size = size // kept * places
            after *= places
        return np.asarray(spread.reshape(-1, size))

    def shrunk(self, votes: Array, gains: Array) -> Array:
        """Return the sum over all priors of the votes with each coordinate times its gain."""
        found = self.project(votes)
        if not self.rest:
            return np.asarray(self.restore(gains * found)[0])
        beyond = gains[:, -1:]
        inside = self.restore((gains[:, :-1] - beyond) * found[:, :-1])[0]
        return np.asarray(inside + beyond.sum() * votes)

    def drawn(self, votes: Array, gains: Array, noise: float, rng: np.random.Generator) -> Array:
        """Return draws from the posterior of a family of one prior.

        `gains` has the shape (draws, coordinates); `noise` is the variance in each entry.
        """
        deviations = np.sqrt(gains * noise)
        if not self.rest:
            spread = deviations * rng.standard_normal(gains.shape)
            return self.restore(gains * self.project(votes) + spread)
        (vectors,) = self.vectors[0]
        normals = rng.standard_normal((len(gains), len(votes)))
        within, beyond = normals @ vectors, deviations[:, -1:]
        inside = (gains[:, :-1] - gains[:, -1:]) * (votes @ vectors)
        inside += (deviations[:, :-1] - beyond) * within
        return np.asarray(inside @ vectors.T + gains[:, -1:] * votes + beyond * normals)

    def member(self, prior: int) -> "Family":
        """Return one of the priors alone."""
        ranges = [len(vectors) for vectors in self.vectors]
        places = np.unravel_index(prior, ranges) if ranges else ()
        chosen = zip(self.vectors, places, strict=True)
        return Family(
            tuple(vectors[place : place + 1] for vectors, place in chosen),
            self.values[prior : prior + 1],
            np.ones(1),
            self.rest,
        )


def unrelated(candidates: int) -> Family:
    """Return the one prior under which neighbours say nothing about each other."""
    return Family((), np.ones((1, candidates)), np.ones(1))


@functools.lru_cache(maxsize=2)
def families(space: Space) -> tuple[Family, ...]:
    """Return the structured priors of a space: for each shape, all ranges of all axes.

    An axis of which it is known where it works has priors for each window. Spaces of many axes
    or candidates get fewer ranges per axis, one window per axis in place of several, and none
    where there is no room for them. Spaces of which nothing is known but names get none, and so
    do those of more candidates than there is memory for.
    """
    lines = _lines(space)
    is_grid, room = _room(space, lines)
    if not lines or room < 1:
        return ()
    lines = _fitting(lines, room)
    ranges = _ranges(len(lines), min(_MOST_RANGES, min(room, _MOST_PRIORS) // _variants(lines)))
    each = list(lines.values())
    if is_grid:
        return tuple(_grid(each, shape, ranges) for shape in SHAPES)
    columns = [list(space.axes).index(name) for name in lines]
    return tuple(_listed(each, shape, ranges, space.places[:, columns]) for shape in SHAPES)


def describe_structure(space: Space) -> tuple[str, str]:
    """Return in words what a decoder knows of a space, and what there is no room for."""
    lines = _lines(space)
    if not lines:
        return "nothing: no candidate is nearer to another than the rest", ""
    _, room = _room(space, lines)
    along = f"neighbours along {_listing(list(lines))}"
    if room < 1:
        return "nothing", f"{along}: there are too many candidates to compare"
    windowed = [name for name, line in lines.items() if len(line.windows) > 1]
    fitting = _fitting(lines, room)
    kept = [name for name in windowed if len(fitting[name].windows) > 1]
    missing = [name for name in windowed if name not in kept]
    return (
        along + (f", and where {_listing(kept)} may work" if kept else ""),
        f"where {_listing(missing)} may work: there is no room" if missing else "",
    )


def _lines(space: Space) -> "dict[str, _Line]":
    """Return the axes along which candidates have neighbours."""
    named = {name: axis for name, axis in space.axes.items() if len(axis.values) > 1}
    if len(named) == 1 and {axis.kind for axis in named.values()} == {AxisKind.CATEGORICAL}:
        return {}  # nobody is anybody's neighbour
    return {name: _Line.of(name, axis) for name, axis in named.items()}


def _room(space: Space, lines: "dict[str, _Line]") -> tuple[bool, int]:
    """Return whether a space is a full grid of short axes, and how many priors it may have."""
    if any(len(line.steps) > _WIDEST for line in lines.values()):
        return False, 0
    count, whole = len(space), space.chosen is None
    if whole and all(line.mixing is None for line in lines.values()):
        return True, _MOST_ENTRIES // count
    return False, _MOST_LISTED // (count * min(_RANK, count))


def _variants(lines: "dict[str, _Line]") -> int:
    """Return how many combinations of windows there are."""
    return math.prod(len(line.windows) for line in lines.values())


def _fitting(lines: "dict[str, _Line]", room: int) -> "dict[str, _Line]":
    """Return axes whose windows leave room for ranges.

    Where they do not, one axis after the other has a mean window in place of several, then
    none: those with few windows first, and those that were declared last.
    """
    room = min(room, _MOST_PRIORS)
    most = room // min(_FEWEST_RANGES, len(RANGES[-1]) ** len(lines), max(room // 2, 1))
    order = sorted(lines, key=lambda name: (lines[name].declared, len(lines[name].windows)))
    for thinned in (_Line.with_mean_window, _Line.without_windows):
        for name in order:
            if _variants(lines) <= most:
                return lines
            lines = {**lines, name: thinned(lines[name])}
    return lines


def _listing(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """One axis: its knots, how each value lies between them, and where it may work."""

    steps: Array
    """Distances between knots, shape (knots, knots)."""
    mixing: Array | None
    """How each value mixes knots, shape (values, knots); None where every value is a knot."""
    windows: tuple[Window, ...]
    """Over the values, the flat one first."""
    declared: bool = False
    """Whether the axis itself says where it works."""

    @classmethod
    def of(cls, name: str, axis: Axis) -> "_Line":
        windows = tuple(windows_of(name, axis, axis.values))
        count, declared = len(axis.values), axis.works is not None
        if count <= _KNOTS or axis.kind is AxisKind.CATEGORICAL:
            return cls(axis.steps(), None, windows, declared)
        places = axis.places()
        at = (places - places.min()) / (np.ptp(places) or 1.0) * (_KNOTS - 1)
        left = np.minimum(at.astype(int), _KNOTS - 2)
        mixing = np.zeros((count, _KNOTS))
        mixing[np.arange(count), left] = 1 - (at - left)
        mixing[np.arange(count), left + 1] = at - left
        knots = np.arange(_KNOTS, dtype=np.float64)
        return cls(np.abs(knots[:, None] - knots), mixing, windows, declared)

    def with_mean_window(self) -> "_Line":
        flat, *others = self.windows
        if not others:
            return self
        weights = [window.weight for window in others]
        mean = np.average([window.expected for window in others], axis=0, weights=weights)
        return replace(self, windows=(flat, Window(mean / mean.max(), 1 - flat.weight)))

    def without_windows(self) -> "_Line":
        return replace(self, windows=(Window(self.windows[0].expected, 1.0),))


def _ranges(axes: int, most: int) -> list[tuple[float, ...]]:
    """Return each axis's ranges, as many as leave at most `most` combinations."""
    counts = [1] * axes
    for count in range(2, len(RANGES)):
        for axis in range(axes):
            if math.prod(counts) // counts[axis] * count <= most:
                counts[axis] = count
    return [RANGES[count] for count in counts]


def _grid(
    lines: Sequence[_Line],
    shape: Callable[[Array, float], Array],
    ranges: Sequence[tuple[float, ...]],
) -> Family:
    values, vectors, shares = np.ones((1, 1)), [], np.ones(1)
    for line, reaches in zip(lines, ranges, strict=True):
        each = np.stack(
            [
                shape(line.steps, reach) * np.outer(window, window)
                for window in map(_scaled, line.windows)
                for reach in reaches
            ]
        )
        value, vector = np.linalg.eigh(each)
        grown = np.einsum("cb,rk->crbk", values, np.maximum(value, 0.0))
        values = grown.reshape(len(values) * len(each), -1)
        vectors.append(vector)
        of_axis = np.repeat([w.weight for w in line.windows], len(reaches)) / len(reaches)
        shares = np.multiply.outer(shares, of_axis).ravel()
    return Family(tuple(vectors), values, shares)


def _listed(
    lines: Sequence[_Line],
    shape: Callable[[Array, float], Array],
    ranges: Sequence[tuple[float, ...]],
    places: npt.NDArray[np.intp],
) -> Family:
    """Return the priors at some candidates of a product, by its largest eigenvectors."""
    parts = [
        [np.linalg.eigh(shape(line.steps, reach)) for reach in reaches]
        for line, reaches in zip(lines, ranges, strict=True)
    ]
    windows = merged(
        Window(
            functools.reduce(
                np.multiply, (w.expected[at] for w, at in zip(some, places.T, strict=True))
            ),
            math.prod(window.weight for window in some),
        )
        for some in itertools.product(*(line.windows for line in lines))
    )
    rank = min(_RANK, len(places))
    found = []
    for some in itertools.product(*parts):
        features = _features(lines, some, places)
        for window in windows:
            weighed = features * _scaled(window)[:, None]
            if features.shape[1] > len(places):
                value, vector = np.linalg.eigh(weighed @ weighed.T)
                value, vector = np.maximum(value[-rank:], 0.0), vector[:, -rank:]
            else:
                value, turn = np.linalg.eigh(weighed.T @ weighed)
                value, turn = np.maximum(value[-rank:], 1e-12), turn[:, -rank:]
                vector = weighed @ (turn / np.sqrt(value))
            found.append((value, vector))
    values = np.stack([value for value, _ in found])
    rest = len(places) - values.shape[1]
    if rest:
        values = np.concatenate([values, np.zeros((len(values), 1))], axis=1)
    times = len(found) // len(windows)
    shares = np.tile([window.weight for window in windows], times) / times
    return Family((np.stack([vector for _, vector in found]),), values, shares, rest)


def _features(
    lines: Sequence[_Line],
    decomposed: Sequence[tuple[Array, Array]],
    places: npt.NDArray[np.intp],
) -> Array:
    """Return the largest eigenvectors of a product, times roots of eigenvalues, at candidates."""
    product, which = np.ones(1), list[npt.NDArray[np.intp]]()
    for value, _ in decomposed:  # what is not among the largest so far will not be in the end
        grown = np.multiply.outer(product, np.maximum(value, 0.0))
        kept = np.argsort(grown, axis=None, kind="stable")[-_RANK:]
        before, last = np.unravel_index(kept, grown.shape)
        product, which = grown.ravel()[kept], [*(columns[before] for columns in which), last]
    features = np.sqrt(product)[None, :]
    for line, (_, vector), column, at in zip(lines, decomposed, which, places.T, strict=True):
        basis = vector if line.mixing is None else line.mixing @ vector
        features = features * basis[:, column][at]
    return np.asarray(features)


def _scaled(window: Window) -> Array:
    """Return a window under which candidates vary as much on average as under the flat one."""
    return np.asarray(window.expected / math.sqrt(np.mean(window.expected**2)))
