"""Every mechanism keeps to one contract with a ledger."""

from fractions import Fraction

from urna.privacy import Adjacency, Budget, Release, Repeated, SelectionRelease
from urna.space import Axis, Space
from urna.systems.vote import Ballots, BallotShape, Reveal, VoteSettings, plan_vote
from urna.tally import BoundedVector, Histogram, Terms, plan_tally
from urna.testing import MechanismContract

WINNER = VoteSettings(reveal=Reveal("winner", "a helper"))
TOP_2 = Ballots(BallotShape.top_k(2, 12))


def of_sum(budget: Budget, **how: object) -> Release:
    event = plan_tally(Terms.of(20, budget), TOP_2, **how).event  # type: ignore[arg-type]
    assert event is not None
    return event


class TestSum(MechanismContract):
    """A single sum of ballots."""

    def event(self, budget: Budget) -> Release:
        return of_sum(budget)


class TestSeries(MechanismContract):
    """All rounds of a series."""

    def event(self, budget: Budget) -> Release:
        return Repeated(of_sum(budget, rounds=5), 5)


class TestHistogram(MechanismContract):
    """A histogram under discrete Gaussians, clients left out."""

    def event(self, budget: Budget) -> Release:
        terms = Terms.of(
            30, budget, family="discrete-gaussian", adjacency=Adjacency.ZERO_OUT_CLIENT
        )
        event = plan_tally(terms, Histogram.even(0.0, 1.0, 8).contribution).event
        assert event is not None
        return event


class TestSampledRounds(MechanismContract):
    """Rounds on secret samples of the clients."""

    def event(self, budget: Budget) -> Release:
        rate, what = Fraction(1, 5), BoundedVector(50, norm_squared=10_000)
        event = plan_tally(Terms.of(100, budget), what, rounds=4, rate=rate).event
        assert event is not None
        return Repeated(event, 4)


class TestSelection(MechanismContract):
    """A winner alone."""

    def event(self, budget: Budget) -> Release:
        space = Space(x=Axis.of(["a", "b", "c", "d"]))
        return plan_vote(Terms.of(20, budget), space, WINNER).event


class TestWinnerAndGap(MechanismContract):
    """A winner and its gap, with noise below the vote."""

    def event(self, budget: Budget) -> Release:
        return SelectionRelease(budget.epsilon, 6, 50, largest_of=2, fineness=2)
