"""The same combinations with differential privacy: sums with noise, under a client-level budget.

PrivTuna hides what clients put in and publishes exact results, which tell about single clients.
Here every client's vector is bounded, each adds its share of integer noise, and what is opened is
a private sum (`urna.tally`): added up by secure aggregation, or under threshold encryption. All
that follows, dense cells and clusters included, is computed from noisy sums.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import (
    Budget,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    Unit,
    parts_of,
)
from urna.systems.combine.federated import Averaging, Clustering
from urna.systems.combine.frame import Floats
from urna.systems.combine.noisy import UNITS, dense_cells, densest, read_clusters
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.strategies import Combined
from urna.systems.combine.sums import SettingsSum, mean_from, together
from urna.tally import (
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

__all__ = ["FIRST_SHARE", "PrivateRun", "private_dbscan", "private_mean"]

_log = logging.getLogger(__name__)

FIRST_SHARE = 0.5
"""Part of the budget, as a share of μ², that finds the dense cells; the rest is for the sums."""


@dataclass(frozen=True, slots=True)
class PrivateRun:
    """A combination, what it cost, and everything that became public on the way."""

    combined: Combined
    privacy: PrivacyStatement
    terms: Terms
    sums: tuple[Floats, ...] = field(repr=False)
    """The noisy sums, in the units of `noise`."""
    noise: tuple[float, ...]
    """Standard deviation of the noise in an entry of each."""
    took_part: int
    lost: dict[int, str]
    entries: tuple[str, ...]
    """Ids in the ledger, where there is one."""


def private_mean(
    clients: Sequence[LocalSearch],
    agreed: Averaging,
    *,
    budget: Budget,
    summation: Summation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> PrivateRun:
    """Return the mean of clients' settings with differential privacy.

    Every client counts once: it puts in the mean of the settings it keeps, as a point of
    the cube around the middle of the axes. How many clients are in the sum is public.

    Guarantee:
        The noisy sum, and so the mean, is (epsilon, delta)-DP under `adjacency` towards
        everybody who learns no more than the summation reveals.

    Args:
        clients: Each client's search.
        agreed: What is averaged.
        budget: What it may cost.
        summation: How vectors are added up; by secure aggregation unless another is named.
        run: Where it is counted and kept.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The terms cannot be.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        LedgerError: The ledger knows of a result of this entry. Nothing was released now.
        RoundAborted: Too many clients dropped out. Nothing was revealed.
    """
    series = _Series(len(clients), budget, summation, run or Run(), options)
    summed = SettingsSum(agreed)
    series.plan([summed], [1.0])
    found, _ = series.release(summed, clients, functools.partial(mean_from, agreed))
    return found


def private_dbscan(
    clients: Sequence[LocalSearch],
    agreed: Clustering,
    *,
    budget: Budget,
    first_share: float = FIRST_SHARE,
    summation: Summation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> PrivateRun:
    """Return the best density cluster of clients' settings with differential privacy.

    Two noisy sums. The first counts the clients with a setting in each cell; cells of enough
    clients that stand out of the noise are dense. In the second it gives, for every
    cluster of dense cells, its share of settings there, their place within the cluster and
    their score. The noise of both is fixed before the first.

    Guarantee:
        Both sums together are (epsilon, delta)-DP for an epsilon of at most the budget's,
        under `adjacency`, towards everybody who learns no more than the summation reveals.

    Args:
        clients: Each client's search.
        agreed: Cells, and what clients keep. `min_points` is held against noisy counts of
            clients, so a cluster may have fewer: what protects them is the noise.
        budget: What both sums together may cost.
        first_share: Part of the budget for the first, as a share of μ².
        summation: How vectors are added up; by secure aggregation unless another is named.
        run: Where both are counted and kept. The ledger is asked for both before the first;
            `keep` is called after each of the two.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The terms cannot be.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        RoundAborted: Too many clients dropped out. Nothing more was revealed.
    """
    if not 0 < first_share < 1:
        raise ParameterError(f"the first sum's share lies in (0, 1), got {first_share}")
    run = (run or Run()).only("a combination of two sums", "ledger", "secrets", "keep")
    series = _Series(len(clients), budget, summation, run, options)
    first = SettingsSum(agreed)
    every = first.after(np.ones(agreed.grid.size, dtype=np.bool_))  # not known yet; priced alike
    series.plan([first, every], [first_share, 1 - first_share])

    def densest_in(counts: Floats, _: int) -> Combined:
        dense = dense_cells(agreed, counts, series.noise[0])
        return densest(agreed, counts, dense)

    alone, counts = series.release(first, clients, densest_in)
    dense = dense_cells(agreed, counts, series.noise[0])

    def best_of(sums: Floats, _: int) -> Combined:
        found = read_clusters(agreed, dense, sums / UNITS, series.noise[1] / UNITS)
        return found or alone.combined

    found, _ = series.release(first.after(dense), clients, best_of)
    return found


class _Series:
    """Some private sums under one budget, counted and released one after the other."""

    def __init__(
        self,
        clients: int,
        budget: Budget,
        summation: Summation | None,
        run: Run,
        options: Options,
    ) -> None:
        self._given = run
        self.terms = Terms.of(clients, budget, **options)
        if self.terms.adjacency.unit is not Unit.CLIENT:
            raise ParameterError("combined searches protect clients; ask for a relation about them")
        self._summation = summation or SecureAggregation()
        self._plans: list[TallyPlan] = []
        self._released: list[Released] = []
        self._sums: list[Floats] = []

    def plan(self, sums: Sequence[SettingsSum], parts: Sequence[float]) -> None:
        """Plan all sums so that together they keep within the budget."""
        for summed, budget in zip(sums, parts_of(self.terms.budget, parts), strict=True):
            self._plans.append(
                plan_tally(
                    self.terms.costing(budget),
                    summed.contribution,
                    removes_excess=self._summation.removes_excess,
                )
            )
        if (ledger := self._given.ledger) is not None:
            ledger.check_relation(self.terms.adjacency)
            ledger.check(*self._events(len(self._plans)), ids=[self._given.entry])

    @property
    def noise(self) -> tuple[float, ...]:
        """Largest standard deviation of each planned sum's noise, in whole steps."""
        return tuple(plan.most_noise_std for plan in self._plans)

    def release(
        self,
        summed: SettingsSum,
        clients: Sequence[LocalSearch],
        read: Callable[[Floats, int], Combined],
    ) -> tuple[PrivateRun, Floats]:
        """Count the next sum, add up, keep and return what it says, and the sum in whole steps.

        Args:
            summed: What each client puts in.
            clients: Each client's search.
            read: Returns what a sum in whole steps, of so many clients, says.
        """
        plan = self._plans[len(self._released)]
        releases = Releases(
            plan,
            summed.label,
            self._summation.describe(plan.terms),
            ledger=self._given.ledger,
            private=self._given.secrets.private,
            id=self._given.entry,
        )
        contributions = {
            client: _contribution(summed, search, plan) for client, search in enumerate(clients)
        }
        runs: list[PrivateRun] = []

        def take(released: Released) -> None:
            self._released.append(released)
            sums = np.asarray(in_units(released.tallied.total, plan), dtype=np.float64)
            self._sums.append(sums)
            runs.append(self._run(read(sums, len(released.tallied.accepted))))
            self._given.kept(runs[0])

        secrets = self._given.secrets
        releases.release(lambda: self._summation.tally(contributions, plan, secrets), take)
        return runs[0], self._sums[-1]

    def _run(self, combined: Combined) -> PrivateRun:
        """Return what is known so far, and what all sums so far cost together."""
        last = self._released[-1]
        plans = self._plans[: len(self._released)]
        statement = together(self.terms, plans, last.privacy, last.privacy.private)
        return PrivateRun(
            combined,
            statement,
            self.terms,
            tuple(self._sums),
            self.noise[: len(self._sums)],
            len(last.tallied.accepted),
            dict(last.tallied.lost),
            tuple(r.entry for r in self._released if r.entry is not None),
        )

    def _events(self, count: int) -> list[Release]:
        if not self._given.secrets.private:
            return [NonPrivateRelease("scripted secrets")]
        return [plan.release or NonPrivateRelease("no noise") for plan in self._plans[:count]]


def _contribution(summed: SettingsSum, search: LocalSearch, plan: TallyPlan) -> IntVector:
    """Return what a client puts in; nothing where its search cannot be summed."""
    try:
        return to_grid(summed.vector(search), plan)
    except (ParameterError, ArithmeticError, ValueError) as error:
        # Data that fail are data like any other, under the full share of noise.
        _log.warning("a client contributes nothing: %s", type(error).__name__)
        return np.zeros(plan.dimension, dtype=np.int64)
