import hashlib
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from urna.errors import ParameterError
from urna.systems.vote import BallotShape, fill_ballot
from urna.systems.vote.ballot import Ballot, BallotKind, ScoreShape, read_ballot
from urna.systems.vote.settings import choose_ballot

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


ANY_LOSSES = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30)
SHAPES = st.sampled_from(["top", "ranked", "scored", "sharp", "tiny"])


def shape_of(name: str, candidates: int) -> Ballot:
    return {
        "top": BallotShape.top_k(min(5, candidates), candidates),
        "ranked": BallotShape.ranked(3.0, candidates),
        "scored": ScoreShape.of(candidates, 4.0),
        "sharp": ScoreShape(candidates, power=12.0, norm=3),
        "tiny": ScoreShape(candidates, power=0.5, norm=1),
    }[name]


@given(ANY_LOSSES, SHAPES, st.integers(0, 1000))
def test_every_loss_there_is_makes_a_valid_ballot(losses: list[float], name: str, n: int) -> None:
    """An error, or a ballot outside the norm, would tell of the losses before any noise."""
    shape = shape_of(name, len(losses))
    shape.check(fill_ballot(np.array(losses), shape, key(n)))


@given(ANY_LOSSES)
@example([0.0, 4.9e87, 2.7e-221])  # a gap that is tiny beside the worst loss
def test_scores_fall_with_the_loss(losses: list[float]) -> None:
    values = np.array(losses)
    scores = fill_ballot(values, ScoreShape.of(len(losses), 3.0), key(0))
    ranked = np.where(np.isfinite(values), values, np.inf)
    order = np.lexsort((-scores, ranked))
    assert (np.diff(scores[order]) <= 0).all()


@pytest.mark.parametrize("better", [1, 6, 30, 50, 64, 65, 90])
def test_scores_use_up_their_norm_however_many_are_equally_good(better: int) -> None:
    """Rounded towards zero, 64 or 65 equal scores would leave an eighth of the norm unused."""
    losses = np.where(np.arange(100) < better, 0.1, 0.9)
    scores = fill_ballot(losses, ScoreShape.of(100, 2.0), key(0))
    assert 0.99 * 64 <= np.linalg.norm(scores) <= 64
    assert not scores[better:].any()
    assert np.ptp(scores[:better]) <= 1


def test_which_of_equal_scores_gets_one_more_is_decided_by_lot() -> None:
    losses = np.where(np.arange(100) < 65, 0.1, 0.9)
    total = sum(fill_ballot(losses, ScoreShape.of(100, 2.0), key(n)) for n in range(200))
    assert np.ptp(np.asarray(total)[:65]) < 60  # 200 if the order were that of the candidates


@pytest.mark.parametrize(
    ("losses", "named"),
    [
        ([0.3, np.nan, np.nan, np.nan, np.nan], [0]),
        ([0.1, np.inf, np.inf, 0.1, np.inf], [0, 3]),
        ([0.1] * 6 + [0.9] * 4, list(range(6))),
        ([0.1] * 6 + [np.inf] * 4, list(range(6))),
        ([0.2, 0.1], [1]),
        ([1e308, 1.7e308, 1.7e308, 1.1e308], [0, 3]),
        ([-1.7e308, 1.7e308, 0.0], [0]),
        ([5e-324, 0.0, 1.0], [0, 1]),
    ],
)
def test_scores_name_what_is_better_wherever_losses_differ(
    losses: list[float], named: list[int]
) -> None:
    scores = fill_ballot(np.array(losses), ScoreShape(len(losses)), key(0))
    assert np.flatnonzero(scores).tolist() == named


@pytest.mark.parametrize("best", [1, 4, 5, 9])
def test_scores_do_not_go_flat_where_most_diverge_however_many_are_best(best: int) -> None:
    losses = np.array([0.5] * best + [2.3] * 5 + [50.0] * (15 - best))
    for power in (2.0, 3.0, 4.0):
        scores = fill_ballot(losses, ScoreShape.of(20, power), key(0))
        assert scores[:best].min() > 3 * scores[best:].max()


@pytest.mark.parametrize("losses", [[0.4] * 7, [np.nan] * 3, [np.inf, -np.inf], [2.0]])
def test_scores_abstain_where_all_candidates_are_alike(losses: list[float]) -> None:
    assert not fill_ballot(np.array(losses), ScoreShape(len(losses)), key(0)).any()


def test_the_scale_and_the_place_of_losses_do_not_matter_to_scores() -> None:
    losses = np.random.default_rng(1).random(50)
    once = fill_ballot(losses, ScoreShape(50), key(0))
    assert fill_ballot(1024.0 * losses, ScoreShape(50), key(0)).tolist() == once.tolist()
    moved = fill_ballot(losses + 3.0, ScoreShape(50), key(0))
    assert np.abs(moved - once).max() <= 1  # a score at the edge of two whole numbers


@pytest.mark.parametrize("candidates", [10, 1000, 100_000])
def test_ballots_over_many_candidates_are_not_empty(candidates: int) -> None:
    losses = np.random.default_rng(2).random(candidates)
    shape = ScoreShape.of(candidates, 4.0)
    scores = fill_ballot(losses, shape, key(0))
    assert float(scores @ scores) > 0.3 * shape.norm**2


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.2, 0.5, 2.0])
@pytest.mark.parametrize("kind", [*BallotKind, None])
def test_ballots_are_chosen_from_public_facts_and_read_back(
    kind: BallotKind | None, noise: float
) -> None:
    shape = choose_ballot(kind, candidates=40, noise=noise)
    assert read_ballot(shape.as_mapping(), 40) == shape
    assert choose_ballot(shape, candidates=40, noise=9.0) == shape
    assert str(shape).startswith(str(kind or BallotKind.SCORED))


def test_stronger_noise_makes_ballots_no_narrower() -> None:
    noises = [0.01, 0.06, 0.1, 0.2, 0.5, 2.0]
    ranked = [choose_ballot("ranked", candidates=100, noise=n) for n in noises]
    widths = [len(shape.weights) for shape in ranked if isinstance(shape, BallotShape)]
    assert widths == sorted(widths)
    scored = [choose_ballot("scored", candidates=100, noise=n) for n in noises]
    powers = [shape.power for shape in scored if isinstance(shape, ScoreShape)]
    assert powers == sorted(powers, reverse=True)


def test_wrong_ballots_are_refused_with_a_reason() -> None:
    with pytest.raises(ParameterError, match="kind of ballot"):
        choose_ballot("plural", candidates=4, noise=0.1)
    with pytest.raises(ParameterError, match="only top-k"):
        choose_ballot("ranked", candidates=4, noise=0.1, votes=2)
    with pytest.raises(ParameterError, match="this ballot is for 5"):
        choose_ballot(BallotShape.top_k(1, 5), candidates=4, noise=0.1)
    with pytest.raises(ParameterError, match="a ballot has weights"):
        read_ballot({"weights": [1], "norm": 3}, 4)
    with pytest.raises(ParameterError, match="width"):
        BallotShape.ranked(0.0, 4)
    with pytest.raises(ParameterError, match="power"):
        ScoreShape(4, power=math.inf)
