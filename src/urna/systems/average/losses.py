"""The losses that clients minimise: their slopes, and the constants that bounds rest on.

Written for numpy and torch alike: arrays are handed in with the namespace they belong to. A
model of K outputs is a matrix; scores of all clients' rows have shape (clients, K, rows), so that
what is done for every row runs along memory.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Loss", "LossKind"]

Array = Any
"""A numpy array, or a torch tensor on any device."""

Namespace = Any
"""The module numpy or the module torch."""


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

    def slopes(self, scores: Array, signs: Array, xp: Namespace) -> Array:
        """Return the derivative of each row's loss by each of its scores.

        Args:
            scores: Shape (clients, K, rows).
            signs: 1 at each row's class and −1 elsewhere, of the same shape.
            xp: numpy or torch.
        """
        if self.kind is LossKind.SOFTMAX:
            high = xp.amax(scores, axis=1, keepdims=True)
            odds = xp.exp(scores - high)
            return odds / xp.sum(odds, axis=1, keepdims=True) - (signs + 1) / 2
        margins = signs * scores
        if self.kind is LossKind.SVM:
            h = self.smoothing
            return -signs * xp.clip((1 + h - margins) / (2 * h), 0.0, 1.0)
        # 1/(1 + e^m) without overflow.
        small = xp.exp(-xp.abs(margins))
        return -signs * xp.where(margins > 0, small / (1 + small), 1 / (1 + small))

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

    def smoothness(self, clip: float, regularisation: float, width: int, outputs: int) -> float:
        """Return β as published, for step sizes; rows have `width` entries, the 1 included.

        SVM √((c²/2h + Λ)² + pΛ²), logistic √((c²/4 + Λ)² + pΛ²), softmax
        √((p+1)KΛ² + (Λ + c²)²/2): Frobenius norms of the Hessian, p = `width` − 1.
        """
        c2, reg = clip**2, regularisation
        if self.kind is LossKind.SOFTMAX:
            return math.sqrt(width * outputs * reg**2 + 0.5 * (reg + c2) ** 2)
        return math.sqrt((c2 * self.curvature + reg) ** 2 + (width - 1) * reg**2)
