"""What is opened of the test for dense cells: a bit, and uniform numbers that say no more.

False-alarm rate: a millionth for every check on a fresh seed; seeds are fixed.
"""

import functools

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from urna.protocols import he
from urna.randomness import ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.combine import Clustering, Frame, Task

FALSE_ALARM = 1e-6
PRIME = 65_537
CELLS = 147
COUNTS = (0, 1, 3, 4, 5, 11, 20)

Opened = npt.NDArray[np.int64]


@functools.cache
def task() -> Task:
    frame = Frame.of(Space(lr=Axis.log([0.01, 1.0]), momentum=Axis.linear([0.0, 0.9])))
    return Task(2, 2, Clustering(frame, min_points=4))


@functools.cache
def opened(honest: bool) -> dict[int, Opened]:
    """Return what is opened in cells of each count; dishonest parties draw small factors."""
    step = task().steps[0]
    secrets = ScriptedSecrets(b"masks")
    parties = he.Parties(step.parameters, secrets)
    counts = np.resize(COUNTS, CELLS)
    found: dict[int, list[int]] = {count: [] for count in COUNTS}
    rng = np.random.default_rng(0)
    for _ in range(12):
        factors = [he.uniform_entries(step.parameters, secrets) for _ in range(2)]
        if not honest:
            factors = [rng.integers(1, 200, size=step.parameters.width) for _ in range(2)]
        parts = rng.integers(0, counts + 1)
        vectors = {0: [parts, factors[0]], 1: [counts - parts, factors[1]]}
        values = parties.run(vectors, circuit=step.circuit)
        for count, value in zip(counts.tolist(), values[:CELLS].tolist(), strict=True):
            found[count].append(int(value))
    return {count: np.array(values) for count, values in found.items()}


def uniform(values: Opened) -> bool:
    """Say whether values may be uniform below the prime, by a chi-square over 16 bins."""
    bins = np.bincount(values * 16 // PRIME, minlength=16)
    return bool(stats.chisquare(bins).pvalue > FALSE_ALARM)


@pytest.mark.statistical
@pytest.mark.parametrize("count", [c for c in COUNTS if c < 4])
def test_sparse_cells_open_as_zero(count: int) -> None:
    assert not opened(honest=True)[count].any()


@pytest.mark.statistical
@pytest.mark.parametrize("count", [c for c in COUNTS if c >= 4])
def test_dense_cells_open_as_uniform_numbers(count: int) -> None:
    values = opened(honest=True)[count]
    assert len(values) == 252
    assert uniform(values)


@pytest.mark.statistical
def test_how_dense_a_cell_is_does_not_show() -> None:
    """Any two counts: the same distribution, by the two-sample Kolmogorov-Smirnov test."""
    dense = [values for count, values in opened(honest=True).items() if count >= 4]
    for first in dense:
        for second in dense:
            assert stats.ks_2samp(first, second).pvalue > FALSE_ALARM


@pytest.mark.statistical
def test_small_factors_would_be_caught() -> None:
    """The broken variant: parties that draw their factors below 200 let the count through."""
    values = opened(honest=False)
    assert not uniform(values[4])
    assert stats.ks_2samp(values[4], values[5]).pvalue < FALSE_ALARM


@pytest.mark.statistical
def test_neighbouring_cells_are_masked_independently() -> None:
    values = opened(honest=True)
    first, second = values[4][:200], values[5][:200]
    table, *_ = np.histogram2d(first, second, bins=4, range=[[0, PRIME], [0, PRIME]])
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM
    broken, *_ = np.histogram2d(first, first * 3 % PRIME, bins=4, range=[[0, PRIME]] * 2)
    assert stats.chi2_contingency(broken + 1e-9).pvalue < FALSE_ALARM
