"""Ballots of levels, and the head start of a learning rate."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import SelectionRelease
from urna.space import Axis, Space
from urna.systems.vote import fill_ballot
from urna.systems.vote.ballot import LevelShape, read_ballot
from urna.systems.vote.plan import head_start
from urna.systems.vote.settings import choose_levels

SHAPE = LevelShape(5)


def fill(losses: npt.NDArray[np.float64], shape: LevelShape) -> IntVector:
    return fill_ballot(losses, shape, bytes(32))


@pytest.mark.parametrize(
    ("losses", "ballot"),
    [
        ([0.1, 0.2, 0.9, 0.8, 0.7], [3, 1, 0, 0, 0]),
        ([0.1, 0.1, 0.9, 0.8, 0.7], [3, 3, 0, 0, 0]),
        ([0.1, math.nan, math.inf, 0.1, 0.1], [3, 0, 0, 3, 3]),
        ([0.1, math.nan, math.nan, math.nan, 0.2], [3, 0, 0, 0, 1]),
        ([0.5] * 5, [0] * 5),
        ([math.nan] * 5, [0] * 5),
        ([-1e308, 1e308, 1e308, 1e308, 1e308], [3, 0, 0, 0, 0]),
        ([0.3, 0.3, 0.3, 0.3, 0.4], [3, 3, 3, 3, 0]),
    ],
    ids=[
        "falls",
        "tie",
        "two diverge",
        "median diverges",
        "alike",
        "failed",
        "huge",
        "median best",
    ],
)
def test_levels_fall_with_the_loss(losses: list[float], ballot: list[int]) -> None:
    found = fill(np.array(losses), SHAPE)
    assert found.tolist() == ballot
    SHAPE.check(found)


def test_ballots_do_not_go_flat_where_most_candidates_diverge() -> None:
    losses = np.array([0.5, 0.7, 1.4, 2.3, 2.3, 2.3, 2.3, 2.3, *[50.0] * 12])
    assert fill(losses, LevelShape(20)).tolist() == [3, 3, 2, *[1] * 5, *[0] * 12]


def test_losses_at_the_ends_of_what_a_float_holds_fill_a_ballot() -> None:
    losses = np.array([1.7976931348623157e308, 3.552713678800501e-15, 5e-324, 0.0])
    shape = LevelShape(4, 0.5)
    ballot = fill(losses, shape)
    shape.check(ballot)
    assert ballot[3] == shape.levels


def test_neither_scale_nor_place_of_losses_matters() -> None:
    losses = np.random.default_rng(1).random(40)
    shape = LevelShape(40, 0.8)
    assert (fill(losses, shape) == fill(4 * losses - 8, shape)).all()


def test_stronger_noise_makes_wider_ballots() -> None:
    parts = [choose_levels(9, noise_std=std, ballots=10).part for std in (1, 5, 20)]
    assert parts == [1.0, 0.7, 0.5]
    losses = np.linspace(0, 1, 90)
    given = [int(fill(losses, LevelShape(90, part)).sum()) for part in parts]
    assert given == sorted(set(given))


def test_a_ballot_moves_two_totals_apart_by_twice_its_levels() -> None:
    assert SHAPE.reach == 6


@pytest.mark.parametrize("wrong", [[0, 0, 0, 0, 4], [-1, 0, 0, 0, 0], [0, 0, 0, 0]])
def test_what_is_no_ballot_is_refused(wrong: list[int]) -> None:
    with pytest.raises(ParameterError, match="0 to 3"):
        SHAPE.check(np.array(wrong))


def test_a_shape_is_read_back() -> None:
    shape = LevelShape(5, 0.5)
    assert read_ballot(shape.as_mapping(), 5) == shape
    with pytest.raises(ParameterError, match="levels and part"):
        read_ballot({"levels": 3}, 5)


def test_only_where_an_axis_may_not_work_are_candidates_behind() -> None:
    release = SelectionRelease(0.1, 6, 12)
    rates = Axis.log([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 100.0])
    start = np.array(head_start(Space(lr=rates, kind=["a", "b"]), release)).reshape(6, 2)
    assert (start[:, 0] == start[:, 1]).all()
    assert (np.diff(start[:5, 0]) >= 0).all()
    assert start[0, 0] == 0
    # A rate that is too small or too large unless an end has no edge starts about ln 2 behind.
    assert start[4, 0] > 20
    assert start[4, 0] > start[5, 0] + 20
    assert set(head_start(Space(weight=rates, kind=["a", "b"]), release)) == {0}
