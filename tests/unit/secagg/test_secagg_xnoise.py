"""Noise components beside the papers' formulas, in exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.noise import DISCRETE_GAUSSIAN, table
from urna.protocols.secagg.masks import wrapped, zeros
from urna.protocols.secagg.xnoise import NoisePlan, Removal
from urna.randomness import ScriptedSecrets, derive_seed


@st.composite
def plans(draw: st.DrawFn, removal: Removal) -> NoisePlan:
    clients = draw(st.integers(2, 120))
    colluders = draw(st.integers(0, clients - 1))
    dropouts = draw(st.integers(0, clients - 1 - colluders))
    target = draw(st.fractions(Fraction(1, 100), 10_000, max_denominator=100))
    return NoisePlan(removal, target, clients, colluders, dropouts)


@settings(max_examples=50, deadline=None)
@given(plans(Removal.PRECISE))
def test_precise_removal_leaves_exactly_the_target_among_honest_survivors(plan: NoisePlan) -> None:
    for lost in range(plan.dropouts + 1):
        honest = plan.clients - lost - plan.colluders
        assert honest * plan.left(lost) == plan.target == plan.honest_left(lost)


@settings(max_examples=50, deadline=None)
@given(plans(Removal.APPROXIMATE))
def test_approximate_removal_leaves_the_target_and_little_more(plan: NoisePlan) -> None:
    least = plan.clients - plan.colluders - plan.dropouts
    for lost in range(plan.dropouts + 1):
        left = plan.honest_left(lost)
        assert plan.target <= left <= plan.target + plan.target / least


@settings(max_examples=20, deadline=None)
@given(plans(Removal.NONE))
def test_without_removal_the_worst_case_is_met(plan: NoisePlan) -> None:
    assert plan.shared == 0
    assert plan.honest_left(plan.dropouts) == plan.target
    assert plan.honest_left(0) >= plan.target


def test_one_removed_component_more_would_miss_the_target() -> None:
    for removal in (Removal.PRECISE, Removal.APPROXIMATE):
        plan = NoisePlan(removal, Fraction(100), 30, 3, 9)
        for lost in range(1, 10):
            spared = [k for k in range(1, plan.shared + 1) if k not in plan.removed(lost)]
            smallest = min(plan.components()[k] for k in spared)
            honest = 30 - 3 - lost
            assert honest * (plan.left(lost) - smallest) < plan.target


def test_components_are_the_papers_without_colluders() -> None:
    sigma2, S, t = Fraction(7), 20, 6
    precise = NoisePlan(Removal.PRECISE, sigma2, S, 0, t).components()
    assert precise[0] == sigma2 / S
    assert precise[1:] == tuple(sigma2 / ((S - k + 1) * (S - k)) for k in range(1, t + 1))
    approximate = NoisePlan(Removal.APPROXIMATE, sigma2, S, 0, t)
    tau = math.ceil(math.log2(t))
    eta = sigma2 * t / (2**tau * S * (S - t))
    wanted = (sigma2 / S, eta, *(eta * 2 ** (k - 2) for k in range(2, tau + 2)))
    assert approximate.components() == wanted
    for lost in range(1, t + 1):
        excess = (t - lost) * sigma2 / ((S - t) * (S - lost))
        bits = math.floor(excess / eta)
        assert approximate.removed(lost) == tuple(
            k for k in range(2, tau + 2) if bits >> (k - 2) & 1
        )
    assert approximate.removed(0) == tuple(range(1, tau + 2))


@pytest.mark.parametrize("removal", list(Removal))
def test_opened_seeds_give_exactly_the_removed_components(removal: Removal) -> None:
    plan = NoisePlan(removal, Fraction(50), 20, 2, 5)
    seeds = plan.draw_seeds(ScriptedSecrets(b"seeds"))
    assert len(seeds) == len(plan.components()) == plan.shared + 1
    for lost in range(6):
        opened = {k: seeds[k] for k in plan.opened(lost)}
        assert plan.seeds_from(opened, lost) == {k: seeds[k] for k in plan.removed(lost)}


def test_precise_removal_opens_one_seed_and_none_that_is_needed() -> None:
    plan = NoisePlan(Removal.PRECISE, Fraction(50), 20, 0, 5)
    assert [plan.opened(lost) for lost in range(6)] == [(1,), (2,), (3,), (4,), (5,), ()]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_what_is_added_is_removed_bit_for_bit(bits: int) -> None:
    plan = NoisePlan(Removal.APPROXIMATE, Fraction(900), 20, 0, 5)
    seeds = dict(enumerate(plan.draw_seeds(ScriptedSecrets(b"bits"))))
    words = zeros(50, bits)
    words += np.arange(50, dtype=words.dtype)
    before = words.copy()
    plan.add_to(words, [seeds])
    assert (words != before).any()
    plan.remove_from(words, [{k: seeds[k] for k in plan.removed(2)}])
    kept = before.copy()
    plan.add_to(kept, [{k: s for k, s in seeds.items() if k not in plan.removed(2)}])
    np.testing.assert_array_equal(words, kept)
    plan.remove_from(words, [{k: s for k, s in seeds.items() if k not in plan.removed(2)}])
    np.testing.assert_array_equal(words, before)


def test_impossible_noise_is_refused() -> None:
    with pytest.raises(ParameterError, match="no honest client"):
        NoisePlan(Removal.PRECISE, Fraction(1), 10, 5, 5)
    with pytest.raises(ParameterError, match="positive Fraction"):
        NoisePlan(Removal.PRECISE, Fraction(0), 10, 0, 5)
    with pytest.raises(ParameterError, match="Skellam"):
        NoisePlan(Removal.PRECISE, Fraction(1), 10, 0, 5, DISCRETE_GAUSSIAN)
    with pytest.raises(ParameterError, match="approximate"):
        NoisePlan(Removal.PRECISE, Fraction(1), 10_000, 0, 2_000)
    with pytest.raises(ParameterError, match="allows for 5"):
        NoisePlan(Removal.PRECISE, Fraction(1), 10, 0, 5).removed(6)


def one_by_one(plan: NoisePlan, clients: list[dict[int, bytes]], count: int) -> np.ndarray:
    """The slow way: every component of every client as one whole vector, in plain integers."""
    total = np.zeros(count, dtype=np.int64)
    for seeds in clients:
        for k, seed in seeds.items():
            drawn = plan.family.table(plan.components()[k])
            total += drawn.draw(derive_seed(seed, b"noise"), count)
    return total


@pytest.mark.parametrize("count", [0, 1, 200, 70_000])
@pytest.mark.parametrize("bits", [16, 64])
def test_noise_of_many_clients_is_the_sum_of_each(count: int, bits: int) -> None:
    plan = NoisePlan(Removal.APPROXIMATE, Fraction(90_000), 20, 0, 5)
    source = ScriptedSecrets(b"many")
    clients = [
        {k: seed for k, seed in enumerate(plan.draw_seeds(source)) if (k + c) % 3}
        for c in range(2 if count > 1_000 else 700)
    ]
    words = zeros(count, bits)
    plan.add_to(words, clients)
    np.testing.assert_array_equal(words, wrapped(one_by_one(plan, clients, count), bits))


@pytest.mark.parametrize("size", [7, 64, 10_000])
def test_every_size_of_pieces_adds_the_same_noise(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    plan = NoisePlan(Removal.PRECISE, Fraction(900), 20, 0, 3)
    source = ScriptedSecrets(b"pieces")
    clients = [dict(enumerate(plan.draw_seeds(source))) for _ in range(3)]
    whole, pieces = zeros(500, 32), zeros(500, 32)
    plan.add_to(whole, clients)
    monkeypatch.setattr(table, "_BATCH", size)
    plan.add_to(pieces, clients)
    np.testing.assert_array_equal(whole, pieces)
