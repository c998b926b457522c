"""Compose releases into one epsilon, by every bound that is proven, and take the least."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from urna.privacy.events import Release
from urna.privacy.loss import grain
from urna.privacy.rdp import ORDERS, epsilon_from_rdp

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["Spent", "compose"]

PLD = "PLD (dp-accounting, pessimistic)"
RDP = "RDP"

_DELTA_FOR_DRAWS = 1e-6  # the part of delta set aside for errors of the sampler
_LARGEST_MU = 50.0
_DELTA_SPLITS = (0.01, 0.1, 0.5, 0.9, 0.99)  # parts of delta tried for losses beside RDP


@dataclass(frozen=True, slots=True)
class Spent:
    """How much privacy a sequence of releases has cost."""

    epsilon: float
    accountant: str


def compose(releases: Sequence[Release], delta: float) -> Spent:
    """Return the least proven epsilon of all releases together at this delta.

    Three bounds are tried: all by their privacy loss distributions; all by RDP; and, where
    some have only one of the two, losses at a part of delta plus RDP at the rest (basic
    composition). All of them hold, so the least holds.

    Guarantee:
        Together the releases are (epsilon, delta)-DP under the releases' own neighbouring
        relation, also when what is computed later depends on what was released earlier. The
        sampler's total variation V from the priced noise costs (1 + e^ε)·V of delta; where V
        is not zero a millionth of delta is set aside for it, and where that is not enough
        epsilon is infinite.

    Assumes:
        How many releases there are and how much noise each has does not depend on the
        results of earlier ones. Where it does, only the RDP bound is proven (Feldman & Zrnic
        2021).

    Example:
        >>> compose([], 1e-5)
        Spent(epsilon=0.0, accountant='nothing released')
    """
    if not releases:
        return Spent(0.0, "nothing released")
    mu = math.sqrt(sum(release.mu**2 for release in releases))
    interval = grain(mu)
    draw_error = sum(release.draw_error for release in releases)
    usable = delta * (1 - _DELTA_FOR_DRAWS) if draw_error > 0 else delta
    bounds = []
    # Beyond all reason losses no longer fit into memory; RDP still has a bound, or nothing.
    losses = [release.loss(interval) if mu < _LARGEST_MU else None for release in releases]
    curves = [_curve(release) for release in releases]
    if all(loss is not None for loss in losses):
        bounds.append(Spent(_by_loss([loss for loss in losses if loss], usable), PLD))
    if all(curve is not None for curve in curves):
        bounds.append(Spent(_by_rdp([curve for curve in curves if curve], usable), RDP))
    with_loss = [loss for loss in losses if loss]
    without = [curve for loss, curve in zip(losses, curves, strict=True) if not loss]
    if with_loss and without and all(curve is not None for curve in without):
        rest = [curve for curve in without if curve]
        bounds += [
            Spent(
                _by_loss(with_loss, part * usable) + _by_rdp(rest, (1 - part) * usable),
                f"{PLD} + {RDP}",
            )
            for part in _DELTA_SPLITS
        ]
    known = (bound for bound in bounds if not math.isnan(bound.epsilon))
    best = min(known, key=lambda spent: spent.epsilon, default=Spent(math.inf, "no bound known"))
    if best.epsilon < math.inf and draw_error > 0:
        log_cost = math.log(draw_error) + float(np.logaddexp(0.0, best.epsilon))
        if log_cost > math.log(_DELTA_FOR_DRAWS * delta):
            return Spent(math.inf, "no bound known: delta is too small for the draws' precision")
    return best


def _curve(release: Release) -> dict[int, float] | None:
    curve = {order: release.rdp(order) for order in ORDERS}
    known = {order: spent for order, spent in curve.items() if spent is not None}
    return known if len(known) == len(curve) else None


def _by_loss(losses: "Sequence[PrivacyLossDistribution]", delta: float) -> float:
    composed = functools.reduce(lambda first, second: first.compose(second), losses)
    return max(float(composed.get_epsilon_for_delta(delta)), 0.0)


def _by_rdp(curves: Sequence[dict[int, float]], delta: float) -> float:
    return epsilon_from_rdp({order: sum(c[order] for c in curves) for order in ORDERS}, delta)
