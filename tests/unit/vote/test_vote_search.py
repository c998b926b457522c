import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from grouped import grouped
from sklearn.linear_model import SGDClassifier

import urna
from urna.data import Samples, load, split
from urna.errors import BudgetExceeded, ParameterError, ProtocolError, RoundAborted
from urna.local import EstimatorObjective, Losses, Progress
from urna.privacy import Adjacency, Budget, Ledger, NonPrivateRelease, SumRelease
from urna.randomness import SEED_BYTES, SecretSource
from urna.space import Space
from urna.systems.vote import (
    ArgmaxDecoder,
    NoisyVotes,
    VotePlan,
    VoteResult,
    VoteSettings,
    plan,
    search,
)
from urna.systems.vote.decode import Decoded
from urna.tally import ClearSummation, Contributions, Run, Tallied, TallyPlan
from urna.testing import ScriptedSecrets

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
        self, contributions: Contributions, plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        self.look()
        return ClearSummation.tally(self, contributions, plan, secrets)


def vote(clients: list[float] = CLIENTS, **settings: object) -> VoteResult:
    usual: dict[str, object] = {"objective": Liking(), "budget": BUDGET, "votes": 1}
    chosen = usual | settings
    objective = chosen.pop("objective")
    return search(SPACE, objective, clients, **grouped(chosen))  # type: ignore[arg-type]


def planned(**settings: object) -> VotePlan:
    """The plan of what `vote` holds."""
    usual = {"clients": len(CLIENTS), "candidates": len(SPACE), "budget": BUDGET, "votes": 1}
    return plan(**(usual | settings))  # type: ignore[arg-type]


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
    result = urna.search(
        space, objective, clients, budget=urna.Budget(2.0, 1e-3), settings=VoteSettings(votes=1)
    )
    assert result.best == {"eta0": 0.01}
    assert result.confidence > 0.99
    assert result.privacy.private
    assert result.privacy.epsilon <= 2.0
    assert "secure aggregation" in str(result.privacy)
    assert "replace-one-client" in str(result)


def test_the_winner_is_what_most_clients_like() -> None:
    result = vote(clients=[1.0] * 30 + [4.0] * 10)
    assert result.best == {"x": 1, "y": "a"}
    assert result.winner == 2
    assert result.ranking(1) == [({"x": 1, "y": "a"}, result.votes[2])]
    assert len(result.ranking(99)) == 10


def test_the_noisy_votes_are_ballots_plus_noise_exactly() -> None:
    result = vote(secrets=ScriptedSecrets(b"exactly"), summation=ClearSummation())
    tally, again = planned(removes_excess=False).tally, ScriptedSecrets(b"exactly")
    again.take(len(CLIENTS) * SEED_BYTES)  # the keys that break ties
    table = tally.noise.table(tally.share)
    noise = sum(table.draw(again.take(SEED_BYTES), len(SPACE)) for _ in CLIENTS)
    assert np.any(noise)
    true = result.votes * tally.scale - noise
    assert (true / tally.scale).tolist() == [14, 0, 13, 0, 13, 0, 0, 0, 0, 0]


def test_the_standard_error_is_that_of_the_noise_in_the_sum() -> None:
    result = vote()
    assert result.standard_error == pytest.approx(planned().most_noise_std)
    # One reader is counted out, and its noise is in the sum all the same.
    assert result.standard_error == pytest.approx(planned().noise_std * math.sqrt(40 / 39))
    gone = vote(dropout=0.2, summation=ClearSummation(frozenset({3, 5})))
    whole = planned(dropout=0.2, removes_excess=False).most_noise_std
    assert gone.standard_error == pytest.approx(whole * math.sqrt(38 / 40))
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
    assert shown["revealed"]["counts"] == result.votes.tolist()
    assert len(shown["revealed"]["counts"]) == len(SPACE)
    assert shown["standard_error"] == result.standard_error
    assert 0 <= shown["confidence"] == result.confidence <= 1
    assert (shown["took_part"], shown["lost"]) == (39, {"7": "dropped out"})
    assert shown["decoder"] == "posterior"
    assert shown["credible_set"][0] == result.winner
    assert 0 < shown["privacy"]["epsilon"] <= 2.0
    assert shown["privacy"]["delta"] == BUDGET.delta
    assert shown["privacy"]["adjacency"] == "replace-one-client"
    assert "in the clear" in shown["privacy"]["caveats"][0]
    assert shown["plan"] == planned(dropout=0.2, removes_excess=False).as_mapping()
    assert Space.from_mapping(shown["space"]) == SPACE
    assert shown["space_fingerprint"] == SPACE.fingerprint


