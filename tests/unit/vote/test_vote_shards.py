"""Shards vote, clients add up: one record moves one ballot, and nothing wraps."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import grouped
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import CallableObjective, Losses, Objective, Progress
from urna.noise import IntVector
from urna.privacy import Adjacency, Budget, Ledger
from urna.protocols.secagg import Stage
from urna.randomness import ScriptedSecrets
from urna.report import page
from urna.space import Space
from urna.systems.vote import (
    ArgmaxDecoder,
    Ballots,
    BallotShape,
    NoisyVotes,
    VotePlan,
    fill,
    plan,
    search,
)
from urna.systems.vote.ballot import Ballot, ScoreShape
from urna.systems.vote.decode import Decoded
from urna.systems.vote.fill import shard_ballots
from urna.tally import ClearSummation, SecureAggregation, to_grid
from urna.testing import unpriced_plan

RECORD = Adjacency.REPLACE_ONE_RECORD
SPACE = Space(x=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
KEY = bytes(32)
BUDGET = Budget(2.0, 1e-3)


def sharded(
    number: int,
    *,
    clients: int = 4,
    candidates: int = 6,
    votes: int = 2,
    ballot: Ballot | None = None,
    **more: Any,
) -> VotePlan:
    """A vote of so many shards, with noise that nobody priced."""
    shape = ballot or BallotShape.top_k(votes, candidates)
    usual = unpriced_plan(
        clients=clients, candidates=candidates, contribution=Ballots(shape, number), **more
    )
    terms = replace(usual.terms, adjacency=RECORD, shards=number)
    return VotePlan(replace(usual, terms=terms), shape)


def summed(ballots: list[IntVector], vote: VotePlan) -> IntVector:
    """What one client puts in."""
    return to_grid(np.sum(ballots, axis=0), vote.tally)


def here(
    objective: Objective[Any],
    pieces: Sequence[Any],
    space: Space,
    *,
    seeds: Sequence[int],
    progress: Progress | None = None,
    **limits: Any,
) -> list[Losses | None]:
    """Evaluate pieces in this process, which is fast. Isolation is `test_local_apart`'s matter."""
    found: list[Losses | None] = []
    for number, (piece, seed) in enumerate(zip(pieces, seeds, strict=True), start=1):
        try:
            found.append(np.asarray(objective.losses(piece, space, seed=seed)))
        except Exception:
            found.append(None)
        if progress is not None:
            progress(number * len(space), len(pieces) * len(space))
    return found


@pytest.fixture(autouse=True)
def in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "apart" not in request.keywords:
        monkeypatch.setattr(fill, "losses_apart", here)


@dataclass
class Near:
    """Candidates near the mean of the rows are good. Counts its calls."""

    calls: int = 0

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        self.calls += 1
        if progress is not None:
            progress(len(space), len(space))
        mean = data.features.mean()
        return np.array([abs(candidate["x"] - mean) for candidate in space])


def client(values: list[float], *, named: bool) -> Samples:
    ids = np.array([f"record {n}" for n in range(len(values))]) if named else None
    return Samples(np.array(values).reshape(-1, 1), np.zeros(len(values)), ids)


def ballots_of(values: list[float], tally: VotePlan, *, named: bool = False) -> list[IntVector]:
    data = client(values, named=named)
    return shard_ballots(Near(), data, SPACE, tally, key=KEY, seed=0, smallest=2, seconds=600.0)


def scaled_by_all(values: list[float], tally: VotePlan, *, named: bool = False) -> list[IntVector]:
    """A wrong variant: rows are centred by all of the client's records first."""
    middle = float(np.mean(values)) if values else 0.0
    return ballots_of([2.5 + value - middle for value in values], tally, named=named)


