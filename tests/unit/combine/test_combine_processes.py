"""Parties as processes: nothing but bytes between them, and what becomes of those that die."""

import functools

import pytest
from combine_play import averaging, clustering, random_searches

from urna.errors import ParameterError, RoundAborted, RoundUnfinished
from urna.randomness import OsSecrets
from urna.systems.combine import (
    FederatedDbscan,
    LocalSearch,
    MeanSetting,
    Searches,
    Task,
    play,
)


def test_parties_in_processes_find_what_is_found_in_the_clear() -> None:
    searches = random_searches(3, seed=6)
    task = Task(3, 3, clustering(2))
    played = play(task, searches.clients, OsSecrets(), processes=True)
    clear = FederatedDbscan(min_points=2).combine(searches)
    assert played.outcome.combined.clusters == clear.clusters
    assert played.outcome.lost == {}
    assert played.party_seconds > 0


def load(place: int) -> LocalSearch:
    return random_searches(3, seed=7).clients[place]


def test_a_party_may_load_its_search_in_its_own_process() -> None:
    task = Task(3, 3, averaging())
    played = play(
        task, [functools.partial(load, place) for place in range(3)], OsSecrets(), processes=True
    )
    assert played.outcome.combined == MeanSetting().combine(random_searches(3, seed=7))


@pytest.mark.parametrize(
    ("letters", "threshold"), [(0, 4), (2, 3), (3, 3)], ids=["no key", "no vector", "no help"]
)
def test_the_others_go_on_without_one_that_dies(letters: int, threshold: int) -> None:
    searches = random_searches(4, seed=8)
    task = Task(4, threshold, averaging())
    played = play(
        task, searches.clients, OsSecrets(), processes=True, vanish={2: letters}, fewest=3
    )
    there = [0, 1, 2, 3] if letters == 3 else [0, 1, 3]
    assert list(played.outcome.took_part) == there
    some = Searches(searches.frame, tuple(searches.clients[p] for p in there))
    assert played.outcome.combined == MeanSetting().combine(some)


def test_one_that_dies_while_all_must_help_ends_the_run() -> None:
    searches, task = random_searches(3), Task(3, 3, averaging())
    with pytest.raises(RoundUnfinished):
        play(task, searches.clients, OsSecrets(), processes=True, vanish={0: 3})
    with pytest.raises(RoundAborted):
        play(task, searches.clients, OsSecrets(), processes=True, vanish={0: 2})


def test_as_many_searches_as_parties_are_needed() -> None:
    with pytest.raises(ParameterError, match="3 parties, got 2"):
        play(Task(3, 3, averaging()), random_searches(2).clients, OsSecrets(), processes=True)
