"""Losses, and every client's exact minimiser with the proof of how exact it is.

All clients of a stack are trained together by L-BFGS, each as it would be alone: its steps follow
from its own rows, and once it has arrived its model stays as it is. Where a client has fewer rows
than a row has entries, models are searched for among combinations of its rows, which is where the
minimiser lies (representer theorem), with inner products by the rows' Gram matrix. The certificate
is computed at the end, from the finished model and the client's own rows: the norm of the gradient.

Guarantee:
    What is computed for a client is, to the last bit, what is computed for it alone. A client's
    array has a shape that follows from its own number of rows, and only clients of one shape are
    stacked. numpy multiplies the matrices of a stack one by one; all other operations are
    elementwise or within one client.

Assumes:
    The number of threads of the BLAS library stays the same while the process runs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.systems.average.schema import PreparedRows

Array = npt.NDArray[Any]
"""Of either precision. Scores have shape (clients, K, rows): rows run along memory."""

_ROOM = 1 << 20  # float64 numbers in one stack: 8 MB, so that steps stay near the cache
_VECTORS = 40  # arrays of a model's size that the solver keeps
_MEMORY = 2  # pairs that L-BFGS remembers
_MOST_STEPS = 300
_OVERSHOOT = 0.8  # a step is shortened if the slope at its end is this part of the one at its start
_HALVINGS = 40


class LossKind(StrEnum):
    """What a client's model minimises beside Λ/2·‖f‖²."""

    SVM = "svm"
    """Huber hinge, one against the rest."""
    LOGISTIC = "logistic"
    """ln(1 + exp(−y·fᵀx)), one against the rest."""
    SOFTMAX = "softmax"
    """Cross-entropy of all classes together."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A convex loss of scores, with what is proven of it for rows of norm at most c."""

    kind: LossKind
    smoothing: float = 0.1
    """h of the Huber hinge: how far around the margin the hinge is rounded."""

    def slopes(self, scores: Array, signs: Array) -> Array:
        """Return the derivative of each row's loss by each of its scores.

        Signs are 1 at each row's class and −1 elsewhere.
        """
        if self.kind is LossKind.SOFTMAX:
            high = np.amax(scores, axis=1, keepdims=True)
            odds = np.exp(scores - high)
            return np.asarray(odds / np.sum(odds, axis=1, keepdims=True) - (signs + 1) / 2)
        margins = signs * scores
        if self.kind is LossKind.SVM:
            h = self.smoothing
            return np.asarray(-signs * np.clip((1 + h - margins) / (2 * h), 0.0, 1.0))
        # 1/(1 + e^m) without overflow.
        small = np.exp(-np.abs(margins))
        return np.asarray(-signs * np.where(margins > 0, small / (1 + small), 1 / (1 + small)))

    def lipschitz(self, clip: float, outputs: int) -> float:
        """Return the largest norm of one row's gradient, of the whole model.

        SVM and logistic: each of K slopes is at most 1 in magnitude, so √K·c. Softmax: the
        gradient is (p − e_y)xᵀ, and ‖p − e_y‖ ≤ √2 for probabilities p, so √2·c.
        """
        return math.sqrt(2 if self.kind is LossKind.SOFTMAX else outputs) * clip

    @property
    def curvature(self) -> float:
        """Largest second derivative along scores: 1/2h, 1/4, and 1/2 for softmax.

        The softmax Hessian is diag(p) − ppᵀ; row sums of magnitudes are 2p(1 − p) ≤ 1/2.
        """
        return {
            LossKind.SVM: 1 / (2 * self.smoothing),
            LossKind.LOGISTIC: 0.25,
            LossKind.SOFTMAX: 0.5,
        }[self.kind]


def client_model_move(loss: Loss, *, radius: float, outputs: int) -> float:
    """Return how far a whole client moves a model whose norm is at most R.

    For one model of all classes 2R; where each class has a model of norm at most R, 2R√K.
    """
    return 2 * radius * (1 if loss.kind is LossKind.SOFTMAX else math.sqrt(outputs))


@dataclass(frozen=True, slots=True, eq=False)
class PaddedRows:
    """Some clients' rows and classes, padded with rows of zeros."""

    places: tuple[int, ...]
    """Which clients these are."""
    rows: Array
    """Shape (clients, rows, width), norms at most c."""
    signs: Array
    """1 at each row's class, −1 elsewhere: (clients, K, rows)."""
    records: Array
    """How many records each client has: (clients, 1, 1)."""
    clip: float

    @property
    def outputs(self) -> int:
        """K."""
        return int(self.signs.shape[1])

    def halved(self) -> "PaddedRows":
        """Return the same in single precision, in which steps take half the time."""
        return replace(
            self,
            rows=self.rows.astype(np.float32),
            signs=self.signs.astype(np.float32),
            records=self.records.astype(np.float32),
        )

    @property
    def squares(self) -> Array:
        """Each client's mean of squared norms of rows, over its records: (clients, 1, 1)."""
        return np.asarray(_dot(self.rows, self.rows) / self.records)

    def only(self, slot: int) -> "PaddedRows":
        """Return the stack of one of the clients."""
        one = slice(slot, slot + 1)
        return replace(
            self,
            places=self.places[one],
            rows=self.rows[one],
            signs=self.signs[one],
            records=self.records[one],
        )


