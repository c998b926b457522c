"""Combining nodes' own searches inside a Flower app, with differential privacy or encrypted.

Every node has searched alone. With noise, what is combined are private sums like any other,
under each node's policy and ledger (`[grant.settings]`). Under encryption what is opened is exact,
which no budget covers: `urna.flower.encrypted` has the nodes' side.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid

from urna.errors import Refused
from urna.files import today
from urna.flower.contributor import Call
from urna.flower.federation import Federation
from urna.flower.subjects import register
from urna.flower.sums import Sums
from urna.noise import IntVector
from urna.privacy import Budget, Unit, parts_of
from urna.systems.combine import (
    Averaging,
    Clustering,
    Combination,
    Combined,
    Frame,
    Guarantee,
    LocalSearch,
    Strategy,
    agreed_on,
    strategy_named,
)
from urna.systems.combine.noisy import UNITS, dense_cells, densest, read_clusters
from urna.systems.combine.private import FIRST_SHARE
from urna.systems.combine.result import name_of
from urna.systems.combine.sums import KIND, SettingsSum, mean_from, together
from urna.tally import Options, Released, Run, TallyPlan, in_units

__all__ = ["SettingsContributor", "combine_settings"]

register(KIND, SettingsSum.read, SettingsSum.size)


class SettingsContributor:
    """Puts a node's own search into private sums: the contributor to combinations.

    Args:
        search: Returns the node's search; called with Flower's context, once per sum.
        agreed: The one thing this node helps to combine; whatever its policy grants by default.
    """

    kind = KIND

    def __init__(
        self,
        search: Callable[[Context], LocalSearch],
        agreed: Averaging | Clustering | None = None,
    ) -> None:
        self._search, self._agreed = search, agreed

    def check(self, call: Call) -> None:
        """Refuse a sum that this node was not set up for.

        Raises:
            Refused: Other axes or rules are announced, or single records are to be protected.
        """
        summed = _sum(call)
        if self._agreed is not None and summed.agreed != self._agreed:
            raise Refused("what is to be combined is not what this node was set up for")
        if call.announcement.terms.adjacency.unit is not Unit.CLIENT:
            raise Refused("combined searches protect nodes, not single records")

    def contribute(self, call: Call) -> IntVector:
        """Return the node's vector."""
        return np.asarray(_sum(call).vector(self._search(call.context)))


def combine_settings(
    grid: Grid,
    axes: Frame,
    strategy: Strategy | str = "dbscan",
    *,
    budget: Budget,
    federation: Federation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> Combination:
    """Combine the connected nodes' own searches with differential privacy.

    One private sum for a mean, two for density clusters; each is announced, and each node
    holds it against its policy and counts it in its own ledger.

    Guarantee:
        What is opened is (epsilon, delta)-DP, all sums together; see `urna.flower.Sums`.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        axes: The hyperparameters and their ranges.
        strategy: `mean`, `top-mean`, `dbscan`, or one of these as a value.
        budget: What all sums together may cost each node.
        federation: Who is invited, who signs, how long to wait.
        run: Where it is counted and kept. The server's own ledger is asked for all sums before
            the first; `keep` is called as soon as a sum is open.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The strategy is not made of sums, or the terms cannot be.
        BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
        RoundAborted: Too few nodes took part or stayed. Nothing more was revealed.
        RoundUnfinished: Too few stayed to open a sum. It counts as released.
        InvalidSum: What was opened is no sum of valid vectors. It counts as released.
    """
    run = (run or Run()).only("a combination over Flower", "ledger", "keep", "progress")
    chosen = strategy_named(strategy) if isinstance(strategy, str) else strategy
    agreed = agreed_on(axes, chosen)
    several = isinstance(agreed, Clustering)
    budgets = parts_of(budget, [FIRST_SHARE, 1 - FIRST_SHARE] if several else [1.0])

    def sums(subject: SettingsSum, part: Budget) -> Sums:
        return Sums(
            grid,
            subject,
            budget=part,
            federation=federation,
            run=replace(run, keep=None),
            **options,
        )

    series = _Released(agreed, budget)
    first = SettingsSum(agreed)
    held = sums(first, budgets[0])
    announced = held.gather()
    if run.ledger is not None and isinstance(agreed, Clustering):
        every = first.after(np.ones(agreed.grid.size, dtype=np.bool_))
        second = every.plan(announced.terms.costing(budgets[1]))
        run.ledger.check(*(p.release for p in (announced.plan, second) if p.release is not None))
    total, noise = series.take(held, held.round())
    if isinstance(agreed, Averaging):
        found = mean_from(agreed, total, series.count)
    else:
        dense = dense_cells(agreed, total, noise)
        fallback = densest(agreed, total, dense)
        run.kept(series.result(fallback))
        held = sums(first.after(dense), budgets[1])
        more, noise = series.take(held, held.round())
        found = read_clusters(agreed, dense, more / UNITS, noise / UNITS) or fallback
    result = series.result(found)
    run.kept(result)
    return result


class _Released:
    """The sums that are open so far, and what is said of them together."""

    def __init__(self, agreed: Averaging | Clustering, budget: Budget) -> None:
        self._agreed, self._budget = agreed, budget
        self._plans: list[TallyPlan] = []
        self._released: list[Released] = []
        self._totals: list[tuple[float, ...]] = []
        self._lost: Mapping[int, str] = {}
        self._invited = 0

    @property
    def count(self) -> int:
        """How many nodes are in the last sum."""
        return len(self._released[-1].tallied.accepted)

    def take(self, sums: Sums, released: Released) -> tuple[Any, float]:
        """Note a sum; return it in whole steps, and the deviation of its noise."""
        plan = sums.announcement.plan
        self._plans.append(plan)
        self._released.append(released)
        total = np.asarray(in_units(released.tallied.total, plan), dtype=np.float64)
        self._totals.append(tuple(total.tolist()))
        self._lost = dict(sums.lost)
        self._invited = self.count + len(self._lost)
        return total, plan.most_noise_std

    def result(self, combined: Combined) -> Combination:
        """Return what is known so far, and what all sums so far cost together."""
        last = self._released[-1]
        terms = self._plans[-1].terms.costing(self._budget)
        private = all(released.privacy.private for released in self._released)
        return Combination(
            setting=combined.setting,
            strategy=name_of(self._agreed),
            guarantee=Guarantee.DP,
            frame=self._agreed.frame,
            privacy=together(terms, self._plans, last.privacy, private),
            clients=self._invited,
            took_part=self.count,
            clusters=combined.clusters,
            cell=self._agreed.cell if isinstance(self._agreed, Clustering) else None,
            opened=tuple(self._totals),
            noise=tuple(plan.most_noise_std for plan in self._plans),
            terms=terms,
            lost=self._lost,
            entries=tuple(r.entry for r in self._released if r.entry is not None),
            when=today() if private else None,
        )


def _sum(call: Call) -> SettingsSum:
    subject = call.announcement.subject
    if not isinstance(subject, SettingsSum):
        raise Refused("this is no sum of settings")
    return subject
