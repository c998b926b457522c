"""The same private sum again and again: one budget, one entry, any measure."""

from pathlib import Path

import numpy as np
import pytest

from urna.errors import BudgetExceeded, ParameterError, RoundAborted
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import Stage
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.tally import Histogram, Mean, SecureAggregation, Series

DEVICES, DAYS, BUDGET = 30, 5, Budget(8.0, 1e-4)


def test_a_series_is_one_entry_advanced_before_each_round(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(8.5, 1e-4))
    days = Series.of(Mean(0.0, 10.0), DEVICES, BUDGET, rounds=DAYS, ledger=ledger, label="hours")
    for day in range(1, DAYS + 1):
        found = days.hold(dict.fromkeys(range(DEVICES), 4.0))
        assert abs(float(found.value.values[0]) - 4.0) < 6 * found.value.error
        assert [entry.rounds for entry in ledger.entries()] == [day]
    assert found.privacy.epsilon <= BUDGET.epsilon
    with pytest.raises(ParameterError, match="all 5 rounds"):
        days.hold({})


def test_a_series_is_taken_up_again_without_counting_twice(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)  # room for it once
    first = Series.of(Mean(0.0, 10.0), DEVICES, BUDGET, rounds=DAYS, ledger=ledger)
    first.hold({})
    (entry,) = ledger.entries()
    ledger.charge(entry.release, label="", id=first.entry, rounds=2)  # killed in its second round
    again = Series.of(
        Mean(0.0, 10.0), DEVICES, BUDGET, rounds=DAYS, ledger=ledger, entry=first.entry, done=1
    )
    while again.done < DAYS:
        again.hold({})
    (entry,) = ledger.entries()
    assert entry.rounds == DAYS
    with pytest.raises(BudgetExceeded):
        Series.of(Mean(0.0, 10.0), DEVICES, BUDGET, rounds=DAYS, ledger=ledger)


def test_histograms_and_quantiles() -> None:
    rng = np.random.default_rng(0)
    values = dict(enumerate(rng.uniform(0, 24, size=200).tolist()))
    hours = Histogram.even(0.0, 24.0, 8)
    days = Series.of(
        hours, 200, Budget(16.0, 1e-4), rounds=2, dropout=0.1, secrets=ScriptedSecrets(b"hours")
    )
    found = days.hold(values).value
    exact, _ = np.histogram(list(values.values()), bins=8, range=(0, 24))
    assert np.abs(found.counts - exact).max() < 6 * found.error
    assert abs(found.quantile(0.5) - 12.0) < 5.0
    assert abs(found.shares.sum() - 1.0) < 1e-9


def test_more_dropouts_than_planned_count_nothing(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    days = Series.of(
        Mean(0.0, 1.0),
        DEVICES,
        BUDGET,
        rounds=DAYS,
        ledger=ledger,
        dropout=0.1,
        secrets=OsSecrets(),
    )
    gone = SecureAggregation(dropouts=dict.fromkeys(range(10), Stage.MASK))
    with pytest.raises(RoundAborted):
        days.hold({}, summation=gone)
    assert days.done == 0
    (entry,) = ledger.entries()
    assert not entry.rounds
    assert days.hold({}).number == 1


def test_what_is_no_number_contributes_nothing() -> None:
    coins = ScriptedSecrets(b"nothing")
    assert not Histogram.even(0.0, 24.0, 4).put(float("nan"), coins).any()
    assert not Mean(0.0, 24.0).put(float("nan"), coins).any()
    with pytest.raises(ParameterError, match="a round or more"):
        Series.of(Mean(0.0, 1.0), 2, BUDGET, rounds=0)


def test_a_series_of_one_round_keeps_its_entry_when_that_is_aborted(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    once = Series.of(Mean(0.0, 10.0), DEVICES, BUDGET, rounds=1, ledger=ledger)
    entry = once.entry
    gone = SecureAggregation(dict.fromkeys(range(20), next(iter(Stage))))
    with pytest.raises(RoundAborted):
        once.hold({}, summation=gone)
    assert (once.entry, once.privacy.epsilon, ledger.spent().epsilon) == (entry, 0.0, 0.0)
    once.hold({})
    assert [(found.id, found.rounds) for found in ledger.entries()] == [(entry, 1)]
