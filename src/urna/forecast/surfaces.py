"""Synthetic searches: a random surface of quality over a space, and clients that see it apart.

Three kinds have structure: `rates` (quality rises and falls along a logarithmic axis, other axes
shift and scale it), `bowl` (a smooth optimum with interactions and a cliff), `process` (a draw
from a Gaussian process with random ranges); `none` has no structure at all. Ballots and decoders
are chosen and votes are forecast on them: nobody's data is involved.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.space import Axis, AxisKind, Space
from urna.systems.vote.kernels import SHAPES
from urna.systems.vote.windows import windows_of

Array = npt.NDArray[np.float64]
Rng = np.random.Generator

_LEAST_RATES = 3  # values of an axis along which quality can rise and fall


@dataclass(frozen=True, slots=True, eq=False)
class LossSurface:
    """What clients see, and what is true."""

    seen: Array
    """Each client's quality of each candidate; higher is better."""
    quality: Array
    """What a winner is judged by."""

    @property
    def regret(self) -> Array:
        """How far each candidate is below the best, over the distance from worst to best."""
        return np.asarray((self.quality.max() - self.quality) / np.ptp(self.quality))

    @property
    def agreement(self) -> float:
        """Mean correlation of what a client sees with what is true."""
        seen = self.seen - self.seen.mean(axis=1, keepdims=True)
        true = self.quality - self.quality.mean()
        lengths = np.linalg.norm(seen, axis=1) * np.linalg.norm(true)
        return float(np.mean(seen @ true / lengths))


