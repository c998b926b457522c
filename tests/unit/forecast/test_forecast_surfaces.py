"""Made-up searches over any space."""

import numpy as np
import pytest
from benchmarks.landscapes import draw_space

from urna.errors import ParameterError
from urna.forecast.surfaces import KINDS, LossSurface, kinds_of, stand_in
from urna.space import Axis, Space

GRID = Space(lr=Axis.log_range(1e-5, 1.0, 6), depth=[1, 2, 3], kind=["a", "b"])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("space", [GRID, GRID.only(range(0, 36, 5))], ids=["grid", "subset"])
def test_every_kind_has_a_row_for_each_client_and_a_best(kind: str, space: Space) -> None:
    land = KINDS[kind](np.random.default_rng(1), space, 7)
    assert land.seen.shape == (7, len(space))
    assert np.isfinite(land.seen).all()
    assert land.regret.min() == 0
    assert land.regret.max() == 1
    assert land.regret[land.quality.argmax()] == 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_clients_that_deviate_more_agree_less(kind: str) -> None:
    close, far = (KINDS[kind](np.random.default_rng(3), GRID, 40, apart) for apart in (0.05, 1.0))
    assert np.array_equal(close.quality, far.quality)
    assert close.agreement > far.agreement + 0.05


def test_agreement_is_the_mean_correlation() -> None:
    true = np.array([0.0, 1.0, 3.0])
    assert LossSurface(np.array([true, -true]), true).agreement == pytest.approx(0.0)
    assert LossSurface(np.array([2 * true + 5]), true).agreement == pytest.approx(1.0)


def test_surfaces_of_a_process_resemble_their_neighbours() -> None:
    """Neighbours along the axis correlate; in the kind without structure they do not."""
    space = Space(x=list(range(12)))
    rng = np.random.default_rng(0)
    near = {
        kind: np.mean(
            [
                np.corrcoef(q[:-1], q[1:])[0, 1]
                for q in (KINDS[kind](rng, space, 1).quality for _ in range(200))
            ]
        )
        for kind in ("process", "none")
    }
    assert near["process"] > 0.3
    assert abs(near["none"]) < 0.25  # −1/11 is expected, with a deviation of 0.02


def test_kinds_follow_the_axes() -> None:
    assert kinds_of(GRID) == ("rates", "bowl", "process")
    assert kinds_of(Space(depth=[1, 2, 3])) == ("bowl", "process")
    assert kinds_of(Space(a=["x", "y"], b=["u", "v"])) == ("process",)
    assert kinds_of(Space(a=["x", "y", "z"])) == ()


@pytest.mark.parametrize("count", [1, 2, 7, 12, 97, 100, 250, 1000])
def test_a_stand_in_has_as_many_candidates_as_asked(count: int) -> None:
    assert len(stand_in(count)) == count


def test_a_stand_in_of_nothing_is_refused() -> None:
    with pytest.raises(ParameterError, match="at least one candidate, got 0"):
        stand_in(0)


def test_drawn_spaces_are_of_the_promised_size() -> None:
    rng = np.random.default_rng(0)
    sizes = [len(draw_space(rng)) for _ in range(20)]
    assert all(20 <= size <= 250 for size in sizes)
    assert len(set(sizes)) > 5
