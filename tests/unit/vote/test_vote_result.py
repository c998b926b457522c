"""Results are read again from what they write, and from nothing else."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, PrivacyStatement
from urna.randomness import ScriptedSecrets
from urna.report import StudyResult, load_result, page
from urna.space import Axis, Space
from urna.systems.vote import COUNTS, BallotShape, Reveal, VoteResult, VoteSettings, search
from urna.systems.vote.ballot import ScoreShape
from urna.systems.vote.result import Revealed
from urna.tally import ClearSummation, Run, Terms

SPACE = Space(lr=Axis.log([1e-3, 1e-2, 0.1]), kind=["a", "b"])


def result(**changes: Any) -> VoteResult:
    """A result of every field."""
    made = VoteResult(
        space=SPACE,
        winner=2,
        revealed=Revealed(np.array([0.5, -1.25, 9.0, 8.5, math.pi, 0.0])),
        standard_error=1.5,
        confidence=0.75,
        credible_set=(2, 3, 4),
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


def counts(said: list[Any]) -> dict[str, Any]:
    return result().revealed.as_mapping() | {"counts": said}


@pytest.mark.parametrize(
    "lie",
    [
        {"winner": 6},
        {"winner": -1},
        {"credible_set": [2, 99]},
        {"credible_set": [3]},
        {"revealed": counts([1.0])},
        {"revealed": counts([1e308, -1e308, 0, 0, 0, 0])},
        {"revealed": counts([math.nan] * 6)},
        {"revealed": {**counts([0.0] * 6), "gap": 3.0}},
        {"confidence": 7},
        {"confidence": "nan"},
        {"standard_error": -1.0},
        {"rehearsal": {"data": "d", "candidates": 3, "voted_on": 6, "trust": None}},
        {"rehearsal": {"data": "d", "candidates": 9, "voted_on": 9, "trust": None}},
        {"rehearsal": {"data": "d", "candidates": 10**400, "voted_on": 6, "trust": None}},
        {"rehearsal": {"data": "d", "candidates": 9, "voted_on": 6, "trust": -5}},
        {"rehearsal": {"data": "d", "candidates": 9, "voted_on": 6, "trust": "nan"}},
    ],
    ids=repr,
)
def test_numbers_that_cannot_belong_together_are_refused(lie: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="the vote cannot be read"):
        VoteResult.read(result().as_mapping() | lie)


def same(one: VoteResult, other: VoteResult) -> bool:
    """Compare field by field: arrays have no truth of their own."""
    return all(
        np.array_equal(one.votes, other.votes)
        if f.name == "revealed"
        else getattr(one, f.name) == getattr(other, f.name)
        for f in fields(VoteResult)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"entry": None, "when": None},
        {"lost": {}, "faults": {}, "credible_set": (2,)},
        {"ballot": BallotShape((5, 3, 1), 6)},
        {"privacy": PrivacyStatement(math.inf, 1e-5, Adjacency.ZERO_OUT_CLIENT, "none")},
        {"terms": Terms.of(4, Budget(0.1, 0.2), adjacency="replace-one-record", shards=9)},
        {
            "space": Space(x=[1]),
            "revealed": Revealed(np.array([1.0])),
            "winner": 0,
            "credible_set": (0,),
            "ballot": ScoreShape(1),
        },
    ],
    ids=["every field", "no entry", "nothing lost", "ranks", "not private", "records", "one"],
)
def test_a_result_is_read_from_what_it_writes(changes: dict[str, Any]) -> None:
    made = result(**changes)
    again = VoteResult.read(json.loads(made.as_json()))
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
        run=Run(secrets=ScriptedSecrets(b"result")),
    )
    again = VoteResult.read(json.loads(made.as_json()))
    assert same(again, made)
    assert again.best == made.best == {"lr": 1e-2, "kind": "a"}
    assert again.ranking(2) == made.ranking(2)
    assert again.total.tolist() == made.total.tolist()


def test_the_opened_sum_is_whole_grid_steps() -> None:
    made = result(
        plan={"scale": 8},
        ballot=BallotShape.top_k(2, 6),
        revealed=Revealed(np.arange(6) / 8 - 0.25),
    )
    assert made.total.tolist() == [-2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "model"},
        {"version": 3},
        {"kind": None},
        {"space": {"axes": []}},
        {"revealed": counts(["many"])},
        {"winner": "first"},
        {"privacy": {}},
        {"terms": {"clients": 1}},
        {"ballot": {"weights": [1] * 99}},
        {"lost": {"three": "gone"}},
        {"faults": []},
        {"credible_set": 3},
        {"took_part": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_no_result_is_refused(change: dict[str, Any]) -> None:
    good = result().as_mapping()
    with pytest.raises(ParameterError):
        VoteResult.read(json.loads(json.dumps(good | change)))
    missing = {key: value for key, value in good.items() if key not in change}
    with pytest.raises(ParameterError):
        VoteResult.read(json.loads(json.dumps(missing)))


def test_certainty_is_never_claimed() -> None:
    assert "probability 99.9 %" in str(result(confidence=0.99999))


def test_the_winner_is_always_among_those_shown() -> None:
    low = result(winner=1)  # the posterior may name one with few votes
    assert low.places(3) == [2, 3, 1]
    assert result().places(3) == [2, 3, 4]


VECTORS = Path(__file__).parents[2] / "vectors"


@pytest.mark.parametrize("name", ["counts", "winner", "verified"])
def test_files_of_version_0_2_are_read(name: str) -> None:
    """Written by that version's `search`, with scripted secrets, and what it printed of them."""
    path = VECTORS / f"vote_0.2_{name}.json"
    old = json.loads(path.read_text(encoding="utf-8"))
    read = load_result(path)
    assert isinstance(read, VoteResult)
    assert str(read) == path.with_suffix(".txt").read_text(encoding="utf-8")
    assert read.best == old["best"]
    assert read.revealed.kind == ("counts" if name == "counts" else "winner")
    if read.revealed.counts is not None:
        assert read.votes.tolist() == old["votes"]
        assert list(read.credible_set) == [old["winner"], *old["near_ties"]]
        assert (read.confidence, read.decoder) == (old["confidence"], old["decoder"])
    else:
        assert (read.revealed.gap, read.revealed.by.helper) == (old["gap"], old["helper"])
        assert read.revealed.by.verified == old["verified"] == (name == "verified")
    again = VoteResult.read(json.loads(read.as_json()))
    assert again.as_json() == read.as_json()
    assert again.total.tolist() == read.total.tolist()
    for missing in ("plan", "space", "votes" if name == "counts" else "helper"):
        with pytest.raises(ParameterError, match="cannot be read"):
            VoteResult.read({key: value for key, value in old.items() if key != missing})


