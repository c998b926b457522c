"""The paper's trainer: projected SGD in passes over one shuffle, with its step sizes.

The sensitivity bound (`published_move`) needs that every record is in exactly one batch of each
pass, that batch sums are divided by one constant, and that the order does not depend on data. So
batches are as even as they can be, sums are divided by records per batch (a fraction where they
are not even), and the shuffle is drawn from a public seed and the number of rows alone, which is
that of records or, where they have ids, a fixed number for each (`Schema.prepare`).
"""

import math

import numpy as np
import numpy.typing as npt

from urna.systems.average.batch import PaddedRows, to_numpy
from urna.systems.average.certified import Trained
from urna.systems.average.losses import Array, Loss, LossKind, Namespace

__all__ = ["projected", "train_by_sgd"]

Places = npt.NDArray[np.intp]


def train_by_sgd(
    batch: PaddedRows,
    loss: Loss,
    regularisation: float,
    *,
    radius: float,
    epochs: int,
    batch_size: int,
    seed: int,
) -> Trained:
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
    xp, outputs = batch.xp, batch.outputs
    count, width = batch.rows.shape[1:]
    order = np.random.default_rng(seed).permutation(count)
    pieces = np.array_split(order, max(1, math.ceil(count / batch_size)))
    rows = [_taken(batch.rows, piece, xp) for piece in pieces]
    turned = [xp.swapaxes(piece, 1, 2) for piece in rows]
    signs = [_taken(batch.signs, piece, xp, axis=2) for piece in pieces]
    # Sums of batches over records per batch: a larger batch is a little steeper.
    divisor = batch.records / len(pieces)
    steeper = to_numpy(max(map(len, pieces)) / divisor)
    flattest = xp.ones_like(divisor)  # 1/β of each client, by its own number of records
    for slot, each in enumerate(steeper.ravel().tolist()):
        clip = batch.clip * math.sqrt(max(1.0, each))
        flattest[slot] = 1 / loss.smoothness(clip, regularisation, width, outputs)
    weights = 0 * (signs[0] @ rows[0])
    step = 0
    for _ in range(epochs):
        for piece, back, sign in zip(rows, turned, signs, strict=True):
            step += 1
            rate = xp.clip(flattest, None, 1 / (regularisation * step))
            slopes = loss.slopes(weights @ back, sign, xp)
            weights = (1 - rate * regularisation) * weights - (slopes * (rate / divisor)) @ piece
            weights = projected(weights, radius, loss, xp)
    return Trained(weights, xp.full_like(divisor, math.inf), step)


def projected(weights: Array, radius: float, loss: Loss, xp: Namespace) -> Array:
    """Return models scaled down into the ball of radius R; the nearest point of it to each."""
    squares = xp.einsum("uij,uij->ui", weights, weights)[:, :, None]
    if loss.kind is LossKind.SOFTMAX:
        squares = xp.sum(squares, axis=1, keepdims=True)
    norms = xp.sqrt(squares)
    return weights * xp.where(norms > radius, radius / xp.where(norms > radius, norms, 1.0), 1.0)


def _taken(array: Array, places: Places, xp: Namespace, axis: int = 1) -> Array:
    """Return some rows of every client, in memory of their own."""
    if xp is np:
        return np.ascontiguousarray(np.take(array, places, axis=axis))
    return xp.index_select(array, axis, xp.as_tensor(places, device=array.device))
