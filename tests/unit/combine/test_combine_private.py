"""Combinations with differential privacy: what one client moves, what is counted, what is read."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from combine_play import FRAME, GRID, averaging, clustering, peaked, random_searches
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import BudgetExceeded, ParameterError
from urna.privacy import Adjacency, Budget, Ledger, Unit
from urna.randomness import ScriptedSecrets
from urna.systems.combine import (
    FederatedDbscan,
    LocalSearch,
    MeanSetting,
    combine,
    private_dbscan,
    private_mean,
)
from urna.systems.combine.contributions import ClusterShares, Presence
from urna.systems.combine.noisy import (
    UNITS,
    cluster_vector,
    dense_cells,
    mean_vector,
    read_clusters,
)
from urna.systems.combine.sums import SettingsSum
from urna.tally import ClearSummation, EncryptedSummation, Run, SecureAggregation

scores = st.lists(st.floats(0, 1), min_size=len(GRID), max_size=len(GRID))


def search_of(values: list[float]) -> LocalSearch:
    return LocalSearch(GRID, np.array(values))


def moved(first: np.ndarray, second: np.ndarray) -> int:
    return int(((first - second) ** 2).sum())


@settings(max_examples=200)
@given(scores, scores)
def test_replacing_a_client_moves_counts_of_clients_by_no_more_than_is_priced(
    one: list[float], other: list[float]
) -> None:
    summed = SettingsSum(clustering(2, tolerance=0.9))
    valid = summed.contribution
    vectors = [summed.vector(search_of(s)) for s in (one, other)]
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


@given(scores)
def test_a_clients_mean_is_a_point_of_the_cube(values: list[float]) -> None:
    vector = mean_vector(averaging(0.2), search_of(values))
    assert np.abs(vector).max() <= UNITS // 2


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


@pytest.mark.parametrize("summation", [ClearSummation(), SecureAggregation(), EncryptedSummation()])
def test_with_little_noise_the_mean_is_close(
    summation: ClearSummation | SecureAggregation | EncryptedSummation,
) -> None:
    """Five standard deviations of the noise left: once in a million for two axes."""
    searches = random_searches(12, seed=1)
    run = private_mean(
        searches.clients, averaging(), budget=Budget(20.0, 1e-3), summation=summation
    )
    clear = FRAME.units(FRAME.row(MeanSetting().combine(searches).setting)[None, :])[0]
    found = FRAME.units(FRAME.row(run.combined.setting)[None, :])[0]
    allowed = 5.2 * run.noise[0] / UNITS / 12 + 1 / UNITS
    assert np.abs(found - clear).max() < allowed < 0.35


def test_both_sums_are_counted_and_keep_within_the_budget(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "cap.ledger", Budget(4.0, 1e-5), subject="settings")
    kept: list[Any] = []
    run = private_dbscan(
        random_searches(6).clients,
        clustering(2),
        budget=Budget(4.0, 1e-5),
        run=Run(ledger=ledger, keep=kept.append),
    )
    assert len(run.entries) == 2
    assert len(kept) == 2, "after each sum"
    assert kept[0].entries == run.entries[:1]
    assert kept[0].privacy.epsilon < run.privacy.epsilon <= 4.0
    assert ledger.spent().epsilon == pytest.approx(run.privacy.epsilon)
    assert "2 sums together" in str(run.privacy)
    with pytest.raises(BudgetExceeded):
        private_mean(
            random_searches(6).clients, averaging(), budget=Budget(1, 1e-5), run=Run(ledger=ledger)
        )


def test_a_ledger_without_room_for_both_is_not_touched(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "cap.ledger", Budget(1.0, 1e-5), subject="settings")
    with pytest.raises(BudgetExceeded):
        private_dbscan(
            random_searches(6).clients,
            clustering(2),
            budget=Budget(2.0, 1e-5),
            run=Run(ledger=ledger),
        )
    assert ledger.spent().epsilon == 0


def test_scripted_secrets_promise_nothing(tmp_path: Path) -> None:
    run = private_mean(
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
        private_mean(
            searches.clients,
            averaging(),
            budget=Budget(1, 1e-5),
            adjacency=Adjacency.REPLACE_ONE_RECORD,
        )
    with pytest.raises(ParameterError, match="noise needs a budget"):
        combine(searches, "mean", guarantee="dp")
    assert Adjacency.REPLACE_ONE_RECORD.unit is Unit.RECORD


@pytest.mark.parametrize("guarantee", ["dp", "both"])
@pytest.mark.parametrize("name", ["mean", "dbscan"])
def test_results_with_noise_say_how_they_were_added_up(guarantee: str, name: str) -> None:
    done = combine(random_searches(5), name, guarantee=guarantee, budget=Budget(8.0, 1e-5))
    assert 0 < done.privacy.epsilon <= 8.0
    assert done.points == ()
    assert len(done.opened) == len(done.noise) == (1 if name == "mean" else 2)
    how = "threshold encryption" if guarantee == "both" else "secure aggregation"
    assert how in str(done.privacy)
