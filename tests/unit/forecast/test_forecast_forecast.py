"""Forecasts hold the vote that is planned, and say what it finds."""

import functools

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.forecast.votes import (
    WITHIN,
    Forecast,
    alternatives,
    clients_needed,
    draw_winners,
    forecast,
)
from urna.privacy import Budget
from urna.space import Axis, Space
from urna.systems.vote import ArgmaxDecoder, NoisyVotes, PosteriorDecoder, VotePlan, plan, plan_vote
from urna.systems.vote.decode import Decoder

GRID = Space(lr=Axis.log_range(1e-5, 1.0, 6), depth=[1, 2, 3])


def vote(epsilon: float, clients: int = 60, candidates: int = len(GRID)) -> VotePlan:
    return plan(clients=clients, candidates=candidates, budget=Budget(epsilon, 1e-5))


def test_a_forecast_repeats_by_its_seed() -> None:
    first, again, other = (forecast(vote(1.0), GRID, held=6, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_weak_noise_finds_good_candidates_and_strong_noise_does_not() -> None:
    """Each bound is far from the mean: strong noise is close to drawing by lot."""
    weak, strong = (forecast(vote(epsilon), GRID, held=60) for epsilon in (20.0, 0.02))
    assert weak.within(0.1) > 0.9
    assert not weak.hopeless
    assert weak.regret < 0.1
    assert strong.hopeless
    assert abs(strong.regret - strong.blind_regret) < 4 * strong.standard_error
    assert weak.blind_regret == strong.blind_regret  # the landscapes are the same


def test_rates_rise_with_what_a_winner_may_miss_and_lie_in_their_intervals() -> None:
    found = forecast(vote(1.0), GRID, held=30)
    rates = [found.within(part) for part in WITHIN]
    assert rates == sorted(rates)
    for part, rate in zip(WITHIN, rates, strict=True):
        low, high = found.interval(part)
        assert low <= rate <= high
        assert high - low < 0.5
    assert found.as_mapping()["within"][2]["rate"] == rates[2]


class _Watched:
    """A decoder that writes down what it is handed."""

    name = "watched"

    def __init__(self) -> None:
        self.tallies: list[NoisyVotes] = []

    def winner(self, tally: NoisyVotes) -> int:
        self.tallies.append(tally)
        return 3

    decode = PosteriorDecoder.decode


def test_the_decoder_named_reads_the_tally_of_the_plan() -> None:
    """Dropouts that may happen do, and colluders' noise is in the sum."""
    planned = plan(
        clients=50, candidates=len(GRID), budget=Budget(1.0, 1e-5), dropout=0.2, colluding=0.1
    )
    watched = _Watched()
    found = forecast(planned, GRID, decoder=watched, held=5)
    for tally in watched.tallies:
        assert tally.clients == 40
        assert tally.std == planned.most_noise_std
        assert tally.norm == planned.shape.norm / planned.shape.vote
    assert len(watched.tallies) == found.held == 5


@pytest.mark.parametrize("decoder", [ArgmaxDecoder(), PosteriorDecoder()])
def test_winners_without_much_noise_are_those_of_the_clients(decoder: Decoder) -> None:
    losses = np.tile(np.linspace(1.0, 0.0, len(GRID)), (10, 1))
    winners = draw_winners(losses, GRID, vote(50.0), decoder, np.random.default_rng(0), 5)
    assert list(winners) == [len(GRID) - 1] * 5


def test_more_to_spend_is_forecast_on_the_same_landscapes() -> None:
    again = functools.partial(plan_vote, candidates=len(GRID))
    planned = vote(0.3)
    found = alternatives(planned, GRID, again, held=40)
    assert list(found) == [
        "twice the clients",
        "twice the epsilon",
    ]
    before = forecast(planned, GRID, held=40)
    gain, error = before.gain_of(found["twice the epsilon"])
    assert gain == pytest.approx(before.regret - found["twice the epsilon"].regret)
    assert error > 0
    assert {each.blind_regret for each in found.values()} == {before.blind_regret}


def test_what_a_name_says_is_as_often_true_as_the_decoder_expects() -> None:
    """Named axes are forecast neither as harm nor as certain gain: within six points of unnamed."""
    rate, other = Axis.log_range(1e-5, 10.0, 7), Axis.log_range(1e-3, 1e3, 7)
    planned = vote(0.25, clients=40, candidates=49)
    named, unnamed = (
        forecast(planned, Space(**{a: rate, b: other}), held=80)
        for a, b in (("lr", "C"), ("x", "y"))
    )
    assert named.blind_regret > unnamed.blind_regret + 0.05  # less of the space is good
    assert named.regret < unnamed.regret + 0.06


def test_clients_that_would_be_enough_are_found_by_doubling() -> None:
    planned = vote(1.0, clients=5)
    needed = clients_needed(
        planned, GRID, functools.partial(plan_vote, candidates=len(GRID)), held=30
    )
    assert needed in {10, 20, 40, 80, 160, 320}
    assert (
        clients_needed(
            vote(0.02, clients=2), GRID, functools.partial(plan_vote, candidates=len(GRID)), held=20
        )
        is None
    )


def test_a_gain_compares_the_same_landscapes_only() -> None:
    def made(*regrets: float) -> Forecast:
        return Forecast(1.0, 1.0, regrets, (0.0, 0.0, 0.0), 0.5)

    assert made(0.5, 0.3, 0.9).gain_of(made(0.4, 0.2)) == (pytest.approx(0.1), pytest.approx(0.0))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"held": 0}, "at least one simulated vote, got 0"),
        ({"space": Space(x=[1, 2, 3])}, "the plan is for 18 candidates, the space has 3"),
    ],
)
def test_a_forecast_that_cannot_be_is_refused(asked: dict[str, object], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        forecast(vote(1.0), **{"space": GRID, **asked})  # type: ignore[arg-type]


def test_one_candidate_is_no_vote() -> None:
    lone = Space(x=[1])
    with pytest.raises(ParameterError, match="nothing is left to forecast"):
        forecast(vote(1.0, candidates=1), lone)
