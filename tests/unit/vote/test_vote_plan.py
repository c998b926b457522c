import importlib
import json
import math
import re

import numpy as np
import pytest
from scipy.special import ndtr

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget
from urna.systems.vote import VotePlan, plan

PAPER = Budget(1.0, 1e-5)
SMALL = Budget(0.5, 1e-3)
RECORD = Adjacency.REPLACE_ONE_RECORD


@pytest.fixture(scope="module")
def paper() -> VotePlan:
    """The paper's setting: 100 clients, 100 candidates, 5 votes."""
    return plan(clients=100, candidates=100, budget=PAPER, votes=5)


@pytest.fixture(scope="module")
def small() -> VotePlan:
    return plan(clients=60, candidates=8, votes=1, budget=SMALL)


def test_the_noise_is_that_of_the_exact_accounting(paper: VotePlan) -> None:
    assert 11.75 < paper.noise_std < 12.0


@pytest.mark.parametrize("gap", [20.0, 40.0, 55.0, 70.0])
@pytest.mark.parametrize("bad", [1, 50, 99])
def test_success_follows_the_papers_theorem(paper: VotePlan, gap: float, bad: int) -> None:
    deviation = math.sqrt(2) * paper.most_noise_std
    half_step = 0.5 / paper.tally.scale  # P[D ≥ g] of an integer D reaches half a step further
    normal = float(ndtr(-(gap - half_step) / deviation))
    expected = min(1.0, max(0.0, 1 - bad * normal))
    found = paper.success_probability(gap, bad)
    # Skellam tails are a little heavier than normal ones.
    assert found == pytest.approx(expected, abs=0.05 * bad * normal)
    assert found <= expected + 1e-3 * bad * normal


def test_success_is_exact_for_one_bad_candidate(paper: VotePlan) -> None:
    step = 1 / paper.tally.scale
    no_tie = paper.success_probability(step, bad=1)
    tie_lost = paper.success_probability(0.0, bad=1)
    # D is symmetric: P[D < 1] + P[D < 0] = 1 in grid steps.
    assert no_tie + tie_lost == pytest.approx(1.0, abs=1e-12)
    assert tie_lost < 0.5 < no_tie


def test_a_negative_gap_promises_less_than_none(paper: VotePlan) -> None:
    none = paper.success_probability(0.0, bad=1)
    behind = [paper.success_probability(-gap, bad=1) for gap in (1.0, 10.0, 1000.0)]
    assert none > behind[0] > behind[1] > behind[2] == 0.0
    ahead = paper.success_probability(10.0 + 1 / paper.tally.scale, bad=1)
    assert behind[1] + ahead == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("bad", [1, 99])
def test_the_gap_is_the_least_that_suffices(paper: VotePlan, probability: float, bad: int) -> None:
    gap = paper.gap_for(probability, bad)
    assert paper.success_probability(gap, bad) >= probability
    if gap > 0:
        assert paper.success_probability(gap - 1 / paper.tally.scale, bad) < probability


def test_success_grows_with_the_gap_and_falls_with_bad_candidates(paper: VotePlan) -> None:
    rising = [paper.success_probability(float(gap)) for gap in range(0, 120, 5)]
    assert rising == sorted(rising)
    assert (rising[0], rising[-1]) == (0.0, pytest.approx(1.0, abs=1e-6))
    falling = [paper.success_probability(40.0, bad) for bad in (0, 1, 10, 99)]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == 1.0
    assert paper.success_probability(1e12) == 1.0


def test_dropouts_and_colluders_cost_utility() -> None:
    careful = plan(
        clients=60,
        candidates=8,
        votes=1,
        budget=SMALL,
        dropout=0.2,
        colluding=0.1,
        removes_excess=False,
    )
    careless = plan(clients=60, candidates=8, votes=1, budget=SMALL)
    assert careful.tally.release is not None
    assert careful.tally.release.shares == 42
    assert careful.terms.fewest == 48
    assert careful.noise_std == pytest.approx(careless.noise_std, rel=0.01)
    # If nobody drops out, the noise of all sixty is in the sum, and utility is stated for it.
    assert careful.most_noise_std > 1.15 * careless.most_noise_std
    assert careful.gap_for(0.95) > 1.1 * careless.gap_for(0.95)


