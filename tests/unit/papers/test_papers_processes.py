"""Parties as processes: nothing but bytes between them, and what becomes of those that die."""

import numpy as np
import pytest
from benchmarks.papers.processes import ProcessParties

from urna.errors import RoundAborted, RoundUnfinished
from urna.randomness import SEED_BYTES, OsSecrets
from urna.space import Axis, Space
from urna.systems.combine import (
    Averaging,
    Clustering,
    FederatedDbscan,
    Frame,
    LocalSearch,
    MeanSetting,
    RunName,
    Searches,
    Task,
    conduct,
)

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
FRAME = Frame.of(Space(lr=Axis.log(RATES)))


def searches_of(clients: int) -> Searches:
    rng = np.random.default_rng(6)
    tried = np.array(RATES)[:, None]
    scores = rng.random((clients, len(RATES))).round(3)
    return Searches(FRAME, tuple(LocalSearch(tried, row) for row in scores))


def named(task: Task) -> RunName:
    return RunName(task, OsSecrets().take(SEED_BYTES))


def test_parties_in_processes_find_what_is_found_in_the_clear() -> None:
    searches = searches_of(3)
    run = named(Task(3, 3, Clustering(FRAME, min_points=2, tolerance=0.6)))
    with ProcessParties(run, searches.clients) as parties:
        outcome = conduct(run, parties)
        assert parties.seconds > 0
    clear = FederatedDbscan(min_points=2, tolerance=0.6).combine(searches)
    assert outcome.combined.clusters == clear.clusters
    assert outcome.lost == {}


@pytest.mark.parametrize(("letters", "there"), [(2, [0, 1, 3]), (3, [0, 1, 2, 3])])
def test_where_three_of_four_open_one_may_die(letters: int, there: list[int]) -> None:
    searches, run = searches_of(4), named(Task(4, 3, Averaging(FRAME)))
    with ProcessParties(run, searches.clients, {2: letters}) as parties:
        outcome = conduct(run, parties)
    assert list(outcome.took_part) == there
    some = Searches(FRAME, tuple(searches.clients[p] for p in there))
    assert outcome.combined == MeanSetting().combine(some)


@pytest.mark.parametrize(("letters", "error"), [(2, RoundAborted), (3, RoundUnfinished)])
def test_one_that_dies_while_all_must_help_ends_the_run(
    letters: int, error: type[Exception]
) -> None:
    searches, run = searches_of(3), named(Task(3, 3, Averaging(FRAME)))
    with ProcessParties(run, searches.clients, {0: letters}) as parties, pytest.raises(error):
        conduct(run, parties)
