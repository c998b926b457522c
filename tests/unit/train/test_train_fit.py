"""Training by private sums: what it learns, what it counts, where it stops."""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from train_setting import BUDGET, CLIENTS, LEARNER, ROUNDS, SETTINGS, TRUTH, trained

from urna.errors import BudgetExceeded, ParameterError, RoundUnfinished
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import Stage
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.systems.train import (
    Clip,
    EarlyStop,
    FedAdam,
    FedAvg,
    FunctionLearner,
    Sampling,
    Settings,
    Validation,
    fit,
)
from urna.systems.train.checkpoint import Progress
from urna.systems.train.layout import Layout
from urna.systems.train.plan import plan_training
from urna.systems.train.rounds import after_failure
from urna.tally import ClearSummation, Run

Reals = npt.NDArray[np.floating[Any]]


def test_a_model_is_learned_within_its_noise() -> None:
    result = trained(rounds=12, budget=Budget(60.0, 1e-3))
    error = result.history[-1].noise_std
    # Steps of one half: errors of all rounds add up to less than √(1 + 1/4 + …) of one.
    assert np.abs(result.weights - TRUTH).max() < 0.1 + 6 * 1.2 * error
    assert [report.number for report in result.history] == list(range(1, 13))


def test_all_rounds_together_cost_what_was_asked_for(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(9.0, 1e-3))
    result = trained(secrets=OsSecrets(), ledger=ledger)
    assert 0.99 * BUDGET.epsilon < result.privacy.epsilon <= BUDGET.epsilon
    assert result.achieved_epsilon <= result.privacy.epsilon
    (entry,) = ledger.entries()
    assert entry.id == result.entry
    assert entry.rounds == ROUNDS
    assert entry.cost.at(BUDGET.delta) <= BUDGET.epsilon
    epsilons = [report.epsilon for report in result.history]
    assert epsilons == sorted(epsilons, key=lambda e: math.inf if e is None else e)


def test_training_stops_before_the_cap_and_says_so(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(4.0, 1e-3))
    result = trained(secrets=OsSecrets(), ledger=ledger)
    assert result.stopped == "budget"
    assert 0 < result.rounds < ROUNDS
    assert ledger.spent().epsilon <= 4.0
    assert "the next round would have passed the ledger's cap" in str(result)
    full = Ledger.open(tmp_path / "full", Budget(0.5, 1e-3))
    with pytest.raises(BudgetExceeded):
        trained(secrets=OsSecrets(), ledger=full)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda w: w * math.nan,
        lambda w: w + math.inf,
        lambda w: np.append(w, 0.0),
        lambda w: np.float64(0.0),
        lambda w: 1 / 0,
    ],
    ids=["NaN", "infinity", "longer", "scalar", "raises"],
)
def test_a_client_that_fails_contributes_nothing_and_only_its_log_says_so(
    wrong: Callable[[Reals], npt.ArrayLike], caplog: pytest.LogCaptureFixture
) -> None:
    def step(weights: Any, data: Any, seed: int) -> npt.ArrayLike:
        return wrong(weights) if seed == 1 + 3 else LEARNER.step(weights, data, seed)

    def absent(weights: Any, data: Any, seed: int) -> npt.ArrayLike:
        return weights if seed == 1 + 3 else LEARNER.step(weights, data, seed)

    with caplog.at_level(logging.WARNING):
        found = trained(learner=FunctionLearner(np.zeros(4), step))
    assert {record.name for record in caplog.records} == {"urna.systems.train.client"}
    assert all("contributes nothing" in record.getMessage() for record in caplog.records)
    # To everybody else it is a client whose update is zero.
    same = trained(learner=FunctionLearner(np.zeros(4), absent))
    assert np.array_equal(found.weights, same.weights)
    assert found.as_json() == same.as_json()


def test_a_huge_update_is_clipped() -> None:
    far = [*CLIENTS[:-1], np.full(4, 1e300)]
    result = trained(clients=far, rounds=1, summation=ClearSummation())
    alone = trained(clients=[*CLIENTS[:-1], np.zeros(4)], rounds=1, summation=ClearSummation())
    assert np.linalg.norm(result.weights - alone.weights) <= 2.0 / len(CLIENTS) * 1.01


def test_a_round_that_loses_too_many_is_held_again_and_counts_once(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(9.0, 1e-3))

    def once(number: int, attempt: int) -> dict[int, Stage]:
        return dict.fromkeys(range(12), Stage.MASK) if (number, attempt) == (2, 1) else {}

    result = trained(secrets=OsSecrets(), ledger=ledger, dropouts=once, dropout=0.2)
    assert [report.attempts for report in result.history] == [1, 2, 1, 1, 1, 1]
    assert result.stopped == "rounds"
    (entry,) = ledger.entries()
    assert entry.rounds == ROUNDS