def changed(before: list[IntVector], after: list[IntVector]) -> int:
    return sum(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("named", [False, True], ids=["by place", "by id"])
@pytest.mark.parametrize(("filled", "right"), [(ballots_of, True), (scaled_by_all, False)])
def test_any_record_with_any_content_changes_one_ballot(
    filled: Callable[..., list[IntVector]], right: bool, named: bool
) -> None:
    """By brute force over all records; scaling by all records beforehand is caught."""
    values, tally = [0.2, 4.8, 3.1, 1.4, 0.9, 2.7, 3.8, 4.1, 1.9], sharded(3)
    before, most = filled(values, tally, named=named), 0
    for place in range(len(values)):
        for other in (-50.0, 0.0, 1.5, 2.5, 4.0, 90.0, math.nan):
            after = filled([*values[:place], other, *values[place + 1 :]], tally, named=named)
            most = max(most, changed(before, after))
    assert (most == 1) == right


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(0, 5), min_size=12, max_size=30),
    place=st.integers(0, 11),
    other=st.floats(allow_nan=True, allow_infinity=True),
    shards=st.integers(1, 6),
    votes=st.integers(1, 6),
    named=st.booleans(),
)
def test_replacing_a_record_moves_the_sum_by_one_ballots_move(
    values: list[float], place: int, other: float, shards: int, votes: int, named: bool
) -> None:
    tally = sharded(shards, votes=votes, scale=4)
    after = [*values[:place], other, *values[place + 1 :]]
    with np.errstate(invalid="ignore"):
        sums = [summed(ballots_of(v, tally, named=named), tally) for v in (values, after)]
    moved = sums[0] - sums[1]
    assert tally.tally.release is not None
    assert int(moved @ moved) <= tally.tally.release.sensitivity.l2_squared
    assert np.count_nonzero(moved) <= tally.tally.release.sensitivity.coordinates


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.floats(0, 5), min_size=12, max_size=24),
    place=st.integers(0, 11),
    other=st.floats(-9, 9) | st.just(math.nan),
    shards=st.integers(1, 6),
    ballot=st.sampled_from([ScoreShape(6), BallotShape((5, 3, 1), 6), BallotShape.top_k(2, 6)]),
)
def test_every_kind_of_ballot_moves_by_one_of_its_own(
    values: list[float], place: int, other: float, shards: int, ballot: Ballot
) -> None:
    tally = sharded(shards, ballot=ballot)
    after = [*values[:place], other, *values[place + 1 :]]
    with np.errstate(invalid="ignore"):
        parts = [ballots_of(v, tally) for v in (values, after)]
    assert changed(*parts) <= 1
    moved = (summed(parts[0], tally) - summed(parts[1], tally)) // tally.tally.scale
    assert int((moved**2).sum()) <= ballot.sensitivity(RECORD).l2_squared
    reached = max(int(summed(p, tally).max()) for p in parts) * tally.terms.clients
    assert reached <= tally.tally.needed


def test_a_shard_that_is_too_small_abstains_and_leaves_the_rest_alone() -> None:
    """Hashed ids fall unevenly: some of many shards have hardly anybody."""
    values = [float(n % 5) for n in range(60)]
    data, tally = client(values, named=True), sharded(12)
    objective = Near()
    few = shard_ballots(objective, data, SPACE, tally, key=KEY, seed=0, smallest=5, seconds=600.0)
    silent = [not ballot.any() for ballot in few]
    assert 0 < sum(silent) < 12
    assert objective.calls == 12 - sum(silent)
    every = shard_ballots(Near(), data, SPACE, tally, key=KEY, seed=0, smallest=2, seconds=600.0)
    assert all(
        quiet or np.array_equal(a, b) for quiet, a, b in zip(silent, few, every, strict=True)
    )


def test_a_shard_whose_evaluation_fails_abstains(caplog: pytest.LogCaptureFixture) -> None:
    """Else one record could silence all of its client's ballots."""

    class Brittle(Near):
        def losses(self, data: Samples, *rest: Any, **more: Any) -> Losses:
            if data.features.max() > 90:
                raise ValueError("SECRET 99")
            return Near.losses(self, data, *rest, **more)

    values, tally = [1.0] * 11 + [99.0], sharded(3)
    with caplog.at_level(logging.WARNING):
        ballots = shard_ballots(
            Brittle(),
            client(values, named=False),
            SPACE,
            tally,
            key=KEY,
            seed=0,
            smallest=2,
            seconds=600.0,
        )
    assert sorted(int(ballot.sum()) for ballot in ballots) == [0, 2, 2]
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("wrong", ["too few", "a matrix", "nothing"])
def test_losses_that_fit_no_ballot_cost_their_shard_alone(wrong: str) -> None:
    class Odd(Near):
        def losses(self, data: Samples, *rest: Any, **more: Any) -> Losses:
            losses = Near.losses(self, data, *rest, **more)
            if data.features.max() <= 90:
                return losses
            odd = {"too few": losses[1:], "a matrix": losses[None], "nothing": losses[:0]}
            return odd[wrong]

    data = client([1.0] * 11 + [99.0], named=False)
    ballots = shard_ballots(
        Odd(), data, SPACE, sharded(3), key=KEY, seed=0, smallest=2, seconds=600.0
    )
    assert sorted(int(ballot.sum()) for ballot in ballots) == [0, 2, 2]


def test_an_objective_that_is_wrong_for_everybody_is_told_not_swallowed() -> None:
    class Wrong(Near):
        def losses(self, *rest: Any, **more: Any) -> Losses:
            raise ParameterError("no such axis")

    with pytest.raises(
        ParameterError, match="fails on each of the first 3 clients: RuntimeError: it raised"
    ):
        vote(objective=Wrong())


