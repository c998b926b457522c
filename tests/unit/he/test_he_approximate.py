"""CKKS under a joint key: identities to the stated precision, noise within its bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from he_play import Play, approximate, fourth_power
from hypothesis import given, settings
from hypothesis import strategies as st

from urna import he
from urna.errors import ParameterError, ProtocolError
from urna.he.encoding import Plain, decode, encode
from urna.he.noise import ApproximateNoise

entries = st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4)
few = settings(max_examples=8, deadline=None)


def close(found: list[float], expected: np.ndarray, play: Play) -> bool:
    return bool(np.abs(np.array(found) - expected).max() <= he.precision(play.parameters))


def whole(plain: Plain) -> np.ndarray:
    """Return a polynomial's coefficients in Python's integers."""
    terms = zip(plain.limbs, plain.weights, strict=True)
    return sum(limb.astype(object) * weight for limb, weight in terms)


@given(entries, entries, st.integers(-3, 3))
@few
def test_sums_and_multiples_are_those_of_the_entries(
    left: list[float], right: list[float], times: int
) -> None:
    play = approximate()
    a, b = np.array(left), np.array(right)
    x, y = play.encrypt(left), play.encrypt(right)
    do = play.evaluator
    assert close(play.decrypt(do.add(x, y)), a + b, play)
    assert close(play.decrypt(do.subtract(x, y)), a - b, play)
    assert close(play.decrypt(do.add_plain(x, right)), a + b, play)
    assert close(play.decrypt(do.add_plain(x, [0.25])), a + 0.25, play)
    assert close(play.decrypt(do.repeat(x, times)), a * times, play)


@given(entries, entries, entries)
@few
def test_products_are_those_of_the_entries(
    left: list[float], right: list[float], third: list[float]
) -> None:
    play = approximate()
    a, b, c = np.array(left), np.array(right), np.array(third)
    x, y, z = (play.encrypt(v) for v in (left, right, third))
    do = play.evaluator
    assert close(play.decrypt(do.multiply(x, y)), a * b, play)
    assert close(play.decrypt(do.multiply_plain(x, right)), a * b, play)
    assert close(play.decrypt(do.multiply_plain(x, [-0.3])), -0.3 * a, play)
    assert close(play.decrypt(do.multiply(do.multiply(x, y), z)), a * b * c, play)
    # Different levels meet, and their scales with them.
    assert close(play.decrypt(do.add(do.multiply(x, y), z)), a * b + c, play)
    combined = do.inner_product([x, do.multiply(x, y)], [y, z])
    assert close(play.decrypt(combined), a * b + a * b * c, play)
    weighted = do.weighted_sum([x, do.multiply(y, z)], [0.5, -1.5])
    assert close(play.decrypt(weighted), 0.5 * a - 1.5 * b * c, play)


@pytest.mark.parametrize("seed", range(3))
def test_measured_noise_is_within_its_bound_after_every_step(seed: int) -> None:
    play = approximate()
    parameters, do = play.parameters, play.evaluator
    block, copies = parameters.block, parameters.degree // parameters.block
    rng = np.random.default_rng(seed)

    def checked(ciphertext: he.Ciphertext, plain: np.ndarray) -> he.Ciphertext:
        inside = play.inside(ciphertext)
        inside = inside - whole(encode(parameters, plain, parameters.scale(ciphertext.level)))
        # Sort the error by powers of X below X^(N/B), and evaluate each part at the roots.
        parts = inside.reshape(block, copies).T.astype(np.float64)
        twist = np.exp(1j * np.pi * np.arange(block) / block)
        measured = np.abs(np.fft.ifft(parts * twist, axis=1) * block).max()
        slack = float(parameters.scale(ciphertext.level)) * 2.0**-48  # float64 in this check
        assert measured <= ciphertext.noise.error + slack
        assert np.abs(plain).max() <= ciphertext.noise.magnitude
        return ciphertext

    a, b = rng.uniform(-1, 1, (2, 4))
    x, y = checked(play.encrypt(a), a), checked(play.encrypt(b), b)
    checked(do.lower(x, 1), a)
    checked(do.lower(x, 0), a)
    checked(do.multiply_plain(x, [0.7]), 0.7 * a)
    checked(do.multiply_plain(x, b.tolist()), a * b)
    product = checked(do.multiply(x, y), a * b)
    checked(do.inner_product([x, product], [product, y]), a**2 * b + a * b**2)
    checked(do.multiply(product, product), (a * b) ** 2)


def test_the_planned_circuit_reaches_the_stated_precision() -> None:
    play = approximate()
    thirds = np.array([1.0, -1.0, 0.5, 0.0]) / 3
    total = play.evaluator.total([play.encrypt(thirds) for _ in range(3)])
    total = play.evaluator.within(total, 1.0)
    result = fourth_power(play.evaluator, [total])
    assert close(play.decrypt(result), (3 * thirds) ** 4, play)
    model = ApproximateNoise(play.parameters)
    start = model.within(model.repeat(model.fresh(2), 3), 1.0)
    assert fourth_power(model, [start]).error == result.noise.error
    assert model.hidden(result.noise)


def test_all_levels_of_one_ciphertext_decrypt_alike() -> None:
    play = approximate()
    vector = np.array([0.125, -1.0, 0.75, 0.3])
    for level in (0, 1, 2):
        assert close(play.decrypt(play.encrypt(vector, level=level)), vector, play)


def test_a_vector_comes_back_from_its_polynomial() -> None:
    parameters = approximate().parameters
    vector = np.array([0.1, -0.9, 1.0, 0.0])
    plain = encode(parameters, vector, parameters.scale(1))
    opened = [limb[parameters.opened] for limb in plain.limbs]
    residues = parameters.basis(1).combine(opened, plain.weights)
    assert np.abs(decode(parameters, residues, 1) - vector).max() < 2.0**-48
    assert not np.delete(whole(plain), parameters.opened).any()


def test_entries_lie_at_the_odd_powers_of_the_complex_root() -> None:
    parameters = approximate().parameters
    vector = np.array([0.1, -0.9, 1.0, 0.5])
    plain = encode(parameters, vector, Fraction(2**40))
    coefficients = whole(plain)[parameters.opened] / 2**40
    roots = np.exp(1j * np.pi * (2 * np.arange(4) + 1) / 8)
    values = [sum(c * root**k for k, c in enumerate(coefficients)) for root in roots]
    assert np.allclose(values, vector, atol=1e-10)


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([1.0, 2.0], "larger than the planned"),
        ([math.nan], "larger than the planned"),
        ([math.inf], "larger than the planned"),
        ([0.0] * 5, "at most 4"),
    ],
)
def test_entries_that_do_not_fit_are_refused(vector: list[float], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        approximate().encrypt(vector)


def test_a_constant_that_is_not_finite_is_refused() -> None:
    play = approximate()
    with pytest.raises(ParameterError, match="finite"):
        play.evaluator.multiply_plain(play.encrypt([1.0]), [1.0, math.nan])


def test_entries_that_outgrow_the_modulus_are_refused() -> None:
    play = approximate()
    with pytest.raises(ParameterError, match="do not fit"):
        play.evaluator.repeat(play.encrypt([1.0], level=0), 1 << 60)
    large = play.evaluator.repeat(play.encrypt([1.0]), 1 << 40)
    with pytest.raises(ParameterError, match="does not fit"):
        play.evaluator.multiply(large, large)


def test_more_multiplications_in_a_row_than_planned_are_refused() -> None:
    play = approximate()
    result = fourth_power(play.evaluator, [play.encrypt([0.5])])
    with pytest.raises(ParameterError, match="one more"):
        play.evaluator.multiply_plain(result, [0.5])


def test_a_result_with_more_noise_than_smudging_hides_is_not_opened() -> None:
    play = approximate()
    noisy = play.evaluator.within(play.evaluator.repeat(play.encrypt([1e-9]), 1 << 30), 2.0)
    with pytest.raises(ProtocolError, match="more than smudging hides"):
        play.decrypt(noisy)


def test_real_numbers_are_not_drawn_uniformly() -> None:
    with pytest.raises(ParameterError, match="real numbers"):
        he.uniform_entries(approximate().parameters, approximate().secrets)


def test_exact_parameters_lose_no_precision() -> None:
    assert he.precision(he.additive(parties=2, width=1)) == 0.0
