"""Combinations under threshold encryption: equal to those in the clear, and nothing else opened."""

import functools
import itertools
from collections.abc import Callable
from fractions import Fraction

import pytest
from combine_play import averaging, clustering, peaked, random_searches, vanishing
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError, RoundAborted, RoundUnfinished
from urna.protocols import he
from urna.randomness import ScriptedSecrets
from urna.systems.combine import (
    Averaging,
    Clustering,
    FederatedDbscan,
    MeanSetting,
    Searches,
    Strategy,
    Task,
    combine,
    play,
    task_for,
)
from urna.systems.combine.tasks import DenseCells
from urna.tally import Run

PARTIES = 3


Vector = list[int]


class Modular:
    """Arithmetic of plain vectors modulo a prime: the oracle of a circuit."""

    def __init__(self, prime: int) -> None:
        self.prime, self.products = prime, 0

    def subtract(self, a: Vector, b: Vector) -> Vector:
        return [(x - y) % self.prime for x, y in zip(a, b, strict=True)]

    def add_number(self, a: Vector, number: int) -> Vector:
        return [(x + number) % self.prime for x in a]

    def repeat(self, a: Vector, times: int) -> Vector:
        return [x * times % self.prime for x in a]

    def multiply(self, a: Vector, b: Vector) -> Vector:
        self.products += 1
        return [x * y % self.prime for x, y in zip(a, b, strict=True)]


class Depth(Modular):
    """The same, of how many products follow one another."""

    def subtract(self, a: Vector, b: Vector) -> Vector:
        return [max(a[0], b[0])]

    def add_number(self, a: Vector, number: int) -> Vector:
        return a

    def repeat(self, a: Vector, times: int) -> Vector:
        return a

    def multiply(self, a: Vector, b: Vector) -> Vector:
        return [max(a[0], b[0]) + 1]


@pytest.mark.parametrize("min_points", range(1, 10))
def test_the_circuit_is_zero_exactly_below_so_many_points(min_points: int) -> None:
    counts = list(range(60))
    arithmetic = Modular(65_537)
    found = DenseCells(min_points)(arithmetic, [counts, [12_345] * 60])
    expected = [
        12_345 * functools.reduce(lambda a, k: a * (count - k), range(min_points), 1) % 65_537
        for count in counts
    ]
    assert found == expected
    assert [value == 0 for value in found] == [count < min_points for count in counts]
    naive = min_points  # factor times each of m terms
    assert arithmetic.products <= naive if min_points < 4 else arithmetic.products < naive


@pytest.mark.parametrize("min_points", range(1, 10))
def test_the_stated_depth_is_the_depth(min_points: int) -> None:
    circuit = DenseCells(min_points)
    assert circuit(Depth(2), [[0], [0]]) == [circuit.depth]


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6))
def test_the_encrypted_mean_is_the_mean(seed: int) -> None:
    searches = random_searches(PARTIES, seed)
    task = Task(PARTIES, PARTIES, averaging(0.1))
    outcome = play(task, searches.clients, ScriptedSecrets(b"mean"))
    assert outcome.combined == MeanSetting(0.1).combine(searches)
    assert len(outcome.shown) == 1
    assert len(outcome.shown[0]) == 3, "two sums and a count, and nothing else"


@pytest.mark.parametrize("min_points", [2, 3, 4])
def test_encrypted_clusters_are_those_in_the_clear(min_points: int) -> None:
    parties = min_points + 1
    searches = random_searches(parties, seed=min_points)
    task = Task(parties, parties, clustering(min_points, tolerance=0.5))
    outcome = play(task, searches.clients, ScriptedSecrets(b"cells"))
    clear = FederatedDbscan(min_points=min_points, tolerance=0.5).combine(searches)
    assert outcome.combined.clusters == clear.clusters
    assert set(outcome.shown[0].tolist()) <= {0, 1}, "one bit per cell"


@pytest.mark.parametrize(
    ("letters", "left"), [(2, {0, 2, 3}), (3, {0, 1, 2, 3})], ids=["after keys", "while opening"]
)
def test_where_three_of_four_open_one_may_vanish(letters: int, left: set[int]) -> None:
    searches = random_searches(4, seed=3)
    outcome = vanishing(Task(4, 3, averaging(0.1)), searches, b"vanish", {1: letters})
    assert set(outcome.took_part) == left
    some = Searches(searches.frame, tuple(searches.clients[p] for p in sorted(left)))
    assert outcome.combined == MeanSetting(0.1).combine(some)


@pytest.mark.parametrize("letters", [0, 1, 2], ids=["before keys", "amid keys", "after keys"])
@pytest.mark.parametrize(
    ("agreed", "clear"),
    [
        (averaging(), MeanSetting()),
        (clustering(2, tolerance=0.5), FederatedDbscan(min_points=2, tolerance=0.5)),
    ],
    ids=["mean", "clusters"],
)
def test_one_that_vanishes_before_anything_is_opened_aborts_where_all_are_needed(
    agreed: Averaging | Clustering, clear: Strategy, letters: int
) -> None:
    """Nothing was opened: the others may begin another run, under other keys."""
    searches, task = random_searches(3), Task(3, 3, agreed)
    with pytest.raises(RoundAborted, match="Nothing was opened") as aborted:
        vanishing(task, searches, b"abort", {2: letters})
    assert set(aborted.value.lost) == {2}
    assert aborted.value.lost[2].startswith("did not answer (")
    others = Searches(searches.frame, searches.clients[:2])
    again = play(task.among(2), others.clients, ScriptedSecrets(b"anew"))
    assert again.combined.setting == clear.combine(others).setting


