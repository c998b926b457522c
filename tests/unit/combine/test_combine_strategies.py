"""Strategies in the clear: values written out, and oracles where there are any."""

import math

import numpy as np
import pytest
from combine_play import FRAME, GRID, SPACE, peaked, random_searches
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from urna.errors import ParameterError, UnknownName
from urna.space import Axis, Space
from urna.systems.combine import (
    STRATEGIES,
    Dbscan,
    Frame,
    LocalSearch,
    MeanSetting,
    Median,
    Ruler,
    Searches,
    TrimmedMean,
    strategy_named,
)
from urna.systems.combine.searches import KeepingRule, keep_best


def test_a_log_axis_is_averaged_as_it_is_and_on_its_log_scale_when_asked() -> None:
    searches = peaked((0.01, 0.0), (1.0, 0.6))
    assert MeanSetting().combine(searches).setting == {"lr": 0.1, "momentum": 0.3}
    plain = Searches(Frame.of(SPACE), searches.clients)
    assert MeanSetting().combine(plain).setting == {"lr": 0.505, "momentum": 0.3}


def test_an_ordinal_axis_counts_by_position_and_gives_one_of_its_values() -> None:
    frame = Frame.of(Space(units=[8, 16, 512]))
    settings = np.array([[8.0], [16.0], [512.0]])
    searches = Searches(
        frame,
        tuple(LocalSearch(settings, np.array(row)) for row in ([1, 0, 0], [0, 0, 1], [0, 0, 1.0])),
    )
    assert MeanSetting().combine(searches).setting == {"units": 16.0}


def test_texts_cannot_be_averaged() -> None:
    with pytest.raises(ParameterError, match="'kind'"):
        Frame.of(Space(lr=Axis.log([0.1, 1.0]), kind=["a", "b"]))


def test_a_setting_off_its_axis_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"lie in 0\.01 to 1"):
        Searches(FRAME, (LocalSearch(np.array([[2.0, 0.0]]), np.array([0.5])),))


@given(st.lists(st.integers(0, len(GRID) - 1), min_size=1, max_size=12))
def test_mean_and_median_agree_with_numpy(best: list[int]) -> None:
    searches = peaked(*(tuple(GRID[place]) for place in best))
    units = FRAME.units(GRID[best])
    for strategy, oracle in (
        (MeanSetting(), units.mean(axis=0)),
        (Median(), np.median(units, axis=0)),
    ):
        found = FRAME.units(FRAME.row(strategy.combine(searches).setting)[None, :])[0]
        assert found == pytest.approx(oracle, abs=2e-6)


def test_the_trimmed_mean_agrees_with_scipy() -> None:
    searches = peaked(*(tuple(GRID[place]) for place in (0, 3, 3, 5, 9, 9, 12, 13, 17, 19, 19)))
    units = FRAME.units(GRID[[0, 3, 3, 5, 9, 9, 12, 13, 17, 19, 19]])
    oracle = stats.trim_mean(units, 0.1, axis=0)
    found = FRAME.units(FRAME.row(TrimmedMean().combine(searches).setting)[None, :])[0]
    assert found == pytest.approx(oracle, abs=2e-6)


def test_equals_at_the_border_share_what_room_is_left() -> None:
    search = LocalSearch(np.arange(5.0)[:, None], np.array([0.5, 0.9, 0.7, 0.7, 0.7]))
    kept = keep_best(search, share=0.4)
    assert kept.settings.ravel().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert kept.weights.tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])


def test_runs_that_failed_are_never_kept() -> None:
    scores = np.array([math.nan, 0.2, math.inf, 0.1])
    search = LocalSearch(np.arange(4.0)[:, None], scores)
    assert keep_best(search).settings.ravel().tolist() == [1.0]
    assert KeepingRule().kept(search).settings.ravel().tolist() == [1.0]


def test_a_client_for_whom_all_is_good_says_nothing_about_good_settings() -> None:
    search = LocalSearch(np.arange(4.0)[:, None], np.array([0.9, 0.91, 0.92, 0.93]))
    assert len(KeepingRule().kept(search)) == 0
    assert KeepingRule(tolerance=0.02).kept(search).settings.ravel().tolist() == [3.0, 2.0]


def test_at_most_so_many_are_kept_the_best_first() -> None:
    search = LocalSearch(np.arange(6.0)[:, None], np.array([0.8, 0.9, 0.85, 0.1, 0.84, 0.83]))
    assert KeepingRule(most=2).kept(search).settings.ravel().tolist() == [1.0, 2.0]
    assert len(KeepingRule(least=0.95).kept(search)) == 0


def test_density_clusters_are_ranked_by_their_mean_score() -> None:
    low = peaked((0.01, 0.0), (0.01, 0.0), (0.03, 0.0), score=0.6).clients
    high = peaked((1.0, 0.9), (1.0, 0.9), score=0.8).clients
    found = Dbscan(min_points=2).combine(Searches(FRAME, low + high))
    assert [cluster.points for cluster in found.clusters] == [2, 3]
    assert found.setting == {"lr": 1.0, "momentum": 0.9}
    assert found.labels == ((1,), (1,), (1,), (0,), (0,))
    assert found.clusters[1].score == pytest.approx(0.6)


def test_without_any_cluster_it_says_what_to_change() -> None:
    with pytest.raises(ParameterError, match="min_points"):
        Dbscan(min_points=2).combine(peaked((0.01, 0.0), (1.0, 0.9)))


def test_the_papers_rules_find_what_lies_together() -> None:
    """Five settings .01 apart and three far away: the knee is between."""
    tried = np.array([0.1, 0.11, 0.12, 0.13, 0.14, 0.5, 0.75, 1.0])[:, None]
    frame = Frame((Ruler("x", 0.0, 1.0),))
    clients = tuple(LocalSearch(row[None], np.array([0.9])) for row in tried)
    # A client for whom all is good says nothing: give each a bad one as well.
    clients = tuple(
        LocalSearch(np.array([each.settings[0], [0.0]]), np.array([0.9, 0.1])) for each in clients
    )
    found = Dbscan(by_rule=True).combine(Searches(frame, clients))
    assert [cluster.points for cluster in found.clusters] == [5]
    assert found.setting == {"x": 0.12}
    with pytest.raises(ParameterError, match="2 settings make a cluster, and 1 were kept"):
        Dbscan(by_rule=True).combine(Searches(frame, clients[:1]))


def test_settings_in_one_place_are_neighbours_by_rule() -> None:
    found = Dbscan(by_rule=True).combine(peaked(*[(0.1, 0.6)] * 4))
    assert found.setting == {"lr": 0.1, "momentum": 0.6}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gives_a_setting_within_the_axes(name: str) -> None:
    setting = strategy_named(name).combine(random_searches(5)).setting
    assert list(setting) == list(SPACE.axes)
    assert 0.01 <= setting["lr"] <= 1.0
    assert 0.0 <= setting["momentum"] <= 0.9


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'median'"):
        strategy_named("medien")


def test_nothing_to_combine_is_told() -> None:
    with pytest.raises(ParameterError, match="no client has searched"):
        Searches(FRAME, ())
    with pytest.raises(ParameterError, match="every run of every client failed"):
        Searches(FRAME, (LocalSearch(GRID, np.full(len(GRID), math.nan)),))
