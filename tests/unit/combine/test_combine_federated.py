"""Cells, clusters and sums in whole numbers: by hand, and beside scikit-learn."""

import numpy as np
import pytest
from combine_play import FRAME, averaging, clustering, peaked, random_searches
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN

from urna.errors import ParameterError
from urna.systems.combine import (
    Clustering,
    FederatedDbscan,
    Frame,
    LocalSearch,
    MeanSetting,
    Ruler,
    Searches,
)
from urna.systems.combine.cells import Grid, Points
from urna.systems.combine.frame import PLACE_BITS

WHOLE = 1 << PLACE_BITS


def at(*points: tuple[float, ...]) -> np.ndarray:
    return np.rint(np.array(points) * WHOLE).astype(np.int64)


def test_points_fall_into_cells_of_the_paper() -> None:
    grid = Grid(axes=2)
    assert grid.size == 49
    assert grid.most_clusters == 25
    assert grid.cells(at((0, 0), (0.149, 0.151), (1, 1), (0.9, 0.89))).tolist() == [0, 1, 48, 47]


def test_cells_touch_along_faces_and_not_at_corners() -> None:
    grid = Grid(axes=2, cell=0.25)
    dense = np.zeros((4, 4), dtype=bool)
    dense[0, 0] = dense[0, 1] = dense[1, 1] = True
    dense[2, 2] = dense[3, 2] = True
    labels = grid.clusters(dense.reshape(-1)).reshape(4, 4)
    assert labels[0, 0] == labels[0, 1] == labels[1, 1] == 0
    assert labels[2, 2] == labels[3, 2] == 1
    assert (labels >= 0).sum() == 5


def test_a_point_moves_to_the_closest_dense_cell_beside_it_or_is_dropped() -> None:
    grid = Grid(axes=2, cell=0.25)
    dense = np.zeros(16, dtype=bool)
    dense[[1, 4]] = True  # beside cell 0: above and to the right
    points = at((0.02, 0.2), (0.2, 0.02), (0.3, 0.02), (0.99, 0.99))
    assert grid.assigned(points, dense).tolist() == [1, 4, 4, -1]


@pytest.mark.parametrize("axes", [5, 9])
def test_too_many_cells_are_refused(axes: int) -> None:
    with pytest.raises(ParameterError, match="at most 16,384 are counted"):
        Grid(axes=axes, cell=0.1)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(-0.02, 0.02), st.floats(-0.02, 0.02)),
        min_size=6,
        max_size=60,
    )
)
def test_it_agrees_with_scikit_learn_where_groups_are_tight_and_far_apart(
    drawn: list[tuple[int, float, float]],
) -> None:
    """Groups of diameter below the reach, inside one cell, no two cells touching."""
    middles = np.array([[0.225, 0.225], [0.225, 0.825], [0.825, 0.225], [0.825, 0.825]])
    points = np.array([middles[group] + (x, y) for group, x, y in drawn])
    min_points = 3
    labels = DBSCAN(eps=0.06, min_samples=min_points).fit(points).labels_
    frame = Frame((Ruler("x", 0.0, 1.0), Ruler("y", 0.0, 1.0)))
    scores = np.array([0.5 + 0.1 * group for group, *_ in drawn])
    clients = tuple(  # one point of a group each, beside one that nobody keeps
        LocalSearch(np.array([point, [0.5, 0.5]]), np.array([score, 0.0]))
        for point, score in zip(points, scores, strict=True)
    )
    strategy = FederatedDbscan(min_points=min_points, tolerance=1.0, most=100)
    searches = Searches(frame, clients)
    if labels.max() < 0:
        with pytest.raises(ParameterError, match="min_points"):
            strategy.combine(searches)
        return
    clusters = strategy.combine(searches).clusters
    oracle = sorted(
        (points[labels == n].mean(axis=0).tolist(), scores[labels == n].mean())
        for n in range(labels.max() + 1)
    )
    found = sorted((list(cluster.setting.values()), cluster.score) for cluster in clusters)
    for (place, score), (expected, mean) in zip(found, oracle, strict=True):
        assert place == pytest.approx(expected, abs=2e-6)
        assert score == pytest.approx(mean, abs=2e-6)


def test_a_client_counts_once_in_a_cell_however_many_of_its_settings_lie_there() -> None:
    agreed = clustering()
    near = Points(at((0.01, 0.01), (0.02, 0.02), (0.9, 0.9)), at((0.9,), (0.8,), (0.7,))[:, 0])
    assert np.flatnonzero(agreed.occupied(near)).tolist() == [0, 48]
    assert agreed.occupied(near).max() == 1


