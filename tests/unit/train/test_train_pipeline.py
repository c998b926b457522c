"""Rounds in chunks: the schedule, the fit, and that the sum is the same."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from urna.errors import ParameterError, RoundAborted
from urna.privacy import Budget, SumRelease
from urna.protocols.secagg import Stage
from urna.randomness import ScriptedSecrets
from urna.systems.train import plan_training
from urna.systems.train.checkpoint import Progress
from urna.systems.train.pipelined import (
    RESOURCES,
    STAGES,
    Observation,
    PipelinedSummation,
    Planner,
    _ChunkTransport,
    makespan,
    stage_time,
)
from urna.systems.train.rounds import after_round
from urna.tally import Released, Releases, to_grid
from urna.tally.mechanism import check_sum

CLIENTS, ENTRIES = 8, 500
ONE_WAY = ("client", "link", "server", "link", "client")  # as in the paper: one link for both ways


def by_events(seconds: list[float], resources: tuple[str, ...], chunks: int) -> float:
    """Play the schedule step by step: each resource takes the earliest stage's next chunk."""
    ended: dict[tuple[int, int], float] = {}
    free = dict.fromkeys(resources, 0.0)
    for stage, chunk in itertools.product(range(len(seconds)), range(chunks)):
        ready = ended.get((stage - 1, chunk), 0.0)
        ended[stage, chunk] = max(ready, free[resources[stage]]) + seconds[stage]
        free[resources[stage]] = ended[stage, chunk]
    return ended[len(seconds) - 1, chunks - 1]


@pytest.mark.parametrize("resources", [ONE_WAY, RESOURCES], ids=["one way", "two ways"])
def test_the_recursion_agrees_with_playing_the_schedule(resources: tuple[str, ...]) -> None:
    rng = np.random.default_rng(3)
    for chunks in (1, 2, 5, 20):
        seconds = rng.uniform(0.1, 3.0, size=5).tolist()
        found = makespan(seconds, resources, chunks)
        assert found == pytest.approx(by_events(seconds, resources, chunks))
        assert found >= max(seconds) * chunks


def test_stage_times_are_fitted_and_the_best_number_of_chunks_found() -> None:
    truth = {"prepare": 2.0, "upload": 1.5, "aggregate": 0.5, "dispatch": 1.5, "use": 0.1}
    planner = Planner(1_000_000)
    while len(planner.seen) < 5:
        chunks = planner.chunks()
        seconds = {stage: t / chunks + 0.03 + 0.001 * chunks for stage, t in truth.items()}
        whole = makespan([seconds[s] for s in STAGES], RESOURCES, chunks)
        planner.note(Observation(chunks, seconds, whole))
    best = planner.chunks()
    assert 4 <= best <= 20
    assert planner.predict(best) < 0.6 * sum(truth.values())
    assert planner.predictions[-1] == pytest.approx(planner.seen[-1].whole, rel=0.05)


def test_a_prediction_that_is_off_makes_a_new_plan() -> None:
    planner = Planner(1000)
    for _ in range(3):
        planner.note(Observation(planner.chunks(), dict.fromkeys(STAGES, 1.0), 5.0))
    before = planner.chunks()
    planner.note(Observation(before, {**dict.fromkeys(STAGES, 9.0), "use": 0.0}, 99.0))
    assert planner._chosen is None
    with pytest.raises(ParameterError, match="at least one round"):
        stage_time(10, 1, [])


@pytest.mark.apart
def test_chunks_add_up_to_the_same_sum_under_the_planned_noise() -> None:
    planned = plan_training(CLIENTS, ENTRIES, budget=Budget(8.0, 1e-3), rounds=2, dropout=0.25)
    secrets, layout = ScriptedSecrets(b"chunks"), planned.layout
    update = np.random.default_rng(0).normal(size=ENTRIES)
    vectors = {
        c: to_grid(layout.encode(update, 1.0, {}, secrets), planned.tally) for c in range(CLIENTS)
    }
    adding = PipelinedSummation(chunks=3, dropouts={1: Stage.MASK})
    found = adding.tally(vectors, planned.tally, secrets)
    assert found.accepted == frozenset(range(CLIENTS)) - {1}
    exact = sum(vectors[c] for c in found.accepted)
    ratio = np.square((found.total - exact).astype(float)).mean() / float(found.noise_variance)
    # 500 squares of a Gaussian: a deviation of √(2/500) = 0.063.
    assert abs(ratio - 1) < 6 * 0.064
    assert adding.planner is not None
    assert adding.planner.seen[0].chunks == 3
    with pytest.raises(RoundAborted):
        adding.losing(dict.fromkeys(range(6), Stage.MASK)).tally(vectors, planned.tally, secrets)


@pytest.mark.apart
def test_a_client_that_is_in_any_chunk_took_part_and_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Client 3 is silent in the second chunk alone, client 1 in all of them."""
    planned = plan_training(CLIENTS, 100, budget=Budget(8.0, 1e-3), rounds=2, dropout=0.25)
    layout, secrets = planned.layout, ScriptedSecrets(b"some chunks")
    update = np.ones(100)
    vectors = {
        c: to_grid(layout.encode(update, 1.0, {}, secrets), planned.tally) for c in range(CLIENTS)
    }
    exchange = _ChunkTransport.exchange

    def without(
        self: _ChunkTransport, stage: Stage, letters: Iterable[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        silent = self._chunk == 1 and stage >= Stage.MASK
        return exchange(self, stage, [x for x in letters if not (silent and x[0] == 3)])

    monkeypatch.setattr(_ChunkTransport, "exchange", without)
    adding = PipelinedSummation(chunks=2, dropouts={1: Stage.MASK})
    found = adding.tally(vectors, planned.tally, secrets)
    everybody = frozenset(range(CLIENTS))
    assert found.accepted == everybody - {1}
    assert set(found.lost) == {1}
    # Precise removal leaves each chunk exactly the noise that was planned for it.
    assert isinstance(found.release, SumRelease)
    assert planned.tally.release is not None
    assert found.release.variance == planned.tally.release.variance
    check_sum(found.total, planned.tally, len(found.accepted), found.noise_variance)

    state = Progress("", "", np.zeros(100, np.float32), clip_norm=1.0, counted=False)
    privacy = Releases(planned.tally, "", "", private=True, done=1).statement()
    after = after_round(planned, state, Released(found, privacy, None), range(CLIENTS), 1)
    assert after.spent is not None
    assert [client for client in range(CLIENTS) if after.spent[client] == 0] == [1]
    assert after.history[-1].took_part == CLIENTS - 1