def batches(clients: Sequence[PreparedRows], *, clip: float, outputs: int) -> Iterator[PaddedRows]:
    """Stack clients of one shape, their rows times c, few enough at a time for the cache."""
    shapes: dict[int, list[int]] = {}
    for place, client in enumerate(clients):
        shapes.setdefault(_padded(max(len(client.rows), 1)), []).append(place)
    for rows, places in sorted(shapes.items()):
        width = clients[places[0]].rows.shape[1]
        each = rows * (width + min(rows, width) + 4 * outputs)
        each += _VECTORS * outputs * min(rows, width)
        together = max(_ROOM // each, 1)
        for start in range(0, len(places), together):
            some = tuple(places[start : start + together])
            yield stacked(clients, some, rows, clip, outputs)


def _padded(rows: int) -> int:
    """Return to how many rows a client of so many is padded: at most an eighth more.

    Example:
        >>> [_padded(rows) for rows in (1, 16, 17, 33, 100)]
        [1, 16, 18, 36, 104]
    """
    grain = max((1 << (rows - 1).bit_length()) // 16, 1)
    return -(-rows // grain) * grain


def stacked(
    clients: Sequence[PreparedRows],
    places: tuple[int, ...],
    most: int,
    clip: float,
    outputs: int,
) -> PaddedRows:
    """Return the stack of some clients, each with so many rows."""
    width = clients[places[0]].rows.shape[1]
    rows = np.zeros((len(places), most, width))
    signs = np.full((len(places), outputs, most), -1.0)
    for slot, place in enumerate(places):
        client = clients[place]
        rows[slot, : len(client.rows)] = client.rows
        signs[slot, client.targets.astype(np.int64), np.arange(len(client.rows))] = 1.0
    rows *= clip
    records = np.array([max(clients[place].records, 1) for place in places], dtype=np.float64)
    return PaddedRows(places, rows, signs, records.reshape(-1, 1, 1), clip)


class Uncertified(ArithmeticError):
    """No certificate was reached. Nothing that data can do leads here."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """Models of all clients of a stack."""

    weights: Array
    """(clients, K, width)."""
    gradient_norms: Array
    """(clients, 1, 1); each model is within this over Λ of its exact minimiser."""


def minimise(batch: PaddedRows, loss: Loss, regularisation: float, *, tolerance: float) -> Trained:
    """Return every client's minimiser of Λ/2·‖f‖² + mean loss, with its certificate.

    Guarantee:
        Every returned `gradient_norms` is at most `tolerance`. It is computed in float64 from
        the returned weights; what rounding could hide, a 10^-12th of the largest gradient, is
        added.

        L-BFGS does the work, in single precision, and again in double precision for a client
        for which that was not exact enough. Should it stop short, for whatever data,
        accelerated gradient steps follow, which converge at a rate known for the loss: a
        client's data decide how long it takes and never whether it succeeds.

    Raises:
        Uncertified: Not even these steps arrived: the machine's arithmetic is at fault.
    """
    weights = _lbfgs(batch.halved(), loss, regularisation, tolerance / 2).astype(batch.rows.dtype)
    _, norms = certify(batch, loss, regularisation, weights)
    for slot, norm in enumerate(norms.ravel().tolist()):
        if norm <= tolerance:
            continue
        alone = _with_more_digits(batch.only(slot), loss, regularisation, tolerance)
        weights[slot], norms[slot] = alone.weights[0], alone.gradient_norms[0]
    return Trained(weights, norms)


def _with_more_digits(batch: PaddedRows, loss: Loss, reg: float, tolerance: float) -> Trained:
    """Train one client in double precision, for which single precision was not enough."""
    weights = _lbfgs(batch, loss, reg, tolerance / 2)
    _, norms = certify(batch, loss, reg, weights)
    if not norms[0] <= tolerance:  # nor where it is no number
        weights = _accelerated(batch, loss, reg, tolerance, weights)
        _, norms = certify(batch, loss, reg, weights)
        if not norms[0] <= tolerance:
            raise Uncertified("the solver did not reach its certificate")
    return Trained(weights, norms)


def certify(
    batch: PaddedRows, loss: Loss, regularisation: float, weights: Array
) -> tuple[Array, Array]:
    """Return the gradient at each client's model and its norm, rounded up."""
    slopes = loss.slopes(weights @ batch.rows.swapaxes(1, 2), batch.signs)
    gradient = regularisation * weights + (slopes / batch.records) @ batch.rows
    norms = np.sqrt(_dot(gradient, gradient))
    hidden = 1e-12 * loss.lipschitz(batch.clip, batch.outputs)
    return gradient, norms * (1 + 1e-9) + hidden


class _Space:
    """Where models are searched for: as matrices, or as combinations of rows where these are fewer.

    Of combinations f = aX inner products are ⟨a, b⟩ = a(XXᵀ)bᵀ.
    """

    def __init__(self, batch: PaddedRows) -> None:
        rows = batch.rows
        turned = rows.swapaxes(1, 2)
        self.dual = rows.shape[1] < rows.shape[2]
        self._rows, self._scoring = rows, rows @ turned if self.dual else turned
        self.shape = (rows.shape[0], batch.outputs, min(rows.shape[1:]))

    def scores(self, model: Array) -> Array:
        return np.asarray(model @ self._scoring)

    def pulled(self, slopes: Array) -> Array:
        return slopes if self.dual else slopes @ self._rows

    def measured(self, model: Array) -> Array:
        return self.scores(model) if self.dual else model

    def weights(self, model: Array) -> Array:
        return model @ self._rows if self.dual else model


def _lbfgs(batch: PaddedRows, loss: Loss, reg: float, tolerance: float) -> Array:
    space = _Space(batch)
    model = np.zeros(space.shape, dtype=batch.rows.dtype)
    scores = space.scores(model)
    # The inverse of a bound on each client's curvature: a first step that cannot overshoot.
    first = 1 / (loss.curvature * batch.squares + reg)

    def gradient_at(scores: Array, model: Array) -> Array:
        return reg * model + space.pulled(loss.slopes(scores, batch.signs) / batch.records)

    gradient = gradient_at(scores, model)
    measured = space.measured(gradient)
    pairs: list[_Pair] = []
    for _ in range(_MOST_STEPS):
        active = _dot(gradient, measured) > tolerance**2
        if not active.any():
            break
        direction = -_two_loops(gradient, pairs, first)
        downhill = _dot(measured, direction)
        if not (downhill < 0).all():
            direction = np.where(downhill < 0, direction, -first * gradient)
            downhill = _dot(measured, direction)
        direction = np.where(active, direction, 0.0)  # who has arrived stays
        ahead = space.scores(direction)
        moved = ahead if space.dual else direction
        for _ in range(_HALVINGS):
            model_there, scores_there = model + direction, scores + ahead
            there = gradient_at(scores_there, model_there)
            over = (_dot(moved, there) > -_OVERSHOOT * downhill) & active
            if not over.any():
                break
            shorter = np.where(over, 0.5, np.ones_like(downhill))
            direction, ahead = direction * shorter, ahead * shorter
            moved, downhill = moved * shorter, downhill * shorter
        measured_there = space.measured(there)
        change = there - gradient
        pairs.append(_Pair.of(direction, change, moved, measured_there - measured))
        del pairs[:-_MEMORY]
        model, scores, gradient, measured = model_there, scores_there, there, measured_there
    return space.weights(model)


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
    def of(cls, step: Array, change: Array, ms: Array, mc: Array) -> "_Pair":
        product, square = _dot(step, mc), _dot(change, mc)
        useful = (product > 0) & (square > 0)
        inverse = np.where(useful, 1 / np.where(useful, product, 1.0), 0.0)
        scale = np.where(useful, product / np.where(useful, square, 1.0), 0.0)
        return cls(step, change, ms, mc, inverse, scale)


def _two_loops(gradient: Array, pairs: list[_Pair], first: Array) -> Array:
    """Return the inverse Hessian's guess times the gradient (Nocedal 1980)."""
    q, parts = gradient, []
    for pair in reversed(pairs):
        part = pair.inverse * _dot(pair.step_measured, q)
        q = q - part * pair.change
        parts.append(part)
    last = pairs[-1].scale if pairs else 0 * _dot(gradient, gradient)
    q = q * np.where(last > 0, last, first)
    for pair, part in zip(pairs, reversed(parts), strict=True):
        back = pair.inverse * _dot(pair.change_measured, q)
        q = q + (part - back) * pair.step
    return q


def _accelerated(
    batch: PaddedRows, loss: Loss, reg: float, tolerance: float, weights: Array
) -> Array:
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
        if step % 10 == 0 and certify(batch, loss, reg, now)[1][0] <= tolerance:
            return now
    return before


def _dot(one: Array, other: Array) -> Array:
    return np.asarray(np.einsum("uij,uij->u", one, other)[:, None, None])
