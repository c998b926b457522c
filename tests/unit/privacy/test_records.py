"""One record of one client: what is claimed for it, and what for its whole client."""

import math
from fractions import Fraction

import pytest

from urna.errors import ParameterError
from urna.privacy import (
    Adjacency,
    BallotShape,
    Budget,
    PrivacyStatement,
    TallyRelease,
    Unit,
    calibrate_ballots,
    check_shards,
    compose,
    whole_client_epsilon,
)

RECORD = Adjacency.REPLACE_ONE_RECORD
SHAPE = BallotShape.top_k(5, 100)
BUDGET = Budget(1.0, 1e-5)


@pytest.fixture(scope="module", params=["skellam", "discrete-gaussian"])
def release(request: pytest.FixtureRequest) -> TallyRelease:
    """Return a vote of about ε = 1 among ten."""
    return TallyRelease(((16, 10),), Fraction(190**2, 9), 9, request.param)


def test_a_record_moves_one_ballot_as_a_client_with_one_ballot_does() -> None:
    for shape in (SHAPE, BallotShape((5, 3, 2, 1), 9)):
        assert shape.shifts(RECORD) == shape.shifts(Adjacency.REPLACE_ONE_CLIENT)
    both = [calibrate_ballots(BUDGET, SHAPE, shares=9, adjacency=a) for a in Adjacency]
    assert both[0].release == both[2].release
    assert both[1].release != both[2].release  # zeroing out is another relation


@pytest.mark.parametrize("adjacency", [a for a in Adjacency if a.unit is Unit.CLIENT])
def test_several_ballots_need_a_promise_about_records(adjacency: Adjacency) -> None:
    check_shards(adjacency, 1)
    check_shards(RECORD, 1)
    check_shards(RECORD, 40)
    with pytest.raises(ParameterError, match=r"can move the sum by 2 ballots.*replace-one-record"):
        check_shards(adjacency, 2)


@pytest.mark.parametrize("shards", [0, -1, 1.0, True, 100_001, "3"])
def test_shards_are_a_whole_number_within_reason(shards: int) -> None:
    with pytest.raises(ParameterError, match=r"whole number in 1\.\.100,000"):
        check_shards(RECORD, shards)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_what_is_said_of_a_whole_client_covers_the_worst_that_is_known(
    release: TallyRelease, shards: int
) -> None:
    """All ballots on the same candidates, or all on different ones."""

    def loss_of(shift: int, count: int) -> float:
        moved = TallyRelease(((shift, count),), release.share, release.shares, release.family)
        return compose([moved], BUDGET.delta).epsilon

    ((shift, count),) = release.shifts
    least, spread = loss_of(shards * shift, count), loss_of(shift, shards * count)
    said = whole_client_epsilon(release, shards, BUDGET.delta, candidates=100)
    # Both sides are rounded up, the exact losses by up to a thousandth.
    assert 0.999 * least <= said <= 1.01 * least
    assert spread <= 1.001 * said
    # Noise for one ballot does not protect several: the claim for one would be false.
    one = compose([release], BUDGET.delta).epsilon
    assert (least > one) == (shards > 1)


def test_a_whole_client_is_protected_the_less_the_more_shards_it_has(release: TallyRelease) -> None:
    said = [
        whole_client_epsilon(release, shards, BUDGET.delta, candidates=100)
        for shards in (1, 2, 4, 8, 1_000)
    ]
    assert said == sorted(said)
    assert said[0] > 0
    assert said[-1] == math.inf


def statement(adjacency: Adjacency) -> PrivacyStatement:
    return PrivacyStatement(0.9991, 1e-5, adjacency, "PLD", ("Caveat",))


def test_a_statement_names_the_unit() -> None:
    said = str(statement(RECORD))
    assert said.startswith(
        "(0.9991, 1e-05)-DP, replace-one-record (one record of one client replaced), accountant"
    )
    assert statement(RECORD).as_mapping()["unit"] == "record"
    client = statement(Adjacency.REPLACE_ONE_CLIENT)
    assert "record" not in str(client)
    assert client.as_mapping()["unit"] == "client"


def test_every_relation_is_described() -> None:
    assert len({adjacency.described for adjacency in Adjacency}) == len(Adjacency)
    assert [adjacency.unit for adjacency in Adjacency] == ["client", "client", "record"]
