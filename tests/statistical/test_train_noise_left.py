"""What remains of the noise has the planned variance, whoever drops out and when.

Squared entries over their variance are close to chi-square: noise of hundreds of grid steps is
nearly Gaussian. A sum that is too quiet is told from a good one by a small p-value.
"""

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from scipy import stats

from urna.errors import RoundAborted
from urna.privacy import Budget
from urna.protocols.secagg import Removal, Stage, plan, run
from urna.randomness import ScriptedSecrets
from urna.systems.train import plan_training

FALSE_ALARM = 1e-6  # how often a good sum would fail one of these tests on a fresh script
CLIENTS, TOLERATED, ENTRIES = 6, 2, 3000
STAGES = (Stage.SHARE, Stage.MASK, Stage.UNMASK)
PATTERNS: list[Mapping[int, Stage]] = [
    dict(zip(who, when, strict=True))
    for size in range(TOLERATED + 1)
    for who in itertools.combinations((0, 3), size)
    for when in itertools.product(STAGES, repeat=size)
]


def left_over(
    removal: Removal, lost: Mapping[int, Stage], *, wrong: float = 1.0
) -> tuple[float, float]:
    """Return the p-values of "at least the target" and "no more than the target allows"."""
    planned = plan_training(CLIENTS, ENTRIES, budget=Budget(8.0, 1e-2), rounds=2, dropout="1/3")
    release = planned.tally.release
    assert release is not None
    protocol = plan(
        clients=CLIENTS,
        dimension=ENTRIES,
        colluders=0,
        dropouts=TOLERATED,
        noise_variance=release.variance,
        xnoise=removal,
        ring_bits=32,
    )
    secrets = ScriptedSecrets(b"left %s %r" % (removal.encode(), sorted(lost.items())))
    update = np.random.default_rng(1).normal(size=ENTRIES)
    vectors = {c: planned.layout.encode(update, 1.0, {}, secrets) for c in range(CLIENTS)}
    outcome = run(vectors, protocol, secrets, dropouts=lost, workers=1)
    left = (outcome.total - sum(vectors[c] for c in outcome.survivors)).astype(np.float64)
    squares = wrong * float(np.square(left).sum()) / float(release.variance)
    most = 1.0 if removal is Removal.PRECISE else 1 + 1 / (CLIENTS - TOLERATED)
    return (
        float(stats.chi2.cdf(squares, df=ENTRIES)),
        float(stats.chi2.sf(squares / most, df=ENTRIES)),
    )


@pytest.mark.statistical
@pytest.mark.parametrize("removal", [Removal.PRECISE, Removal.APPROXIMATE], ids=str)
def test_noise_left_in_the_sum_is_the_target_for_every_pattern(removal: Removal) -> None:
    alarm = FALSE_ALARM / len(PATTERNS)
    for lost in PATTERNS:
        quiet, loud = left_over(removal, lost)
        assert quiet > alarm, lost
        assert loud > alarm, lost


@pytest.mark.statistical
def test_a_sum_that_misses_one_clients_noise_is_caught() -> None:
    # What `Orig` leaves where two of six are lost: two thirds of the target.
    quiet, _ = left_over(Removal.PRECISE, {0: Stage.MASK, 3: Stage.MASK}, wrong=4 / 6)
    assert quiet < FALSE_ALARM
    # What is left where nothing is removed and nobody is lost: 6/4 of it.
    _, loud = left_over(Removal.PRECISE, {}, wrong=6 / 4)
    assert loud < FALSE_ALARM


def test_one_more_dropout_than_tolerated_opens_nothing() -> None:
    with pytest.raises(RoundAborted):
        left_over(Removal.PRECISE, dict.fromkeys((0, 3, 5), Stage.MASK))
