import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

import urna
from urna.data import load, split
from urna.errors import BudgetExceeded, ParameterError, ProtocolError, RoundAborted
from urna.local import EstimatorObjective, Losses, Progress
from urna.noise import IntVector
from urna.privacy import Adjacency, Budget, Ledger, NonPrivateRelease, TallyRelease
from urna.randomness import SEED_BYTES, SecretSource
from urna.space import Space
from urna.tally import ClearSummation, Tallied, TallyPlan
from urna.testing import ScriptedSecrets
from urna.vote import Result, search

SPACE = Space(x=[0, 1, 2, 3, 4], y=["a", "b"])
BUDGET = Budget(2.0, 1e-3)
CLIENTS = [float(n % 3) for n in range(40)]
"""Each client's data is the place on axis x that it likes best: 0, 1 or 2."""


@dataclass
class Liking:
    """Judge candidates by their distance from the client's own; count the evaluations."""

    evaluated: int = 0
    seeds: set[int] = field(default_factory=set)

    def losses(
        self, data: float, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        self.evaluated += 1
        self.seeds.add(seed)
        if progress is not None:
            progress(len(space), len(space))
        return np.array([abs(c["x"] - data) + 0.1 * (c["y"] == "b") for c in space])


@dataclass
class LikingTogether(Liking):
    """Judge all clients in one call."""

    calls: int = 0

    def losses_of_clients(
        self,
        clients: Sequence[float],
        space: Space,
        *,
        seeds: Sequence[int],
        progress: Progress | None = None,
    ) -> Losses:
        self.calls += 1
        self.seeds.update(seeds)
        found = [Liking().losses(c, space, seed=s) for c, s in zip(clients, seeds, strict=True)]
        if progress is not None:
            progress(len(clients) * len(space), len(clients) * len(space))
        return np.array(found)


class Failing:
    """Lose every candidate."""

    def losses(
        self, data: float, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        return np.full(len(space), math.nan)


@dataclass(frozen=True)
class Watched(ClearSummation):
    """Look around just before anything is summed."""

    look: Callable[[], None] = lambda: None

    def tally(
        self, contributions: Mapping[int, IntVector], plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        self.look()
        return ClearSummation.tally(self, contributions, plan, secrets)


def vote(clients: list[float] = CLIENTS, **settings: object) -> Result:
    usual: dict[str, object] = {"objective": Liking(), "budget": BUDGET, "votes": 1}
    chosen = usual | settings
    objective = chosen.pop("objective")
    return search(SPACE, objective, clients, **chosen)  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger", BUDGET)


def test_a_search_on_real_digits_finds_a_sensible_step_size() -> None:
    """The README's ten lines, on fewer candidates."""
    space = urna.Space(eta0=urna.Axis.log([1e-7, 1e-2, 1e3]))
    objective = EstimatorObjective(
        SGDClassifier(loss="log_loss", learning_rate="constant", max_iter=5, tol=None)
    )
    clients = split(load("digits"), clients=40, how="iid", seed=0)
    result = urna.search(space, objective, clients, budget=urna.Budget(2.0, 1e-3), votes=1)
    assert result.best == {"eta0": 0.01}
    assert result.confidence > 0.99
    assert result.privacy.private
    assert result.privacy.epsilon <= 2.0
    assert "secure summation" in str(result.privacy)
    assert "replace-one-client" in str(result)


def test_the_winner_is_what_most_clients_like() -> None:
    result = vote(clients=[1.0] * 30 + [4.0] * 10)
    assert result.best == {"x": 1, "y": "a"}
    assert result.winner == 2
    assert result.ranking(1) == [({"x": 1, "y": "a"}, result.votes[2])]
    assert len(result.ranking(99)) == 10


def test_the_noisy_votes_are_ballots_plus_noise_exactly() -> None:
    result = vote(secrets=ScriptedSecrets(b"exactly"), summation=ClearSummation())
    tally, again = result.plan.tally, ScriptedSecrets(b"exactly")
    again.take(len(CLIENTS) * SEED_BYTES)  # the keys that break ties
    table = tally.noise.table(tally.share)
    noise = sum(table.draw(again.take(SEED_BYTES), len(SPACE)) for _ in CLIENTS)
    assert np.any(noise)
    true = result.votes * tally.scale - noise
    assert (true / tally.scale).tolist() == [14, 0, 13, 0, 13, 0, 0, 0, 0, 0]


def test_the_standard_error_is_that_of_the_noise_in_the_sum() -> None:
    result = vote()
    assert result.standard_error == pytest.approx(result.plan.tally.most_noise_std)
    # One reader is counted out, and its noise is in the sum all the same.
    assert result.standard_error == pytest.approx(result.plan.noise_std * math.sqrt(40 / 39))
    gone = vote(dropout=0.2, summation=ClearSummation(frozenset({3, 5})))
    expected = gone.plan.tally.most_noise_std * math.sqrt(38 / 40)
    assert gone.standard_error == pytest.approx(expected)
    assert (gone.took_part, dict(gone.lost)) == (38, {3: "dropped out", 5: "dropped out"})


def test_scripted_secrets_repeat_exactly_and_are_not_private() -> None:
    first, again = (vote(secrets=ScriptedSecrets(b"one")) for _ in range(2))
    assert first.as_json() == again.as_json()
    assert vote(secrets=ScriptedSecrets(b"two")).votes.tolist() != first.votes.tolist()
    assert first.privacy.epsilon == math.inf
    assert not first.privacy.private
    assert "NOT PRIVATE" in str(first)
    shown = json.loads(first.as_json())["privacy"]
    assert shown["epsilon"] is None
    assert shown["private"] is False
    assert "scripted" in shown["caveats"][0]


def test_secrets_of_the_operating_system_do_not_repeat() -> None:
    assert vote().votes.tolist() != vote().votes.tolist()


def test_the_result_is_plain_json() -> None:
    result = vote(dropout=0.2, summation=ClearSummation(frozenset({7})))
    shown = json.loads(result.as_json())
    assert shown["best"] == result.best == dict(SPACE[shown["winner"]])
    assert shown["votes"] == result.votes.tolist()
    assert len(shown["votes"]) == len(SPACE)
    assert shown["standard_error"] == result.standard_error
    assert 0 <= shown["confidence"] == result.confidence <= 1
    assert (shown["took_part"], shown["lost"]) == (39, {"7": "dropped out"})
    assert shown["decoder"] == "posterior"
    assert result.winner not in shown["near_ties"]
    assert 0 < shown["privacy"]["epsilon"] <= 2.0
    assert shown["privacy"]["delta"] == BUDGET.delta
    assert shown["privacy"]["adjacency"] == "replace-one-client"
    assert "in the clear" in shown["privacy"]["caveats"][0]
    assert shown["plan"] == result.plan.as_mapping()
    assert Space.from_mapping(shown["space"]) == SPACE
    assert shown["space_fingerprint"] == SPACE.fingerprint


def test_the_public_seed_reaches_every_client_and_no_noise() -> None:
    objective = Liking()
    first = vote(objective=objective, seed=42, secrets=ScriptedSecrets(b"seed"))
    assert objective.seeds == {42}
    assert objective.evaluated == len(CLIENTS)
    other = vote(seed=43, secrets=ScriptedSecrets(b"seed"))
    assert first.votes.tolist() == other.votes.tolist()


def test_progress_reaches_its_end() -> None:
    seen: list[tuple[str, int, int]] = []
    vote(progress=lambda *step: seen.append(step))
    evaluating = [(done, total) for what, done, total in seen if what.startswith("evaluating")]
    assert evaluating == sorted(evaluating)
    assert evaluating[-1] == (400, 400)
    assert seen[-1] == ("summing ballots", 1, 1)


def test_clients_judged_together_change_nothing() -> None:
    outcomes = []
    for objective in (Liking(), LikingTogether()):
        seen: list[tuple[str, int, int]] = []
        result = search(
            SPACE, objective, CLIENTS, budget=BUDGET, seed=3,
            secrets=ScriptedSecrets(b"together"),
            progress=lambda *step, seen=seen: seen.append(step),
        )  # fmt: skip
        evaluating = [step for step in seen if step[0] == "evaluating candidates"]
        assert evaluating == sorted(evaluating)
        assert evaluating[-1] == ("evaluating candidates", 400, 400)
        assert objective.seeds == {3}
        outcomes.append((result.winner, result.votes.tolist()))
    assert outcomes[0] == outcomes[1]
    assert (objective.calls, objective.evaluated) == (1, 0)


def test_a_client_with_nothing_finite_abstains_and_the_vote_goes_on() -> None:
    class Broken(Liking):
        def losses(self, data: float, space: Space, **settings: object) -> Losses:
            losses = super().losses(data, space, **settings)  # type: ignore[arg-type]
            return np.full_like(losses, np.nan) if data == CLIENTS[0] else losses

    result = vote(objective=Broken())
    assert result.took_part == len(CLIENTS)


def test_a_vote_in_which_everybody_abstains_goes_on_like_any_other(ledger: Ledger) -> None:
    """To stop would tell that nobody voted, which one client more could have changed."""
    result = vote(objective=Failing(), ledger=ledger)
    assert result.took_part == len(CLIENTS)
    assert len(ledger.entries()) == 1


def test_a_sum_with_less_noise_than_planned_is_not_used() -> None:
    class Quiet(Watched):
        def tally(self, *arguments: object) -> Tallied:
            tallied = super().tally(*arguments)  # type: ignore[arg-type]
            return replace(tallied, release=replace(tallied.release, shares=1))

    with pytest.raises(ProtocolError, match="left a noise variance of"):
        vote(summation=Quiet(look=lambda: None))


def test_the_release_is_in_the_ledger_before_it_happens(ledger: Ledger) -> None:
    seen: list[int] = []
    watched = Watched(look=lambda: seen.append(len(Ledger(ledger.path).entries())))
    result = vote(summation=watched, ledger=ledger)
    assert seen == [1]
    (entry,) = ledger.entries()
    assert isinstance(entry.release, TallyRelease)
    assert entry.release == result.plan.tally.calibration.release
    assert entry.label == "vote on 10 candidates"
    assert ledger.spent().epsilon == pytest.approx(result.privacy.epsilon)


def test_at_the_cap_nobody_evaluates_anything(ledger: Ledger) -> None:
    vote(ledger=ledger)
    objective = Liking()
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        vote(objective=objective, ledger=ledger)
    assert objective.evaluated == 0
    assert len(ledger.entries()) == 1


def test_a_cap_reached_meanwhile_releases_nothing(ledger: Ledger) -> None:
    released: list[bool] = []

    class Meanwhile(Liking):
        def losses(
            self, data: float, space: Space, *, seed: int, progress: Progress | None = None
        ) -> Losses:
            if self.evaluated == 0:
                vote(ledger=ledger)  # somebody else spends the budget during the evaluation
            return super().losses(data, space, seed=seed, progress=progress)

    with pytest.raises(BudgetExceeded):
        vote(
            objective=Meanwhile(),
            ledger=ledger,
            summation=Watched(look=lambda: released.append(True)),
        )
    assert released == []
    assert len(ledger.entries()) == 1


def test_an_aborted_round_is_withdrawn(ledger: Ledger) -> None:
    for _ in range(2):  # the first abort leaves room for the second try
        with pytest.raises(RoundAborted):
            vote(summation=ClearSummation(frozenset({0})), ledger=ledger)
    assert [entry.withdrawn for entry in ledger.entries()] == [True, True]
    assert ledger.spent().epsilon == 0
    vote(ledger=ledger)


def test_a_sum_that_fails_in_any_other_way_stays_counted(ledger: Ledger) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vote(summation=Watched(look=fail), ledger=ledger)
    assert [entry.withdrawn for entry in ledger.entries()] == [False]


def test_an_objective_that_fails_costs_nothing(ledger: Ledger) -> None:
    class Broken:
        def losses(self, *_: object, **__: object) -> Losses:
            return np.zeros(3)

    with pytest.raises(ParameterError, match="over 10 candidates needs as many losses"):
        vote(objective=Broken(), ledger=ledger)
    assert ledger.entries() == []


def test_a_ledger_under_another_relation_is_refused(ledger: Ledger) -> None:
    objective = Liking()
    with pytest.raises(ParameterError, match=r"counts under replace-one-client.*zero-out-client"):
        vote(objective=objective, ledger=ledger, adjacency=Adjacency.ZERO_OUT_CLIENT)
    assert objective.evaluated == 0


def test_a_ledger_takes_no_scripted_vote(ledger: Ledger) -> None:
    objective = Liking()
    with pytest.raises(BudgetExceeded) as refused:
        vote(objective=objective, ledger=ledger, secrets=ScriptedSecrets(b"test"))
    assert refused.value.after == math.inf
    assert objective.evaluated == 0
    assert not any(isinstance(e.release, NonPrivateRelease) for e in ledger.entries())


def test_the_weaker_relation_is_printed_beside_epsilon() -> None:
    result = vote(adjacency=Adjacency.ZERO_OUT_CLIENT)
    assert result.privacy.adjacency is Adjacency.ZERO_OUT_CLIENT
    assert "zero-out-client" in str(result)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"clients": [1.0]}, "at least two clients, got 1"),
        ({"clients": []}, "at least two clients, got 0"),
        ({"votes": 11}, "a ballot of 11 votes needs as many candidates, got 10"),
        ({"votes": 0}, "votes must be at least 1"),
        ({"dropout": 1.5}, "dropout must be"),
        ({"family": "laplace"}, "unknown noise family"),
    ],
)
def test_a_search_that_cannot_be_evaluates_nothing(wrong: dict[str, object], says: str) -> None:
    objective = Liking()
    with pytest.raises(ParameterError, match=says):
        vote(objective=objective, **wrong)  # type: ignore[arg-type]
    assert objective.evaluated == 0
