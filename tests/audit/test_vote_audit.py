"""An empirical audit of the vote: what an attacker who sees everything public can tell apart.

Lower bounds on epsilon come from the votes themselves, on the worst neighbours: one client's
favourite is one of two candidates or the other. A vote over two million candidates is a million
independent trials of such a pair, because noise is independent from entry to entry; eight are held.
A threshold is
chosen on half of the trials and judged on the other half, with exact binomial bounds. A right
mechanism passes all its checks but once in 10^6 seeds; passing is no proof. Each mechanism that is
broken on purpose is caught with a power of at least 0.99: its expected lower bound lies four
standard errors above the claim.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta

from urna.errors import ParameterError
from urna.local import CallableObjective
from urna.privacy import Budget
from urna.protocols import secagg
from urna.randomness import OsSecrets, ScriptedSecrets, SecretSource
from urna.space import Space
from urna.systems.vote import Ballots, BallotShape, search
from urna.tally import Run, TallyPlan, Terms, plan_tally

pytestmark = pytest.mark.audit

CLIENTS, TRIALS, RUNS = 3, 1_000_000, 8
BUDGET = Budget(1.0, 1e-5)
FALSE_ALARM = 1e-6
PLAN: TallyPlan = plan_tally(Terms.of(CLIENTS, BUDGET), Ballots(BallotShape.top_k(1, 2 * TRIALS)))

Round = Callable[[Mapping[int, np.ndarray], int], np.ndarray]
"""The opened sum of these vectors, in the run of this number."""


def vectors(victim: int) -> dict[int, np.ndarray]:
    """Return every client's vector: the victim's favourite is the same one of each pair."""
    chosen = np.zeros((TRIALS, 2), dtype=np.int64)
    chosen[:, victim] = PLAN.scale
    nothing = np.zeros(2 * TRIALS, dtype=np.int64)
    return {0: chosen.ravel()} | dict.fromkeys(range(1, CLIENTS), nothing)


def with_variance(factor: Fraction) -> Round:
    """The vote's own summation, in secret, with this much of the variance it opens."""

    def add_up(given: Mapping[int, np.ndarray], run: int) -> np.ndarray:
        del run
        noise = PLAN.round_plan.noise
        assert noise is not None
        broken = replace(PLAN.round_plan, noise=replace(noise, target=noise.target * factor))
        return secagg.run(given, broken, OsSecrets(), workers=1).total

    return add_up


# Everybody's noise is in the opened sum. The attacker is one of the three clients, and subtracts
# its own: what protects is the noise of the other two.
AS_BUILT = with_variance(Fraction(2, 3))


def float_noise(given: Mapping[int, np.ndarray], run: int) -> np.ndarray:
    """Normal noise of the right variance, in floats of 11 bits."""
    rng = np.random.default_rng(run)
    std = math.sqrt(float(PLAN.share * CLIENTS))
    noise = (rng.normal(0.0, std, 2 * TRIALS) / 4).astype(np.float16).astype(np.float64) * 4
    return np.asarray(sum(given.values()) + noise)


def reused_seed(given: Mapping[int, np.ndarray], run: int) -> np.ndarray:
    """Every run draws the same noise, which somebody has seen in another."""
    del run
    return secagg.run(given, PLAN.round_plan, ScriptedSecrets(b"again"), workers=1).total


def lower_bound(add_up: Round, read: Callable[[np.ndarray], np.ndarray] | None = None) -> float:
    """Return an epsilon that the mechanism is sure to cost at the budget's delta."""
    read = read or (lambda total: (total[:, 0] - total[:, 1]).astype(np.float64))
    seen = [
        np.concatenate(
            [read(add_up(vectors(victim), 2 * run + victim).reshape(-1, 2)) for run in range(RUNS)]
        )
        for victim in (0, 1)
    ]
    half = RUNS * TRIALS // 2
    best, at = -math.inf, 0.0
    levels = 1 - np.geomspace(0.5, 1e-4, 200)
    for threshold in np.quantile(seen[0][:half], levels):
        bound = _bound(seen[0][:half] >= threshold, seen[1][:half] >= threshold)
        if bound > best:
            best, at = bound, float(threshold)
    return _bound(seen[0][half:] >= at, seen[1][half:] >= at)