def test_a_fraction_is_the_decimal_that_was_typed() -> None:
    # In binary 0.29 is a little less than 29/100, and 0.29·100 would round down to 28.
    vote = plan(clients=100, candidates=4, votes=1, budget=SMALL, dropout=0.29)
    assert vote.terms.fewest == 71


def test_the_epsilon_for_a_gap_undoes_the_gap_for_an_epsilon(small: VotePlan) -> None:
    gap = small.gap_for(0.95)
    epsilon = small.epsilon_for(gap, 0.95)
    assert 0.98 * SMALL.epsilon < epsilon <= 1.01 * SMALL.epsilon


def test_a_gap_that_no_epsilon_serves_is_refused(
    small: VotePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("urna.systems.vote.plan")
    monkeypatch.setattr(module, "LARGEST_EPSILON", SMALL.epsilon)  # pricing beyond it is slow
    with pytest.raises(ParameterError, match=r"even epsilon 0\.5 is not enough for this gap"):
        small.epsilon_for(1.0)


def test_enough_clients_are_enough_and_hardly_more(small: VotePlan) -> None:
    agreement = 0.25
    needed = small.clients_for(agreement, 0.95)

    def suffice(clients: int) -> bool:
        vote = plan(clients=clients, candidates=8, votes=1, budget=SMALL)
        return vote.gap_for(0.95) <= agreement * clients

    assert suffice(needed)
    assert not suffice(math.floor(0.97 * needed) - 1)


def test_less_agreement_needs_more_clients(small: VotePlan) -> None:
    assert small.clients_for(0.5) < small.clients_for(0.25)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda vote: vote.success_probability(math.nan), "finite number of votes, got nan"),
        (lambda vote: vote.success_probability(math.inf), "finite number of votes, got inf"),
        (lambda vote: vote.success_probability(1.0, bad=8), "0 to 7 can be bad, got 8"),
        (lambda vote: vote.success_probability(1.0, bad=-1), "0 to 7 can be bad, got -1"),
        (lambda vote: vote.gap_for(0.0), "strictly between 0 and 1"),
        (lambda vote: vote.gap_for(1.0), "strictly between 0 and 1"),
        (lambda vote: vote.gap_for(math.nan), "strictly between 0 and 1"),
        (lambda vote: vote.clients_for(0.0), r"agreement must lie in \(0, 1\]"),
        (lambda vote: vote.clients_for(1.1), r"agreement must lie in \(0, 1\]"),
        (lambda vote: vote.epsilon_for(0.0), "gap must be finite and positive"),
        (lambda vote: vote.epsilon_for(math.inf), "gap must be finite and positive"),
    ],
)
def test_questions_without_an_answer_are_refused(small: VotePlan, ask: object, says: str) -> None:
    assert callable(ask)
    with pytest.raises(ParameterError, match=says):
        ask(small)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"clients": 1}, "at least two clients"),
        ({"clients": 0}, "at least two clients"),
        ({"votes": 0}, "votes must be at least 1"),
        ({"votes": 9}, "a ballot of 9 votes needs as many candidates, got 8"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"dropout": math.nan}, "dropout is a part of the clients, such as 0.2"),
        ({"colluding": -0.1}, "colluding must be at least 0 and below 1"),
        ({"dropout": 0.5, "colluding": 0.5}, "no honest client is sure to remain"),
        ({"candidates": 0}, "at least one candidate, got 0"),
        ({"candidates": 2.0}, "at least one candidate"),
        ({"shards": 3}, "for one. Ask for replace-one-record"),
        ({"family": "gauss"}, "unknown noise family 'gauss'"),
    ],
)
def test_a_vote_that_cannot_be_is_not_planned(wrong: dict[str, float], says: str) -> None:
    asked = {"clients": 60, "candidates": 8, "votes": 1, "budget": SMALL} | wrong
    with pytest.raises(ParameterError, match=says):
        plan(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0, 1e-5), (-1, 1e-5), (math.nan, 1e-5), (math.inf, 1e-5), (1, 0), (1, 1), (1, math.nan)],
)
def test_a_budget_is_finite_and_in_range(epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError, match=r"epsilon must be finite|delta must lie"):
        Budget(epsilon, delta)