@pytest.mark.parametrize(("agreed", "letters"), [(averaging(), 3), (clustering(2), 4)])
def test_one_that_vanishes_after_something_was_opened_leaves_the_run_unfinished(
    agreed: Averaging | Clustering, letters: int
) -> None:
    with pytest.raises(RoundUnfinished, match="opened"):
        vanishing(Task(3, 3, agreed), random_searches(3), b"late", {2: letters})


@pytest.mark.parametrize("letter", [3, 4], ids=["while opening the mask", "before its sums"])
def test_clusters_are_not_opened_without_a_party_that_made_cells_dense(letter: int) -> None:
    """Three of four may open, but a cell of two clients would then be opened of one."""
    searches = peaked((0.01, 0.0), (0.01, 0.0), (1.0, 0.9), (1.0, 0.9))
    with pytest.raises(RoundUnfinished, match="Only step 1 was opened") as unfinished:
        vanishing(Task(4, 3, clustering(2)), searches, b"left", {1: letter})
    assert set(unfinished.value.lost) == {1}


def test_one_that_gave_its_sums_may_vanish_where_fewer_must_help() -> None:
    searches, task = random_searches(4, seed=3), Task(4, 3, clustering(2, tolerance=0.5))
    outcome = vanishing(task, searches, b"gave", {1: 5})
    clear = FederatedDbscan(min_points=2, tolerance=0.5).combine(searches)
    assert outcome.combined.clusters == clear.clusters


def test_parties_that_compute_again_come_to_the_same() -> None:
    searches, task = random_searches(3, seed=9), Task(3, 3, clustering(2))
    outcome = play(task, searches.clients, ScriptedSecrets(b"again"), recomputes=True)
    assert outcome.combined.clusters == FederatedDbscan(min_points=2).combine(searches).clusters


@pytest.mark.parametrize(
    ("task", "match"),
    [
        (lambda: Task(3, 4, averaging()), "2 to 3 of 3"),
        (lambda: Task(1, 1, averaging()), "2 or more with a search of their own, and there is 1"),
        (lambda: Task(3, 3, clustering(1)), "at least 2 clients"),
        (lambda: task_for(clustering(4), 3, 3), "there are 3: lower min_points"),
    ],
)
def test_tasks_that_cannot_be_are_refused(task: Callable[[], Task], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        task()


def test_noise_is_expected_as_the_evaluator_states_it() -> None:
    """What a party computes in advance is what the server's result carries."""
    tasks: list[Task] = [
        Task(3, 3, averaging()),
        Task(3, 3, clustering(2)),
    ]
    for step in itertools.chain.from_iterable(task.steps for task in tasks):
        secrets = ScriptedSecrets(b"noise")
        keys = he.Parties(step.parameters, secrets)
        inputs = [
            [he.encrypt(keys.public_key, [1], secrets) for _ in range(3)]
            for _ in range(step.inputs)
        ]
        assert step.evaluate(keys.evaluator(), inputs).noise == step.expected_noise(3)
        assert step.expected_noise(2) != step.expected_noise(3)


def test_only_sums_have_a_guarantee() -> None:
    with pytest.raises(ParameterError, match="needs everybody's settings in one place"):
        combine(random_searches(3), "median", guarantee="encryption")


def test_one_call_gives_the_same_with_and_without_encryption() -> None:
    searches = peaked((0.01, 0.0), (0.01, 0.0), (0.03, 0.3))
    clear = combine(searches, FederatedDbscan(min_points=2))
    hidden = combine(
        searches,
        FederatedDbscan(min_points=2),
        guarantee="encryption",
        run=Run(secrets=ScriptedSecrets(b"one call")),
    )
    assert (hidden.setting, hidden.clusters) == (clear.setting, clear.clusters)
    assert hidden.points == ()
    assert len(clear.points) == 3
    assert "no differential privacy" in str(hidden.privacy)
    assert hidden.cost["bytes_per_party"] > 0


def test_means_are_exact_fractions_whatever_the_order() -> None:
    agreed = averaging(0.1)
    vectors = [agreed.vector(c) for c in random_searches(7, seed=8).clients]
    total = sum(vectors)
    exact = [Fraction(int(part), int(total[-1])) for part in total[:-1]]
    again = sum(reversed(vectors))
    assert [Fraction(int(part), int(again[-1])) for part in again[:-1]] == exact


def test_as_many_searches_as_parties_are_needed() -> None:
    with pytest.raises(ParameterError, match="3 parties, got 2"):
        play(Task(3, 3, averaging()), random_searches(2).clients, ScriptedSecrets(b"few"))