def _bound(hits: np.ndarray, alarms: np.ndarray) -> float:
    """Return log((P − δ)/Q) with P at its lower and Q at its upper exact binomial bound."""
    k, n = int(hits.sum()), len(hits)
    j, m = int(alarms.sum()), len(alarms)
    p = float(beta.ppf(FALSE_ALARM / 2, k, n - k + 1)) if k else 0.0
    q = float(beta.ppf(1 - FALSE_ALARM / 2, j + 1, m - j)) if j < m else 1.0
    return math.log((p - BUDGET.delta) / q) if p > BUDGET.delta else -math.inf


def test_the_vote_costs_what_it_claims_and_not_half_of_it() -> None:
    found = lower_bound(AS_BUILT)
    assert BUDGET.epsilon / 2 < found <= BUDGET.epsilon


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        # Of the two whose noise protects, one adds nothing.
        ("a client without noise", with_variance(Fraction(1, 3))),
        # Both add half the deviation they should.
        ("half noise", with_variance(Fraction(1, 6))),
    ],
)
def test_too_little_noise_is_caught(name: str, broken: Round) -> None:
    assert lower_bound(broken) > BUDGET.epsilon, name


def test_float_noise_is_caught() -> None:
    """Floats are finer below a power of two than above: what was moved across it shows."""
    above, step = 32.0, 4 * 2.0**-7  # of a quarter of 32: 11 bits

    def told(total: np.ndarray) -> np.ndarray:
        first = total[:, 0]
        crossed = (first >= above) & (first < above + PLAN.scale)
        return (crossed & (first / step % 1 != 0)).astype(np.float64)

    assert lower_bound(float_noise, told) > 3 * BUDGET.epsilon


def test_a_reused_seed_is_caught() -> None:
    before = reused_seed(dict.fromkeys(range(CLIENTS), np.zeros(2 * TRIALS, dtype=np.int64)), 0)

    def without_noise(total: np.ndarray) -> np.ndarray:
        quiet = total - before.reshape(-1, 2)
        return (quiet[:, 0] - quiet[:, 1]).astype(np.float64)

    assert lower_bound(reused_seed, without_noise) > 5 * BUDGET.epsilon


def everything_public(loss: Callable[..., float], secrets: SecretSource) -> tuple[object, ...]:
    """Return all that a search publishes beside the noisy votes."""
    space = Space(x=[0.0, 1.0, 2.0, 3.0])
    result = search(
        space,
        CallableObjective(loss),
        list(range(12)),
        budget=Budget(8.0, 1e-5),
        run=Run(secrets=secrets, force=True),
    )
    return result.took_part, dict(result.lost), dict(result.faults), result.privacy.caveats


def test_a_client_that_fails_publishes_nothing_but_its_abstention() -> None:
    """A refusing client would be seen at once: took_part tells neighbours apart for sure."""

    def good(candidate: dict[str, float], data: int) -> float:
        return abs(candidate["x"] - data % 4)

    def fails_for_one(candidate: dict[str, float], data: int) -> float:
        if data == 5:
            raise ValueError("this client's data are odd")
        return good(candidate, data)

    usual = everything_public(good, OsSecrets())
    assert everything_public(fails_for_one, OsSecrets()) == usual
    refusing = (usual[0] - 1, {5: "refused"}, *usual[2:])  # type: ignore[operator]
    assert refusing != usual


def test_an_objective_that_fails_everywhere_is_the_users_to_know() -> None:
    def broken(candidate: dict[str, float], data: int) -> float:
        return candidate["no such axis"]

    space = Space(x=[0.0, 1.0])
    objective = CallableObjective(broken)
    clients, budget = [1] * 30, Budget(8.0, 1e-5)
    with pytest.raises(ParameterError, match="fails on each of the first 3 clients"):
        search(space, objective, clients, budget=budget)
    # Told to go on, losses that all fail are losses: everybody abstains, under full noise.
    assert search(space, objective, clients, budget=budget, run=Run(force=True)).took_part == 30

    class Raises:
        def losses(self, data: int, space: Space, *, seed: int, progress: object = None) -> None:
            raise RuntimeError("no such file")

    with pytest.raises(ParameterError, match="RuntimeError: no such file"):
        search(space, Raises(), clients, budget=budget)
