"""The certified solver: every client's exact minimiser, and the proof of how exact it is.

All clients of a stack are trained together by L-BFGS, each as it would be alone: its steps follow
from its own rows, and once it has arrived its model stays as it is. Where a client has fewer rows
than a row has entries, models are searched for among combinations of its rows, which is where the
minimiser lies (representer theorem), with inner products by the rows' Gram matrix. The certificate
is computed at the end, from the finished model and the client's own rows: the norm of the gradient.
"""

import math
from dataclasses import dataclass

from urna.systems.average.batch import PaddedRows, to_numpy
from urna.systems.average.losses import Array, Loss, Namespace

__all__ = ["Trained", "Uncertified", "certify", "minimise"]

_MEMORY = 2  # pairs that L-BFGS remembers
_MOST_STEPS = 300
_OVERSHOOT = 0.8  # a step is shortened if the slope at its end is this part of the one at its start
_HALVINGS = 40


class Uncertified(ArithmeticError):
    """No certificate was reached. Nothing that data can do leads here."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """Models of all clients of a stack."""

    weights: Array
    """(clients, K, width)."""
    gradient_norms: Array
    """(clients, 1, 1); each model is within this over Λ of its exact minimiser."""
    steps: int


def minimise(batch: PaddedRows, loss: Loss, regularisation: float, *, tolerance: float) -> Trained:
    """Return every client's minimiser of Λ/2·‖f‖² + mean loss, with its certificate.

    Guarantee:
        Every returned `gradient_norms` is at most `tolerance`. It is computed in float64 from
        the returned weights; what rounding could hide, a 10^-12th of the largest gradient, is
        added.

        Every client's model is the one it would get alone, to the last bit.

        L-BFGS does the work, in single precision, and again in double precision for a client
        for which that was not exact enough. Should it stop short, for whatever data,
        accelerated gradient steps follow, which converge at a rate known for the loss: a
        client's data decide how long it takes and never whether it succeeds.

    Raises:
        Uncertified: Not even these steps arrived: the machine's arithmetic is at fault.
    """
    xp = batch.xp
    weights, steps = _lbfgs(batch.halved(), loss, regularisation, tolerance / 2)
    weights = xp.asarray(weights, dtype=batch.rows.dtype)
    _, norms = certify(batch, loss, regularisation, weights)
    for slot, norm in enumerate(to_numpy(norms).ravel().tolist()):
        if norm <= tolerance:
            continue
        alone = _with_more_digits(batch.only(slot), loss, regularisation, tolerance)
        weights[slot], norms[slot] = alone.weights[0], alone.gradient_norms[0]
        steps = max(steps, alone.steps)
    return Trained(weights, norms, steps)


def _with_more_digits(batch: PaddedRows, loss: Loss, reg: float, tolerance: float) -> Trained:
    """Train one client in double precision, for which single precision was not enough."""
    weights, steps = _lbfgs(batch, loss, reg, tolerance / 2)
    _, norms = certify(batch, loss, reg, weights)
    if not bool(norms[0] <= tolerance):  # nor where it is no number
        weights, more = _accelerated(batch, loss, reg, tolerance, weights)
        steps += more
        _, norms = certify(batch, loss, reg, weights)
        if not bool(norms[0] <= tolerance):
            raise Uncertified("the solver did not reach its certificate")
    return Trained(weights, norms, steps)


def certify(
    batch: PaddedRows, loss: Loss, regularisation: float, weights: Array
) -> tuple[Array, Array]:
    """Return the gradient at each client's model and its norm, rounded up."""
    xp = batch.xp
    slopes = loss.slopes(weights @ _turned(batch.rows, xp), batch.signs, xp)
    gradient = regularisation * weights + (slopes / batch.records) @ batch.rows
    norms = xp.sqrt(_dot(gradient, gradient, xp))
    hidden = 1e-12 * loss.lipschitz(batch.clip, batch.outputs)
    return gradient, norms * (1 + 1e-9) + hidden


class _Primal:
    """Models as matrices."""

    def __init__(self, batch: PaddedRows) -> None:
        self._rows, self._turned = batch.rows, _turned(batch.rows, batch.xp)
        self.shape = (batch.rows.shape[0], batch.outputs, batch.rows.shape[2])

    def scores(self, model: Array) -> Array:
        return model @ self._turned

    def pulled(self, slopes: Array) -> Array:
        return slopes @ self._rows

    def measured(self, model: Array) -> Array:
        return model

    def weights(self, model: Array) -> Array:
        return model


class _Dual:
    """Models as combinations of rows: f = aX, ⟨a, b⟩ = a(XXᵀ)bᵀ."""

    def __init__(self, batch: PaddedRows) -> None:
        self._rows = batch.rows
        self._gram = batch.rows @ _turned(batch.rows, batch.xp)
        self.shape = tuple(batch.signs.shape)

    def scores(self, model: Array) -> Array:
        return model @ self._gram

    def pulled(self, slopes: Array) -> Array:
        return slopes

    def measured(self, model: Array) -> Array:
        return model @ self._gram

    def weights(self, model: Array) -> Array:
        return model @ self._rows


