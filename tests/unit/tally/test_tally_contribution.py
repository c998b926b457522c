"""What a bounded vector is: its norm exactly, how far it moves a sum, where sums lie."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.privacy import Adjacency, Sensitivity
from urna.tally import BoundedVector, SumRange

LEAST = np.iinfo(np.int64).min


@settings(deadline=None)
@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=8),
    st.integers(1, 2**84),
)
@example([2**32, 2**32], 2**65)  # whose squares are zero modulo 2^64
@example([2**32, 2**32], 2**65 - 1)
@example([2**31, 2**31, 2**31, 2**31], 2**64 - 1)
@example([3, 4], 25)
@example([3, 4], 24)
def test_the_norm_is_checked_exactly(entries: list[int], bound: int) -> None:
    vector = np.array(entries, dtype=np.int64)
    what = BoundedVector(len(entries), bound)
    if sum(entry**2 for entry in entries) <= bound:
        what.check(vector)
    else:
        with pytest.raises(ParameterError, match="at most"):
            what.check(vector)


@pytest.mark.parametrize(
    "vector",
    [
        np.full(4, 16, dtype=np.int8),  # 16² is 0 in eight bits
        np.full(4, -128, dtype=np.int8),  # whose magnitude eight bits do not hold
        np.full(4, 255, dtype=np.uint8),
        np.full(4, LEAST),
        np.full(4, 2**63, dtype=np.uint64),
        np.full(4, -(2**31), dtype=np.int32),
    ],
    ids=lambda vector: f"{vector[0]} of {vector.dtype}",
)
def test_a_long_vector_of_narrow_integers_does_not_pass_for_a_short_one(
    vector: np.ndarray,
) -> None:
    with pytest.raises(ParameterError, match="at most"):
        BoundedVector(4, 300).check(vector)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int64, np.uint64])
def test_integers_of_every_width_are_accepted_up_to_the_norm(kind: type[np.integer]) -> None:
    BoundedVector(3, 110).check(np.array([10, 1, 3], dtype=kind))
    with pytest.raises(ParameterError, match="squared norm of a vector is at most 109, got 110"):
        BoundedVector(3, 109).check(np.array([10, 1, 3], dtype=kind))


def test_a_million_entries_are_added_up_without_overflow() -> None:
    vector = np.full(1_000_000, 3_000_000, dtype=np.int64)  # 9·10^18: just below 2^63
    BoundedVector(1_000_000, 9 * 10**18).check(vector)
    vector[0] += 1_000_000
    with pytest.raises(ParameterError, match="squared norm"):
        BoundedVector(1_000_000, 9 * 10**18).check(vector)


def test_an_entry_may_be_bounded_more_tightly_than_the_norm() -> None:
    what = BoundedVector(3, 100, most=6)
    assert (what.reach, BoundedVector(3, 100).reach, BoundedVector(3, 100, most=99).reach) == (
        6,
        10,
        10,
    )
    what.check(np.array([6, -6, 5]))
    with pytest.raises(ParameterError, match="at most 6 in magnitude"):
        what.check(np.array([0, -7, 0]))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 400), st.data())
def test_no_two_vectors_are_farther_apart_than_a_move(bound: int, data: st.DataObject) -> None:
    what = BoundedVector(3, bound)
    entries = st.lists(st.integers(-what.reach, what.reach), min_size=3, max_size=3).filter(
        lambda entries: sum(entry**2 for entry in entries) <= bound
    )
    one, other = (np.array(data.draw(entries)) for _ in range(2))
    replaced = what.sensitivity(Adjacency.REPLACE_ONE_CLIENT)
    assert int((one - other) @ (one - other)) <= replaced.l2_squared
    assert int(one @ one) <= what.sensitivity(Adjacency.ZERO_OUT_CLIENT).l2_squared
    assert np.count_nonzero(one - other) <= replaced.coordinates
    assert what.whole_client() == replaced == Sensitivity(4 * bound, 3)


def test_a_record_moves_a_vector_only_as_far_as_somebody_has_proven() -> None:
    known = BoundedVector(5, 100, record_squared=9)
    assert known.sensitivity(Adjacency.REPLACE_ONE_RECORD) == Sensitivity(9, 5)
    with pytest.raises(ParameterError, match="ask for a relation about clients"):
        BoundedVector(5, 100).sensitivity(Adjacency.REPLACE_ONE_RECORD)


def test_two_clients_may_be_proven_nearer_than_twice_the_norm() -> None:
    known = BoundedVector(5, 100, record_squared=9, client_squared=250, beyond=1e-20)
    assert known.sensitivity(Adjacency.REPLACE_ONE_CLIENT) == Sensitivity(250, 5, 1e-20)
    assert known.whole_client() == Sensitivity(250, 5, 1e-20)
    assert known.sensitivity(Adjacency.REPLACE_ONE_RECORD) == Sensitivity(9, 5, 1e-20)
    assert known.sensitivity(Adjacency.ZERO_OUT_CLIENT) == Sensitivity(100, 5)
    assert BoundedVector.read(known.as_mapping()) == known


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 60), st.data())
def test_sums_of_valid_vectors_lie_in_their_range(
    clients: int, bound: int, data: st.DataObject
) -> None:
    what = BoundedVector(4, bound)
    entries = st.lists(st.integers(-what.reach, what.reach), min_size=4, max_size=4).filter(
        lambda entries: sum(entry**2 for entry in entries) <= bound
    )
    total = np.sum([data.draw(entries) for _ in range(clients)], axis=0)
    where = what.range_of(clients)
    assert where.low <= total.min() <= total.max() <= where.high
    assert where.total_low <= total.sum() <= where.total_high


def test_the_range_is_reached() -> None:
    # (2, 2, 2, 2) has the norm 4: the sum of its entries is √dimension times as much.
    assert BoundedVector(4, 16).range_of(3) == SumRange(-12, 12, -24, 24)


@pytest.mark.parametrize(
    "wrong", [(0, 1), (1, 0), (1, 1, 0), (1, 1, 1, 0), (1.0, 1), (1, math.inf), (True, 4)]
)
def test_what_bounds_nothing_is_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="positive integers"):
        BoundedVector(*wrong)


@pytest.mark.parametrize("what", [BoundedVector(3, 2**70), BoundedVector(3, 9, 4, 2)])
def test_it_is_read_from_what_it_writes(what: BoundedVector) -> None:
    assert BoundedVector.read(json.loads(json.dumps(what.as_mapping()))) == what
