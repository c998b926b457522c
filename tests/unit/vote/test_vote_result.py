"""Results are read again from what they write, and from nothing else."""

import json
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, PrivacyStatement
from urna.randomness import ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.vote import BallotShape, Result, ScoreShape, search
from urna.tally import ClearSummation, Terms

SPACE = Space(lr=Axis.log([1e-3, 1e-2, 0.1]), kind=["a", "b"])


def result(**changes: Any) -> Result:
    """A result of every field."""
    made = Result(
        space=SPACE,
        winner=2,
        votes=np.array([0.5, -1.25, 9.0, 8.5, math.pi, 0.0]),
        standard_error=1.5,
        confidence=0.75,
        near_ties=(3, 4),
        privacy=PrivacyStatement(
            0.999, 1e-5, Adjacency.REPLACE_ONE_CLIENT, "GDP", ("One", "Another")
        ),
        terms=Terms.of(20, Budget(1.0, 1e-5), dropout=0.29, colluding="1/3"),
        ballot=ScoreShape(6, 4.0, 64),
        decoder="posterior",
        took_part=19,
        lost={3: "dropped out", 11: "refused: no"},
        faults={4: "handed out a wrong share of client 1's secrets"},
        plan={"scale": 4, "noise_std": 1.5},
        entry="abc",
        when=1_790_000_000.5,
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    "lie",
    [
        {"winner": 6},
        {"winner": -1},
        {"near_ties": [99]},
        {"votes": [1.0]},
        {"votes": [1e308, -1e308, 0, 0, 0, 0]},
        {"votes": [math.nan] * 6},
        {"confidence": 7},
        {"confidence": "nan"},
        {"standard_error": -1.0},
        {"first_round": 3},
        {"first_round": -5},
        {"first_round": True},
        {"first_round": 6.5},
        {"first_round": 10**400},
        {"rehearsal": {"data": "d", "candidates": 3, "voted_on": 6, "trust": None}},
        {"rehearsal": {"data": "d", "candidates": 9, "voted_on": 9, "trust": None}},
        {"rehearsal": {"data": "d", "candidates": 9, "voted_on": 6, "trust": -5}},
        {"rehearsal": {"data": "d", "candidates": 9, "voted_on": 6, "trust": "nan"}},
    ],
    ids=repr,
)
def test_numbers_that_cannot_belong_together_are_refused(lie: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="the result of a vote cannot be read"):
        Result.read(result().as_mapping() | lie)


def same(one: Result, other: Result) -> bool:
    """Compare field by field: arrays have no truth of their own."""
    return all(
        np.array_equal(getattr(one, f.name), getattr(other, f.name))
        if f.name == "votes"
        else getattr(one, f.name) == getattr(other, f.name)
        for f in fields(Result)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"entry": None, "when": None},
        {"lost": {}, "faults": {}, "near_ties": ()},
        {"ballot": BallotShape((5, 3, 1), 6)},
        {"privacy": PrivacyStatement(math.inf, 1e-5, Adjacency.ZERO_OUT_CLIENT, "none")},
        {"terms": Terms.of(4, Budget(0.1, 0.2), adjacency="replace-one-record", shards=9)},
        {
            "space": Space(x=[1]),
            "votes": np.array([1.0]),
            "winner": 0,
            "near_ties": (),
            "ballot": ScoreShape(1),
        },
    ],
    ids=["every field", "no entry", "nothing lost", "ranks", "not private", "records", "one"],
)
def test_a_result_is_read_from_what_it_writes(changes: dict[str, Any]) -> None:
    made = result(**changes)
    again = Result.read(json.loads(made.as_json()))
    assert same(again, made)
    assert again.as_json() == made.as_json()
    assert str(again) == str(made)


def test_a_result_of_a_search_is_read_again() -> None:
    def near(candidate: dict[str, Any], data: float) -> float:
        return abs(math.log10(candidate["lr"]) - data) + (candidate["kind"] == "b")

    made = search(
        SPACE,
        near,
        [-2.0 + 0.1 * (c % 3) for c in range(40)],
        budget=Budget(2.0, 1e-3),
        summation=ClearSummation(frozenset({3})),
        dropout=0.1,
        secrets=ScriptedSecrets(b"result"),
    )
    again = Result.read(json.loads(made.as_json()))
    assert same(again, made)
    assert again.best == made.best == {"lr": 1e-2, "kind": "a"}
    assert again.ranking(2) == made.ranking(2)
    assert again.total.tolist() == made.total.tolist()


def test_the_opened_sum_is_whole_grid_steps() -> None:
    made = result(plan={"scale": 8}, ballot=BallotShape.top_k(2, 6), votes=np.arange(6) / 8 - 0.25)
    assert made.total.tolist() == [-2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "model"},
        {"version": 2},
        {"kind": None},
        {"space": {"axes": []}},
        {"votes": ["many"]},
        {"winner": "first"},
        {"privacy": {}},
        {"terms": {"clients": 1}},
        {"ballot": {"weights": [1] * 99}},
        {"lost": {"three": "gone"}},
        {"faults": []},
        {"near_ties": 3},
        {"took_part": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_no_result_is_refused(change: dict[str, Any]) -> None:
    good = result().as_mapping()
    with pytest.raises(ParameterError):
        Result.read(json.loads(json.dumps(good | change)))
    missing = {key: value for key, value in good.items() if key not in change}
    with pytest.raises(ParameterError):
        Result.read(json.loads(json.dumps(missing)))


def test_certainty_is_never_claimed() -> None:
    assert "probability 99.9 %" in str(result(confidence=0.99999))


def test_the_winner_is_always_among_those_shown() -> None:
    low = result(winner=1)  # the posterior may name one with few votes
    assert low.places(3) == [2, 3, 1]
    assert result().places(3) == [2, 3, 4]
