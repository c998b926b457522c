"""Ballots as contributions: what is valid, how far one moves a sum, where sums lie."""

import itertools
import json
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.privacy import Adjacency, Sensitivity
from urna.systems.vote import Ballots, BallotShape
from urna.systems.vote.ballot import Ballot, ScoreShape, read_ballot
from urna.tally import SumRange

REPLACE, ZERO_OUT = Adjacency.REPLACE_ONE_CLIENT, Adjacency.ZERO_OUT_CLIENT


def valid(shape: Ballot, most: int) -> list[np.ndarray]:
    """Every valid ballot, by trying all vectors up to `most`."""
    found = []
    for entries in itertools.product(range(most + 1), repeat=shape.candidates):
        ballot = np.array(entries)
        try:
            shape.check(ballot)
        except ParameterError:
            continue
        found.append(ballot)
    return found


def farthest(ballots: Iterable[np.ndarray]) -> tuple[int, int]:
    """The largest squared distance of two ballots, and the most places in which two differ."""
    pairs = [a - b for a, b in itertools.product(list(ballots), repeat=2)]
    return max(int(d @ d) for d in pairs), max(int(np.count_nonzero(d)) for d in pairs)


@pytest.mark.parametrize("candidates", range(1, 6))
@pytest.mark.parametrize("votes", range(1, 6))
def test_equal_votes_move_as_far_as_is_priced_and_no_farther(candidates: int, votes: int) -> None:
    if votes > candidates:
        return
    shape = BallotShape.top_k(votes, candidates)
    ballots = valid(shape, 1)
    assert shape.sensitivity(REPLACE) == Sensitivity(*farthest(ballots))
    assert shape.sensitivity(ZERO_OUT) == Sensitivity(votes, votes)


@pytest.mark.parametrize("weights", [(3, 1), (3, 2, 1), (2, 2, 1), (3, 3)])
@pytest.mark.parametrize("candidates", [3, 4, 6])
def test_ranked_ballots_move_no_farther_than_is_priced(
    weights: tuple[int, ...], candidates: int
) -> None:
    shape = BallotShape(weights, candidates)
    squared, places = farthest(valid(shape, 3))
    sensitivity = shape.sensitivity(REPLACE)
    assert squared <= sensitivity.l2_squared
    assert places <= sensitivity.coordinates
    # Where two ballots need not have a candidate in common, it is attained.
    if candidates >= 2 * len(weights):
        assert (squared, places) == (sensitivity.l2_squared, sensitivity.coordinates)
    assert shape.sensitivity(ZERO_OUT) == Sensitivity(sum(w**2 for w in weights), len(weights))


@pytest.mark.parametrize("norm", [1, 2, 5])
def test_scores_move_as_far_as_is_priced_and_no_farther(norm: int) -> None:
    shape = ScoreShape(3, norm=norm)
    squared, places = farthest(valid(shape, norm))
    assert shape.sensitivity(REPLACE).l2_squared == squared == 2 * norm**2
    assert places <= shape.sensitivity(REPLACE).coordinates
    assert shape.sensitivity(ZERO_OUT).l2_squared == norm**2


@pytest.mark.parametrize(
    "shape",
    [BallotShape.top_k(2, 4), BallotShape((3, 2, 1), 4), ScoreShape(4, norm=3)],
    ids=["equal", "ranked", "scores"],
)
def test_sums_of_ballots_lie_in_their_range_and_reach_its_edges(shape: Ballot) -> None:
    ballots = valid(shape, 3)
    three = [sum(some) for some in itertools.combinations_with_replacement(ballots, 3)]
    where = Ballots(shape).range_of(3)
    assert where.low == min(int(t.min()) for t in three) == 0
    assert where.high == max(int(t.max()) for t in three)
    assert where.total_low == 0
    most = max(int(t.sum()) for t in three)
    # Of scores the bound is by the norm, which whole numbers need not reach.
    assert most <= where.total_high <= most + 3


class TestShards:
    shape = BallotShape.top_k(2, 5)
    what = Ballots(shape, shards=3)

    def test_a_client_adds_up_a_ballot_for_each_shard(self) -> None:
        assert (self.what.dimension, self.what.reach) == (5, 3)
        assert self.what.range_of(4) == SumRange(0, 12, 0, 24)

    def test_one_record_moves_one_ballot_and_a_client_all_of_them(self) -> None:
        one = self.shape.sensitivity(REPLACE)
        assert self.what.sensitivity(Adjacency.REPLACE_ONE_RECORD) == one == Sensitivity(4, 4)
        # Nine times as far, squared; in no more places than there are.
        assert self.what.whole_client() == Sensitivity(36, 5)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(-1, 4), min_size=5, max_size=5))
    def test_no_sum_of_valid_ballots_is_refused(self, entries: list[int]) -> None:
        vector = np.array(entries)
        possible = {
            tuple(sum(some))
            for some in itertools.combinations_with_replacement(valid(self.shape, 1), 3)
        }
        if tuple(entries) in possible:
            self.what.check(vector)
        elif min(entries) < 0 or max(entries) > 3 or sum(entries) > 6:
            with pytest.raises(ParameterError):
                self.what.check(vector)

    def test_more_than_its_ballots_can_give_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="give a candidate 0 to 3"):
            self.what.check(np.array([4, 0, 0, 0, 0]))
        with pytest.raises(ParameterError, match="give a candidate 0 to 3"):
            self.what.check(np.array([-1, 0, 0, 0, 0]))
        with pytest.raises(ParameterError, match="more than 3 ballots can give together"):
            self.what.check(np.array([3, 3, 1, 0, 0]))

    def test_a_single_ballot_is_held_to_its_shape(self) -> None:
        with pytest.raises(ParameterError, match="on 2 candidates, or nothing"):
            Ballots(self.shape).check(np.array([1, 1, 1, 0, 0]))


@pytest.mark.parametrize(
    "shape",
    [BallotShape.top_k(2, 5), BallotShape.ranked(1.5, 5), ScoreShape(5, 2.0, 64)],
    ids=["equal", "ranked", "scores"],
)
def test_ballots_are_read_from_what_they_write(shape: Ballot) -> None:
    written = json.loads(json.dumps(Ballots(shape, 3).as_mapping()))
    assert read_ballot(written["ballot"], written["candidates"]) == shape
    assert (written["kind"], written["shards"]) == ("ballots", 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"weights": [1], "power": 2.0},
        {"weights": "11"},
        {"power": 2, "norm": 64},
        {"power": 2.0},
        {"weights": [0]},
        {"weights": [1, 2]},
        {"weights": [1] * 9},
        {"power": 2.0, "norm": 0},
        {"power": -1.0, "norm": 64},
    ],
    ids=repr,
)
def test_what_is_no_ballot_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        read_ballot(wrong, 5)
