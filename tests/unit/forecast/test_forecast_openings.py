"""Which opening suits a ledger, by votes that are held both ways."""

import math

import numpy as np
import pytest

from urna.forecast.votes import NEAR, Openings, draw_winners, forecast
from urna.privacy import Adjacency, Budget
from urna.space import Axis, Space
from urna.systems.vote import ArgmaxDecoder, Reveal, VotePlan, VoteSettings, plan_vote
from urna.systems.vote.plan import leading_chance
from urna.tally import Terms

GRID = Space(lr=Axis.log_range(1e-5, 1.0, 6), depth=[1, 2, 3])
TERMS = Terms.of(20, Budget(1.0, 1e-5))


def plan_winner(terms: Terms, space: Space) -> VotePlan:
    return plan_vote(terms, space, VoteSettings(reveal=Reveal("winner", "a helper")))


def test_made_up_winners_win_as_often_as_their_noise_says() -> None:
    """20,000 votes; five standard errors are a false alarm of 6e-7. Noise of twice is caught."""
    space = Space(x=Axis.of(["a", "b", "c", "d"]))
    losses = np.tile([0.0, 1.0, 1.0, 1.0], (20, 1))
    plan = plan_winner(Terms.of(20, Budget(0.2, 1e-5)), space)
    assert set(plan.selection.head_start) == {0}
    winners = draw_winners(losses, space, plan, ArgmaxDecoder(), np.random.default_rng(1), 20_000)
    won = np.mean([winner == 0 for winner in winners])
    lead = 20 * plan.shape.most
    # Ties are lost in `leading_chance`, and won by lot of a public order here.
    low, high = (leading_chance(lead + more, plan.selection.release) for more in (0, 1))
    error = 5 * math.sqrt(0.25 / 20_000)
    assert low - error < won < high + error
    louder = plan_winner(Terms.of(20, Budget(0.1, 1e-5)), space).selection.release
    assert leading_chance(lead + 1, louder) < won - error


def test_a_winner_alone_finds_more_and_a_hopeless_one_does_not() -> None:
    tally = plan_vote(TERMS, len(GRID))
    counts = forecast(tally, GRID, held=60)
    alone = Openings(counts, forecast(plan_winner(TERMS, GRID), GRID, held=60))
    assert alone.better == "winner"
    assert alone.winner.regret < alone.tally.regret
    faint = plan_winner(TERMS.costing(Budget(0.01, 1e-5)), GRID)
    other = Openings(counts, forecast(faint, GRID, held=60))
    assert other.better == "tally"
    assert "epsilon 0.01" in str(other)
    assert "the tally" in str(other)


def test_what_chance_may_explain_is_called_either() -> None:
    tally = plan_vote(TERMS, len(GRID))
    found = forecast(tally, GRID, held=10)
    same = Openings(found, found)
    assert same.better == "either"
    assert same.as_mapping()["gain"] == 0.0
    assert f"within {100 * NEAR:g} % of the best" in str(same)


@pytest.mark.parametrize("shards", [1, 4])
def test_noise_is_over_the_ballots_that_are_sure_to_be_counted(shards: int) -> None:
    record = Adjacency.REPLACE_ONE_RECORD
    terms = Terms.of(40, Budget(1.0, 1e-5), dropout=0.25, shards=shards, adjacency=record)
    plan = plan_winner(terms, GRID)
    assert plan.fewest_ballots == 30 * shards
