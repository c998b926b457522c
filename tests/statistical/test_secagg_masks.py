"""Masked vectors look uniform, and what noise is left has the variance promised."""

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from urna.noise import IntVector
from urna.protocols import secagg
from urna.protocols.secagg import Stage
from urna.protocols.secagg.masks import add_mask, zeros
from urna.randomness import ScriptedSecrets

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from secagg_play import Play, small_plan

FALSE_ALARM = 1e-6  # how often a correct mask or noise would fail one of these on a fresh seed

pytestmark = pytest.mark.statistical


def uniform(words: npt.NDArray[np.unsignedinteger]) -> bool:
    """Chi-square over 256 classes, for the highest and the lowest byte of each word."""
    bits = 8 * words.itemsize
    for part in (words >> (bits - 8), words & 255):
        counts = np.bincount(part.astype(np.int64), minlength=256)
        if stats.chisquare(counts).pvalue < FALSE_ALARM / 2:
            return False
    return True


def sent_by_one(bits: int, label: bytes) -> npt.NDArray[np.unsignedinteger]:
    """The masked vector of one client whose votes are all the same."""
    plan = small_plan(clients=6, dimension=60_000, ring_bits=bits, dropouts=1)
    votes = {c: np.full(60_000, 7) for c in range(6)}
    play = Play(plan, label, vectors=votes).to_vectors()
    return np.frombuffer(play.sent[2].words, dtype=f"<u{bits // 8}")


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_a_masked_vector_is_uniform_over_the_whole_ring(bits: int) -> None:
    assert uniform(sent_by_one(bits, b"uniform"))


def test_the_top_residue_occurs() -> None:
    # 16 bits, 60,000 words in 20 vectors: missing all 1.2 million has a chance of 1e-8.
    top = 0
    for number in range(20):
        words = zeros(60_000, 16)
        add_mask(words, number.to_bytes(32, "big"))
        top += int((words == 65_535).sum())
    assert top > 0


def test_broken_masks_are_caught() -> None:
    words = zeros(60_000, 32)
    add_mask(words, b"m" * 32)
    votes = np.full(60_000, 7, dtype=np.uint32)
    assert uniform(votes + words)
    assert not uniform(votes)  # no mask
    assert not uniform(votes + (words & 0x0FFFFFFF))  # 28 bits of 32
    assert not uniform(votes + words % 2**31)  # half the ring
    assert not uniform(votes + (words // 251 * 251 & 0xFFFFFFF8))  # no low bits


def test_two_clients_masked_vectors_are_unrelated() -> None:
    plan = small_plan(clients=6, dimension=60_000, dropouts=1)
    votes = {c: np.full(60_000, 7) for c in range(6)}
    play = Play(plan, b"pairs", vectors=votes).to_vectors()
    words = [np.frombuffer(play.sent[c].words, dtype="<u4") for c in (0, 1)]
    assert uniform(words[0] + words[1])
    assert uniform(words[0] - words[1])


@pytest.mark.parametrize("xnoise", ["precise", "approximate", "none"])
@pytest.mark.parametrize("lost", range(4))
def test_left_over_noise_has_the_variance_reported(xnoise: str, lost: int) -> None:
    noise, outcome, plan = left_over(xnoise, lost)
    assert plan.noise is not None
    assert within(noise, outcome.noise_variance)
    # A sum in which one component more, or fewer, was removed from all would be caught.
    for component in plan.noise.components()[1:]:
        shift = component * len(outcome.survivors)
        if shift > outcome.noise_variance / 12:  # smaller ones need more samples to be seen
            assert not within(noise, outcome.noise_variance - shift)
            assert not within(noise, outcome.noise_variance + shift)


def left_over(xnoise: str, lost: int) -> tuple[IntVector, secagg.Outcome, secagg.Plan]:
    count = 40_000
    plan = small_plan(
        clients=10,
        dimension=count,
        colluders=1,
        dropouts=3,
        noise_variance=Fraction(2_000),
        xnoise=xnoise,
    )
    votes = {c: np.full(count, c) for c in range(10)}
    dropouts = {c: [Stage.MASK, Stage.SHARE, Stage.MASK][c] for c in range(lost)}
    outcome = secagg.run(
        votes, plan, ScriptedSecrets(b"left %d" % lost), dropouts=dropouts | {7: Stage.UNMASK}
    )
    return outcome.total - sum(outcome.survivors), outcome, plan


def within(noise: IntVector, variance: Fraction) -> bool:
    """Whether squares add up as they would for noise of this variance.

    Skellam noise of variance v has a kurtosis of 3 + 1/v; with v in the hundreds the sum of
    40,000 squares over v is chi-square but for a relative 1e-3 of its spread.
    """
    statistic = float((noise.astype(np.float64) ** 2).sum() / float(variance))
    tail = stats.chi2(df=noise.size)
    return FALSE_ALARM / 2 < tail.cdf(statistic) < 1 - FALSE_ALARM / 2