def test_the_public_seed_reaches_every_client_and_no_noise() -> None:
    objective = Liking()
    first = vote(objective=objective, seed=42, secrets=ScriptedSecrets(b"seed"))
    assert objective.seeds == {42}
    assert objective.evaluated == len(CLIENTS) + 1  # one to see whether it works at all
    other = vote(seed=43, secrets=ScriptedSecrets(b"seed"))
    assert first.votes.tolist() == other.votes.tolist()


def test_progress_reaches_its_end() -> None:
    seen: list[tuple[str, int, int]] = []
    vote(progress=lambda *step: seen.append(step))
    evaluating = [(done, total) for what, done, total in seen if what.startswith("evaluating")]
    assert evaluating == sorted(evaluating)
    assert evaluating[-1] == (400, 400)
    assert seen[-1] == ("summing ballots", 1, 1)


def test_a_client_with_nothing_finite_abstains_and_the_vote_goes_on() -> None:
    class Broken(Liking):
        def losses(self, data: float, space: Space, **settings: object) -> Losses:
            losses = super().losses(data, space, **settings)  # type: ignore[arg-type]
            return np.full_like(losses, np.nan) if data == CLIENTS[0] else losses

    result = vote(objective=Broken())
    assert result.took_part == len(CLIENTS)


def test_a_vote_in_which_everybody_abstains_goes_on_like_any_other(ledger: Ledger) -> None:
    """To stop would tell that nobody voted, which one client more could have changed.

    A dry run stops it before anything is spent, unless told to go on.
    """
    with pytest.raises(ParameterError, match="no candidate has a finite loss"):
        vote(objective=Failing(), ledger=ledger)
    assert ledger.entries() == []
    result = vote(objective=Failing(), ledger=ledger, force=True)
    assert result.took_part == len(CLIENTS)
    assert len(ledger.entries()) == 1


def test_a_sum_with_less_noise_than_planned_is_not_used() -> None:
    class Quiet(Watched):
        def tally(self, *arguments: object) -> Tallied:
            tallied = super().tally(*arguments)  # type: ignore[arg-type]
            return replace(tallied, release=replace(tallied.release, shares=1))

    with pytest.raises(ProtocolError, match="left less noise than planned"):
        vote(summation=Quiet(look=lambda: None))


def test_the_release_is_in_the_ledger_before_it_happens(ledger: Ledger) -> None:
    seen: list[int] = []
    watched = Watched(look=lambda: seen.append(len(Ledger(ledger.path).entries())))
    result = vote(summation=watched, ledger=ledger)
    assert seen == [1]
    (entry,) = ledger.entries()
    assert isinstance(entry.release, SumRelease)
    assert entry.release == planned().tally.release
    assert result.entry == entry.id
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
            return np.zeros(7)

    with pytest.raises(ParameterError, match="one loss per candidate"):
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


