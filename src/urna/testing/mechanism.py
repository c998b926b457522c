"""What every mechanism must be to a ledger, as a suite to subclass."""

import json
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from urna.errors import BudgetExceeded
from urna.privacy import Budget, Ledger, Release
from urna.privacy.events import read_release

__all__ = ["MechanismContract"]

BUDGETS = (Budget(0.1, 1e-6), Budget(1.0, 1e-5), Budget(4.0, 1e-3))


class MechanismContract(ABC):
    """Subclass it as `TestMyMechanism` and supply `event`."""

    @abstractmethod
    def event(self, budget: Budget) -> Release:
        """Return what your mechanism releases under the noise that it plans for this budget."""

    @pytest.mark.parametrize("budget", BUDGETS)
    def test_it_costs_at_most_its_budget_and_a_ledger_of_that_cap_takes_it(
        self, budget: Budget, tmp_path: Path
    ) -> None:
        """Every proven price is finite, and the first is within the budget."""
        event = self.event(budget)
        assert 0 < event.cost().at(budget.delta) <= budget.epsilon
        assert all(price.at(budget.delta) < float("inf") for price in event.prices())
        ledger = Ledger.open(tmp_path / "ledger", budget)
        ledger.charge(event, label="once")
        assert 0 < ledger.spent().epsilon <= budget.epsilon

    @pytest.mark.parametrize("budget", BUDGETS)
    def test_it_uses_most_of_its_budget(self, budget: Budget, tmp_path: Path) -> None:
        """Noise is no larger than it must be: a ledger of this cap has no room for a second."""
        ledger = Ledger.open(tmp_path / "ledger", budget)
        ledger.charge(self.event(budget), label="once")
        with pytest.raises(BudgetExceeded):
            ledger.charge(self.event(budget), label="twice")

    def test_a_larger_budget_costs_more(self) -> None:
        """Compared at one delta."""
        small, large = (self.event(Budget(epsilon, 1e-5)).cost().at(1e-5) for epsilon in (0.5, 2.0))
        assert small < large

    def test_several_cost_more_than_one_and_no_more_than_their_sum(self) -> None:
        """Squares of μ add up, and epsilons do."""
        event = self.event(Budget(1.0, 1e-5))
        for once, thrice in zip(event.prices(), event.prices(3), strict=True):
            assert once.at(1e-5) < thrice.at(1e-5)
            assert thrice.mu <= 3 * once.mu
            assert thrice.epsilon <= 3 * once.epsilon * (1 + 1e-9)

    def test_it_is_read_back_from_a_ledger_as_it_was(self) -> None:
        """What cannot be read back cannot be counted by the next process."""
        event = self.event(Budget(1.0, 1e-5))
        again = read_release(json.loads(json.dumps(event.as_mapping())))
        assert again == event
        assert list(again.prices()) == list(event.prices())