def test_a_plan_is_plain_json(paper: VotePlan) -> None:
    shown = json.loads(json.dumps(paper.as_mapping(), allow_nan=False))
    assert shown["noise_std"] == paper.noise_std
    assert shown["gap_for_95_percent"] == paper.gap_for(0.95)
    assert shown["adjacency"] == str(Adjacency.REPLACE_ONE_CLIENT)
    assert shown["epsilon"] <= 1.0
    assert (shown["clients"], shown["candidates"]) == (100, 100)
    assert shown["ballot"] == "top-k: 5 equal votes"
    assert shown["noise_std_per_client"] * 10 == pytest.approx(shown["most_noise_std"])


class TestHopeful:
    """Votes that could not name even what everybody agrees on are refused, with a way out."""

    def test_eight_clients_at_epsilon_one_are_too_few_for_a_hundred_candidates(self) -> None:
        vote = plan(clients=8, candidates=100, budget=PAPER)
        with pytest.raises(ParameterError, match="this vote cannot succeed") as refused:
            vote.check_hopeful()
        said = str(refused.value)
        assert "8 ballots that all agree" in said
        assert "force=True" in said
        assert "--shards" in said
        # What it says would do, does.
        clients = int(re.search(r"(\d+) clients would do", said)[1])  # type: ignore[index]
        epsilon = float(re.search(r"epsilon ([\d.]+) would", said)[1])  # type: ignore[index]
        assert 8 < clients < 100
        plan(clients=clients, candidates=100, budget=PAPER).check_hopeful()
        plan(clients=8, candidates=100, budget=Budget(1.05 * epsilon, 1e-5)).check_hopeful()

    def test_two_clients_are_told_so_too(self) -> None:
        vote = plan(clients=2, candidates=5, budget=PAPER)
        with pytest.raises(ParameterError, match="2 ballots that all agree"):
            vote.check_hopeful()

    @pytest.mark.parametrize("clients", [2, 100])
    def test_with_one_candidate_nothing_is_left_to_vote_on(self, clients: int) -> None:
        vote = plan(clients=clients, candidates=1, budget=PAPER)
        assert vote.best_case == 1.0
        with pytest.raises(ParameterError, match="one candidate only"):
            vote.check_hopeful()

    @pytest.mark.parametrize(
        ("clients", "epsilon", "candidates"), [(100, 1.0, 100), (60, 0.5, 8), (8, 8.0, 100)]
    )
    def test_votes_that_people_hold_are_not_refused(
        self, clients: int, epsilon: float, candidates: int
    ) -> None:
        plan(clients=clients, candidates=candidates, budget=Budget(epsilon, 1e-5)).check_hopeful()

    def test_shards_count_as_ballots(self) -> None:
        terms = {"clients": 8, "candidates": 100, "budget": PAPER, "adjacency": RECORD}
        with pytest.raises(ParameterError, match="8 ballots"):
            plan(**terms).check_hopeful()  # type: ignore[arg-type]
        plan(**terms, shards=20).check_hopeful()  # type: ignore[arg-type]

    def test_a_tiny_budget_is_told_how_many_clients_it_would_take(self) -> None:
        vote = plan(clients=8, candidates=5, budget=Budget(0.1, 1e-5))
        with pytest.raises(ParameterError, match=r"\d{2,} clients would do; epsilon"):
            vote.check_hopeful()

    @pytest.mark.statistical
    def test_the_best_case_is_how_often_the_unanimous_choice_wins(self) -> None:
        """False-alarm rate: a millionth, two-sided normal; half the noise is caught."""
        vote = plan(clients=30, candidates=40, budget=PAPER, votes=5)
        turns, rng = 4_000, np.random.default_rng(7)

        def wins(std: float) -> int:
            noisy = std * rng.standard_normal((turns, 40))
            noisy[:, 0] += vote.largest_gap
            return int((noisy.argmax(axis=1) == 0).sum())

        error = 4.9 * math.sqrt(turns) / 2
        assert 0.2 < vote.best_case < 0.95
        assert abs(wins(vote.most_noise_std) - turns * vote.best_case) < error
        assert abs(wins(vote.most_noise_std / 2) - turns * vote.best_case) > error

    def test_more_of_everything_is_more_hopeful(self) -> None:
        def best(clients: int = 20, epsilon: float = 1.0, candidates: int = 50) -> float:
            budget = Budget(epsilon, 1e-5)
            return plan(clients=clients, candidates=candidates, budget=budget, votes=5).best_case

        assert best() < best(clients=25)
        assert best() < best(epsilon=1.3)
        assert best() < best(candidates=20)
