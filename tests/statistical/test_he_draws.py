"""What keys, ciphertexts and shares are made of has the distribution it must have."""

import math
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from urna.protocols import he
from urna.protocols.he.messages import public_reference
from urna.protocols.he.ntt import primes_below
from urna.protocols.he.rns import basis
from urna.protocols.he.sampling import ERROR_BOUND, ERROR_VARIANCE, SECRET_VARIANCE, Sampler
from urna.randomness import ScriptedSecrets

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "he"))
from he_play import Play, exact, integers

FALSE_ALARM = 1e-6  # how often right draws would fail one of these checks on a fresh seed
COUNT = 200_000

pytestmark = pytest.mark.statistical


def sampler(label: bytes) -> Sampler:
    return Sampler.of(ScriptedSecrets(label))


def fits(counts: npt.NDArray[np.int64], chances: npt.NDArray[np.float64]) -> bool:
    """Chi-square against given chances; rare classes are put together."""
    order = np.argsort(chances)
    counts, expected = counts[order], chances[order] * counts.sum()
    rare = max(1, int((np.cumsum(expected) < 20).sum()) + 1)
    counts = np.concatenate([[counts[:rare].sum()], counts[rare:]])
    expected = np.concatenate([[expected[:rare].sum()], expected[rare:]])
    return bool(stats.chisquare(counts, expected).pvalue > FALSE_ALARM)


def uniform(values: npt.NDArray[np.int64], modulus: int) -> bool:
    """Chi-square over 64 classes of equal width, and over the four residues of the low bits."""
    classes = np.bincount((values / modulus * 64).astype(np.int64), minlength=64)
    low = np.bincount(values & 3, minlength=4)
    return fits(classes, np.full(64, 1 / 64)) and fits(low, np.full(4, 1 / 4))


def test_secrets_are_minus_one_zero_and_one_with_equal_chances() -> None:
    drawn = sampler(b"ternary").ternary(COUNT)
    assert fits(np.bincount(drawn + 1, minlength=3), np.full(3, 1 / 3))
    # Bytes modulo 3 without rejection favour one residue by a 256th: caught at this size.
    biased = (np.frombuffer(ScriptedSecrets(b"b").take(30 * COUNT), dtype=np.uint8) % 3).astype(int)
    assert not fits(np.bincount(biased, minlength=3), np.full(3, 1 / 3))


@pytest.mark.parametrize("times", [1, 2])
def test_errors_are_heads_of_coins_minus_heads_of_as_many_others(times: int) -> None:
    most = ERROR_BOUND * times
    drawn = sampler(b"errors").errors(COUNT, times=times)
    assert np.abs(drawn).max() <= most
    chances = stats.binom.pmf(np.arange(2 * most + 1), 2 * most, 0.5)
    assert fits(np.bincount(drawn + most, minlength=2 * most + 1), chances)
    # One coin fewer would be caught.
    fewer = stats.binom.pmf(np.arange(2 * most - 1), 2 * most - 2, 0.5)
    clipped = np.clip(drawn + most - 1, 0, 2 * most - 2)
    assert not fits(np.bincount(clipped, minlength=2 * most - 1), fewer)


def test_the_error_is_wide_enough_for_the_standards_table() -> None:
    assert math.sqrt(ERROR_VARIANCE) >= 8 / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("bits", [18, 33, 47])
def test_residues_are_uniform_below_their_prime(bits: int) -> None:
    # 3·2^(bits−2): drawing without rejection would favour the lower third by half.
    limit = 3 << (bits - 2)
    drawn = sampler(b"uniform").below(limit, COUNT)
    assert drawn.max() < limit
    assert uniform(drawn, limit)
    words = np.frombuffer(ScriptedSecrets(b"w").take(8 * COUNT), dtype="<u8")
    folded = (words % (1 << bits) % limit).astype(np.int64)
    assert not uniform(folded, limit)


