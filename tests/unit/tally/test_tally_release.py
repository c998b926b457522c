"""Releases: in the ledger before they happen, out of it only if nothing was revealed."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from urna.errors import (
    BudgetExceeded,
    InvalidSum,
    LedgerError,
    ParameterError,
    ProtocolError,
    RoundAborted,
    RoundFailed,
    RoundUnfinished,
)
from urna.privacy import Adjacency, Budget, Ledger, NonPrivateRelease, Repeated
from urna.privacy.budget import rounded_up
from urna.randomness import OsSecrets
from urna.systems.vote import Ballots, BallotShape
from urna.tally import (
    BoundedVector,
    ClearSummation,
    Released,
    Releases,
    Tallied,
    TallyPlan,
    Terms,
    plan_tally,
    to_grid,
)

SHAPE = BallotShape.top_k(2, 12)
PLAN = plan_tally(Terms.of(20, Budget(0.5, 1e-5)), Ballots(SHAPE), removes_excess=False)
SERIES = 4


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger", Budget(2.0, 1e-5))


def releases(ledger: Ledger | None, rounds: int = 1, plan: TallyPlan = PLAN) -> Releases:
    return Releases(plan, "a test", "Everybody saw everything", rounds=rounds, ledger=ledger)


def taken_up(ledger: Ledger, name: str | None) -> Releases:
    """Return a series whose first round was begun by a process that was killed."""
    return Releases(
        PLAN,
        "a test",
        "Everybody saw everything",
        rounds=SERIES,
        ledger=Ledger(ledger.path),
        id=name,
        reads_back=True,
    )


def add_up(plan: TallyPlan = PLAN) -> Tallied:
    ballot = np.array([1, 1] + [0] * 10)
    ballots = dict.fromkeys(range(plan.clients), to_grid(ballot, plan))
    return ClearSummation().tally(ballots, plan, OsSecrets())


def same() -> Tallied:
    """Return a sum that is the same each time."""
    return replace(add_up(), total=np.zeros(12, dtype=np.int64))


def failing(kind: type[RoundFailed]) -> Callable[[], Tallied]:
    def fail() -> Tallied:
        raise kind("for a test", {3: "gone"})

    return fail


def spoiled() -> Tallied:
    return replace(add_up(), total=np.full(12, 30_000))


def cost(ledger: Ledger) -> float:
    return ledger.spent().epsilon


def of_rounds(count: int) -> float:
    assert PLAN.release is not None
    return Repeated(PLAN.release, count).cost().at(1e-5)


def test_a_sum_is_counted_before_it_happens(ledger: Ledger) -> None:
    def look() -> Tallied:
        assert [entry.label for entry in ledger.entries()] == ["a test"]
        assert cost(ledger) == pytest.approx(of_rounds(1))
        return add_up()

    released = releases(ledger).release(look)
    assert isinstance(released, Released)
    assert released.entry == ledger.entries()[0].id
    assert released.privacy.epsilon == pytest.approx(of_rounds(1))
    assert 0 < released.privacy.epsilon <= 0.5


def test_an_aborted_sum_no_longer_counts_and_can_be_held_again(ledger: Ledger) -> None:
    held = releases(ledger)
    for _ in range(3):
        with pytest.raises(RoundAborted):
            held.release(failing(RoundAborted))
        assert cost(ledger) == 0
    assert [entry.withdrawn for entry in ledger.entries()] == [True] * 3
    held.release(add_up)
    assert cost(ledger) == pytest.approx(of_rounds(1))


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (failing(RoundUnfinished), RoundUnfinished),
        (failing(InvalidSum), InvalidSum),
        (spoiled, InvalidSum),
    ],
    ids=["unfinished", "spoiled by the protocol", "spoiled by its numbers"],
)
class TestWhatWasRevealedStaysCounted:
    def test_a_single_sum_is_not_held_again_for_the_same_price(
        self, ledger: Ledger, ending: Callable[[], Tallied], error: type[RoundFailed]
    ) -> None:
        held = releases(ledger)
        with pytest.raises(error):
            held.release(ending)
        assert cost(ledger) == pytest.approx(of_rounds(1))
        with pytest.raises(ParameterError, match="all 1 rounds of this series were held"):
            held.release(add_up)
        releases(ledger).release(add_up)
        assert cost(ledger) == pytest.approx(of_rounds(2))

    def test_a_round_of_a_series_is_paid_beside_the_next(
        self, ledger: Ledger, ending: Callable[[], Tallied], error: type[RoundFailed]
    ) -> None:
        held = releases(ledger, SERIES)
        held.release(add_up)
        with pytest.raises(error):
            held.release(ending)
        assert cost(ledger) == pytest.approx(of_rounds(2))
        released = held.release(add_up)
        assert cost(ledger) == pytest.approx(of_rounds(3))
        assert released.privacy.epsilon == pytest.approx(of_rounds(3))
        assert [entry.rounds for entry in ledger.entries()] == [3]


@pytest.mark.parametrize("rounds", [1, SERIES])
def test_a_round_that_started_counts_and_is_not_held_again(ledger: Ledger, rounds: int) -> None:
    def named() -> Releases:
        return Releases(PLAN, "a test", "Everybody", rounds=rounds, ledger=ledger, id="only")

    def interrupted() -> Tallied:
        held.slot.started()
        raise KeyboardInterrupt

    held = named()
    with pytest.raises(KeyboardInterrupt):
        held.release(interrupted)
    with pytest.raises(LedgerError):
        named()
    assert cost(ledger) == pytest.approx(of_rounds(1))


@pytest.mark.parametrize("rounds", [1, SERIES])
def test_a_round_that_started_is_noted_when_it_is_kept(ledger: Ledger, rounds: int) -> None:
    held = releases(ledger, rounds)

    def started() -> Tallied:
        held.slot.started()
        return add_up()

    held.release(started)
    (entry,) = ledger.entries()
    assert (entry.revealed, entry.unfinished) == (1, False)


@pytest.mark.parametrize("rounds", [1, SERIES])
def test_an_error_nobody_planned_for_counts(ledger: Ledger, rounds: int) -> None:
    held = releases(ledger, rounds)

    def broken() -> Tallied:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held.release(broken)
    assert held.done == 1
    assert cost(ledger) == pytest.approx(of_rounds(1))


class TestSeries:
    def test_every_round_is_counted_as_it_comes(self, ledger: Ledger) -> None:
        held = releases(ledger, SERIES)
        assert cost(ledger) == 0
        for done in range(1, SERIES + 1):
            released = held.release(add_up)
            assert cost(ledger) == pytest.approx(of_rounds(done))
            assert released.privacy.epsilon == pytest.approx(of_rounds(done))
            several = f"Epsilon is that of {done} rounds together"
            assert (several in released.privacy.caveats) == (done > 1)
        assert len(ledger.entries()) == 1
        with pytest.raises(ParameterError, match="all 4 rounds"):
            held.release(add_up)

    def test_an_aborted_round_is_taken_back_and_the_others_stay(self, ledger: Ledger) -> None:
        held = releases(ledger, SERIES)
        with pytest.raises(RoundAborted):
            held.release(failing(RoundAborted))
        assert cost(ledger) == 0
        held.release(add_up)
        held.release(add_up)
        with pytest.raises(RoundAborted):
            held.release(failing(RoundAborted))
        assert cost(ledger) == pytest.approx(of_rounds(2))
        held.release(add_up)
        assert cost(ledger) == pytest.approx(of_rounds(3))
        assert [(e.rounds, e.withdrawn) for e in ledger.entries()] == [(3, False)]

    def test_a_run_that_is_taken_up_again_goes_on_counting(self, ledger: Ledger) -> None:
        first = releases(ledger, SERIES)
        first.release(add_up)
        first.release(add_up)
        again = Releases(
            PLAN,
            "a test",
            "Everybody saw everything",
            rounds=SERIES,
            ledger=Ledger(ledger.path),
            id=first.slot.id,
            done=2,
        )
        assert again.release(add_up).privacy.epsilon == pytest.approx(of_rounds(3))
        assert cost(ledger) == pytest.approx(of_rounds(3))

    def test_a_round_that_is_read_back_says_the_same_or_is_not_written(
        self, ledger: Ledger
    ) -> None:
        first = releases(ledger, SERIES)
        first.release(add_up)
        (noted,) = ledger.entries()

        def other() -> Tallied:
            found = add_up()
            return replace(found, total=found.total + 1)

        kept: list[object] = []
        with pytest.raises(LedgerError, match="an older copy"):
            taken_up(ledger, first.slot.id).release(other, kept.append)
        with pytest.raises(RoundUnfinished):
            taken_up(ledger, first.slot.id).release(
                failing(RoundUnfinished), keep_failure=kept.append
            )
        with pytest.raises(InvalidSum):
            taken_up(ledger, first.slot.id).release(spoiled, keep_failure=kept.append)
        assert kept == []
        assert ledger.entries() == [noted]

    def test_a_round_that_is_read_back_and_says_the_same_is_kept(self, tmp_path: Path) -> None:
        for number, ending in enumerate((same, failing(RoundUnfinished))):
            ledger = Ledger.open(tmp_path / f"{number}.ledger", Budget(2.0, 1e-5))
            name, kept = None, list[object]()
            for _ in range(2):
                held = Releases(
                    PLAN,
                    "a test",
                    "Everybody",
                    rounds=SERIES,
                    ledger=ledger,
                    id=name,
                    reads_back=name is not None,
                )
                with suppress(RoundUnfinished):
                    held.release(ending, kept.append, kept.append)
                name = held.slot.id
            assert len(kept) == 2
            assert cost(ledger) == pytest.approx(of_rounds(1))

    def test_one_that_was_released_is_not_aborted_when_it_is_read_back(
        self, ledger: Ledger
    ) -> None:
        first = releases(ledger, SERIES)
        first.release(add_up)
        (noted,) = ledger.entries()
        with pytest.raises(LedgerError, match="were revealed"):
            taken_up(ledger, first.slot.id).release(failing(RoundAborted))
        assert ledger.entries() == [noted]

    def test_one_that_was_begun_before_and_is_aborted_now_stays_counted(
        self, ledger: Ledger
    ) -> None:
        first, kept = releases(ledger, SERIES), list[object]()

        def killed(found: object) -> None:
            kept.append(found)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            first.release(add_up, killed)
        for _ in range(2):  # and it says the same again
            again = taken_up(ledger, first.slot.id)
            with pytest.raises(RoundAborted):
                again.release(failing(RoundAborted))
            assert again.done == 1
            assert cost(ledger) == pytest.approx(of_rounds(1))
        again.slot.reads_back = False
        again.release(add_up, kept.append)
        assert cost(ledger) == pytest.approx(of_rounds(len(kept)))

    def test_a_cap_that_is_passed_half_way_stops_it(self, tmp_path: Path) -> None:
        small = Ledger.open(tmp_path / "small", Budget(0.8, 1e-5))
        held = releases(small, SERIES)
        held.release(add_up)
        held.release(add_up)
        with pytest.raises(BudgetExceeded):
            held.release(add_up)
        assert cost(small) == pytest.approx(of_rounds(2))
        assert held.done == 2


def test_nothing_is_added_up_where_there_is_no_room(tmp_path: Path) -> None:
    tight = Ledger.open(tmp_path / "tight", Budget(0.6, 1e-5))
    releases(tight).release(add_up)
    with pytest.raises(BudgetExceeded):
        releases(tight)
    assert len(tight.entries()) == 1


def test_room_that_is_gone_by_then_is_noticed_before_anything_is_added_up(tmp_path: Path) -> None:
    tight = Ledger.open(tmp_path / "tight", Budget(0.6, 1e-5))
    first, second = releases(tight), releases(tight)
    first.release(add_up)

    def never() -> Tallied:
        raise AssertionError("added up without having been counted")

    with pytest.raises(BudgetExceeded):
        second.release(never)
    assert len(tight.entries()) == 1


def test_a_ledger_of_another_relation_is_refused(tmp_path: Path) -> None:
    other = Ledger.open(tmp_path / "other", Budget(2.0, 1e-5), adjacency=Adjacency.ZERO_OUT_CLIENT)
    with pytest.raises(ParameterError, match="use a ledger of this relation"):
        releases(other)


def test_a_sum_with_less_noise_than_planned_is_not_handed_out(ledger: Ledger) -> None:
    def quiet() -> Tallied:
        tallied = add_up()
        assert PLAN.release is not None
        return replace(tallied, release=replace(PLAN.release, share=PLAN.share / 2))

    with pytest.raises(ProtocolError, match="less noise than planned"):
        releases(ledger).release(quiet)
    assert cost(ledger) == pytest.approx(of_rounds(1))
    with pytest.raises(ProtocolError, match="less noise than planned"):
        releases(None).release(lambda: replace(add_up(), release=NonPrivateRelease("none")))


class TestStatement:
    def test_it_says_who_saw_what(self) -> None:
        said = releases(None).release(add_up).privacy
        assert said.private
        assert said.caveats == ("Everybody saw everything",)
        assert said.adjacency is Adjacency.REPLACE_ONE_CLIENT
        assert said.accountant.startswith("GDP")

    def test_scripted_randomness_promises_nothing_and_fits_no_ledger(self, ledger: Ledger) -> None:
        scripted = Releases(PLAN, "a test", "Everybody", private=False)
        said = scripted.release(add_up).privacy
        assert (said.epsilon, said.accountant) == (math.inf, "none")
        assert "scripted" in said.caveats[0]
        with pytest.raises(BudgetExceeded):
            Releases(PLAN, "a test", "Everybody", private=False, ledger=ledger)

    def test_an_exact_sum_promises_nothing_and_fits_no_ledger(self, ledger: Ledger) -> None:
        exact = TallyPlan(PLAN.terms, PLAN.contribution, None, 16)
        released = releases(None, plan=exact).release(lambda: add_up(exact))
        assert released.tallied.total.tolist() == [20, 20] + [0] * 10
        assert released.tallied.noise_variance == Fraction(0)
        assert not released.privacy.private
        assert "nobody added noise" in released.privacy.caveats[0]
        with pytest.raises(BudgetExceeded):
            releases(ledger, plan=exact)

    def test_without_a_ledger_rounds_are_added_up_all_the_same(self) -> None:
        held = releases(None, 2)
        assert held.release(add_up).entry is None
        assert held.release(add_up).privacy.epsilon == pytest.approx(of_rounds(2))


def test_a_series_says_what_all_its_rounds_prove_for_a_whole_client() -> None:
    terms = Terms.of(20, Budget(1.0, 1e-5), adjacency=Adjacency.REPLACE_ONE_RECORD)
    known = BoundedVector(12, norm_squared=900, record_squared=400)
    plan = plan_tally(terms, known, rounds=SERIES, removes_excess=False)
    moved = known.whole_client()
    assert plan.release is not None
    assert moved is not None
    grouped = replace(plan.release, sensitivity=moved.scaled(plan.scale))
    held = Releases(plan, "a test", "Everybody", rounds=SERIES, done=SERIES)
    truth = Repeated(grouped, SERIES).cost().at(1e-5)
    assert truth > 1.5 * plan.whole_client_over(1)
    assert plan.whole_client_over(SERIES) == pytest.approx(truth)
    assert any(
        f"only epsilon {rounded_up(truth)} is proven" in said for said in held.statement().caveats
    )