def crowded(seed: int) -> tuple[Searches, FederatedDbscan]:
    """Return clients that search at random, and how their settings are clustered."""
    rng = np.random.default_rng(seed)
    frame = Frame((Ruler("x", 0.0, 1.0), Ruler("y", 0.0, 1.0)))
    clients = []
    for _ in range(int(rng.integers(3, 13))):
        middle, width = rng.random(2), rng.choice([0.05, 0.2, 1.0])
        settings = np.clip(middle + width * (rng.random((20, 2)) - 0.5), 0.0, 1.0)
        clients.append(LocalSearch(settings, rng.random(20)))
    least = int(rng.integers(2, 6))
    strategy = FederatedDbscan(min_points=least, tolerance=rng.choice([0.15, 0.5, 0.9]))
    return Searches(frame, tuple(clients)), strategy


def revealed(searches: Searches, strategy: FederatedDbscan) -> list[int]:
    """Return how many different clients have settings in each cluster that is revealed."""
    try:
        combined = strategy.combine(searches)
    except ParameterError:  # no cell is dense: nothing is revealed
        return []
    found = [sum(n in labels for labels in combined.labels) for n in range(len(combined.clusters))]
    settings = [sum(labels.count(n) for labels in combined.labels) for n in range(len(found))]
    assert settings == [cluster.points for cluster in combined.clusters]
    return found


RUNS = 400


def test_no_revealed_cluster_has_settings_of_fewer_than_min_points_clients() -> None:
    clusters = 0
    for seed in range(RUNS):
        searches, strategy = crowded(seed)
        found = revealed(searches, strategy)
        assert all(clients >= strategy.min_points for clients in found), seed
        clusters += len(found)
    assert clusters > RUNS / 2, "enough clusters were revealed for the check to mean something"


def test_counting_settings_would_reveal_clusters_of_fewer_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken variant: cells count settings, so that one client makes a cell dense."""

    def settings_counted(agreed: Clustering, points: Points) -> np.ndarray:
        return np.bincount(agreed.grid.cells(points.places), minlength=agreed.grid.size)

    monkeypatch.setattr(Clustering, "occupied", settings_counted)
    found = [(revealed(*crowded(seed)), crowded(seed)[1].min_points) for seed in range(50)]
    assert sum(clients < least for several, least in found for clients in several) > 10
    assert any(clients == 1 for several, _ in found for clients in several)


@given(st.integers(1, 8), st.integers(0, 1000))
def test_totals_of_clients_are_the_totals_of_all_points(clients: int, seed: int) -> None:
    searches, agreed = random_searches(clients, seed), clustering(2)
    points = [agreed.points(client) for client in searches.clients]
    dense = sum(agreed.occupied(some) for some in points) >= 2
    totals = sum(agreed.sums(some, dense) for some in points)
    whole = sum(len(some) for some in points)
    kept = totals[:, -1].sum() if len(totals) else 0
    inside = sum(int((agreed.grid.assigned(some.places, dense) >= 0).sum()) for some in points)
    assert kept == inside <= whole


def test_the_best_cluster_is_ranked_by_exact_fractions() -> None:
    agreed = Clustering(FRAME, min_points=1)
    dense = np.zeros(agreed.grid.size, dtype=bool)
    dense[[0, 48]] = True
    big = 10**6
    totals = np.array([[3, 3, big, 3], [2, 2, (big * 2 + 1) // 3, 2]])  # 1/3 apart in the mean
    assert agreed.read(dense, totals).clusters[0].points == 2


def test_a_mean_is_the_sum_over_the_count() -> None:
    searches = random_searches(4, seed=2)
    agreed = averaging(share=0.1)
    total = sum(agreed.vector(client) for client in searches.clients)
    assert total[-1] == 4 * 2
    assert agreed.read(total) == MeanSetting(0.1).combine(searches)


def test_a_client_that_keeps_more_than_agreed_is_refused() -> None:
    (client,) = random_searches(1).clients
    with pytest.raises(ParameterError, match="would keep 10 settings; 3 were agreed on"):
        averaging(share=0.5, most=3).vector(client)


def test_a_client_with_nothing_to_give_gives_zeros() -> None:
    failed = LocalSearch(np.array([[0.1, 0.0]]), np.array([np.nan]))
    assert averaging().vector(failed).tolist() == [0, 0, 0]
    agreed = clustering()
    points = agreed.points(failed)
    dense = np.ones(agreed.grid.size, dtype=bool)
    assert not agreed.occupied(points).any()
    assert not agreed.sums(points, dense).any()


def test_labels_in_the_clear_name_the_cluster_of_every_kept_setting() -> None:
    searches = peaked((0.01, 0.0), (0.01, 0.0), (1.0, 0.9))
    found = FederatedDbscan(min_points=2).combine(searches)
    assert found.labels == ((0,), (0,), (-1,))
