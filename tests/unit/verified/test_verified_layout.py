"""What a ballot holds, as bits, and how far one ballot moves a sum."""

import itertools

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.protocols.ballots.layout import Layout

LAYOUTS = [
    Layout(3),
    Layout(3, 1, 2),
    Layout(4, 3, 5),
    Layout(4, 1, 2),
    Layout(2, 5, 7),
    Layout(3, 3, 4, (1, 4)),
    Layout(2, 2, 3),
]


def ballots(layout: Layout) -> list[np.ndarray]:
    """All valid ballots."""
    limit = layout.limit or layout.candidates * layout.levels
    choices = itertools.product(range(layout.levels + 1), repeat=layout.candidates)
    return [np.array(choice) for choice in choices if sum(choice) <= limit]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_valid_ballot_is_read_back_from_its_bits(layout: Layout) -> None:
    coins = np.arange(layout.coin_bits, dtype=np.uint8) % 2
    for ballot in ballots(layout):
        bits = layout.encode(ballot, coins)
        assert len(bits) == layout.bits
        assert set(bits.tolist()) <= {0, 1}
        assert layout.levels_of(bits, 1 << 31).tolist() == ballot.tolist()
        assert bits[layout.bits - layout.coin_bits :].tolist() == coins.tolist()
        if layout.limit is not None:
            assert int(layout.sum_weights @ bits) == layout.limit


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if not each.coins], ids=str)
def test_any_bits_that_make_up_the_limit_are_a_valid_ballot(layout: Layout) -> None:
    for bits in itertools.product((0, 1), repeat=layout.bits):
        vector = np.array(bits, dtype=np.uint64)
        if layout.limit is not None and int(layout.sum_weights @ vector) != layout.limit:
            continue
        layout.check(layout.levels_of(vector, 1 << 31))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_move_bounds_every_replaced_ballot_and_one_reaches_it(layout: Layout) -> None:
    move = layout.move
    apart = [u - v for u, v in itertools.product(ballots(layout), repeat=2)]
    longest = max(int(d @ d) for d in apart)
    assert longest <= move.l2_squared
    assert max(np.count_nonzero(d) for d in apart) <= move.coordinates
    roomy = layout.candidates >= 2 * -(-(layout.limit or 10**9) // layout.levels)
    if roomy or layout.limit is None:
        assert longest == move.l2_squared


def test_two_bits_a_candidate_and_five_approvals_have_the_moves_they_should() -> None:
    assert (Layout(200).bits, Layout(200).move.l2_squared) == (400, 1800)
    assert (Layout(100, 1, 5).move.l2_squared, Layout(100, 1, 5).move.coordinates) == (10, 10)


@pytest.mark.parametrize(
    ("ballot", "words"),
    [([0, 4, 0], "0..3"), ([-1, 0, 0], "0..3"), ([3, 2, 0], "at most 4"), ([1, 1], "3 integers")],
)
def test_an_invalid_ballot_is_not_encoded(ballot: list[int], words: str) -> None:
    layout = Layout(3, 3, 4)
    with pytest.raises(ParameterError, match=words):
        layout.encode(np.array(ballot), np.zeros(0, dtype=np.uint8))


def test_levels_are_integers() -> None:
    with pytest.raises(ParameterError, match="integers"):
        Layout(2).check(np.array([0.5, 1.0]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"candidates": 0},
        {"levels": 0},
        {"limit": 0},
        {"limit": 10},
        {"limit": 2.0},
        {"coins": (0,)},
    ],
)
def test_layouts_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        Layout(**{"candidates": 3, **wrong})  # type: ignore[arg-type]


def test_a_ballot_has_at_most_so_many_bits() -> None:
    with pytest.raises(ParameterError, match="bits"):
        Layout(10_000, 3, None, (1,) * 8)
