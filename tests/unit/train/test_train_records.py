"""Training on secret samples of clients' records: what is drawn, what it costs, what is counted."""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_train_resume import KilledError

from urna.errors import LedgerError, ParameterError
from urna.privacy import Adjacency, Budget, Ledger, sampling
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.systems.train import FedAvg, Sampling, SamplingKind, Settings, TrainResult, fit
from urna.systems.train.plan import plan_training
from urna.systems.train.settings import drawn_records
from urna.tally import ClearSummation, Run

REPLACED, REMOVED = Adjacency.REPLACE_ONE_RECORD, Adjacency.ADD_OR_REMOVE_ONE_RECORD
RECORDS = 400
CLIENTS = [np.full((RECORDS, 2), 0.5) for _ in range(5)]
SAMPLED = Sampling.of_records(200, 5 * RECORDS)
SETTINGS = Settings(optimiser=FedAvg(), sampling=SAMPLED, record_clip=1.0)
BUDGET, ROUNDS = Budget(2.0, 1e-5), 4


class Mean:
    """Learns the mean of clients' records, and remembers which were in each sum."""

    description = "a mean"

    def __init__(self) -> None:
        self.seen: list[npt.NDArray[np.bool_]] = []

    def first_weights(self, *, seed: int) -> npt.NDArray[np.float32]:
        del seed
        return np.zeros(2, dtype=np.float32)

    def train(self, *given: object, **options: object) -> Any:
        raise AssertionError("records are added up one by one")

    judge = train

    def record_sums(
        self, weights: Any, clients: Sequence[Any], *, record_clip: float, draws: Any = None
    ) -> Any:
        del weights
        assert record_clip == 1.0
        assert len(draws) == len(clients)
        masks = [draw(len(client)) for draw, client in zip(draws, clients, strict=True)]
        self.seen.append(np.stack(masks))
        return np.stack(
            [client[mask].sum(axis=0) for client, mask in zip(clients, masks, strict=True)]
        )


def trained(learner: Mean | None = None, **changes: Any) -> TrainResult:
    asked: dict[str, Any] = {"budget": BUDGET, "rounds": ROUNDS, "settings": SETTINGS}
    asked |= {"adjacency": REPLACED, "summation": ClearSummation(), **changes}
    return fit(learner or Mean(), CLIENTS, **asked)  # type: ignore[arg-type]


class TestWhatIsDrawn:
    def test_every_record_of_every_client_and_round_has_a_draw_of_its_own(self) -> None:
        learner = Mean()
        trained(learner)
        seen = np.stack(learner.seen)
        assert seen.shape == (ROUNDS, 5, RECORDS)
        flat = seen.reshape(-1, RECORDS)
        assert len({row.tobytes() for row in flat}) == len(flat)
        expected = 0.1 * seen.size
        assert abs(seen.sum() - expected) < 6 * math.sqrt(expected)

    def test_no_record_is_drawn_more_often_than_the_rate_says(self) -> None:
        class Words:
            private = True

            def take(self, count: int) -> bytes:
                third = (1 << 64) // 3
                words = np.array([third - 1, third, third + 1], dtype="<u8")
                assert count == words.nbytes
                return words.tobytes()

        assert drawn_records(Fraction(1, 3), 3, Words()).tolist() == [True, False, False]

    def test_the_sum_is_divided_by_the_public_size_of_a_batch(self) -> None:
        learner = Mean()
        result = trained(learner, rounds=1, budget=Budget(15.0, 1e-2))
        (drawn,) = [int(mask.sum()) for mask in learner.seen]
        error = result.history[0].noise_std * 2
        assert result.weights[0] == pytest.approx(drawn * 0.5 / 200, abs=5 * error)
        assert error < 0.1

    def test_scripted_draws_are_not_private(self) -> None:
        runs = [trained(run=Run(secrets=ScriptedSecrets(b"x"))) for _ in range(2)]
        assert np.array_equal(runs[0].weights, runs[1].weights)
        assert not runs[0].privacy.private