def test_training_ends_cleanly_where_too_many_are_lost_for_good(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(9.0, 1e-3))

    def gone(number: int, attempt: int) -> dict[int, Stage]:
        return dict.fromkeys(range(12), Stage.MASK) if number > 2 else {}

    result = trained(secrets=OsSecrets(), ledger=ledger, dropouts=gone, dropout=0.2)
    assert (result.stopped, result.rounds) == ("dropouts", 2)
    (entry,) = ledger.entries()
    assert entry.rounds == 2
    assert "lost more clients than planned" in str(result)


def test_dropouts_within_the_plan_leave_at_least_the_planned_noise() -> None:
    def some(number: int, attempt: int) -> dict[int, Stage]:
        return dict.fromkeys(range(number % 5), Stage.MASK)

    result = trained(secrets=OsSecrets(), dropouts=some, dropout=0.2)
    assert [report.lost for report in result.history] == [1, 2, 3, 4, 0, 1]
    # Of sixteen that are sure to stay, approximate removal leaves at most 1/16 too much.
    assert all(1 <= report.noise_ratio <= 1 + 1 / 16 for report in result.history)
    assert result.achieved_epsilon <= BUDGET.epsilon


def test_only_the_rounds_a_client_took_part_in_are_counted(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(9.0, 1e-3))
    how = Settings(optimiser=FedAvg(), clip=2.0, sampling=Sampling.of("cohorts", "0.5"))
    result = trained(secrets=OsSecrets(), ledger=ledger, settings=how)
    (entry,) = ledger.entries()
    assert entry.rounds == ROUNDS // 2
    assert result.history[-1].took_part == len(CLIENTS) // 2
    assert "no client took part in more than 3" in str(result.privacy)
    assert 0.99 * BUDGET.epsilon < result.privacy.epsilon <= BUDGET.epsilon


def test_amplification_is_off_unless_it_is_asked_for_and_named() -> None:
    assert SETTINGS.sampling.rate is None
    how = Settings(optimiser=FedAvg(), clip=2.0, sampling=Sampling.of("poisson", "0.5"))
    result = trained(secrets=OsSecrets(), settings=how)
    assert result.privacy.epsilon <= BUDGET.epsilon
    assert "does not hold towards anybody who learns what was drawn" in str(result.privacy)


def test_clips_and_losses_are_measured_privately_in_the_same_sum() -> None:
    def score(weights: Reals, data: Reals) -> tuple[float, float]:
        gap = float(np.abs(weights - data).mean())
        return gap, float(gap < 0.5)

    how = Settings(
        optimiser=FedAvg(),
        clip=Clip(0.1, 0.5),
        validation=Validation(),
        stop=EarlyStop(window=2, patience=2),
    )
    learner = FunctionLearner(np.zeros(4), LEARNER.step, score)
    result = trained(
        learner=learner, settings=how, rounds=30, budget=Budget(200.0, 1e-3), force=True
    )
    measured = result.history[0].measured
    assert set(measured) == {"validation loss", "validation accuracy", "short updates"}
    error = result.history[0].errors["validation loss"]
    assert abs(measured["validation loss"] - np.abs(TRUTH).mean() / 4.0) < 6 * error + 0.05
    assert result.history[5].clip_norm > result.history[0].clip_norm  # most were longer
    assert result.stopped == "validation"
    assert result.rounds < 30


def test_where_data_decide_when_to_stop_all_planned_rounds_are_stated() -> None:
    learner = FunctionLearner(np.zeros(4), LEARNER.step, lambda weights, data: (0.5, 0.5))
    how = Settings(
        optimiser=FedAvg(), clip=2.0, validation=Validation(), stop=EarlyStop(window=1, patience=1)
    )
    asked: dict[str, Any] = {"learner": learner, "settings": how, "rounds": 40, "force": True}
    result = trained(secrets=OsSecrets(), **asked)
    assert result.stopped == "validation"
    assert result.rounds < 40
    assert 0.99 * BUDGET.epsilon < result.privacy.epsilon <= BUDGET.epsilon
    assert result.achieved_epsilon == result.privacy.epsilon
    assert "had the number of rounds been fixed beforehand" in str(result.privacy)


