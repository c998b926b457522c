"""DP-Helmet's own trainer: projected SGD in passes over one shuffle, with its step sizes.

The sensitivity bound (`published_move`) needs that every record is in exactly one batch of each
pass, that batch sums are divided by one constant, and that the order does not depend on data. So
batches are as even as they can be, sums are divided by records per batch (a fraction where they
are not even), and the shuffle is drawn from a public seed and the number of rows alone, which is
that of records or, where they have ids, a fixed number for each (`Schema.prepare`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from urna.data import Samples
from urna.systems.average import (
    Blind,
    LossKind,
)
from urna.systems.average.blind import projected
from urna.systems.average.certified import Array, Loss, PaddedRows, client_model_move, stacked
from urna.systems.average.schema import PreparedRows, Vector

__all__ = ["PublishedBlind", "published_move", "smoothness", "train_by_sgd"]

_TOGETHER = 20  # clients of a stack

RADIUS_PART = 0.2
"""Radius of models over L/Λ, the longest a minimiser can be."""


@dataclass(frozen=True)
class PublishedBlind(Blind):
    """Blind averaging as published: clients train by SGD, under the paper's bound.

    Args:
        epochs: Passes over the shuffle; as many as in the authors' own code.
        batch_size: Rows of a batch, about.
        seed: Public seed of the shuffle.
    """

    epochs: int = 100
    batch_size: int = 20
    seed: int = 0

    @property
    def ball(self) -> float:
        """R, the radius of the ball that models are projected onto."""
        if self.radius is not None:
            return self.radius
        per = 1 if self.loss is LossKind.SOFTMAX else self.schema.outputs
        return RADIUS_PART * self._lipschitz / math.sqrt(per) / self.regularisation

    @property
    def longest(self) -> float:
        """Largest norm of a client's model."""
        return client_model_move(self._loss, radius=self.ball, outputs=self.schema.outputs) / 2

    @property
    def sensitivity(self) -> float:
        """How far `group` records move a client's model."""
        proven = published_move(
            self._loss,
            clip=self.schema.rows.clip,
            regularisation=self.regularisation,
            radius=self.ball,
            points=self.points,
            outputs=self.schema.outputs,
            group=self.group,
        )
        return min(proven, 2 * self.longest * self._most)

    def vectors(self, clients: Sequence[Samples]) -> Iterator[tuple[int, Vector]]:
        """Train all clients and yield their models, each the one it would get alone."""
        prepared = [self.schema.prepare(samples, group=self.group) for samples in clients]
        for stack in self.stacks(prepared):
            for place, model in zip(stack.places, self._models(stack), strict=True):
                yield place, self._weighed(model, prepared[place].records)

    def stacks(self, clients: Sequence[PreparedRows]) -> Iterator[PaddedRows]:
        """Stack clients with equally many rows, a few at a time: nothing is padded."""
        alike: dict[int, list[int]] = {}
        for place, client in enumerate(clients):
            alike.setdefault(max(len(client.rows), 1), []).append(place)
        for rows, places in sorted(alike.items()):
            for start in range(0, len(places), _TOGETHER):
                some = tuple(places[start : start + _TOGETHER])
                yield stacked(clients, some, rows, self.schema.rows.clip, self.schema.outputs)

    def _models(self, stack: PaddedRows) -> Vector:
        return train_by_sgd(
            stack,
            self._loss,
            self.regularisation,
            radius=self.ball,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=self.seed,
        )