def test_two_rounds_of_version_0_2_are_read_as_two_votes(tmp_path: Path) -> None:
    old = json.loads((VECTORS / "vote_0.2_counts.json").read_text(encoding="utf-8"))
    both = {"kind": "rounds", "version": 1, "first": old, "second": old | {"first_round": 120}}
    path = tmp_path / "result.json"
    path.write_text(json.dumps(both), encoding="utf-8")
    read = load_result(path)
    assert isinstance(read, StudyResult)
    assert [name for name, _ in read.stages] == ["first round", "second round"]
    assert "A first vote had kept these of 120 candidates" in read.privacy.caveats
    assert "A first vote had kept these of 120" in page(read, title="twice")
    path.write_text(json.dumps({**both, "second": {}}), encoding="utf-8")
    with pytest.raises(ParameterError, match="cannot be read"):
        load_result(path)


@pytest.mark.parametrize("name", ["counts", "winner"])
def test_what_version_0_2_found_is_found_again(name: str) -> None:
    """The same scripted search, bit for bit. Verified ballots draw other bytes since: no coins."""
    space = Space(lr=Axis.log([1e-3, 1e-2, 0.1, 1.0]), depth=[1, 2, 3])
    reveal = COUNTS if name == "counts" else Reveal("winner", "hospital-7")

    def loss(candidate: dict[str, Any], own: float) -> float:
        return abs(math.log10(candidate["lr"]) + 1 - own) + 0.3 * candidate["depth"]

    found = search(
        space,
        loss,
        np.random.default_rng(1).normal(scale=0.3, size=20).tolist(),
        budget=Budget(2.0, 1e-5),
        settings=VoteSettings(reveal=reveal),
        run=Run(secrets=ScriptedSecrets(b"vote 0.2")),
    )
    old = load_result(VECTORS / f"vote_0.2_{name}.json")
    assert isinstance(old, VoteResult)
    same = ("best", "winner", "revealed", "credible_set", "confidence", "standard_error")
    assert {k: found.as_mapping()[k] for k in same} == {k: old.as_mapping()[k] for k in same}
    planned = found.as_mapping()["plan"]  # it may say more by now
    for key, value in old.as_mapping()["plan"].items():
        assert planned[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    assert found.total.tolist() == old.total.tolist()