@dataclass
class Odd(Liking):
    """Fail in some way on the data of clients that are negative."""

    how: str = "raises"

    def losses(
        self, data: float, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        losses = super().losses(data, space, seed=seed, progress=progress)
        if data >= 0:
            return losses
        match self.how:
            case "raises":
                raise ValueError(f"the secret is {data}")
            case "raises ours":
                raise ParameterError(f"the secret is {data}")
            case "exits":
                raise ZeroDivisionError
        found: dict[str, Any] = {
            "too few": losses[:-1],
            "too many": np.append(losses, 0.0),
            "a matrix": losses[None],
            "a number": np.array(3.0),
            "beyond floats": [10**400] * len(space),
        }
        return cast(Losses, found.get(self.how, np.full(len(space), math.nan)))


def leaves(objective: Any, clients: Sequence[Any], **settings: Any) -> tuple[str, list[Any]]:
    """Everything that leaves a search: its result and its progress."""
    seen: list[Any] = []
    result = vote(
        clients=clients,  # type: ignore[arg-type]
        objective=objective,
        secrets=ScriptedSecrets(b"abstain"),
        progress=lambda *step: seen.append(step),
        **settings,
    )
    return result.as_json(), seen


@pytest.mark.parametrize(
    "how",
    [
        "raises",
        "raises ours",
        "exits",
        "too few",
        "too many",
        "a matrix",
        "a number",
        "beyond floats",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 39])
def test_a_client_whose_evaluation_fails_abstains_and_nobody_can_tell(
    how: str, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    """All that leaves the search is what would if its losses were all NaN."""
    clients = [*CLIENTS[:place], -7.25, *CLIENTS[place + 1 :]]
    found, seen = leaves(Odd(how=how), clients)
    wanted, usual = leaves(Odd(how="nan"), clients)
    assert found == wanted
    assert seen[-1] == usual[-1]
    assert {step[:1] + step[2:] for step in seen} == {step[:1] + step[2:] for step in usual}
    assert "7.25" not in caplog.text


@pytest.mark.parametrize("summation", [None, ClearSummation()], ids=["secure", "clear"])
def test_an_abstention_carries_its_full_share_of_noise(summation: ClearSummation | None) -> None:
    """Under the same secrets, what two searches differ by is that client's ballot alone."""
    first, _ = leaves(Odd(how="raises"), [-1.0, *CLIENTS[1:]], summation=summation)
    other, _ = leaves(Odd(how="raises"), CLIENTS, summation=summation)
    votes = [np.array(json.loads(found)["revealed"]["counts"]) for found in (first, other)]
    assert np.round(votes[1] - votes[0], 9).tolist() == [1.0] + [0.0] * 9


DIGITS = load("digits").train
FOREST = EstimatorObjective(SGDClassifier(max_iter=2, tol=None, random_state=0))


@pytest.mark.parametrize(
    ("odd", "fails"),
    [
        (Samples(DIGITS.features[:1], DIGITS.targets[:1]), True),
        (Samples(DIGITS.features[:0], DIGITS.targets[:0]), True),
        (Samples(DIGITS.features[:40], np.full(40, np.nan)), True),
        (Samples(np.full((40, 64), np.nan), DIGITS.targets[:40]), True),
        (Samples(DIGITS.features[:40], np.zeros(40, dtype=np.int64)), True),
        (Samples(DIGITS.features[:40], np.array(["a", "b"] * 20)), False),
        (Samples(DIGITS.features[:40, :5], DIGITS.targets[:40]), False),
    ],
    ids=["one row", "no row", "nan label", "nan", "one label", "text labels", "fewer columns"],
)
def test_odd_data_of_one_client_are_its_own_affair(odd: Samples, fails: bool) -> None:
    """A single row, a label nobody else has: the search goes on as if it had abstained."""
    space = Space(alpha=[1e-4, 1e-2])

    def clients(first: Samples) -> list[Samples]:
        rest = [DIGITS.take(np.arange(60) + 40 * n) for n in range(1, 6)]
        return [rest[0], first, *rest[1:]]

    class Abstaining:
        """The same objective, but for the odd client."""

        def losses(self, data: Samples, space: Space, **settings: Any) -> Losses:
            if data is odd:
                return np.full(len(space), math.nan)
            return FOREST.losses(data, space, **settings)

    def search_with(objective: Any) -> dict[str, Any]:
        result = search(
            space,
            objective,
            clients(odd),
            budget=BUDGET,
            settings=VoteSettings(decoder=ArgmaxDecoder()),
            run=Run(force=True, secrets=ScriptedSecrets(b"odd")),
        )
        return result.as_mapping()

    found, wanted = search_with(FOREST), search_with(Abstaining())
    assert found["took_part"] == 6
    assert found.keys() == wanted.keys()
    for key in found.keys() - {"revealed", "winner", "best", "confidence", "credible_set"}:
        assert found[key] == wanted[key]
    assert (found["revealed"] == wanted["revealed"]) == fails


def test_an_objective_that_fails_everywhere_is_told_before_anything_is_spent(
    ledger: Ledger,
) -> None:
    with pytest.raises(ParameterError, match="fails on each of the first 3 clients: ValueError"):
        vote(clients=[-1.0] * 40, objective=Odd(how="raises"), ledger=ledger)
    with pytest.raises(ParameterError, match=r"one loss per candidate.*Nothing was spent"):
        vote(clients=[-1.0] * 40, objective=Odd(how="too many"), ledger=ledger)
    assert ledger.entries() == []


def test_a_space_that_the_decoder_cannot_read_costs_nothing(ledger: Ledger) -> None:
    class Unfit(ArgmaxDecoder):
        def winner(self, tally: NoisyVotes) -> int:
            assert len(tally.votes) == len(SPACE)
            raise MemoryError

    objective = Liking()
    with pytest.raises(MemoryError):
        vote(decoder=Unfit(), objective=objective, ledger=ledger)
    assert (objective.evaluated, ledger.entries()) == (0, [])


class TestKeep:
    def test_the_result_is_handed_over_before_the_winner_is_weighed(self) -> None:
        order: list[str] = []

        class Slow(ArgmaxDecoder):
            def decode(self, tally: NoisyVotes) -> Decoded:
                order.append("decoded")
                return super().decode(tally)

        kept: list[VoteResult] = []

        def keep(result: VoteResult) -> None:
            order.append("kept")
            kept.append(result)

        result = vote(decoder=Slow(), keep=keep)
        assert order == ["kept", "decoded"]
        (early,) = kept
        assert early.votes.tolist() == result.votes.tolist()
        assert early.privacy == result.privacy
        assert early.winner == int(np.argmax(result.votes))
        assert (early.decoder, early.confidence) == ("none yet", None)
        assert early.credible_set == (early.winner,)

    def test_it_is_there_even_if_decoding_fails(self, ledger: Ledger) -> None:
        class Broken(ArgmaxDecoder):
            def decode(self, tally: NoisyVotes) -> Decoded:
                raise MemoryError

        kept: list[VoteResult] = []
        with pytest.raises(MemoryError):
            vote(decoder=Broken(), keep=kept.append, ledger=ledger)
        (early,) = kept
        assert early.entry == ledger.entries()[0].id

    def test_what_cannot_be_kept_stays_counted(self, ledger: Ledger) -> None:
        def keep(result: VoteResult) -> None:
            raise OSError("the disk is full")

        with pytest.raises(OSError, match="full"):
            vote(keep=keep, ledger=ledger)
        assert ledger.spent().epsilon > 0


@pytest.mark.parametrize("clients", [[1.0] * 8, [1.0, 1.0]], ids=["eight", "two"])
def test_a_vote_without_hope_is_refused_unless_it_is_held_anyway(
    clients: list[float], ledger: Ledger
) -> None:
    objective = Liking()
    small: dict[str, Any] = {"clients": clients, "objective": objective, "ledger": ledger}
    small["budget"] = Budget(0.2, 1e-3)
    with pytest.raises(ParameterError, match="this vote cannot succeed"):
        vote(**small)
    assert (objective.evaluated, ledger.entries()) == (0, [])
    assert vote(**small, force=True).took_part == len(clients)


def test_one_candidate_is_nothing_to_vote_on() -> None:
    with pytest.raises(ParameterError, match="one candidate only"):
        search(Space(x=[1]), Liking(), CLIENTS, budget=BUDGET)
