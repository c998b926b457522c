"""BGV under a joint key: identities, depth, noise within its bound, and who is needed."""

import dataclasses
import math

import numpy as np
import pytest
from he_play import Play, exact, fourth_power, sums
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError, ProtocolError
from urna.protocols import he
from urna.protocols.he.plan import NoiseModel

MODULUS = 65537
entries = st.lists(st.integers(0, MODULUS - 1), min_size=16, max_size=16)
few = settings(max_examples=8, deadline=None)


def wrapped(vector: np.ndarray) -> list[int]:
    return [int(x) % MODULUS for x in vector.astype(object)]


@given(entries, entries, st.integers(-(10**6), 10**6))
@few
def test_sums_differences_and_multiples_are_those_of_the_entries(
    left: list[int], right: list[int], times: int
) -> None:
    play = exact()
    a, b = np.array(left, dtype=object), np.array(right, dtype=object)
    x, y = play.encrypt(left), play.encrypt(right)
    do = play.evaluator
    assert play.decrypt(do.total([x, y])) == wrapped(a + b)
    assert play.decrypt(do.subtract(x, y)) == wrapped(a - b)
    assert play.decrypt(do.add_number(x, times)) == wrapped(a + times)
    assert play.decrypt(do.repeat(x, times % 100 - 50)) == wrapped(a * (times % 100 - 50))
    assert play.decrypt(do.total([x, y, y, x, x])) == wrapped(3 * a + 2 * b)


@given(entries, entries, entries)
@few
def test_products_are_those_of_the_entries(
    left: list[int], right: list[int], third: list[int]
) -> None:
    play = exact()
    a, b, c = (np.array(v, dtype=object) for v in (left, right, third))
    x, y, z = (play.encrypt(v) for v in (left, right, third))
    do = play.evaluator
    assert play.decrypt(do.multiply(x, y)) == wrapped(a * b)
    # Associative and distributive, across levels.
    assert play.decrypt(do.multiply(do.multiply(x, y), z)) == wrapped(a * b * c)
    assert play.decrypt(do.multiply(x, do.total([y, z]))) == wrapped(a * (b + c))
    assert play.decrypt(do.total([do.multiply(x, y), z])) == wrapped(a * b + c)


def test_a_multiple_uses_no_level() -> None:
    play = exact()
    multiple = play.evaluator.repeat(play.encrypt([1, 2]), -5)
    assert multiple.level == 2
    assert play.decrypt(multiple)[:3] == [MODULUS - 5, MODULUS - 10, 0]


def test_a_total_of_several_levels_counts_the_rounding_of_each() -> None:
    play = exact()
    terms = [play.encrypt([k], level=level) for k, level in ((1, 2), (2, 2), (3, 0))]
    total = play.evaluator.total(terms)
    assert play.decrypt(total)[0] == 6
    low = [play.evaluator.lower(term, 0).noise.error for term in terms]
    assert total.noise.error == sum(low)
    with pytest.raises(ParameterError, match="at least one ciphertext"):
        play.evaluator.total([])


def test_a_random_factor_of_one_party_makes_a_product_uniform_or_leaves_it_zero() -> None:
    play = exact()
    factor = he.uniform_entries(play.parameters, play.secrets)
    assert factor.shape == (16,)
    assert factor.min() >= 0
    assert factor.max() < MODULUS
    product = play.evaluator.multiply(play.encrypt([0, 1, 5]), play.encrypt(factor))
    assert play.decrypt(product)[:3] == [0, factor[1], 5 * factor[2] % MODULUS]


def test_lowering_keeps_the_entries_and_cannot_be_undone() -> None:
    play = exact()
    fresh = play.encrypt(range(16))
    low = play.evaluator.lower(fresh, 0)
    assert play.decrypt(low) == list(range(16))
    assert low.parts.nbytes < play.evaluator.lower(fresh, 1).parts.nbytes < fresh.parts.nbytes
    with pytest.raises(ParameterError, match="cannot rise"):
        play.evaluator.lower(low, 1)
    with pytest.raises(ParameterError, match="levels are"):
        play.evaluator.lower(low, 3)


def test_more_multiplications_in_a_row_than_planned_are_refused() -> None:
    play = exact()
    result = fourth_power(play.evaluator, [play.encrypt(range(16))])
    assert play.decrypt(result) == [i**4 % MODULUS for i in range(16)]
    assert result.level == 0
    with pytest.raises(ParameterError, match="one more"):
        play.evaluator.multiply(result, result)


