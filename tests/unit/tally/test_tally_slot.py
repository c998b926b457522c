"""Every way to release a result keeps to one contract with its ledger."""

from collections.abc import Callable

import numpy as np

from urna.privacy import Budget, Ledger, SelectionRelease
from urna.randomness import OsSecrets
from urna.systems.vote import Ballots, BallotShape
from urna.tally import (
    ClearSummation,
    Mean,
    Releases,
    Selected,
    SelectionPlan,
    Series,
    Tallied,
    Terms,
    open_selection,
    plan_tally,
    to_grid,
)
from urna.testing import ReleaseContract

ONE = Budget(1.0, 1e-5)
TERMS = Terms.of(20, ONE)
SUM = plan_tally(TERMS, Ballots(BallotShape.top_k(2, 12)), removes_excess=False)
CHOICE = SelectionPlan(TERMS, SelectionRelease(0.9, 3, 5), 2, (0,) * 5, tuple(range(5)))


class TestSum(ReleaseContract):
    """A single sum."""

    cap = Budget(1.01, 1e-5)

    def release(self, ledger: Ledger, entry: str, reveal: Callable[[], None]) -> None:
        def add_up() -> Tallied:
            reveal()
            ballots = dict.fromkeys(range(20), to_grid(np.array([1, 1] + [0] * 10), SUM))
            return ClearSummation().tally(ballots, SUM, OsSecrets())

        Releases(SUM, "a test", "Everybody", ledger=ledger, id=entry).release(add_up)


class TestSelection(ReleaseContract):
    """A winner alone."""

    cap = Budget(1.0, 1e-5)

    def release(self, ledger: Ledger, entry: str, reveal: Callable[[], None]) -> None:
        def select(started: Callable[[], None]) -> Selected:
            reveal()
            started()
            return Selected(1, None, frozenset(range(20)), {})

        open_selection(CHOICE, select, label="a", described="b", ledger=ledger, id=entry)


class TestSeries(ReleaseContract):
    """The first round of a series."""

    cap = Budget(0.8, 1e-5)

    def release(self, ledger: Ledger, entry: str, reveal: Callable[[], None]) -> None:
        class Watched(ClearSummation):
            def tally(self, *given: object) -> Tallied:  # type: ignore[override]
                reveal()
                return super().tally(*given)  # type: ignore[arg-type]

        series = Series.of(
            Mean(0.0, 1.0), 20, ONE, rounds=2, summation=Watched(), ledger=ledger, entry=entry
        )
        series.hold(dict.fromkeys(range(20), 0.5))