class TestWhatItCosts:
    @pytest.mark.parametrize("relation", [REPLACED, REMOVED])
    def test_epsilon_is_stated_under_both_relations(self, relation: Adjacency) -> None:
        result = trained(adjacency=relation)
        assert 0.99 * BUDGET.epsilon < result.privacy.epsilon <= BUDGET.epsilon
        assert result.privacy.adjacency is relation
        said = str(result.privacy)
        other = REMOVED if relation is REPLACED else REPLACED
        assert f"Under {other} ({other.described}) the same rounds are (" in said
        assert "each record was drawn with a probability of 0.1 only" in said
        assert "A whole client is NOT protected" in said

    def test_each_relation_says_what_the_other_plans_for(self) -> None:
        planned = {
            relation: plan_training(
                5, 1000, budget=BUDGET, rounds=20, settings=SETTINGS, adjacency=relation
            ).tally
            for relation in (REPLACED, REMOVED)
        }
        assert planned[REPLACED].other_relation(20)[REMOVED] < BUDGET.epsilon
        assert planned[REMOVED].other_relation(20)[REPLACED] > BUDGET.epsilon
        assert planned[REPLACED].share > planned[REMOVED].share

    def test_sampling_needs_less_noise(self) -> None:
        everything = Settings(clip=SETTINGS.clipping.first, record_clip=1.0)
        whole, sampled = (
            plan_training(
                5, 1000, budget=BUDGET, rounds=100, settings=how, adjacency=REPLACED
            ).noise_multiplier
            for how in (everything, SETTINGS)
        )
        assert sampled < 0.2 * whole

    def test_noise_counts_colluders_and_dropouts_out(self) -> None:
        planned = [
            plan_training(
                10, 100, budget=BUDGET, rounds=5, settings=SETTINGS, adjacency=REPLACED, **terms
            ).tally
            for terms in ({}, {"dropout": 0.2, "colluding": 0.3})
        ]
        assert [tally.terms.honest for tally in planned] == [9, 5]
        release = [tally.release for tally in planned]
        assert release[0] is not None
        assert release[1] is not None
        assert release[1].variance >= 0.999 * release[0].variance
        assert release[1].share > 1.7 * release[0].share

    def test_a_node_counts_the_sampled_rounds_of_the_relation_it_is_asked_under(self) -> None:
        tally = plan_training(
            5, 1000, budget=BUDGET, rounds=20, settings=SETTINGS, adjacency=REPLACED
        ).tally
        event = tally.event
        assert event is not None
        assert event.as_mapping()["replaced"] is True
        assert event.as_mapping()["kind"] == "sampled"

    def test_samples_of_records_are_for_relations_about_records(self) -> None:
        with pytest.raises(ParameterError, match="go together"):
            plan_training(5, 10, budget=BUDGET, rounds=2, settings=SETTINGS)
        with pytest.raises(ParameterError, match="need a `record_clip`"):
            Settings(sampling=SAMPLED)
        with pytest.raises(ParameterError, match="fewer than all, got 20 of 20"):
            Sampling.of_records(20, 20)
        with pytest.raises(ParameterError, match="of_records"):
            Sampling.of(SamplingKind.RECORDS, "0.1")


class TestAfterAKill:
    def test_no_second_sample_is_drawn_for_a_round_that_was_revealed(self, tmp_path: Path) -> None:
        ledger = Ledger.open(tmp_path / "ledger", BUDGET, adjacency=REPLACED)

        def end(report: Any) -> None:
            if report.number == 2:
                raise KilledError

        killed, resumed = Mean(), Mean()
        folder = tmp_path / "run"
        with pytest.raises(KilledError):
            trained(killed, folder=folder, run=Run(ledger=ledger, progress=end))
        older = (folder / "checkpoint.safetensors").read_bytes()
        result = trained(resumed, folder=folder, run=Run(ledger=ledger))
        assert (len(killed.seen), len(resumed.seen)) == (2, ROUNDS - 2)
        (entry,) = ledger.entries()
        assert entry.cost.epsilon == pytest.approx(result.privacy.epsilon)
        # An older copy of the folder would draw again for rounds three and four.
        (folder / "checkpoint.safetensors").write_bytes(older)
        again = Mean()
        with pytest.raises(LedgerError, match="older copy"):
            trained(again, folder=folder, run=Run(ledger=ledger))
        assert not again.seen

    def test_a_round_that_revealed_nothing_is_drawn_anew_and_counts_once(
        self, tmp_path: Path
    ) -> None:
        class Killing(ClearSummation):
            def tally(self, contributions: Any, plan: Any, secrets: Any) -> Any:
                raise KilledError

        ledger = Ledger.open(tmp_path / "ledger", BUDGET, adjacency=REPLACED)
        learner, how = Mean(), {"folder": tmp_path / "run", "run": Run(ledger=ledger)}
        with pytest.raises(KilledError):
            trained(learner, summation=Killing(), **how)
        assert len(ledger.entries()) == 1
        trained(learner, **how)
        assert len(learner.seen) == ROUNDS + 1
        assert not np.array_equal(learner.seen[0], learner.seen[1])
        (entry,) = ledger.entries()
        assert entry.rounds == ROUNDS
        assert entry.cost.at(BUDGET.delta) <= BUDGET.epsilon


def test_what_a_run_states_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = []
    once = sampling._replaced

    def counting(*given: Any) -> Any:
        composed.append(given)
        return once(*given)

    monkeypatch.setattr(sampling, "_replaced", counting)
    result = trained(run=Run(secrets=OsSecrets()), rounds=6)
    assert len({given for given in composed if given[2] == 6}) < 30  # the plan's search
    assert {given[2] for given in composed} == {6}  # never of fewer rounds
    assert {report.epsilon for report in result.history} == {result.privacy.epsilon}