@pytest.mark.parametrize(
    "summation", [ClearSummation(), SecureAggregation()], ids=["clear", "secure"]
)
def test_the_sum_of_all_shards_is_exact(summation: SecureAggregation | ClearSummation) -> None:
    vote = sharded(5, clients=6, dropout="1/3", ring_bits=16)
    tally, rng = vote.tally, np.random.default_rng(0)
    parts = {c: ballots_of(list(rng.uniform(0, 5, 40)), vote) for c in range(6)}
    encoded = {c: summed(ballots, vote) for c, ballots in parts.items()}
    tallied = summation.tally(encoded, tally, ScriptedSecrets(b"shards"))
    expected = sum(ballot for ballots in parts.values() for ballot in ballots)
    assert expected.sum() == 6 * 5 * 2
    assert (tallied.total // tally.scale).tolist() == expected.tolist()
    gone = SecureAggregation(dropouts={2: Stage.MASK})
    left = gone.tally(encoded, tally, ScriptedSecrets(b"shards")).total // tally.scale
    assert left.tolist() == (expected - sum(parts[2])).tolist()


def test_a_unanimous_vote_of_all_shards_does_not_wrap() -> None:
    """At the very edge of the ring, and one shard beyond is refused."""
    clients, number = 4, 7
    scale = (1 << 15) // (clients * number) - 1
    edge: Any = {"clients": clients, "candidates": 3, "votes": 1, "scale": scale, "ring_bits": 16}
    vote, one = sharded(number, **edge), np.array([0, 1, 0])
    encoded = dict.fromkeys(range(clients), summed([one] * number, vote))
    total = SecureAggregation().tally(encoded, vote.tally, ScriptedSecrets(b"edge")).total
    assert total.tolist() == [0, clients * number * scale, 0]
    assert total.max() > (1 << 15) * 0.99
    with pytest.raises(ParameterError, match=r"16 bits holds 32,768\. Use a wider"):
        sharded(number + 1, **edge)


def test_more_shards_take_a_wider_ring_and_the_same_noise() -> None:
    few, many = (
        plan(clients=20, candidates=6, budget=BUDGET, votes=2, adjacency=RECORD, shards=b).tally
        for b in (1, 40_000)
    )
    assert many.calibration == few.calibration
    assert many.needed - few.needed == 20 * 39_999 * few.scale
    assert (few.ring_bits, many.ring_bits) == (16, 32)
    assert few.release is not None
    assert few.release.shares == 19


@pytest.mark.apart
def test_shards_are_evaluated_in_processes_of_their_own_with_the_same_ballots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real thing, once: what it guarantees is tested where it stands."""
    data, vote = client([float(n % 5) for n in range(24)], named=True), sharded(3)
    options: Any = {"key": KEY, "seed": 0, "smallest": 2, "seconds": 600.0}
    apart = shard_ballots(NEAR, data, SPACE, vote, **options)
    monkeypatch.setattr(fill, "losses_apart", here)
    together = shard_ballots(NEAR, data, SPACE, vote, **options)
    assert [ballot.tolist() for ballot in apart] == [ballot.tolist() for ballot in together]


NEAR = CallableObjective(lambda candidate, data: abs(candidate["x"] - float(data.features.mean())))

CLIENTS = [client([float(c % 3)] * 40, named=False) for c in range(8)]


def vote(objective: Any = None, **settings: Any) -> Any:
    usual = {"budget": BUDGET, "votes": 1, "adjacency": RECORD, "shards": 4}
    return search(SPACE, objective or Near(), CLIENTS, **grouped(usual | settings))


def test_a_search_over_records_says_who_is_protected() -> None:
    result = vote()
    said = str(result.privacy)
    assert "replace-one-record (one record of one client replaced)" in said
    assert "A whole client is NOT protected at this epsilon" in said
    proven = result.plan["whole_client_epsilon"]
    assert proven > 2 * result.privacy.epsilon
    assert f"only epsilon {proven:.1f}"[:-1] in said
    shown = result.as_mapping()
    assert (shown["privacy"]["unit"], shown["plan"]["unit"]) == ("record", "record")
    assert shown["plan"]["shards"] == 4
    assert shown["plan"]["whole_client_epsilon"] == proven
    html = page(result, title="t")
    assert "replace-one-record: one record of one client replaced" in html
    assert "NOT protected" in html


def test_one_shard_is_allowed_and_protects_the_client_as_well() -> None:
    result = vote(shards=1)
    assert result.plan["whole_client_epsilon"] == pytest.approx(result.privacy.epsilon)
    assert "the same epsilon holds for a whole client" in str(result.privacy)
    assert result.plan["noise_std"] == vote(shards=4).plan["noise_std"]


def test_a_client_level_search_says_nothing_of_records() -> None:
    result = vote(adjacency=Adjacency.REPLACE_ONE_CLIENT, shards=1)
    assert "record" not in str(result.privacy)
    assert "whole_client_epsilon" not in result.as_mapping()["plan"]


@dataclass
class Watching:
    """Take the most votes; remember what was to be read."""

    name: str = "watching"
    seen: NoisyVotes | None = None

    def winner(self, tally: NoisyVotes) -> int:
        return ArgmaxDecoder().winner(tally)

    def decode(self, tally: NoisyVotes) -> Decoded:
        self.seen = tally
        return ArgmaxDecoder().decode(tally)


def test_shards_are_counted_as_ballots_and_vote_as_one_client_each_would() -> None:
    decoder = Watching()
    result = vote(decoder=decoder, budget=Budget(8.0, 1e-3))
    assert decoder.seen is not None
    assert decoder.seen.clients == 32
    assert result.took_part == 8
    true = np.array([12, 12, 8, 0, 0, 0])
    assert np.abs(result.votes - true).max() < 8 * result.standard_error


def test_the_local_work_is_one_pass_over_the_records() -> None:
    class Counting(Near):
        rows = 0

        def losses(self, data: Samples, *rest: Any, **more: Any) -> Losses:
            self.rows += len(data)
            return Near.losses(self, data, *rest, **more)

    steps: list[tuple[str, int, int]] = []
    objective = Counting()
    vote(objective, progress=lambda *step: steps.append(step))
    assert (objective.calls, objective.rows) == (8 * 4 + 1, 9 * 40)  # it was tried on one client
    done = [step[1:] for step in steps if step[0] == "evaluating candidates"]
    assert done == sorted(done)
    assert done[-1] == (8 * 4 * len(SPACE), 8 * 4 * len(SPACE))
    assert {total for _, total in done} == {8 * 4 * len(SPACE)}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            {"adjacency": Adjacency.REPLACE_ONE_CLIENT},
            "adds up 4 contributions can move the sum by all",
        ),
        (
            {"adjacency": Adjacency.ZERO_OUT_CLIENT},
            "adds up 4 contributions can move the sum by all",
        ),
        ({"shards": 5}, "client 0: 5 shards of at least 10 records need 50, got 40; at most 4"),
        ({"shards": 0}, "shards must be a whole number"),
        ({"smallest_shard": 1}, "at least 2 records, got 1"),
    ],
    ids=["client", "zero out", "too many", "none", "too small"],
)
def test_wrong_mixtures_are_refused_before_any_training(wrong: dict[str, Any], says: str) -> None:
    objective = Near()
    with pytest.raises(ParameterError, match=says):
        vote(objective, **wrong)
    assert objective.calls == 0


def test_data_without_records_is_refused() -> None:
    with pytest.raises(ParameterError, match="client 0: records can be told apart only where"):
        search(SPACE, Near(), [1.0, 2.0, 3.0], budget=BUDGET, adjacency=RECORD)  # type: ignore[list-item]


def test_a_ledger_mixes_no_units(tmp_path: Path) -> None:
    clients = Ledger.open(tmp_path / "clients", BUDGET)
    records = Ledger.open(tmp_path / "records", BUDGET, adjacency=RECORD)
    with pytest.raises(ParameterError, match=r"under replace-one-client.*replace-one-record"):
        vote(ledger=clients)
    with pytest.raises(ParameterError, match=r"under replace-one-record.*replace-one-client"):
        vote(ledger=records, adjacency=Adjacency.REPLACE_ONE_CLIENT, shards=1)
    assert clients.entries() == records.entries() == []
    vote(ledger=records)
    assert [entry.label for entry in records.entries()] == ["vote on 6 candidates, 4 shards"]
    with pytest.raises(Exception, match="has the cap"):
        Ledger.open(tmp_path / "records", BUDGET)


def test_a_plan_counts_ballots_where_it_is_asked_for_agreement() -> None:
    terms: Any = {"clients": 10, "candidates": 20, "budget": BUDGET, "adjacency": RECORD}
    one, many = plan(**terms), plan(**terms, shards=30)
    assert many.gap_for(0.95) == one.gap_for(0.95)
    needed = one.shards_for(0.4)
    assert needed == many.shards_for(0.4)
    enough = plan(**terms, shards=needed)
    assert enough.gap_for(0.95) <= 0.4 * enough.fewest_ballots
    assert one.gap_for(0.95) > 0.4 * 10 * (needed - 1)
    assert many.clients_for(0.4) < one.clients_for(0.4) / 5
    with pytest.raises(ParameterError, match=r"agreement must lie in \(0, 1\]"):
        one.shards_for(0.0)
