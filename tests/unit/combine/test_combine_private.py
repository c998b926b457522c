"""The mean with differential privacy: what one client moves, what is counted, what is read."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from combine_play import FRAME, GRID, averaging, random_searches
from hypothesis import given
from hypothesis import strategies as st

from urna.errors import BudgetExceeded, LedgerError, ParameterError
from urna.privacy import Adjacency, Budget, Ledger, Unit
from urna.randomness import ScriptedSecrets
from urna.systems.combine import LocalSearch, MeanSetting, SettingsSum, combine, noisy_mean
from urna.systems.combine.noisy import UNITS
from urna.tally import ClearSummation, EncryptedSummation, Run, SecureAggregation

scores = st.lists(st.floats(0, 1), min_size=len(GRID), max_size=len(GRID))


def search_of(values: list[float]) -> LocalSearch:
    return LocalSearch(GRID, np.array(values))


@given(scores, scores)
def test_a_clients_mean_is_a_point_of_the_cube_and_moves_no_further_than_is_priced(
    one: list[float], other: list[float]
) -> None:
    summed = SettingsSum(averaging(0.2))
    vectors = [summed.vector(search_of(values)) for values in (one, other)]
    for vector in vectors:
        summed.contribution.check(vector)
        assert np.abs(vector).max() <= UNITS // 2
    moved = int(((vectors[0] - vectors[1]) ** 2).sum())
    assert moved <= summed.contribution.whole_client().l2_squared


@pytest.mark.parametrize("summation", [ClearSummation(), SecureAggregation(), EncryptedSummation()])
def test_with_little_noise_the_mean_is_close(
    summation: ClearSummation | SecureAggregation | EncryptedSummation,
) -> None:
    """Five standard deviations of the noise left: once in a million for two axes."""
    searches = random_searches(12, seed=1)
    run = noisy_mean(searches.clients, averaging(), budget=Budget(20.0, 1e-3), summation=summation)
    clear = FRAME.units(FRAME.row(MeanSetting().combine(searches).setting)[None, :])[0]
    found = FRAME.units(FRAME.row(run.setting)[None, :])[0]
    allowed = 5.2 * run.noise[0] / UNITS / 12 + 1 / UNITS
    assert np.abs(found - clear).max() < allowed < 0.35


def test_a_mean_is_counted_and_kept_before_it_is_seen_and_released_once(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "cap.ledger", Budget(4.0, 1e-5), subject="settings")
    kept: list[Any] = []
    asked = Run(ledger=ledger, keep=kept.append, entry="mean")
    clients, budget = random_searches(6).clients, Budget(4.0, 1e-5)
    found = noisy_mean(clients, averaging(), budget=budget, run=asked)
    assert kept == [found]
    assert found.entries == ("mean",)
    assert ledger.spent().epsilon == pytest.approx(found.privacy.epsilon)
    with pytest.raises(LedgerError):
        noisy_mean(clients, averaging(), budget=budget, run=asked)
    with pytest.raises(BudgetExceeded):
        noisy_mean(clients, averaging(), budget=Budget(1, 1e-5), run=Run(ledger=ledger))


def test_a_client_that_cannot_be_summed_puts_in_nothing() -> None:
    searches = random_searches(4)
    beyond = LocalSearch(np.array([[50.0, 0.0]]), np.array([0.9]))
    run = Run(secrets=ScriptedSecrets(b"beyond"))
    nothing = LocalSearch(GRID, np.full(len(GRID), math.nan))
    for odd in (beyond, nothing):
        found = noisy_mean([*searches.clients, odd], averaging(), budget=Budget(4.0, 1e-5), run=run)
        assert found.took_part == 5


def test_scripted_secrets_promise_nothing(tmp_path: Path) -> None:
    run = noisy_mean(
        random_searches(4).clients,
        averaging(),
        budget=Budget(2.0, 1e-5),
        run=Run(secrets=ScriptedSecrets(b"script")),
    )
    assert math.isinf(run.privacy.epsilon)
    ledger = Ledger.open(tmp_path / "cap.ledger", Budget(9.0, 1e-5), subject="settings")
    for guarantee in ("none", "encryption"):
        with pytest.raises(BudgetExceeded, match="without a guarantee"):
            combine(random_searches(3), "mean", guarantee=guarantee, run=Run(ledger=ledger))


def test_records_are_not_protected_and_noise_needs_a_budget() -> None:
    searches = random_searches(4)
    with pytest.raises(ParameterError, match="protect clients"):
        noisy_mean(
            searches.clients,
            averaging(),
            budget=Budget(1, 1e-5),
            adjacency=Adjacency.REPLACE_ONE_RECORD,
        )
    with pytest.raises(ParameterError, match="noise needs a budget"):
        combine(searches, "mean", guarantee="dp")
    assert Adjacency.REPLACE_ONE_RECORD.unit is Unit.RECORD


@pytest.mark.parametrize("name", ["dbscan", "federated-dbscan", "median"])
def test_what_is_not_there_with_noise_says_what_is(name: str) -> None:
    with pytest.raises(ParameterError, match="top-mean"):
        combine(random_searches(5), name, guarantee="dp", budget=Budget(8.0, 1e-5))


@pytest.mark.parametrize("guarantee", ["dp", "both"])
@pytest.mark.parametrize("name", ["mean", "top-mean"])
def test_results_with_noise_say_how_they_were_added_up(guarantee: str, name: str) -> None:
    done = combine(random_searches(5), name, guarantee=guarantee, budget=Budget(8.0, 1e-5))
    assert 0 < done.privacy.epsilon <= 8.0
    assert done.points == ()
    assert len(done.opened) == len(done.noise) == 1
    how = "threshold encryption" if guarantee == "both" else "secure aggregation"
    assert how in str(done.privacy)
