import numpy as np
import pytest

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import hold_out


def numbered(targets: np.ndarray) -> Samples:
    return Samples(np.arange(len(targets), dtype=float)[:, None], targets)


def test_every_row_is_in_exactly_one_part() -> None:
    parts = hold_out(numbered(np.arange(23) % 3), fraction=0.2, seed=1)
    rows = np.concatenate([parts.train.features[:, 0], parts.validation.features[:, 0]])
    assert sorted(rows.tolist()) == list(range(23))
    assert len(parts.validation) == round(23 * 0.2)


@pytest.mark.parametrize("seed", range(20))
def test_each_class_gives_its_share_rounded_up_or_down(seed: int) -> None:
    targets = np.repeat([0, 1, 2], [50, 30, 7])
    parts = hold_out(numbered(targets), fraction=0.2, seed=seed)
    counts = np.bincount(parts.validation.targets, minlength=3)
    shares = np.array([50, 30, 7]) * 17 / 87  # 17 = round(87 * 0.2)
    assert np.all(np.abs(counts - shares) < 1)


def test_rows_of_both_parts_are_not_ordered_by_class() -> None:
    parts = hold_out(numbered(np.arange(200) // 100), fraction=0.5, seed=0)
    for part in (parts.train, parts.validation):
        assert not np.array_equal(part.targets, np.sort(part.targets))


def test_the_seed_decides_the_split() -> None:
    data = numbered(np.arange(40) % 2)
    first, again, other = (hold_out(data, seed=s).validation.features for s in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(np.sort(first, axis=0), np.sort(other, axis=0))


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_both_parts_hold_at_least_one_row(fraction: float) -> None:
    parts = hold_out(numbered(np.arange(2)), fraction=fraction, seed=0)
    assert (len(parts.train), len(parts.validation)) == (1, 1)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_client_with_too_few_samples_is_told_so(rows: int) -> None:
    with pytest.raises(ParameterError, match=f"at least 2 samples.*has {rows}"):
        hold_out(numbered(np.zeros(rows, dtype=int)), seed=0)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_fraction_outside_the_open_unit_interval_is_refused(fraction: float) -> None:
    with pytest.raises(ParameterError, match="fraction"):
        hold_out(numbered(np.arange(10)), fraction=fraction, seed=0)