def test_a_round_that_failed_under_lots_costs_what_is_stated() -> None:
    how = Settings(sampling=Sampling.of("poisson", "0.9"))
    plan = plan_training(40, 2, budget=BUDGET, rounds=6, settings=how)
    for stated, shown in ((7.5, 7.5), (math.inf, None)):
        state = Progress("", "", np.zeros(2, np.float32))
        late = RoundUnfinished("late", {}, {})
        state = after_failure(plan, state, late, range(40), 1, stated)
        assert state.history[-1].epsilon == shown


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="hides clients among others"):
        trained(clients=CLIENTS[:1])
    with pytest.raises(ParameterError, match="name a `validation`"):
        Settings(stop=EarlyStop())
    trained(folder=tmp_path, rounds=2)
    with pytest.raises(ParameterError, match="holds another training"):
        trained(folder=tmp_path, rounds=3)


@pytest.mark.parametrize("optimiser", [FedAvg(), FedAdam(lr=0.3)], ids=["fedavg", "fedadam"])
def test_optimisers_bring_the_model_nearer(optimiser: Any) -> None:
    how = Settings(optimiser=optimiser, clip=2.0)
    result = trained(settings=how, rounds=10, budget=Budget(60.0, 1e-3))
    assert np.abs(result.weights - TRUTH).max() < np.abs(TRUTH).max() / 2


def test_a_tail_is_averaged() -> None:
    how = Settings(optimiser=FedAvg(), clip=2.0, tail=0.5)
    seen: list[Reals] = []

    def score(weights: Reals) -> tuple[float, float]:
        seen.append(weights.copy())
        return 0.0, 0.0

    plain = fit(
        LEARNER,
        CLIENTS,
        budget=BUDGET,
        rounds=ROUNDS,
        settings=Settings(optimiser=FedAvg(), clip=2.0, tail=1e-9),
        score=score,
        run=Run(secrets=ScriptedSecrets(b"training")),
    )
    assert np.array_equal(plain.weights, seen[-1])
    tailed = trained(settings=how)
    assert np.allclose(tailed.weights, np.mean(seen[3:], axis=0), atol=1e-6)


def test_layout_encodes_without_bias_and_with_the_predicted_error() -> None:
    layout = Layout(64)
    update = np.random.default_rng(0).normal(size=64)
    update /= 2 * np.linalg.norm(update)
    coins = ScriptedSecrets(b"coins")
    rounds = 400
    found = np.array([layout.encode(update, 1.0, {}, coins) for _ in range(rounds)], np.float64)
    exact = update * layout.encoding.steps
    # Stochastic rounding: each entry has a variance of f(1 − f) <= 1/4.
    gap = (found.mean(axis=0) - exact) / (0.5 / math.sqrt(rounds))
    assert np.abs(gap).max() < 6
    fraction = exact - np.floor(exact)
    predicted = float((fraction * (1 - fraction)).sum())
    assert np.var(found, axis=0).sum() == pytest.approx(predicted, rel=0.1)


def test_two_clients_toss_their_own_coins() -> None:
    layout = Layout(4000)
    update = np.full(4000, 0.5 / math.sqrt(4000) + 1e-6)
    secrets = ScriptedSecrets(b"coins")
    one, other = (layout.encode(update, 1.0, {}, secrets).astype(np.float64) for _ in range(2))
    exact = update * layout.encoding.steps
    together = np.corrcoef(one - exact, other - exact)[0, 1]
    shared = np.corrcoef(one - exact, one - exact)[0, 1]
    # A correlation of 4,000 independent pairs is below 6/√4000 but once in a billion times.
    assert abs(together) < 6 / math.sqrt(4000) < shared


def many_vanish(number: int, attempt: int) -> dict[int, Stage]:
    del number
    return dict.fromkeys(range(15), next(iter(Stage))) if attempt == 1 else {}


def test_a_single_round_that_is_held_again_keeps_its_entry(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(9.0, 1e-3))
    result = trained(rounds=1, secrets=OsSecrets(), ledger=ledger, dropouts=many_vanish)
    assert result.history[0].attempts == 2
    (entry,) = ledger.entries()
    assert (entry.id, entry.withdrawn, entry.rounds) == (result.entry, False, 1)


def test_a_training_that_held_no_round_has_spent_nothing(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(9.0, 1e-3))
    asked: dict[str, Any] = {"rounds": 1, "secrets": OsSecrets(), "ledger": ledger}
    nobody = trained(**asked, folder=tmp_path / "run", dropouts=lambda n, a: many_vanish(n, 1))
    assert (nobody.stopped, nobody.rounds) == ("dropouts", 0)
    assert nobody.privacy.epsilon == 0
    assert "nothing is spent" in str(nobody.privacy)
    assert ledger.spent().epsilon == 0
    again = trained(**asked, folder=tmp_path / "run")
    assert again.rounds == 1
    assert [entry.id for entry in ledger.entries()] == [again.entry]
