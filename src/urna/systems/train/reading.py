"""The server's side of a round: a noisy sum becomes a step, and a line of the history."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from urna.errors import RoundFailed
from urna.privacy import Release, SumRelease, gaussian_epsilon
from urna.privacy.cost import SLIP_PART
from urna.systems.train.checkpoint import Progress
from urna.systems.train.layout import Summary
from urna.systems.train.plan import TrainPlan
from urna.systems.train.result import RoundReport
from urna.tally import Released, Tallied

__all__ = ["after_failure", "after_round", "by_member", "read_sum"]

_EXACT = 2**28  # grid steps squared up to which the noise that was left is priced anew: a second

Squares = npt.NDArray[np.float64]


def after_round(
    plan: TrainPlan, state: Progress, released: Released, members: Sequence[int], attempts: int
) -> Progress:
    """Return where training stands after a round: weights, optimiser, clip norm, history.

    Args:
        plan: The training's plan.
        state: Where it stood.
        released: The round's sum.
        members: Who was invited to it, by number among all clients.
        attempts: How often it was tried.
    """
    settings, tallied = plan.settings, released.tallied
    summary = read_sum(plan, tallied)
    step, slots = settings.optimiser.step(state.clip_norm * summary.update, state.slots)
    accepted = [members[place] for place in sorted(tallied.accepted)]
    planned, left = plan.tally.release, tallied.release
    ratio = 1.0
    if isinstance(left, SumRelease) and planned is not None:
        ratio = float(left.variance / planned.variance)
        # Pricing very wide noise takes long; the planned one, of which there is more, is a bound.
        left = left if left.variance < _EXACT else planned
    spent = _spent(plan, state, left, accepted)
    report = RoundReport(
        number=state.done + 1,
        took_part=len(accepted),
        lost=len(tallied.lost),
        attempts=attempts,
        epsilon=_achieved(plan, spent, released.privacy.epsilon),
        clip_norm=state.clip_norm,
        noise_std=state.clip_norm * summary.update_error,
        noise_ratio=ratio,
        measured=summary.measured,
        errors=summary.errors,
    )
    weights = (state.weights + step).astype(np.float32)
    tail, tailed = state.tail, state.tailed
    if state.done + 1 > plan.rounds * (1 - settings.tail):
        tail = weights.astype(np.float64) + (0.0 if tail is None else tail)
        tailed += 1
    return state.after(
        weights=weights,
        slots=slots,
        tail=tail,
        tailed=tailed,
        clip_norm=settings.clipping.after(state.clip_norm, summary.measured),
        done=state.done + 1,
        history=(*state.history, report),
        spent=spent,
        lost=by_member(tallied.lost, members),
        faults={**state.faults, **by_member(tallied.faults, members)},
    )


def after_failure(
    plan: TrainPlan,
    state: Progress,
    failed: RoundFailed,
    members: Sequence[int],
    attempts: int,
    stated: float,
) -> Progress:
    """Return where training stands after a round that counts and gave nothing.

    Args:
        plan: The training's plan.
        state: Where it stood.
        failed: What happened.
        members: Who was invited to it, by number among all clients.
        attempts: How often it was tried.
        stated: Epsilon of all rounds as stated, this one among them.
    """
    spent = _spent(plan, state, plan.tally.release, members)
    last = state.history[-1].epsilon if state.history else 0.0
    report = RoundReport(
        number=state.done + 1,
        took_part=0,
        lost=len(failed.lost),
        attempts=attempts,
        epsilon=None if last is None or spent is None else _achieved(plan, spent, stated),
        clip_norm=state.clip_norm,
        noise_std=0.0,
        noise_ratio=1.0,
        failed=failed.reason,
    )
    return state.after(
        done=state.done + 1,
        history=(*state.history, report),
        spent=spent,
        lost=by_member(failed.lost, members),
        faults={**state.faults, **by_member(failed.faults, members)},
    )


def read_sum(plan: TrainPlan, tallied: Tallied) -> Summary:
    """Decode a sum of the clients that are in it."""
    expected = plan.expected_of(len(tallied.accepted))
    return plan.layout.read(tallied.total, clients=expected, variance=tallied.noise_variance)


def by_member(found: Mapping[int, str], members: Sequence[int]) -> dict[str, str]:
    """Return what was found of a round's clients by their number among all clients."""
    return {str(members[place]): why for place, why in found.items()}


def _spent(
    plan: TrainPlan, state: Progress, release: Release | None, members: Sequence[int]
) -> Squares | None:
    """Return squares of μ of each client's rounds so far, these members' latest one included."""
    if not isinstance(release, SumRelease):
        return None
    spent = np.zeros(plan.clients) if state.spent is None else state.spent.copy()
    spent[list(members)] += release.cost().mu ** 2
    return spent


def _achieved(plan: TrainPlan, spent: Squares | None, stated: float) -> float | None:
    """Return the smaller of what is stated and what the noise left proves, where it does.

    Of the client that took part most.
    """
    settings = plan.settings
    if not math.isfinite(stated):
        return None
    if spent is None or settings.sampling.rate is not None or settings.stop is not None:
        return stated
    delta = plan.terms.budget.delta * (1 - SLIP_PART)
    return min(gaussian_epsilon(math.sqrt(float(spent.max())), delta), stated)
