import numpy as np
import pytest
from benchmarks.papers.figure_2 import SimulatedVote, simulate
from scipy import stats

from urna.errors import ParameterError
from urna.privacy import Budget

FALSE_ALARM = 1e-6  # how often a right simulation would fail on a fresh seed
STRONG, WEAK = Budget(0.25, 1e-5), Budget(1.0, 1e-5)


def run(**settings: object) -> list[SimulatedVote]:
    usual = {
        "budgets": [WEAK],
        "rng": np.random.default_rng(5),
        "clients": 50,
        "candidates": 20,
        "votes": (2,),
        "good": 5,
        "repetitions": 3,
    }
    return simulate(**usual | settings)  # type: ignore[arg-type]


def test_every_budget_meets_every_number_of_votes_in_order() -> None:
    outcomes = run(budgets=[STRONG, WEAK], votes=(1, 2), spread=0.5, repetitions=4)
    assert [(o.epsilon, o.votes) for o in outcomes] == [(0.25, 1), (0.25, 2), (1.0, 1), (1.0, 2)]
    assert {(o.good, o.spread, o.repetitions, o.delta) for o in outcomes} == {(5, 0.5, 4, 1e-5)}
    assert all(0 <= o.successes <= 4 for o in outcomes)
    assert outcomes[0].noise_std > 3 * outcomes[2].noise_std


def test_the_same_seed_gives_the_same_votes() -> None:
    first, again, other = (
        run(rng=np.random.default_rng(seed), spread=4.0, repetitions=60) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def guessing(outcome: SimulatedVote, chance: float) -> bool:
    """Tell whether the successes could be those of a random guess."""
    test = stats.binomtest(outcome.successes, outcome.repetitions, chance)
    return float(test.pvalue) > FALSE_ALARM


@pytest.mark.statistical
def test_whoever_names_everybody_says_nothing() -> None:
    everybody, some = run(votes=(20, 2), spread=0.25, repetitions=300)
    assert guessing(everybody, 5 / 20)
    assert not guessing(some, 5 / 20)


@pytest.mark.statistical
def test_clients_that_agree_find_a_good_candidate() -> None:
    """The paper's Figure 2a, left end: 250 clients, k = 5, ε = 1, spread 1/4."""
    (outcome,) = run(clients=250, candidates=100, votes=(5,), spread=0.25, repetitions=40)
    assert outcome.rate >= 0.95
    (noise,) = run(clients=250, candidates=100, votes=(5,), spread=1e6, repetitions=40)
    assert noise.rate < 0.5


def test_the_interval_holds_the_rate_and_ends_at_the_edges() -> None:
    def vote(successes: int) -> SimulatedVote:
        return SimulatedVote(1.0, 1e-5, 5, 5, 1.0, 12.0, successes, 50)

    for successes in (0, 1, 25, 49, 50):
        low, high = vote(successes).interval
        assert 0 <= low <= vote(successes).rate <= high <= 1
    assert vote(0).interval[0] == 0
    assert vote(50).interval[1] == 1
    # Clopper and Pearson at the edge: 1 − 0.025^(1/n).
    assert vote(0).interval[1] == pytest.approx(1 - 0.025 ** (1 / 50))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"good": 0}, "1 to 19 candidates can be good, got 0"),
        ({"good": 20}, "1 to 19 candidates can be good, got 20"),
        ({"spread": 0.0}, "spread must be finite and positive"),
        ({"spread": float("nan")}, "spread must be finite and positive"),
        ({"repetitions": 0}, "repetitions must be at least 1"),
        ({"votes": (21,)}, "a ballot of 21 votes needs as many candidates"),
        ({"clients": 1}, "at least two clients"),
    ],
)
def test_a_simulation_that_cannot_be_is_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        run(**wrong)
