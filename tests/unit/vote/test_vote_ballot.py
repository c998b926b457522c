import hashlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from urna.errors import ParameterError
from urna.privacy import BallotShape
from urna.vote import fill_ballot

FALSE_ALARM = 1e-6  # how often right ballots would fail a statistical test on fresh keys

LOSSES = st.lists(
    st.one_of(st.floats(-10, 10), st.sampled_from([0.0, 1.0, np.nan, np.inf, -np.inf])),
    min_size=4,
    max_size=12,
)


def key(number: int) -> bytes:
    return hashlib.sha256(b"ballot key %d" % number).digest()


@given(LOSSES, st.integers(1, 4), st.integers(0, 1000))
def test_a_ballot_holds_exactly_k_ones_or_is_empty(losses: list[float], k: int, n: int) -> None:
    values = np.array(losses)
    ballot = fill_ballot(values, BallotShape.top_k(k, len(losses)), key(n))
    assert set(ballot.tolist()) <= {0, 1}
    assert ballot.sum() == (k if np.isfinite(values).any() else 0)


@given(LOSSES, st.integers(1, 4), st.integers(0, 1000))
def test_no_candidate_left_out_beats_one_that_is_named(losses: list[float], k: int, n: int) -> None:
    values = np.array(losses)
    ballot = fill_ballot(values, BallotShape.top_k(k, len(losses)), key(n))
    ranked = np.where(np.isfinite(values), values, np.inf)
    if 0 < ballot.sum() < len(losses):
        assert ranked[ballot == 1].max() <= ranked[ballot == 0].min()


def test_weights_follow_the_ranks() -> None:
    losses = np.array([0.5, 0.1, 0.4, 0.2, 0.3])
    ballot = fill_ballot(losses, BallotShape((7, 4, 1), 5), key(0))
    assert ballot.tolist() == [0, 7, 0, 4, 1]


@pytest.mark.parametrize("failed", [np.nan, np.inf, -np.inf])
def test_losses_that_are_not_finite_rank_last(failed: float) -> None:
    losses = np.array([failed, 5.0, failed, 3.0, failed])
    for number in range(20):
        ballot = fill_ballot(losses, BallotShape((9, 3, 1), 5), key(number))
        assert (ballot[3], ballot[1]) == (9, 3)
        assert sorted(ballot[[0, 2, 4]].tolist()) == [0, 0, 1]


@pytest.mark.parametrize("failed", [np.nan, np.inf, -np.inf])
def test_a_client_with_nothing_finite_abstains(failed: float) -> None:
    ballot = fill_ballot(np.full(4, failed), BallotShape.top_k(2, 4), key(0))
    assert ballot.tolist() == [0, 0, 0, 0]


def test_a_ballot_is_a_function_of_losses_and_key() -> None:
    losses, shape = np.zeros(100), BallotShape.top_k(5, 100)
    first = fill_ballot(losses, shape, key(1)).tolist()
    assert first == fill_ballot(losses, shape, key(1)).tolist()
    assert first != fill_ballot(losses, shape, key(2)).tolist()


def test_the_key_decides_nothing_where_there_is_no_tie() -> None:
    losses, shape = np.random.default_rng(3).permutation(100) / 100, BallotShape.top_k(5, 100)
    ballots = {tuple(fill_ballot(losses, shape, key(n)).tolist()) for n in range(10)}
    assert len(ballots) == 1


def even(counts: npt.NDArray[np.int64], draws: int, k: int) -> bool:
    """Tell whether every candidate was named equally often, but for chance.

    Each of m candidates is in a top-k ballot with probability k/m. The counts are negatively
    correlated (k without replacement), which makes Pearson's statistic (m − k)/(m − 1) times
    a chi-square of m − 1 degrees of freedom.
    """
    m = len(counts)
    expected = draws * k / m
    pearson = float(((counts - expected) ** 2 / expected).sum()) * (m - 1) / (m - k)
    return float(stats.chi2.sf(pearson, m - 1)) > FALSE_ALARM


@pytest.mark.statistical
def test_ties_favour_no_candidate() -> None:
    m, k, draws = 12, 3, 3_000
    shape, losses = BallotShape.top_k(k, m), np.zeros(m)
    counts = sum(fill_ballot(losses, shape, key(n)) for n in range(draws))
    assert even(np.asarray(counts), draws, k)


@pytest.mark.statistical
def test_the_check_on_ties_notices_an_order_by_index() -> None:
    m, k, draws = 12, 3, 3_000
    by_index = np.zeros(m, dtype=np.int64)
    by_index[:k] = draws
    assert not even(by_index, draws, k)
    # A subtler fault: one client in ten breaks ties by index.
    mostly = sum(fill_ballot(np.zeros(m), BallotShape.top_k(k, m), key(n)) for n in range(2_700))
    by_index[:k] = 300
    assert not even(np.asarray(mostly) + by_index, draws, k)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros(5), np.zeros((2, 2))])
def test_as_many_losses_as_candidates_are_needed(wrong: npt.NDArray[np.float64]) -> None:
    with pytest.raises(ParameterError, match="over 4 candidates needs as many losses"):
        fill_ballot(wrong, BallotShape.top_k(2, 4), key(0))
