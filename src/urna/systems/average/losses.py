"""The losses that clients minimise: their slopes, their constants, and the bounds these give.

A model of K outputs is a matrix; scores of all clients' rows have shape (clients, K, rows), so that
what is done for every row runs along memory. How far records or a whole client move a model is in
the L2 norm of the whole model, in closed form.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""Of either precision."""


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
    """A convex loss of scores, with what is proven of it for rows of norm at most c.

    Args:
        kind: Which.
        smoothing: h of the Huber hinge: how far around the margin the hinge is rounded.
    """

    kind: LossKind
    smoothing: float = 0.1

    def slopes(self, scores: Array, signs: Array) -> Array:
        """Return the derivative of each row's loss by each of its scores.

        Args:
            scores: Shape (clients, K, rows).
            signs: 1 at each row's class and −1 elsewhere, of the same shape.
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


def certified_move(
    loss: Loss,
    *,
    clip: float,
    regularisation: float,
    points: int,
    outputs: int,
    group: int,
    gradient_norm: float,
) -> float:
    """Return how far `group` records move a model that is nearly the exact minimiser.

    Guarantee:
        Let J = Λ/2·‖f‖² + mean loss over N records, each loss convex with gradients of norm at
        most L. Exact minimisers of two neighbours are at most Υ·2L/(NΛ) apart; a model at
        which the gradient of J has norm g is at most g/Λ from the minimiser. Together
        Υ·2L/(NΛ) + 2g/Λ.

        Proof. Λ-strong convexity gives Λ·‖f − f'‖ ≤ ‖∇J(f) − ∇J(f')‖. At the minimiser f* of
        J and f' of the neighbour's J', ∇J(f') = ∇J(f') − ∇J'(f') is the difference of 2Υ
        gradients of single losses over N (the regulariser's cancels), so at most 2ΥL/N long;
        and ∇J(f*) = 0. The same inequality with f' the model returned gives g/Λ.

    Args:
        loss: The loss.
        clip: c, largest norm of a row.
        regularisation: Λ.
        points: N, fewest records of a client.
        outputs: K.
        group: Υ, records that may be replaced together.
        gradient_norm: Largest g that is let through.
    """
    apart = 2 * group * loss.lipschitz(clip, outputs) / (points * regularisation)
    return apart + 2 * gradient_norm / regularisation


def client_model_move(loss: Loss, *, radius: float, outputs: int) -> float:
    """Return how far a whole client moves a model whose norm is at most R.

    For one model of all classes 2R; where each class has a model of norm at most R, 2R√K.
    """
    return 2 * radius * (1 if loss.kind is LossKind.SOFTMAX else math.sqrt(outputs))
