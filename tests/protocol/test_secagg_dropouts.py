"""Dropouts at every stage, alone and mixed: the sum is exact or the round is aborted."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_play import ballots, small_plan

from urna.errors import ParameterError, RoundAborted, RoundUnfinished
from urna.protocols import secagg
from urna.protocols.secagg import ServerModel, Stage
from urna.protocols.secagg.graph import choose
from urna.protocols.secagg.shares import draw_secret
from urna.randomness import KeyStream, ScriptedSecrets, derive_seed

FOUR = [Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.UNMASK]


def play(plan: secagg.Plan, dropouts: dict[int, Stage], label: bytes = b"d") -> secagg.Outcome:
    return secagg.run(ballots(plan), plan, ScriptedSecrets(label), dropouts=dropouts)


def check(plan: secagg.Plan, outcome: secagg.Outcome, dropouts: dict[int, Stage]) -> None:
    after = {c for c, stage in dropouts.items() if stage in (Stage.AGREE, Stage.UNMASK)}
    assert outcome.survivors == frozenset(range(plan.clients)) - (dropouts.keys() - after)
    assert outcome.lost.keys() == dropouts.keys()
    wanted = np.sum([ballots(plan)[c] for c in outcome.survivors], axis=0)
    np.testing.assert_array_equal(outcome.total, wanted)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.integers(0, 11), st.sampled_from(FOUR), max_size=7),
    st.sampled_from([16, 32, 64]),
    st.binary(max_size=2),
)
def test_any_mixture_of_dropouts_gives_the_exact_sum_or_an_abort(
    dropouts: dict[int, Stage], ring_bits: int, label: bytes
) -> None:
    plan = small_plan(ring_bits=ring_bits)
    early = sum(stage is not Stage.UNMASK for stage in dropouts.values())
    try:
        outcome = play(plan, dropouts, label)
    except RoundAborted:
        assert early > plan.dropouts
    except RoundUnfinished:
        assert early <= plan.dropouts < len(dropouts)
    else:
        assert early <= plan.dropouts
        check(plan, outcome, dropouts)


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.integers(0, 11), st.sampled_from([*FOUR, Stage.AGREE]), max_size=4))
def test_the_same_where_the_server_may_be_dishonest(dropouts: dict[int, Stage]) -> None:
    plan = small_plan(server="dishonest")
    try:
        outcome = play(plan, dropouts)
    except (RoundAborted, RoundUnfinished):
        assert len(dropouts) > plan.dropouts
    else:
        check(plan, outcome, dropouts)


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK], ids=lambda s: s.name)
@pytest.mark.parametrize("extra", [0, 1], ids=["at the plan", "one more"])
def test_the_plan_is_kept_to_the_client(stage: Stage, extra: int) -> None:
    plan = small_plan()
    dropouts = dict.fromkeys(range(plan.dropouts + extra), stage)
    if extra:
        with pytest.raises(RoundAborted, match="Nothing was revealed") as aborted:
            play(plan, dropouts)
        assert f"needs {plan.least_survivors}" in str(aborted.value)
    else:
        check(plan, play(plan, dropouts), dropouts)


@pytest.mark.parametrize("extra", [0, 1], ids=["threshold answers", "one fewer"])
def test_unmasking_needs_exactly_the_threshold(extra: int) -> None:
    plan = small_plan(clients=9, dropouts=3)
    assert plan.neighbours == 8  # a complete graph: of 9, exactly `threshold` others answer
    silent = plan.clients - plan.threshold - 1 + extra
    dropouts = dict.fromkeys(range(silent), Stage.UNMASK)
    if extra:
        with pytest.raises(RoundUnfinished, match=f"{plan.threshold} are needed"):
            play(plan, dropouts)
    else:
        check(plan, play(plan, dropouts), dropouts)


def test_dropouts_at_all_stages_at_once() -> None:
    plan = small_plan(clients=20, dropouts=6)
    dropouts = {c: FOUR[c % 4] for c in range(6)}
    check(plan, play(plan, dropouts), dropouts)


def test_fifteen_hundred_clients_are_summed_exactly() -> None:
    """Where a popular implementation wraps silently: more than 1,024 clients at full range."""
    plan = secagg.plan(clients=1_500, dimension=3, dropouts=3)
    vectors = {c: np.array([1_000_000, -1_000_000, c]) for c in range(1_500)}
    dropouts = {7: Stage.SHARE, 8: Stage.MASK, 9: Stage.UNMASK}
    outcome = secagg.run(vectors, plan, ScriptedSecrets(b"1500"), dropouts=dropouts, workers=1)
    assert outcome.total.tolist() == [
        1_498_000_000,
        -1_498_000_000,
        1_500 * 1_499 // 2 - 7 - 8,
    ]


def test_zeros_are_summed_and_numbers_that_are_none_are_refused() -> None:
    plan = small_plan()
    zeros = {c: np.zeros(plan.dimension, dtype=np.int64) for c in range(plan.clients)}
    outcome = secagg.run(zeros, plan, ScriptedSecrets(b"zeros"))
    assert not outcome.total.any()
    for wrong in (np.full(6, np.nan), np.zeros(5, dtype=np.int64), np.full(6, 2**31)):
        with pytest.raises(ParameterError):
            secagg.run(zeros | {3: wrong}, plan, ScriptedSecrets(b"wrong"))
    with pytest.raises(ParameterError, match="numbered below"):
        secagg.run(zeros | {12: zeros[0]}, plan, ScriptedSecrets(b"wrong"))


def test_two_clients_and_a_complete_graph_work() -> None:
    plan = secagg.plan(clients=2, dimension=2)
    outcome = secagg.run({0: np.array([1, 2]), 1: np.array([-5, 9])}, plan, ScriptedSecrets(b"2"))
    assert outcome.total.tolist() == [-4, 11]


def test_neighbours_in_a_large_electorate_are_few() -> None:
    curious = ServerModel.HONEST_BUT_CURIOUS
    small, large = choose(100, 5, 10, curious), choose(100_000, 5_000, 10_000, curious)
    assert small is not None
    assert large is not None
    assert large[0] < 4 * small[0]


@pytest.mark.parametrize("xnoise", ["precise", "approximate"])
@pytest.mark.parametrize("lost", range(5))
def test_left_over_noise_is_exactly_what_was_never_removed(xnoise: str, lost: int) -> None:
    """The total is votes plus components 0..D of each survivor, drawn again from its seeds."""
    plan = small_plan(
        clients=16,
        colluders=1,
        dropouts=4,
        noise_variance=Fraction(400),
        xnoise=xnoise,
    )
    stages = [Stage.MASK, Stage.SHARE, Stage.ADVERTISE, Stage.MASK]
    dropouts = {c: stages[c] for c in range(lost)} | {10: Stage.UNMASK}
    outcome = play(plan, dropouts)
    noise = outcome.total - np.sum([ballots(plan)[c] for c in outcome.survivors], axis=0)
    assert plan.noise is not None
    assert outcome.noise_variance == len(outcome.survivors) * plan.noise.left(lost)
    assert plan.noise.honest_left(lost) >= 400
    kept = [k for k in range(plan.noise.shared + 1) if k not in plan.noise.removed(lost)]
    expected = np.zeros(plan.dimension, dtype=np.int64)
    for client, seeds in noise_seeds(plan, b"d").items():
        if client in outcome.survivors:
            for k in kept:
                table = plan.noise.family.table(plan.noise.components()[k])
                expected += table.draw(derive_seed(seeds[k], b"noise"), plan.dimension)
    np.testing.assert_array_equal(noise, expected)


def noise_seeds(plan: secagg.Plan, label: bytes) -> dict[int, tuple[bytes, ...]]:
    """Draw again what each client drew: two keys, the self-mask seed, then the noise seeds."""

    class Again:
        private = False

        def __init__(self, seed: bytes) -> None:
            self._stream = KeyStream(seed)

        def take(self, count: int) -> bytes:
            room = np.empty(count, dtype=np.uint8)
            self._stream.fill(room)
            return room.tobytes()

    secrets = ScriptedSecrets(label)
    secrets.take(32)
    found = {}
    assert plan.noise is not None
    for client in range(plan.clients):
        source = Again(secrets.take(32))
        for _ in range(3):
            draw_secret(source)
        found[client] = plan.noise.draw_seeds(source)
    return found
