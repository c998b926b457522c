"""Combining nodes' own searches inside a Flower app, with differential privacy or encrypted.

Every node has searched alone. With noise, what is combined are private sums like any other,
under each node's policy and ledger (`[grant.settings]`). Under encryption what is opened is exact,
which no budget covers: `urna.flower.encrypted` has the nodes' side.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid

from urna.errors import Refused
from urna.flower.gathering import Federation
from urna.flower.participant import Call
from urna.flower.subjects import register
from urna.flower.sums import Sums
from urna.noise import IntVector
from urna.privacy import Budget, Unit
from urna.systems.combine import (
    Averaging,
    Combination,
    Frame,
    Guarantee,
    LocalSearch,
    SettingsSum,
    Strategy,
    averaged_on,
    strategy_named,
)
from urna.systems.combine.noisy import KIND
from urna.tally import Options, Released, Run

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
        agreed: Averaging | None = None,
    ) -> None:
        self._search, self._agreed = search, agreed

    def check(self, call: Call) -> None:
        """Refuse a sum that this node was not set up for.

        Raises:
            Refused: Other axes or rules are announced, or single records are to be protected.
        """
        summed = call.subject(SettingsSum, "sum of settings")
        if self._agreed is not None and summed.agreed != self._agreed:
            raise Refused("what is to be combined is not what this node was set up for")
        if call.announcement.terms.adjacency.unit is not Unit.CLIENT:
            raise Refused("combined searches protect nodes, not single records")

    def contribute(self, call: Call) -> IntVector:
        """Return the node's vector."""
        return np.asarray(
            call.subject(SettingsSum, "sum of settings").vector(self._search(call.context))
        )


def combine_settings(
    grid: Grid,
    axes: Frame,
    strategy: Strategy | str = "mean",
    *,
    budget: Budget,
    federation: Federation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> Combination:
    """Combine the connected nodes' own searches with differential privacy.

    One private sum; each node holds it against its policy and counts it in its own ledger.

    Guarantee:
        What is opened is (epsilon, delta)-DP; see `urna.flower.Sums`.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        axes: The hyperparameters and their ranges.
        strategy: `mean`, `top-mean`, or one of these as a value.
        budget: What the sum may cost each node.
        federation: Who is invited, who signs, how long to wait.
        run: Where it is counted and kept; the ledger is the server's own.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The strategy is not there with noise, or the terms cannot be.
        BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
        RoundAborted: Too few nodes took part or stayed. Nothing was revealed.
        RoundUnfinished: Too few stayed to open the sum. It counts as released.
        InvalidSum: What was opened is no sum of valid vectors. It counts as released.
    """
    run = (run or Run()).only("a combination over Flower", "ledger", "keep", "progress")
    chosen = strategy_named(strategy) if isinstance(strategy, str) else strategy
    subject = SettingsSum(averaged_on(axes, chosen))
    sums = Sums(
        grid,
        subject,
        budget=budget,
        federation=federation,
        run=replace(run, keep=None),
        **options,
    )

    def read(released: Released) -> Combination:
        plan = sums.announcement.plan
        return subject.combination(released, plan, Guarantee.DP, sums.lost)

    return sums.result(read, run.kept)