@pytest.mark.parametrize("exponent", [10, 47, 48, 70, 100])
def test_wide_noise_is_uniform_and_covers_its_whole_range(exponent: int) -> None:
    ring = basis(1024, primes_below(1 << 47, step=2048, count=4))
    drawn = integers(ring, sampler(b"wide").wide(ring, exponent, 20_000))
    shifted = np.array([int(x) + (1 << exponent) for x in drawn], dtype=object)
    assert min(shifted) >= 0
    assert max(shifted) < 1 << (exponent + 1)
    classes = np.array([int(x) * 64 >> (exponent + 1) for x in shifted])
    assert fits(np.bincount(classes, minlength=64), np.full(64, 1 / 64))
    assert fits(np.bincount([int(x) & 7 for x in shifted], minlength=8), np.full(8, 1 / 8))
    # Half the range, or only multiples of two, would be caught.
    assert not fits(np.bincount(classes // 2, minlength=64), np.full(64, 1 / 64))
    assert not fits(np.bincount([int(x) & 6 for x in shifted], minlength=8), np.full(8, 1 / 8))


@pytest.fixture(scope="module")
def wide() -> Play:
    """Sums of 4,096 entries: enough coefficients to look at."""
    return Play(he.additive(parties=3, width=4096), b"wide")


def rows_uniform(rows: npt.NDArray[np.int64], primes: tuple[int, ...]) -> bool:
    return all(uniform(row, prime) for row, prime in zip(rows, primes, strict=True))


def test_without_one_partys_share_a_result_is_uniform(wide: Play) -> None:
    parameters = wide.parameters
    ciphertext = wide.encrypt([7] * 4096)
    request = he.ask_to_decrypt(wide.public_key, ciphertext)
    shares = {p: he.help_to_decrypt(h, request, wide.secrets) for p, h in wide.holders.items()}
    ring, modulus = parameters.basis(0), parameters.plaintext_modulus
    first = ring.inverse(ciphertext.parts[0])

    def read(*absent: int) -> tuple[bool, bool]:
        """Say whether a sum of shares is uniform, and what would be read from it."""
        given = [share.residues for party, share in shares.items() if party not in absent]
        total = ring.total([first, *given])
        entries = np.array([int(v) % modulus for v in integers(ring, total)])
        return rows_uniform(total, ring.primes), uniform(entries, modulus)

    for absent in range(3):
        assert read(absent) == (True, True)
    # With all three shares the entries are there: the same check sees it.
    assert read()[1] is False


def test_a_share_shows_the_secret_only_behind_uniform_noise(wide: Play) -> None:
    parameters = wide.parameters
    ring = parameters.basis(0)
    ciphertext = wide.encrypt([1] * 4096)
    request = he.ask_to_decrypt(wide.public_key, ciphertext)
    share = he.help_to_decrypt(wide.holders[0], request, wide.secrets)
    assert rows_uniform(share.residues, ring.primes)
    product = ring.inverse(ring.multiply(ciphertext.parts[1], wide.holders[0].secret))
    noise = integers(ring, ring.subtract(share.residues, product))
    modulus, exponent = parameters.plaintext_modulus, parameters.smudging_exponent
    assert not any(int(x) % modulus for x in noise)
    shifted = [int(x) // modulus + (1 << exponent) for x in noise]
    classes = np.array([x * 64 >> (exponent + 1) for x in shifted])
    assert fits(np.bincount(classes, minlength=64), np.full(64, 1 / 64))


def test_smudging_drowns_the_noise_of_the_ciphertext(wide: Play) -> None:
    parameters = wide.parameters
    total = wide.evaluator.total([wide.encrypt([1] * 4096) for _ in range(3)])
    inside = wide.inside(total)
    modulus = parameters.plaintext_modulus
    largest = max(abs(int(x)) for x in inside) // modulus + 1
    # Statistical distance of one decryption: the sum over coefficients of |e|/2^(k+1).
    distance = float(sum(abs(int(x)) // modulus + 1 for x in inside))
    distance /= 2.0 ** (parameters.smudging_exponent + 1)
    assert distance <= 2.0**-parameters.smudging_bits
    assert largest <= parameters.noise_limit
    # Smudging that is ten bits narrower would be caught: the bound is not that wide.
    assert distance * 2**10 > 2.0**-parameters.smudging_bits


def test_keys_and_ciphertexts_look_uniform(wide: Play) -> None:
    ring = wide.parameters.basis(0)
    zeros, sevens = wide.encrypt([0] * 4096), wide.encrypt([7] * 4096)
    for rows in (
        *(share.public for share in wide.shares.values()),
        wide.public_key.values,
        *zeros.parts,
        *sevens.parts,
        ring.subtract(sevens.parts[0], zeros.parts[0]),
        ring.inverse(sevens.parts[0]),
    ):
        assert rows_uniform(rows, ring.primes)
    # An encryption that was not blinded, message and error alone, would be caught.
    bare = ring.forward_small(sampler(b"e").errors(4096), wide.parameters.plaintext_modulus)
    assert not rows_uniform(ring.inverse(bare), ring.primes)


def test_relinearisation_shares_look_uniform() -> None:
    play = exact()
    primes = play.parameters.chain + play.parameters.special
    share = play.shares[1].relinearisation
    assert share is not None
    for part in (*share.reshape(-1, *share.shape[2:]), *play.second[1].parts):
        assert rows_uniform(part, primes)


def test_the_common_reference_is_uniform_and_differs_between_sessions() -> None:
    parameters = he.additive(parties=2, width=8)
    ring = parameters.basis(0)
    first, second = (public_reference(he.Session(parameters, bytes([k]) * 32)) for k in (1, 2))
    assert rows_uniform(first, ring.primes)
    assert rows_uniform(ring.subtract(first, second), ring.primes)


@pytest.mark.parametrize(("parties", "right"), [(3, True), (6, False)], ids=["as many", "twice"])
def test_fresh_noise_has_the_variance_that_its_bound_was_made_for(
    parties: int, right: bool, wide: Play
) -> None:
    # e = E·u + e₀ + e₁·S: each product has N terms. Over five ciphertexts of 4,096 coefficients
    # the estimate scatters by 2 % or so (the products share E and S); 15 % is seven times that.
    modulus = wide.parameters.plaintext_modulus
    squares = [
        (int(x) / modulus) ** 2 for _ in range(5) for x in wide.inside(wide.encrypt([0] * 4096))
    ]
    expected = ERROR_VARIANCE * (1 + 2 * SECRET_VARIANCE * parties * wide.parameters.degree)
    assert (abs(np.mean(squares) / expected - 1) < 0.15) == right
