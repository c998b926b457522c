"""The server's side of a round: a noisy sum becomes a step, and a line of the history."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from urna.errors import RoundFailed
from urna.privacy import Repeated, SumRelease, gaussian_epsilon
from urna.privacy.cost import SLIP_PART
from urna.systems.train.checkpoint import Progress
from urna.systems.train.layout import Summary
from urna.systems.train.plan import TrainPlan
from urna.systems.train.result import RoundReport
from urna.tally import Released, Tallied

__all__ = ["after_failure", "after_round", "read_sum"]

_EXACT = 2**28  # grid steps squared up to which the noise that was left is priced anew: a second


def after_round(
    plan: TrainPlan, state: Progress, released: Released, members: Sequence[int], attempts: int
) -> Progress:
    """Return where training stands after a round: weights, optimiser, clip norm, history.

    Args:
        plan: The training's plan.
        state: Where it stood.
        released: The round's sum.
        members: Who was invited to it, by number among all clients.
        attempts: How often it was held.
    """
    settings, tallied = plan.settings, released.tallied
    summary = read_sum(plan, tallied)
    step, slots = settings.optimiser.step(state.clip_norm * summary.update, state.slots)
    accepted = [members[place] for place in sorted(tallied.accepted)]
    spent = _spent(plan, state, tallied, accepted)
    report = RoundReport(
        number=state.done + 1,
        took_part=len(accepted),
        lost=len(tallied.lost),
        attempts=attempts,
        epsilon=_epsilon(plan, spent, released),
        clip_norm=state.clip_norm,
        noise_std=state.clip_norm * summary.update_error,
        noise_ratio=_ratio(plan, tallied),
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
        lost=_by_member(tallied.lost, members),
        faults={**state.faults, **_by_member(tallied.faults, members)},
    )


def after_failure(
    plan: TrainPlan,
    state: Progress,
    failed: RoundFailed,
    members: Sequence[int],
    attempts: int,
    promised: float | None = None,
) -> Progress:
    """Return where training stands after a round that counts and gave nothing.

    Args:
        plan: The training's plan.
        state: Where it stood.
        failed: What happened.
        members: Who was invited to it, by number among all clients.
        attempts: How often it was held.
        promised: Epsilon of all rounds as stated, this one among them; by the plan by default.
    """
    release = plan.tally.release
    spent = _add(plan, state, release, members) if release is not None else None
    last = state.history[-1].epsilon if state.history else 0.0
    stated = _planned(plan, state.done + 1) if promised is None else promised
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
        lost=_by_member(failed.lost, members),
        faults={**state.faults, **_by_member(failed.faults, members)},
    )


def read_sum(plan: TrainPlan, tallied: Tallied) -> Summary:
    """Return what a sum says about the clients that are in it."""
    rate = plan.settings.sampling.rate
    clients = len(tallied.accepted) * (1.0 if rate is None else float(rate))
    return plan.layout.read(tallied.total, clients=clients, variance=tallied.noise_variance)


def _ratio(plan: TrainPlan, tallied: Tallied) -> float:
    planned, left = plan.tally.release, tallied.release
    if planned is None or not isinstance(left, SumRelease):
        return 1.0
    return float(left.variance / planned.variance)


def _spent(
    plan: TrainPlan, state: Progress, tallied: Tallied, accepted: Sequence[int]
) -> npt.NDArray[np.float64] | None:
    left = tallied.release
    if not isinstance(left, SumRelease):
        return None
    planned = plan.tally.release
    # Pricing very wide noise takes long; the planned one, of which there is more, is a bound.
    release = left if planned is None or left.variance < _EXACT else planned
    return _add(plan, state, release, accepted)


def _add(
    plan: TrainPlan, state: Progress, release: SumRelease, members: Sequence[int]
) -> npt.NDArray[np.float64]:
    spent = np.zeros(plan.clients) if state.spent is None else state.spent.copy()
    spent[list(members)] += release.cost().mu ** 2
    return spent


def _epsilon(
    plan: TrainPlan, spent: npt.NDArray[np.float64] | None, released: Released
) -> float | None:
    """Return what rounds really cost so far: of the client that took part most."""
    return _achieved(plan, spent, released.privacy.epsilon)


def _achieved(
    plan: TrainPlan, spent: npt.NDArray[np.float64] | None, stated: float
) -> float | None:
    """Return the smaller of what is stated and what the noise left proves, where it does."""
    settings = plan.settings
    if not math.isfinite(stated):
        return None
    if spent is None or settings.sampling.rate is not None or settings.stop is not None:
        return stated
    return min(_gaussian(plan, spent), stated)


def _planned(plan: TrainPlan, rounds: int) -> float:
    """Return what so many rounds cost at the planned noise."""
    event, settings = plan.tally.event, plan.settings
    if event is None:
        return math.inf
    counted = settings.sampling.counts(
        rounds if settings.stop is None else plan.rounds, plan.clients
    )
    return Repeated(event, counted).cost().at(plan.terms.budget.delta)


def _gaussian(plan: TrainPlan, spent: npt.NDArray[np.float64]) -> float:
    delta = plan.terms.budget.delta * (1 - SLIP_PART)
    return gaussian_epsilon(math.sqrt(float(spent.max())), delta)


def _by_member(said: Mapping[int, str], members: Sequence[int]) -> dict[str, str]:
    return {str(members[place]): why for place, why in said.items()}
