"""Plans: the smallest secure ring that leaves room, and refusals that say why."""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from urna.errors import ParameterError
from urna.protocols import he
from urna.protocols.he.plan import Arithmetic, NoiseModel

Value = TypeVar("Value")


def dense_cells(arithmetic: Arithmetic[Value], inputs: Sequence[Value]) -> Value:
    """Return factor·C(C−1)(C−2)(C−3), with u = C² − 3C: factor·u·(u + 2)."""
    count, factor = inputs
    u = arithmetic.subtract(arithmetic.multiply(count, count), arithmetic.repeat(count, 3))
    return arithmetic.multiply(arithmetic.multiply(u, factor), arithmetic.add_number(u, 2))


@pytest.mark.parametrize("parties", [2, 10, 20, 100])
@pytest.mark.parametrize("width", [1, 3, 4096])
def test_sums_of_32_bits_fit_a_small_ring(parties: int, width: int) -> None:
    plan = he.additive(parties=parties, width=width)
    assert plan.degree == (4096 if parties <= 10 or width < 4096 else 8192)
    assert plan.modulus_bits <= he.LARGEST_MODULUS_BITS[plan.degree]
    model = NoiseModel(plan)
    assert model.hidden(model.repeat(model.fresh(), parties))


def test_sums_modulo_any_number_can_be_planned() -> None:
    for modulus in (2, 3, 1000, 65537, 1 << 40, (1 << 47) - 1):
        assert (
            he.additive(parties=5, width=8, plaintext_modulus=modulus).plaintext_modulus == modulus
        )


@pytest.mark.parametrize(("parties", "primes"), [(10, 8), (20, 8), (50, 8)])
def test_the_test_for_dense_cells_fits_a_ring_of_16384(parties: int, primes: int) -> None:
    plan = he.levelled(dense_cells, parties=parties, width=147, depth=3, inputs=2)
    assert (plan.degree, plan.width) == (16384, 256)
    assert len(plan.chain + plan.special) == primes


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 6])
def test_noise_is_never_too_large_at_the_planned_depth(depth: int) -> None:
    def power(arithmetic: Arithmetic[Value], inputs: Sequence[Value]) -> Value:
        result = inputs[0]
        for _ in range(depth):
            result = arithmetic.multiply(result, result)
        return result

    plan = he.levelled(power, parties=5, width=16, depth=depth)
    model = NoiseModel(plan)
    noise = model.repeat(model.fresh(), 5)
    for level in range(depth, 0, -1):
        assert 2 * noise.error < plan.basis(level).modulus
        noise = model.multiply(noise, noise)
        assert noise.level == level - 1
    assert model.hidden(noise)
    with pytest.raises(ParameterError, match="one more"):
        model.multiply(noise, noise)


def test_a_circuit_deeper_than_its_plan_is_refused() -> None:
    with pytest.raises(ParameterError, match="one more; plan a greater depth"):
        he.levelled(dense_cells, parties=3, width=16, depth=2, inputs=2)


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"plaintext_modulus": 1 << 50}, "plaintext modulus is"),
        ({"width": 40_000}, "entries"),
        ({"parties": 1}, "parties"),
        ({"threshold": 1}, "help to decrypt"),
    ],
)
def test_sums_that_cannot_be_are_refused(wish: dict[str, int], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        he.additive(**({"parties": 3, "width": 3} | wish))  # type: ignore[arg-type]


def test_products_modulo_a_large_number_are_refused() -> None:
    def square(arithmetic: Arithmetic[Value], inputs: Sequence[Value]) -> Value:
        return arithmetic.multiply(inputs[0], inputs[0])

    with pytest.raises(ParameterError, match="no secure ring"):
        he.levelled(square, parties=3, width=16, depth=1, plaintext_modulus=(1 << 45) + 1)