def train_by_sgd(
    batch: PaddedRows,
    loss: Loss,
    regularisation: float,
    *,
    radius: float,
    epochs: int,
    batch_size: int,
    seed: int,
) -> Array:
    """Train every client of a stack as DP-Helmet's Algorithms 1 and 3 do, each as it would alone.

    Projection is onto the ball of radius R, of each class's model or, for softmax, of the
    whole one: scaled down where outside, else left alone.

    Args:
        batch: Clients with equally many rows.
        loss: The loss.
        regularisation: Λ.
        radius: R.
        epochs: Passes over the shuffle.
        batch_size: Rows of a batch, about.
        seed: Public seed of the shuffle.
    """
    outputs = batch.outputs
    count, width = batch.rows.shape[1:]
    order = np.random.default_rng(seed).permutation(count)
    pieces = np.array_split(order, max(1, math.ceil(count / batch_size)))
    rows = [np.ascontiguousarray(batch.rows[:, piece]) for piece in pieces]
    turned = [np.swapaxes(piece, 1, 2) for piece in rows]
    signs = [np.ascontiguousarray(batch.signs[:, :, piece]) for piece in pieces]
    # Sums of batches over records per batch: a larger batch is a little steeper.
    divisor = batch.records / len(pieces)
    steeper = max(map(len, pieces)) / divisor
    flattest = np.ones_like(divisor)  # 1/β of each client, by its own number of records
    for slot, each in enumerate(steeper.ravel().tolist()):
        clip = batch.clip * math.sqrt(max(1.0, each))
        flattest[slot] = 1 / smoothness(loss, clip, regularisation, width, outputs)
    weights = 0 * (signs[0] @ rows[0])
    step = 0
    for _ in range(epochs):
        for piece, back, sign in zip(rows, turned, signs, strict=True):
            step += 1
            rate = np.clip(flattest, None, 1 / (regularisation * step))
            slopes = loss.slopes(weights @ back, sign)
            weights = (1 - rate * regularisation) * weights - (slopes * (rate / divisor)) @ piece
            weights = projected(weights, radius, loss.kind)
    return weights


def smoothness(loss: Loss, clip: float, regularisation: float, width: int, outputs: int) -> float:
    """Return β as published, for step sizes; rows have `width` entries, the 1 included.

    SVM √((c²/2h + Λ)² + pΛ²), logistic √((c²/4 + Λ)² + pΛ²), softmax
    √((p+1)KΛ² + (Λ + c²)²/2): Frobenius norms of the Hessian, p = `width` − 1.
    """
    c2, reg = clip**2, regularisation
    if loss.kind is LossKind.SOFTMAX:
        return math.sqrt(width * outputs * reg**2 + 0.5 * (reg + c2) ** 2)
    return math.sqrt((c2 * loss.curvature + reg) ** 2 + (width - 1) * reg**2)


def published_move(
    loss: Loss,
    *,
    clip: float,
    regularisation: float,
    radius: float,
    points: int,
    outputs: int,
    group: int = 1,
) -> float:
    """Return the paper's bound for permutation SGD: 2(c + RΛ)/(NΛ) per class, √K for all.

    For softmax 2(√2·c + RΛ)/(NΛ) for the whole model (DP-Helmet, Lemma 2 and Theorem 11; Wu et
    al. 2017, Lemma 8).

    Guarantee:
        Holds for projected SGD in passes over a fixed order, with steps min(1/β, 1/(Λm)) and
        every record in one batch of each pass. Proof, after Wu et al., which gives even less.
        One step from two models δ apart leaves them (1 − ηΛ)δ apart if the batch is the same,
        and at most 2ηL/b more if the record is in it, b being what batch sums are divided by.
        With η = 1/(Λm) a difference made in step m has shrunk by m/M at the end; so each of k
        passes leaves 2L/(ΛbM), and kN/b = M steps leave 2L/(ΛN). (Steps of 1/β, the first
        β/Λ, leave no more.) Projections only shrink. The regulariser's gradient is the same
        for both, so L need not hold RΛ; the published bound keeps it, and so do we.
    """
    per = 1 if loss.kind is LossKind.SOFTMAX else outputs
    gradient = loss.lipschitz(clip, outputs) + math.sqrt(per) * radius * regularisation
    return 2 * group * gradient / (points * regularisation)
