"""Density clusters with noise: what one client moves, and what is read from the sums."""

import itertools

import numpy as np
import pytest
from benchmarks.papers.noisy_clusters import (
    UNITS,
    ClusterShares,
    Presence,
    cluster_vector,
    dense_cells,
    private_dbscan,
    read_clusters,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget
from urna.space import Axis, Space
from urna.systems.combine import Clustering, FederatedDbscan, Frame, LocalSearch, Searches
from urna.tally import ClearSummation

RATES, MOMENTA = (0.01, 0.03, 0.1, 0.3, 1.0), (0.0, 0.3, 0.6, 0.9)
GRID = np.array(list(itertools.product(RATES, MOMENTA)))
FRAME = Frame.of(Space(lr=Axis.log(RATES), momentum=Axis.linear(MOMENTA)), log=True)

scores = st.lists(st.floats(0, 1), min_size=len(GRID), max_size=len(GRID))


def clustering(min_points: int, tolerance: float = 0.15) -> Clustering:
    return Clustering(FRAME, min_points=min_points, tolerance=tolerance)


def peaked(*peaks: tuple[float, float]) -> Searches:
    """Return clients that each found one good setting, and nothing good elsewhere."""
    found = [np.where(np.isclose(GRID, peak).all(axis=1), 0.9, 0.1) for peak in peaks]
    return Searches(FRAME, tuple(LocalSearch(GRID, row) for row in found))


def search_of(values: list[float]) -> LocalSearch:
    return LocalSearch(GRID, np.array(values))


def moved(first: np.ndarray, second: np.ndarray) -> int:
    return int(((first - second) ** 2).sum())


@settings(max_examples=200)
@given(scores, scores)
def test_replacing_a_client_moves_counts_of_clients_by_no_more_than_is_priced(
    one: list[float], other: list[float]
) -> None:
    agreed = clustering(2, tolerance=0.9)
    valid = Presence(agreed.grid.size, min(agreed.most, agreed.grid.size))
    vectors = [agreed.occupied(agreed.points(search_of(s))) for s in (one, other)]
    for vector in vectors:
        valid.check(vector)
        assert set(vector.tolist()) <= {0, 1}
        zeroed = valid.sensitivity(Adjacency.ZERO_OUT_CLIENT)
        assert moved(vector, np.zeros_like(vector)) <= zeroed.l2_squared
    assert moved(*vectors) <= valid.sensitivity(Adjacency.REPLACE_ONE_CLIENT).l2_squared


@pytest.mark.parametrize(("cells", "most"), [(49, 10), (12, 10), (7, 7), (1, 1)])
def test_the_bound_on_counts_of_clients_is_reached(cells: int, most: int) -> None:
    """A client in the first cells and one in others; or a client and nobody."""
    valid = Presence(cells, most)
    places = np.arange(cells)
    first = (places < most).astype(np.int64)
    other = ((places >= most) & (places < 2 * most)).astype(np.int64)
    for vector in (first, other):
        valid.check(vector)
    assert moved(first, other) == valid.whole_client().l2_squared == min(2 * most, cells)
    assert (
        moved(first, 0 * first) == valid.sensitivity(Adjacency.ZERO_OUT_CLIENT).l2_squared == most
    )


@settings(max_examples=200)
@given(scores, scores, st.integers(0, 1000))
def test_replacing_a_client_moves_cluster_shares_by_no_more_than_is_priced(
    one: list[float], other: list[float], seed: int
) -> None:
    agreed = clustering(2, tolerance=0.5)
    dense = np.random.default_rng(seed).random(agreed.grid.size) < 0.3
    valid = ClusterShares(agreed.grid.most_clusters, 2, UNITS)
    vectors = [cluster_vector(agreed, agreed.points(search_of(s)), dense) for s in (one, other)]
    for vector in vectors:
        valid.check(vector)
        assert moved(vector, 0 * vector) <= valid.sensitivity(Adjacency.ZERO_OUT_CLIENT).l2_squared
    assert moved(*vectors) <= valid.sensitivity(Adjacency.REPLACE_ONE_CLIENT).l2_squared


@pytest.mark.parametrize(("axes", "quarters"), [(1, 12), (2, 14), (4, 20), (7, 32)])
def test_the_bound_on_cluster_shares_is_reached(axes: int, quarters: int) -> None:
    """Opposite corners of one cluster, or two clusters: the worst of both is the bound."""
    valid = ClusterShares(2, axes, 4)
    corner = [2] * (axes + 1)
    there = np.array([*corner, 4, *[0] * (axes + 2)])
    opposite = np.array([*(-c for c in corner), 4, *[0] * (axes + 2)])
    elsewhere = np.array([*[0] * (axes + 2), *corner, 4])
    for vector in (there, opposite, elsewhere):
        valid.check(vector)
    worst = max(moved(there, opposite), moved(there, elsewhere))
    assert worst == valid.whole_client().l2_squared == 4 * quarters


@pytest.mark.parametrize(
    "wrong",
    [[0, 0, 0, -1], [0, 0, 0, 9], [5, 0, 0, 8], [0, -5, 0, 8], [0, 0, 5, 8]],
    ids=["negative share", "too much", "place", "place below", "score"],
)
def test_cluster_shares_beyond_their_bounds_are_refused(wrong: list[int]) -> None:
    with pytest.raises(ParameterError):
        ClusterShares(1, 2, 8).check(np.array(wrong))


def test_counts_beyond_their_bounds_are_refused() -> None:
    valid = Presence(3, 2)
    valid.check(np.array([0, 1, 1]))
    for wrong in ([1, 1, 1], [-1, 0, 0], [2, 0, 0]):
        with pytest.raises(ParameterError):
            valid.check(np.array(wrong))
    with pytest.raises(ParameterError, match="records"):
        valid.sensitivity(Adjacency.REPLACE_ONE_RECORD)


def test_without_noise_the_private_readings_are_the_clear_ones() -> None:
    searches = peaked(*[(0.03, 0.0)] * 3, *[(0.03, 0.3)] * 2, *[(1.0, 0.9)] * 4)
    agreed = clustering(2)
    points = [agreed.points(client) for client in searches.clients]
    dense = dense_cells(agreed, sum(agreed.occupied(some) for some in points), noise=0.0)
    clear = FederatedDbscan(min_points=2).combine(searches)
    assert sorted(c for cluster in clear.clusters for c in cluster.cells) == [
        agreed.grid.coordinates(int(cell)) for cell in np.flatnonzero(dense)
    ]
    sums = sum(cluster_vector(agreed, some, dense) for some in points) / UNITS
    found = read_clusters(agreed, dense, sums, noise=0.0)
    assert found is not None
    for cluster, exact in zip(
        sorted(found.clusters, key=lambda c: c.cells),
        sorted(clear.clusters, key=lambda c: c.cells),
        strict=True,
    ):
        assert cluster.setting["momentum"] == pytest.approx(exact.setting["momentum"], abs=0.01)
        assert cluster.score == pytest.approx(exact.score, abs=0.01)
        assert cluster.points == pytest.approx(exact.points, abs=0.1)


def test_where_nothing_stands_out_of_the_noise_the_fullest_cell_is_dense() -> None:
    agreed = clustering(2)
    counts = np.zeros(agreed.grid.size)
    counts[17] = 5.0
    assert np.flatnonzero(dense_cells(agreed, counts, noise=10.0)).tolist() == [17]


def test_with_little_noise_the_best_cluster_is_found() -> None:
    searches = peaked(*[(0.03, 0.0)] * 12, *[(1.0, 0.9)] * 6)
    found = private_dbscan(
        searches.clients, clustering(4), budget=Budget(60.0, 1e-3), summation=ClearSummation()
    )
    assert len(found.clusters) == 2
    with pytest.raises(ParameterError):
        private_dbscan(searches.clients[:1], clustering(4), budget=Budget(0.0, 1e-3))