def _lbfgs(batch: PaddedRows, loss: Loss, reg: float, tolerance: float) -> tuple[Array, int]:
    xp = batch.xp
    space = _Dual(batch) if batch.rows.shape[1] < batch.rows.shape[2] else _Primal(batch)
    model = _zeros(space.shape, batch)
    scores = space.scores(model)
    # The inverse of a bound on each client's curvature: a first step that cannot overshoot.
    first = 1 / (loss.curvature * batch.squares + reg)

    def gradient_at(scores: Array, model: Array) -> Array:
        return reg * model + space.pulled(loss.slopes(scores, batch.signs, xp) / batch.records)

    gradient = gradient_at(scores, model)
    measured = space.measured(gradient)
    pairs: list[_Pair] = []
    for step in range(_MOST_STEPS):
        active = _dot(gradient, measured, xp) > tolerance**2
        if not bool(xp.any(active)):
            return space.weights(model), step
        direction = -_two_loops(gradient, pairs, first, xp)
        downhill = _dot(measured, direction, xp)
        if not bool(xp.all(downhill < 0)):
            direction = xp.where(downhill < 0, direction, -first * gradient)
            downhill = _dot(measured, direction, xp)
        direction = xp.where(active, direction, 0.0)  # who has arrived stays
        ahead = space.scores(direction)
        moved = ahead if isinstance(space, _Dual) else direction
        for _ in range(_HALVINGS):
            model_there, scores_there = model + direction, scores + ahead
            there = gradient_at(scores_there, model_there)
            over = (_dot(moved, there, xp) > -_OVERSHOOT * downhill) & active
            if not bool(xp.any(over)):
                break
            shorter = xp.where(over, 0.5, xp.ones_like(downhill))
            direction, ahead = direction * shorter, ahead * shorter
            moved, downhill = moved * shorter, downhill * shorter
        measured_there = space.measured(there)
        change = there - gradient
        pairs.append(_Pair.of(direction, change, moved, measured_there - measured, xp))
        del pairs[:-_MEMORY]
        model, scores, gradient, measured = model_there, scores_there, there, measured_there
    return space.weights(model), _MOST_STEPS


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """A step, how the gradient changed over it, both measured, and their product's inverse."""

    step: Array
    change: Array
    step_measured: Array
    change_measured: Array
    inverse: Array
    scale: Array

    @classmethod
    def of(cls, step: Array, change: Array, ms: Array, mc: Array, xp: Namespace) -> "_Pair":
        product, square = _dot(step, mc, xp), _dot(change, mc, xp)
        useful = (product > 0) & (square > 0)
        inverse = xp.where(useful, 1 / xp.where(useful, product, 1.0), 0.0)
        scale = xp.where(useful, product / xp.where(useful, square, 1.0), 0.0)
        return cls(step, change, ms, mc, inverse, scale)


def _two_loops(gradient: Array, pairs: list[_Pair], first: Array, xp: Namespace) -> Array:
    """Return the inverse Hessian's guess times the gradient (Nocedal 1980)."""
    q, parts = gradient, []
    for pair in reversed(pairs):
        part = pair.inverse * _dot(pair.step_measured, q, xp)
        q = q - part * pair.change
        parts.append(part)
    last = pairs[-1].scale if pairs else 0 * _dot(gradient, gradient, xp)
    q = q * xp.where(last > 0, last, first)
    for pair, part in zip(pairs, reversed(parts), strict=True):
        back = pair.inverse * _dot(pair.change_measured, q, xp)
        q = q + (part - back) * pair.step
    return q


def _accelerated(
    batch: PaddedRows, loss: Loss, reg: float, tolerance: float, weights: Array
) -> tuple[Array, int]:
    """Take Nesterov's steps for strongly convex functions until one client is certified."""
    steepest = loss.curvature * float(batch.squares[0, 0, 0]) + reg
    root = math.sqrt(steepest / reg)
    momentum = (root - 1) / (root + 1)
    before, ahead = weights, weights
    most = math.ceil(40 * root) * 20
    for step in range(1, most + 1):
        gradient, _ = certify(batch, loss, reg, ahead)
        now = ahead - gradient / steepest
        ahead, before = now + momentum * (now - before), now
        if step % 10 == 0 and bool(certify(batch, loss, reg, now)[1][0] <= tolerance):
            return now, step
    return before, most


def _zeros(shape: tuple[int, ...], batch: PaddedRows) -> Array:
    if batch.xp.__name__ == "numpy":
        return batch.xp.zeros(shape, dtype=batch.rows.dtype)
    return batch.xp.zeros(shape, dtype=batch.rows.dtype, device=batch.rows.device)


def _turned(array: Array, xp: Namespace) -> Array:
    return xp.swapaxes(array, 1, 2)


def _dot(one: Array, other: Array, xp: Namespace) -> Array:
    return xp.einsum("uij,uij->u", one, other)[:, None, None]