def test_noise_that_would_not_fit_is_refused_before_it_is_computed() -> None:
    play = exact()
    value = play.encrypt([1])
    for _ in range(6):
        value = play.evaluator.repeat(value, 1 << 20)
    assert max(abs(int(v)) for v in play.inside(value)) <= value.noise.error
    with pytest.raises(ParameterError, match="does not fit level 2"):
        play.evaluator.repeat(play.evaluator.repeat(value, 1 << 20), 1 << 20)


@pytest.mark.parametrize("seed", range(3))
def test_measured_noise_is_within_its_bound_after_every_step(seed: int) -> None:
    play = exact()
    rng = np.random.default_rng(seed)
    do = play.evaluator

    def checked(ciphertext: he.Ciphertext) -> he.Ciphertext:
        largest = max(abs(int(v)) for v in play.inside(ciphertext))
        assert largest <= ciphertext.noise.error
        assert 2 * ciphertext.noise.error < math.prod(play.parameters.primes(ciphertext.level))
        return ciphertext

    vectors = [checked(play.encrypt(rng.integers(0, MODULUS, 16))) for _ in range(3)]
    total = checked(do.total(vectors))
    checked(do.lower(total, 0))
    checked(do.repeat(total, -17))
    square = checked(do.multiply(total, total))
    checked(do.add_number(square, 5))
    checked(do.multiply(total, square))
    checked(do.multiply(square, square))


def test_the_bound_is_not_so_wide_that_it_says_nothing() -> None:
    # A fresh error is within some bits of its bound: eleven standard deviations were allowed for.
    play = exact()
    fresh = play.encrypt(range(16))
    largest = max(abs(int(v)) for v in play.inside(fresh))
    assert fresh.noise.error < 64 * largest


def test_the_planned_circuit_ends_with_noise_that_smudging_hides() -> None:
    model = NoiseModel(exact().parameters)
    start = model.repeat(model.fresh(), 3)
    noise = fourth_power(model, [start])
    assert noise.level == 0
    assert model.hidden(noise)
    # Played on ciphertexts the same circuit carries the same bound.
    play = exact()
    total = play.evaluator.total([play.encrypt([1]) for _ in range(3)])
    assert fourth_power(play.evaluator, [total]).noise == noise


def test_a_result_with_more_noise_than_smudging_hides_is_not_opened() -> None:
    play = exact()
    noisy = play.encrypt([1])
    while NoiseModel(play.parameters).hidden(noisy.noise):
        noisy = play.evaluator.repeat(noisy, 1000)
    with pytest.raises(ProtocolError, match="more than smudging hides"):
        play.decrypt(noisy)
    request = he.DecryptionRequest(noisy.key, noisy.noise, frozenset(range(3)), noisy.parts[1])
    with pytest.raises(ProtocolError, match="more than smudging hides"):
        he.help_to_decrypt(play.holders[0], request, play.secrets)


def test_sums_modulo_a_power_of_two_are_exact_and_signed() -> None:
    play = sums()
    vectors = [[2**31, -5, 1, 0, 2**40], [2**31, 3, 1, 0, -1], [7, 0, 1, 0, 0]]
    total = play.evaluator.total([play.encrypt(v) for v in vectors])
    opened = np.array(play.decrypt(total))
    assert opened.tolist() == [7, 2**32 - 2, 3, 0, 2**32 - 1]
    assert he.centred(opened, 2**32).tolist() == [7, -2, 3, 0, -1]


