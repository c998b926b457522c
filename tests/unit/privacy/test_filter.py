"""The ledger's cap holds even for an analyst who chooses the next noise by the last result."""

import math

import numpy as np
import pytest
from scipy import stats

from urna.privacy import Budget, Cost, Cover, gaussian_mu, gaussian_std, together

CAP = Budget(1.0, 1e-5)
FIRST = 0.2
"""Epsilon of a declared release; what comes next is decided by its outcome."""


def delta_of_strategy(after_heads: float, after_tails: tuple[float, float]) -> float:
    """The exact delta at ε = 1 of: a randomised response, then by its outcome one of two.

    After heads a Gaussian of this deviation and sensitivity √10, after tails an
    (epsilon, delta)-DP randomised response that gives everything away with probability delta.
    """
    heads = math.exp(FIRST) / (1 + math.exp(FIRST))
    x = np.linspace(-200, 200, 400_001)
    sensitivity = math.sqrt(10)
    p, q = stats.norm.pdf(x, sensitivity, after_heads), stats.norm.pdf(x, 0, after_heads)
    scale = math.exp(CAP.epsilon)
    gaussian = np.trapezoid(np.maximum(p * heads - scale * q * (1 - heads), 0.0), x)
    epsilon, delta = after_tails
    likely = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    unlikely = (1 - delta) / (1 + math.exp(epsilon))
    given_away = (1 - heads) * delta
    declared = sum(
        max(0.0, (1 - heads) * a - scale * heads * b)
        for a, b in ((likely, unlikely), (unlikely, likely))
    )
    return float(gaussian + declared + given_away)


def delta_of_both(std: float) -> float:
    """The exact delta at ε = 1 of the first release and then a Gaussian, whatever came out."""
    heads = math.exp(FIRST) / (1 + math.exp(FIRST))
    x = np.linspace(-200, 200, 400_001)
    p, q = stats.norm.pdf(x, math.sqrt(10), std), stats.norm.pdf(x, 0, std)
    joint = [
        np.maximum(p * a - math.exp(CAP.epsilon) * q * b, 0.0)
        for a, b in ((heads, 1 - heads), (1 - heads, heads))
    ]
    return float(np.trapezoid(joint[0] + joint[1], x))


def test_composing_what_was_chosen_is_no_filter() -> None:
    """Each path alone meets (1, 1e-5); who chooses between them by the outcome has more."""
    std = 14.0
    while delta_of_both(std) <= CAP.delta:  # the least noise that the exact loss allows
        std -= 0.01
    std += 0.01
    declared = 0.001, 9.99e-6  # with the first, (0.201, 9.99e-6) by basic composition
    assert delta_of_both(std) <= CAP.delta
    assert delta_of_strategy(std, declared) > 1.3 * CAP.delta


def test_the_filter_admits_no_such_pair_of_paths() -> None:
    """What the cover admits after either outcome keeps to the cap, whoever chooses."""
    cover = Cover(CAP, declared=Budget(0.201, 2e-6))
    first, mu = Cost(epsilon=FIRST), cover.mu
    std = math.sqrt(10) / mu
    assert cover.holds(together([first, Cost(mu=mu)]))
    assert not cover.holds(together([first, Cost(mu=mu * (1 + 1e-9))]))
    assert cover.holds(together([first, Cost(epsilon=0.001, delta=2e-6)]))
    assert not cover.holds(together([first, Cost(epsilon=0.001, delta=9.99e-6)]))
    assert delta_of_strategy(std, (0.001, 2e-6)) <= CAP.delta


def test_the_filter_costs_sums_next_to_nothing() -> None:
    """A ledger of its own for sums admits noise that is within a millionth of the exact."""
    assert Cover(CAP).mu == pytest.approx(gaussian_mu(CAP), rel=1e-6)
    assert math.sqrt(10) / Cover(CAP).mu == pytest.approx(
        gaussian_std(CAP, sensitivity=math.sqrt(10)), rel=1e-6
    )


@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_equal_parts_of_a_budget_fill_it(steps: int) -> None:
    cover = Cover(CAP)
    part = Cost(mu=cover.mu / math.sqrt(steps) * (1 - 1e-12))
    assert cover.holds(together([part] * steps))
    assert not cover.holds(together([part] * (steps + 1)))


def test_adaptive_gaussians_stay_below_the_cap_however_they_stop() -> None:
    """A strategy that spends more after lucky draws, against the exact test of all it saw.

    The analyst adds up log-likelihood ratios and goes on, with what is left of the budget in
    steps of its choice, only while the evidence grows. Its best test over 400,000 runs stays
    within four standard errors of what the cap allows.
    """
    rng = np.random.default_rng(20_261_116)
    runs, cover = 400_000, Cover(Budget(1.0, 1e-2))

    def losses(about: float, strength: float) -> np.ndarray:
        """Return the privacy loss of every run whose data move the mean by `about`·μ."""
        loss, left = np.zeros(runs), np.full(runs, strength**2)
        for _ in range(6):
            bold = np.where(loss > 0, 0.6, 0.1)
            square = left * bold
            mu = np.sqrt(square)
            drawn = rng.standard_normal(runs) + about * mu
            loss += mu * drawn - square / 2
            left -= square
        return loss

    epsilon, delta = cover.cap.epsilon, cover.cap.delta

    def lower_bound(strength: float) -> float:
        p = float((losses(1.0, strength) > epsilon).mean())
        q = float((losses(0.0, strength) > epsilon).mean())
        error = math.sqrt((p + math.exp(2 * epsilon) * q) / runs)
        return p - math.exp(epsilon) * q - 4 * error

    assert lower_bound(cover.mu) <= delta
    assert lower_bound(1.3 * cover.mu) > delta  # a third more than allowed is noticed
