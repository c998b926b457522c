"""How far one record, some records or a whole client can move what a client sends.

All in the L2 norm of the whole vector. Everything here is a closed form; the tests look for
neighbours that pass it, and for some that come close.
"""

import math

from urna.errors import ParameterError
from urna.systems.average.losses import Loss, LossKind

__all__ = [
    "certified_move",
    "class_moments_square",
    "client_model_move",
    "published_move",
    "value_moments_square",
]


def certified_move(
    loss: Loss,
    *,
    clip: float,
    regularisation: float,
    points: int,
    outputs: int,
    group: int = 1,
    gradient_norm: float = 0.0,
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


def client_model_move(loss: Loss, *, radius: float, outputs: int) -> float:
    """Return how far a whole client moves a model whose norm is at most R: 2R, or 2R√K.

    For one model of all classes 2R; where each class has a model of norm at most R, 2R√K.
    """
    return 2 * radius * (1 if loss.kind is LossKind.SOFTMAX else math.sqrt(outputs))


def class_moments_square(weight: float, classes: int, *, lowest: float = -1.0) -> float:
    """Return the squared move of (xxᵀ, w·xyᵀ) when one record is replaced, y centred one-hot.

    Guarantee:
        For rows x, z of norm at most 1 with x·z = c and classes a, b the squared distance is
        ‖x‖⁴ + ‖z‖⁴ − 2c² + w²(q‖x‖² + q‖z‖² − 2ck), with q = 1 − 1/K, k = q if a = b and −1/K
        otherwise. It grows with both norms at fixed c, so it is at most
        h(c) = 2 − 2c² + w²(2q − 2ck), and unit rows of every c in [−1, 1] exist: the maximum
        over c and k is exact. It is at c = −w²k/2, cut to where c may lie. A record that adds
        nothing is a row of norm 0: 1 + w²q, which counts where c cannot be 0.

    Args:
        weight: w, what the second block is multiplied by.
        classes: K.
        lowest: Smallest c of two rows: 0 where features are not negative.

    Example:
        >>> [round(class_moments_square(w, 10), 3) for w in (0.5, 1.0, 2.0, 4.0)]
        [2.475, 4.205, 14.4, 57.6]
    """
    q, w2 = 1 - 1 / classes, weight**2
    return max(1 + w2 * q, *(_highest(w2, 2 * q, k, lowest) for k in (q, -1 / classes)))


def value_moments_square(weight: float, *, lowest: float = -1.0) -> float:
    """Return the squared move of (xxᵀ, w·xy) when one record is replaced, |y| at most 1.

    Guarantee:
        As for classes, with ‖xy − zy'‖² = y²‖x‖² + y'²‖z‖² − 2c·yy', which is convex in y and
        in y' and so largest at ±1: h(c) = 2 − 2c² + w²(2 − 2ck) with k = ±1.

    Example:
        >>> value_moments_square(1.0)
        4.5
    """
    w2 = weight**2
    return max(1 + w2, *(_highest(w2, 2.0, k, lowest) for k in (1.0, -1.0)))


def _highest(w2: float, square: float, k: float, lowest: float) -> float:
    """Return the maximum of 2 − 2c² + w²(square − 2ck) over c in [lowest, 1]."""
    if not -1 <= lowest <= 1:
        raise ParameterError(f"an inner product of unit rows lies in -1..1, got {lowest}")
    c = min(1.0, max(lowest, -w2 * k / 2))
    return 2 - 2 * c * c + w2 * (square - 2 * c * k)
