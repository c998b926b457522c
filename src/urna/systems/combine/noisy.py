"""The mean with differential privacy: one sum with noise, under a client-level budget.

PrivTuna hides what clients put in and publishes exact results, which tell about single clients.
Here every client's vector is bounded, each adds its share of integer noise, and what is opened is
a private sum (`urna.tally`): added up by secure aggregation, or under threshold encryption.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from urna.errors import ParameterError
from urna.files import today
from urna.noise import IntVector
from urna.privacy import Budget, Unit
from urna.systems.combine.frame import Integers
from urna.systems.combine.result import Combination, Guarantee
from urna.systems.combine.searches import LocalSearch, keep_best
from urna.systems.combine.strategies import Averaging
from urna.tally import (
    BoundedVector,
    EncryptedSummation,
    Options,
    Released,
    Releases,
    Run,
    SecureAggregation,
    Summation,
    TallyPlan,
    Terms,
    in_units,
    plan_tally,
    to_grid,
)

KIND = "settings"
"""What announcements and policies call such sums."""

UNITS = 256
"""Whole steps of an axis."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SettingsSum:
    """The private sum that a mean is read from, as public facts that clients and server share.

    Every client counts once: it puts in the mean of the settings it keeps, as a point of the cube
    around the middle of the axes. How many clients are in the sum is public.
    """

    agreed: Averaging

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        return KIND

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        return "mean of settings"

    @property
    def contribution(self) -> BoundedVector:
        """What a valid vector is."""
        axes = len(self.agreed.frame.rulers)
        return BoundedVector(axes, norm_squared=axes * (UNITS // 2) ** 2, most=UNITS // 2)

    def vector(self, search: LocalSearch) -> Integers:
        """Return what a client puts in, in whole steps; zeros where no run ended in a score."""
        kept = keep_best(search, self.agreed.share)
        if not len(kept):
            return np.zeros(len(self.agreed.frame.rulers), dtype=np.int64)
        mean = kept.weights @ self.agreed.frame.units(kept.settings) / kept.weights.sum()
        return np.asarray(np.rint((mean - 0.5) * UNITS), dtype=np.int64)

    def plan(self, terms: Terms, rounds: int = 1) -> TallyPlan:
        """Return the plan of the sum. There is one round."""
        if rounds != 1:
            raise ParameterError("a sum of settings has one round")
        return plan_tally(terms, self.contribution)

    def combination(
        self, released: Released, plan: TallyPlan, guarantee: Guarantee, lost: Mapping[int, str]
    ) -> Combination:
        """Return what came of the sum, but for those who are lost: the mean, and what it cost."""
        tallied = released.tallied
        sums = np.asarray(in_units(tallied.total, plan), dtype=np.float64)
        point = np.clip(sums / (UNITS * len(tallied.accepted)) + 0.5, 0.0, 1.0)
        return Combination(
            setting=self.agreed.frame.setting(point),
            strategy=self.agreed.name,
            guarantee=guarantee,
            frame=self.agreed.frame,
            privacy=released.privacy,
            clients=len(tallied.accepted) + len(lost),
            took_part=len(tallied.accepted),
            opened=(tuple(sums.tolist()),),
            noise=(plan.most_noise_std,),
            terms=plan.terms,
            lost=dict(lost),
            entries=() if released.entry is None else (released.entry,),
            when=today() if released.privacy.private else None,
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"of": "mean", "agreed": self.agreed.as_mapping(), "dense": None}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "SettingsSum":
        """Read what `as_mapping` wrote."""
        if (mapping["of"], mapping["dense"]) != ("mean", None):
            raise ParameterError("a sum of settings is of a mean")
        return cls(Averaging.from_mapping(mapping["agreed"]))

    @staticmethod
    def size(mapping: Mapping[str, Any]) -> int:
        """Return how many entries the vector has, without making anything large."""
        return SettingsSum.read(mapping).contribution.dimension


def noisy_mean(
    clients: Sequence[LocalSearch],
    agreed: Averaging,
    *,
    budget: Budget,
    guarantee: Guarantee = Guarantee.DP,
    summation: Summation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> Combination:
    """Return the mean of clients' settings with differential privacy.

    Guarantee:
        The noisy sum, and so the mean, is (epsilon, delta)-DP under `adjacency` towards
        everybody who learns no more than the summation reveals.

    Args:
        clients: Each client's search.
        agreed: What is averaged.
        budget: What it may cost.
        guarantee: How vectors are added up, unless a `summation` is named: by masks, or under
            threshold encryption.
        summation: How else.
        run: Where it is counted and kept.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The terms cannot be.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        LedgerError: The ledger knows of a result of this entry. Nothing was released now.
        RoundAborted: Too many clients dropped out. Nothing was revealed.
    """
    terms = Terms.of(len(clients), budget, **options)
    if terms.adjacency.unit is not Unit.CLIENT:
        raise ParameterError("combined searches protect clients; ask for a relation about them")
    usual = EncryptedSummation() if guarantee is Guarantee.BOTH else SecureAggregation()
    summation, run, summed = summation or usual, run or Run(), SettingsSum(agreed)
    plan = plan_tally(terms, summed.contribution, removes_excess=summation.removes_excess)
    releases = Releases(
        plan,
        summed.label,
        summation.describe(terms),
        ledger=run.ledger,
        private=run.secrets.private,
        id=run.entry,
    )
    parts = {client: _contribution(summed, each, plan) for client, each in enumerate(clients)}
    results: list[Combination] = []

    def take(released: Released) -> None:
        results.append(summed.combination(released, plan, guarantee, released.tallied.lost))
        run.kept(results[0])

    releases.release(lambda: summation.tally(parts, plan, run.secrets), take)
    return results[0]


def _contribution(summed: SettingsSum, search: LocalSearch, plan: TallyPlan) -> IntVector:
    """Return what a client puts in; nothing where its search cannot be summed."""
    try:
        return to_grid(summed.vector(search), plan)
    except (ParameterError, ArithmeticError, ValueError) as error:
        # Data that fail are data like any other, under the full share of noise.
        _log.warning("a client contributes nothing: %s", type(error).__name__)
        return np.zeros(plan.dimension, dtype=np.int64)
