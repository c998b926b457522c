"""What every way to release a result must do with its ledger, as a suite to subclass."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest

from urna.errors import BudgetExceeded, LedgerError, ParameterError, RoundAborted, RoundUnfinished
from urna.privacy import Adjacency, Budget, Ledger

__all__ = ["ReleaseContract"]


class Killed(BaseException):
    """The process ends here."""


class ReleaseContract(ABC):
    """Subclass it as `TestMyRelease` and supply `release`.

    Attributes:
        cap: Leaves room for one release, and not for two.
    """

    cap: Budget

    @abstractmethod
    def release(self, ledger: Ledger, entry: str, reveal: Callable[[], None]) -> None:
        """Make one release of this id, with whole clients protected.

        Args:
            ledger: Where it is counted.
            entry: Its id.
            reveal: To be called where the result is found; what it raises ends the release there.
        """

    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Ledger:
        """Return a ledger with room for one release."""
        return Ledger.open(tmp_path / "ledger", self.cap)

    def test_it_is_charged_before_it_is_revealed(self, ledger: Ledger) -> None:
        """The ledger knows of it when the result is found, and has its digest afterwards."""
        seen: list[float] = []
        self.release(ledger, "one", lambda: seen.append(ledger.spent().epsilon))
        (spent,) = seen
        assert spent == ledger.spent().epsilon > 0
        (entry,) = ledger.entries()
        assert (entry.id, entry.revealed, len(entry.digest)) == ("one", 1, 64)

    def test_what_is_noted_is_not_released_again(self, ledger: Ledger) -> None:
        """One charge pays for one result."""
        found: list[int] = []
        self.release(ledger, "one", lambda: found.append(1))
        spent = ledger.spent().epsilon
        with pytest.raises(LedgerError, match="paid for once"):
            self.release(ledger, "one", lambda: found.append(2))
        assert (found, ledger.spent().epsilon) == ([1], spent)

    def test_a_run_that_was_killed_before_it_revealed_goes_on(self, ledger: Ledger) -> None:
        """It is counted once."""

        def killed() -> None:
            raise Killed

        with pytest.raises(Killed):
            self.release(ledger, "one", killed)
        spent = ledger.spent().epsilon
        self.release(ledger, "one", lambda: None)
        assert ledger.spent().epsilon == spent > 0
        assert len(ledger.entries()) == 1

    def test_what_is_aborted_is_free(self, ledger: Ledger) -> None:
        """Nothing was revealed, so there is room for another."""

        def aborted() -> None:
            raise RoundAborted("too few clients")

        with pytest.raises(RoundAborted):
            self.release(ledger, "one", aborted)
        assert ledger.spent().epsilon == 0
        self.release(ledger, "two", lambda: None)

    def test_what_ends_otherwise_counts_and_is_over(self, ledger: Ledger) -> None:
        """It may have revealed something."""

        def unfinished() -> None:
            raise RoundUnfinished("too few stayed")

        with pytest.raises(RoundUnfinished):
            self.release(ledger, "one", unfinished)
        assert ledger.spent().epsilon > 0
        with pytest.raises(LedgerError):
            self.release(ledger, "one", lambda: None)

    def test_a_ledger_of_another_relation_is_refused(self, tmp_path: Path) -> None:
        """What protects records does not add up with what protects clients."""
        other = Ledger.open(tmp_path / "other", self.cap, adjacency=Adjacency.REPLACE_ONE_RECORD)
        found: list[int] = []
        with pytest.raises(ParameterError, match="do not add up"):
            self.release(other, "one", lambda: found.append(1))
        assert (found, other.entries()) == ([], [])

    def test_where_there_is_no_room_nothing_is_revealed(self, ledger: Ledger) -> None:
        """The second release would pass the cap."""
        found: list[int] = []
        self.release(ledger, "one", lambda: found.append(1))
        with pytest.raises(BudgetExceeded):
            self.release(ledger, "two", lambda: found.append(2))
        assert found == [1]
        assert len(ledger.entries()) == 1