def test_without_levels_nothing_is_multiplied_but_by_one_number() -> None:
    play = sums()
    value = play.encrypt([1, 2, 3])
    assert play.decrypt(play.evaluator.repeat(value, -2)) == [
        2**32 - 2,
        2**32 - 4,
        2**32 - 6,
        0,
        0,
    ]
    with pytest.raises(ParameterError, match="relinearisation key"):
        play.evaluator.multiply(value, value)


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([1, 2, 3, 4, 5, 6], "at most 5"),
        ([[1], [2]], "one row"),
        ([1.5], "integers"),
    ],
    ids=["too many", "a table", "fractions"],
)
def test_vectors_that_do_not_fit_are_refused(vector: list[int], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        sums().encrypt(vector)


def test_every_share_is_needed_and_must_answer_the_same_request() -> None:
    play = sums()
    ciphertext, another = play.encrypt([1, 2]), play.encrypt([3, 4])
    request = he.ask_to_decrypt(play.public_key, ciphertext)
    shares = {
        party: he.help_to_decrypt(holder, request, play.secrets)
        for party, holder in play.holders.items()
    }
    assert he.combine(play.public_key, ciphertext, shares).tolist()[:2] == [1, 2]
    two = {party: shares[party] for party in (0, 1)}
    with pytest.raises(ProtocolError, match="exactly 3"):
        he.combine(play.public_key, ciphertext, two)
    with pytest.raises(ProtocolError, match="another request"):
        he.combine(play.public_key, another, shares)
    moved = dataclasses.replace(shares[1], key=b"k" * 32)
    with pytest.raises(ProtocolError, match="another request"):
        he.combine(play.public_key, ciphertext, {**shares, 1: moved})


def test_a_request_that_is_answered_twice_is_smudged_anew() -> None:
    play = sums()
    request = he.ask_to_decrypt(play.public_key, play.encrypt([1]))
    first, second = (he.help_to_decrypt(play.holders[0], request, play.secrets) for _ in range(2))
    assert (first.residues != second.residues).any(axis=1).all()


@pytest.mark.parametrize(
    ("helpers", "reason"),
    [({0, 1}, "exactly 3"), ({0, 1, 3}, "no parties"), ({0, 1, 2, 3}, "exactly 3")],
)
def test_a_party_refuses_requests_with_wrong_helpers(helpers: set[int], reason: str) -> None:
    play = sums()
    fresh = play.encrypt([1])
    request = he.DecryptionRequest(fresh.key, fresh.noise, frozenset(helpers), fresh.parts[1])
    with pytest.raises(ProtocolError, match=reason):
        he.help_to_decrypt(play.holders[0], request, play.secrets)


def test_ciphertexts_of_another_key_are_refused_everywhere() -> None:
    play, other = sums(), Play(sums().parameters, b"other")
    mine, foreign = play.encrypt([1]), other.encrypt([1])
    with pytest.raises(ProtocolError, match="another joint key"):
        play.evaluator.total([mine, foreign])
    with pytest.raises(ProtocolError, match="another joint key"):
        play.evaluator.add_number(foreign, 1)
    with pytest.raises(ProtocolError, match="another joint key"):
        he.ask_to_decrypt(play.public_key, foreign)
    with pytest.raises(ProtocolError, match="another joint key"):
        he.help_to_decrypt(
            play.holders[0], he.ask_to_decrypt(other.public_key, foreign), play.secrets
        )


def test_a_key_needs_every_partys_share() -> None:
    play = sums()
    with pytest.raises(ProtocolError, match=r"\[2\] are missing"):
        he.add_key_shares(play.session, {p: play.shares[p] for p in (0, 1)})
    with pytest.raises(ProtocolError, match=r"there are no parties \[3\]"):
        he.add_key_shares(play.session, {**play.shares, 3: play.shares[0]})


def test_a_relinearisation_key_of_another_joint_key_is_refused() -> None:
    play = exact()
    assert play.relinearisation_key is not None
    foreign = dataclasses.replace(play.relinearisation_key, key=b"k" * 32)
    with pytest.raises(ProtocolError, match="another joint key"):
        he.Evaluator(play.public_key, foreign)


def test_secrets_are_not_shown() -> None:
    play = exact()
    for shown in (play.drawn[0], play.holders[0], play.encrypt([1])):
        assert "array" not in repr(shown)
    assert "secret" not in repr(play.holders[0]).replace("ScriptedSecrets", "")


def test_all_parties_in_one_process_count_their_bytes() -> None:
    parties = he.Parties(exact().parameters, exact().secrets)
    keys = dict(parties.traffic)
    opened = parties.run({p: [[p + 1, 2, 0]] for p in range(3)}, circuit=fourth_power)
    assert opened.tolist()[:4] == [6**4, 6**4, 0, 0]
    assert keys.keys() == {0, 1, 2}
    assert all(0 < keys[party] < spent for party, spent in parties.traffic.items())
    with pytest.raises(ParameterError, match="same number of vectors"):
        parties.run({0: [[1]], 1: []})