def stand_in(candidates: int) -> Space:
    """Return a grid of so many candidates, where nothing but their number is known.

    A learning rate and up to two ordered axes, as the number's divisors allow.
    """
    if candidates < 1:
        raise ParameterError(f"a vote needs at least one candidate, got {candidates}")
    rest = _divisor(candidates)
    first, third = candidates // rest, _divisor(rest)
    rate = Axis.log_range(1e-6, 1.0, first) if first > 1 else Axis.log([0.1])
    others = {"x": rest // third, "y": third}
    axes = {name: Axis.ordinal(list(range(n))) for name, n in others.items() if n > 1}
    return Space(lr=rate, **axes)


def _divisor(number: int) -> int:
    """Return the largest divisor that is at most the root of a number."""
    return next(d for d in range(math.isqrt(number), 0, -1) if number % d == 0)


def _smooth(rng: Rng, space: Space) -> Callable[..., Array]:
    """Return a sampler of surfaces with random ranges: one small root of covariance per axis."""
    roots = []
    for axis in space.axes.values():
        reach = math.exp(rng.uniform(math.log(0.7), math.log(6.0)))
        shape = SHAPES[0] if rng.random() < 0.5 else SHAPES[1]
        values, vectors = np.linalg.eigh(shape(axis.steps(), reach))
        roots.append(vectors * np.sqrt(np.maximum(values, 0.0)))
    sizes = [len(root) for root in roots]

    def draw(*more: int) -> Array:
        drawn = rng.standard_normal((*more, *sizes))
        for place, root in enumerate(roots, start=len(more)):
            drawn = np.moveaxis(np.tensordot(drawn, root, axes=(place, 1)), -1, place)
        flat = drawn.reshape(*more, -1)
        return np.asarray(flat if space.chosen is None else flat[..., list(space.chosen)])

    return draw


def _apart(rng: Rng, asked: float | None) -> float:
    """Return how far clients deviate from what is true: as asked, or a draw."""
    drawn = math.exp(rng.uniform(math.log(0.03), math.log(0.6)))
    return drawn if asked is None else asked


def rates(
    rng: Rng, space: Space, clients: int, apart: float | None = None, earliest: float = 0.3
) -> LossSurface:
    """Return a plateau along the first logarithmic axis, with a cliff behind it.

    `apart` is how far clients deviate, drawn by default; no plateau begins before the quantile
    `earliest` of the axis.
    """
    places, names = space.places, list(space.axes)
    along = next(i for i, axis in enumerate(space.axes.values()) if axis.kind is AxisKind.LOG)
    position = np.log10([float(candidate[names[along]]) for candidate in space])
    gain = np.ones(len(space))
    for i, axis in enumerate(space.axes.values()):
        if i == along:
            continue
        count = len(axis.values)
        line = np.linspace(-0.5, 0.5, count)
        ordered = axis.kind is not AxisKind.CATEGORICAL and rng.random() < 0.7
        shift = line * rng.normal(0, 0.8) if ordered else rng.normal(0, 0.3, count)
        from_best = np.abs(line - rng.uniform(-0.5, 0.5)) if ordered else rng.random(count)
        factor = 1 - abs(rng.normal(0, 0.15)) * from_best
        if rng.random() < 0.2:  # one value spoils the training, as a decay of zero does
            factor[0 if ordered else int(rng.integers(count))] *= rng.uniform(0.2, 0.9)
        position = position + shift[places[:, i]]
        gain = gain * factor[places[:, i]]
    start = rng.uniform(np.quantile(position, earliest), np.quantile(position, 0.9))
    rise, width, slope = rng.uniform(0.15, 0.6), rng.uniform(0.8, 3.0), rng.uniform(0, 0.06)
    fall = 0.1 if rng.random() < 0.7 else 0.5

    def quality(moved: Array | float, scaled: Array | float) -> Array:
        x = position + moved - start
        top = np.clip(1 - slope * (x - width / 2) ** 2, 0, 1)
        up, down = 1 / (1 + np.exp(-x / rise)), 1 / (1 + np.exp((x - width) / fall))
        return np.asarray(up * top * down * gain * scaled)

    differ = _apart(rng, apart)
    noise = math.exp(rng.uniform(math.log(0.003), math.log(0.06)))
    shape = (clients, len(space))
    seen = quality(
        differ * rng.standard_normal((clients, 1)), 1 + 0.06 * differ * rng.standard_normal(shape)
    )
    return LossSurface(seen + noise * rng.standard_normal(shape), quality(0.0, 1.0))


def _seen_by_clients(
    rng: Rng, latent: Array, deviate: Callable[..., Array], clients: int, apart: float | None
) -> LossSurface:
    """Squash a latent surface to qualities and let every client see its own version."""
    middle = np.quantile(latent, rng.uniform(0.5, 0.95))
    quality = 1 / (1 + np.exp(-(latent - middle) * rng.uniform(1, 3) / latent.std()))
    spread = float(quality.std())
    differ = _apart(rng, apart) * spread
    noise = math.exp(rng.uniform(math.log(0.02), math.log(0.5))) * spread
    seen = quality + differ * deviate(clients)
    return LossSurface(seen + noise * rng.standard_normal(seen.shape), quality)


def bowl(rng: Rng, space: Space, clients: int, apart: float | None = None) -> LossSurface:
    """Return a smooth optimum along the longest ordered axis, moved by the others, with a cliff."""
    places = space.places.astype(float)
    axes = list(space.axes.values())
    along = max(
        range(len(axes)),
        key=lambda i: (axes[i].kind is not AxisKind.CATEGORICAL, len(axes[i].values), -i),
    )
    count = len(axes[along].values)
    best, width = rng.uniform(0.3 * count, 0.95 * count), rng.uniform(0.5, 2.5)
    x = places[:, along].copy()
    effects = np.zeros(len(space))
    for i, axis in enumerate(axes):
        if i == along:
            continue
        if axis.kind is not AxisKind.CATEGORICAL:
            x += rng.normal(0, 0.4) * places[:, i]
        heights = rng.normal(0, rng.uniform(0, 1), len(axis.values))
        effects += heights[places[:, i].astype(int)]
    latent = -(((x - best) / width) ** 2)
    latent = np.where(x > best + rng.uniform(0.3, 2) * width, latent - rng.uniform(1, 6), latent)
    surface = 2 * (latent + effects + 0.3 * _smooth(rng, space)())
    return _seen_by_clients(rng, surface, _smooth(rng, space), clients, apart)


def process(rng: Rng, space: Space, clients: int, apart: float | None = None) -> LossSurface:
    """Return a draw from a Gaussian process."""
    return _seen_by_clients(rng, _smooth(rng, space)(), _smooth(rng, space), clients, apart)


def none(rng: Rng, space: Space, clients: int, apart: float | None = None) -> LossSurface:
    """Return qualities that have nothing to do with the space."""
    latent = rng.standard_normal(len(space))

    def deviate(count: int) -> Array:
        return rng.standard_normal((count, len(space)))

    return _seen_by_clients(rng, latent, deviate, clients, apart)


KINDS: dict[str, Callable[..., LossSurface]] = {
    "rates": rates,
    "bowl": bowl,
    "process": process,
    "none": none,
}
"""Kinds of loss surfaces by name: functions of a generator, a space and a number of clients."""


def within_windows(rng: Rng, space: Space, land: LossSurface) -> LossSurface:
    """Return a loss surface of which little is left where its axes may not work.

    Of every axis's windows one is drawn with the weight that a decoder gives it; an axis of which
    nothing is known draws nothing.
    """
    left = np.ones(len(space))
    for place, (name, axis) in enumerate(space.axes.items()):
        windows = windows_of(name, axis, axis.values)
        if len(windows) > 1:
            drawn = windows[int(rng.choice(len(windows), p=[window.weight for window in windows]))]
            left *= drawn.expected[space.places[:, place]]
    return LossSurface(land.seen * left, land.quality * left)


def kinds_of(space: Space) -> tuple[str, ...]:
    """Return the kinds of loss surfaces with structure that a space can have."""
    axes = [axis for axis in space.axes.values() if len(axis.values) > 1]
    ordered = [axis for axis in axes if axis.kind is not AxisKind.CATEGORICAL]
    rated = any(a.kind is AxisKind.LOG and len(a.values) >= _LEAST_RATES for a in ordered)
    if not ordered and len(axes) < 2:
        return ()  # nobody is anybody's neighbour
    return (*(["rates"] if rated else []), *(["bowl"] if ordered else []), "process")
