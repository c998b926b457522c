"""Real vectors on the grid: the norm holds whatever comes in, and nothing is lost on average."""

import json
import math
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import linalg, stats

from urna.errors import ParameterError
from urna.noise import SKELLAM
from urna.privacy import Adjacency, Budget
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.tally import Encoding, Terms, encoding, plan_tally

Array = npt.NDArray[np.float64]
SEED = bytes(range(32))
FALSE_ALARM = 1e-6  # how often a right encoding would fail a statistical check on fresh coins


def squared(vector: npt.NDArray[np.int64]) -> int:
    """The squared norm in Python's own integers."""
    return sum(int(entry) ** 2 for entry in vector)


def clipped(vector: Array, norm: float) -> Array:
    return vector * min(1.0, norm / float(np.linalg.norm(vector)))


@contextmanager
def blocks_of(entries: int) -> Iterator[None]:
    """Let vectors be worked on in pieces of so many entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_LARGEST_BLOCK", entries)
        yield


reals = arrays.arrays(
    st.sampled_from([np.float64, np.float32, np.float16]),
    st.integers(1, 70),
    elements=st.one_of(
        st.floats(width=16), st.sampled_from([0.0, 1.0, -1.0, 0.5, 6e4, -6e4, 1e-7])
    ),
)


@settings(deadline=None, max_examples=150)
@given(
    reals,
    st.floats(1e-6, 1e6),
    st.floats(1e-3, 1e6),
    st.sampled_from([None, SEED]),
    st.binary(max_size=3),
)
@example(np.array([1e308, -1e308, 1e308]), 1.0, 10.0, None, b"")
@example(np.array([5e-324]), 1e6, 1e6, SEED, b"")
@example(np.array([1.0, np.nan]), 1.0, 10.0, SEED, b"")
@example(np.array([-np.inf, 1.0]), 1.0, 10.0, None, b"")
def test_the_norm_is_never_exceeded_whatever_comes_in(
    vector: Array, clip_norm: float, steps: float, seed: bytes | None, label: bytes
) -> None:
    how = Encoding(len(vector), clip_norm, steps, seed)
    made = how.encode(vector, ScriptedSecrets(label))
    assert made.dtype == np.int64
    assert made.shape == (how.length,)
    assert squared(made) <= how.contribution.norm_squared
    how.contribution.check(made)
    if not np.isfinite(vector).all():
        assert not made.any()


@pytest.mark.parametrize(
    "hostile",
    [
        np.array([np.nan] * 5),
        np.array([1.0, 2.0, np.inf, 4.0, 5.0]),
        np.array([1.0, 2.0, -np.inf, 4.0, 5.0], dtype=np.float32),
        np.ones(4),
        np.ones(6),
        np.ones((1, 5)),
        np.ones(0),
        np.array(1.0),
    ],
    ids=["nan", "inf", "-inf", "short", "long", "matrix", "nothing", "a number"],
)
@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "rotated"])
def test_what_is_no_such_vector_becomes_nothing_at_all(hostile: Array, seed: bytes | None) -> None:
    how = Encoding(5, 1.0, 100.0, seed)
    assert how.encode(hostile, ScriptedSecrets(b"hostile")).tolist() == [0] * how.length


def test_a_vector_of_zeros_stays_one() -> None:
    how = Encoding(5, 1.0, 100.0, SEED)
    assert not how.encode(np.zeros(5), ScriptedSecrets(b"zeros")).any()


@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "rotated"])
@pytest.mark.parametrize("steps", [0.6, 3.0, 40.0])
def test_a_norm_at_its_bound_is_rounded_again_until_it_holds(
    seed: bytes | None, steps: float
) -> None:
    """Coarse grids, where rounding alone could pass the bound."""
    rng = np.random.default_rng(5)
    how = Encoding(33, 1.0, steps, seed)
    for turn in range(60):
        vector = rng.normal(size=33) * 10.0 ** rng.integers(-1, 3)
        made = how.encode(vector, ScriptedSecrets(b"%d" % turn))
        assert squared(made) <= how.contribution.norm_squared


class Coins:
    """Secrets that count how often coins were asked for."""

    private = False

    def __init__(self, label: bytes) -> None:
        self._inner, self.times = ScriptedSecrets(label), 0

    def take(self, count: int) -> bytes:
        self.times += 1
        return self._inner.take(count)


def test_vectors_too_long_after_rounding_get_fresh_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound that many roundings miss, all that come out keep to it."""
    monkeypatch.setattr(encoding, "_REDRAWN", 0.999)
    how, vector = Encoding(50, 1.0, 2.0), np.full(50, 1.0)
    coins = Coins(b"again")
    for _ in range(40):
        assert squared(how.encode(vector, coins)) <= how.contribution.norm_squared
    assert coins.times > 40


@pytest.mark.parametrize("dimension", [1, 2, 3, 64, 100])
@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "rotated"])
def test_a_sum_is_decoded_to_within_the_rounding_of_its_parts(
    dimension: int, seed: bytes | None
) -> None:
    rng = np.random.default_rng(6)
    how = Encoding(dimension, 2.0, 1e6, seed)
    vectors = [rng.normal(size=dimension) for _ in range(4)]
    total = sum(how.encode(v, ScriptedSecrets(b"%d" % i)) for i, v in enumerate(vectors))
    wanted = np.sum([clipped(v, 2.0) for v in vectors], axis=0)
    # In L2, by the triangle inequality: each entry of each part is off by less than a step.
    assert np.linalg.norm(how.decode(total) - wanted) < 4 * math.sqrt(how.length) / 1e6 + 1e-8


def test_only_a_whole_sum_is_decoded() -> None:
    how = Encoding(5, 1.0, 100.0, SEED)
    assert how.length == 8
    with pytest.raises(ParameterError, match="a sum has 8 entries"):
        how.decode(np.zeros(5, dtype=np.int64))


class TestRotation:
    def test_it_is_signs_and_a_hadamard_matrix_in_every_block(self) -> None:
        with blocks_of(64):
            how = Encoding(150, 10.0, 50.0, SEED)
            assert (how.block, how.length) == (64, 192)
            vector = np.random.default_rng(7).normal(size=150)
            whole = np.concatenate([vector * min(1.0, 10 / np.linalg.norm(vector)), np.zeros(42)])
            matrix = linalg.hadamard(64) / 8
            wanted = np.concatenate(
                [
                    matrix @ (whole[at : at + 64] * encoding._signs(SEED, number, 64))
                    for number, at in enumerate(range(0, 192, 64))
                ]
            )
            made = how.encode(vector, ScriptedSecrets(b"rotated"))
            assert np.abs(made - 50.0 * wanted).max() < 1 + 1e-6

    @pytest.mark.parametrize("bits", range(17))
    def test_it_is_its_own_inverse_and_keeps_the_norm(self, bits: int) -> None:
        values = np.random.default_rng(bits).normal(size=2 << bits)
        turned = encoding._hadamard(values, 1 << bits)
        np.testing.assert_allclose(encoding._hadamard(turned, 1 << bits), values, atol=1e-12)
        assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(values))

    def test_one_large_entry_is_spread_over_its_block(self) -> None:
        spike = np.zeros(4096)
        spike[17] = 1.0
        made = Encoding(4096, 1.0, 64_000.0, SEED).encode(spike, ScriptedSecrets(b"spike"))
        assert set(np.abs(made).tolist()) <= {999, 1000}  # a 64th each, a hair below

    def test_another_seed_turns_another_way(self) -> None:
        vector = np.arange(1.0, 17.0)
        one, other = (
            Encoding(16, 50.0, 1e4, seed).encode(vector, ScriptedSecrets(b"same"))
            for seed in (SEED, SEED[::-1])
        )
        assert np.abs(one - other).max() > 1_000


@pytest.mark.parametrize("entries", [16, 100, 4096, 1 << 20])
def test_every_size_of_pieces_gives_the_same_integers(entries: int) -> None:
    how, vector = Encoding(5_000, 3.0, 1e3), np.random.default_rng(8).normal(size=5_000)
    here = how.encode(vector, ScriptedSecrets(b"pieces"))
    with blocks_of(entries):
        there = how.encode(vector, ScriptedSecrets(b"pieces"))
        np.testing.assert_array_equal(how.decode(there), here / 1e3)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("entries", [128, 1024, 1 << 20])
def test_a_vector_of_one_block_is_the_same_in_larger_pieces(entries: int) -> None:
    how, vector = Encoding(100, 3.0, 1e3, SEED), np.random.default_rng(9).normal(size=100)
    here = how.encode(vector, ScriptedSecrets(b"one block"))
    with blocks_of(entries):
        np.testing.assert_array_equal(how.encode(vector, ScriptedSecrets(b"one block")), here)


Rounding = Callable[[Array, object], Array]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("rounding", "unbiased"),
    [
        (None, True),
        (lambda values, _: np.rint(values), False),
        (lambda values, _: np.floor(values), False),
        (lambda values, _: np.trunc(values), False),
    ],
    ids=["by coins", "to the nearest", "down", "towards zero"],
)
@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "rotated"])
def test_decoding_what_was_encoded_is_right_on_average(
    monkeypatch: pytest.MonkeyPatch, rounding: Rounding | None, unbiased: bool, seed: bytes | None
) -> None:
    """False-alarm rate: a millionth for all entries together (Bonferroni, two-sided normal).

    One rounding has a deviation of at most half a step, so the mean of n has 1/(2√n).
    """
    if rounding is not None:
        monkeypatch.setattr(encoding, "_round", rounding)
    how, turns = Encoding(64, 1.0, 20.0, seed), 3_000
    vector = np.random.default_rng(10).normal(size=64)
    secrets = ScriptedSecrets(b"on average")
    total = sum(how.encode(vector, secrets) for _ in range(turns))
    off = how.decode(np.asarray(total)) / turns - clipped(vector, 1.0)
    limit = stats.norm.isf(FALSE_ALARM / (2 * 64)) / (2 * math.sqrt(turns) * 20.0)
    assert (np.abs(off).max() < limit) == unbiased


@pytest.mark.statistical
def test_the_error_of_a_decoded_sum_is_no_larger_than_predicted() -> None:
    """False-alarm rate: a millionth on either side, by the chi-square of the squared errors.

    Rounding has a variance of p(1 − p) of a fraction p: a quarter at most, which is what is
    predicted, and a sixth on average. A sum without its noise is caught.
    """
    clients, dimension, variance = 12, 8_192, Fraction(9)
    how = Encoding(dimension, 1.0, 4_000.0, SEED)
    rng = np.random.default_rng(11)
    vectors = [clipped(rng.normal(size=dimension), 1.0) for _ in range(clients)]
    total = sum(how.encode(v, ScriptedSecrets(b"%d" % i)) for i, v in enumerate(vectors))
    noise = sum(
        SKELLAM.table(variance / clients).draw(bytes([i]) * 32, how.length) for i in range(clients)
    )
    wanted = np.sum(vectors, axis=0)

    def chi_square(sums: npt.NDArray[np.int64], deviation: float) -> float:
        return float(np.square((how.decode(sums) - wanted) / deviation).sum())

    predicted = how.error(clients, variance)
    assert predicted == math.sqrt(9 + 3) / 4_000
    least = math.sqrt(9 + clients / 6) / 4_000
    low, high = stats.chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], df=dimension)
    assert chi_square(np.asarray(total + noise), predicted) < high
    assert low < chi_square(np.asarray(total + noise), least) < high
    assert chi_square(np.asarray(total), least) < low


@pytest.mark.statistical
@pytest.mark.parametrize("shared", [False, True], ids=["coins of their own", "the same coins"])
def test_two_clients_rounding_errors_are_unrelated(shared: bool) -> None:
    """False-alarm rate: a millionth, by the normal deviation 1/√n of a sample's correlation.

    Two clients with the same coins are caught: their errors would add up.
    """
    how = Encoding(20_000, 1.0, 3_000.0)
    vector = np.random.default_rng(12).normal(size=20_000)
    exact = clipped(vector, 1.0) * 3_000.0
    labels = (b"one", b"one" if shared else b"other")
    errors = [how.encode(vector, ScriptedSecrets(label)) - exact for label in labels]
    limit = stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(20_000)
    assert (abs(np.corrcoef(*errors)[0, 1]) < limit) != shared


def test_a_client_draws_fresh_coins_for_every_vector() -> None:
    how, vector = Encoding(1_000, 1.0, 100.0), np.full(1_000, 0.012)
    secrets = ScriptedSecrets(b"fresh")
    assert how.encode(vector, secrets).tolist() != how.encode(vector, secrets).tolist()


class TestFine:
    @pytest.mark.parametrize("dimension", [1, 10, 1_000, 300_000])
    @pytest.mark.parametrize("excess", [0.002, 0.05])
    def test_rounding_costs_no_more_than_was_asked_for(self, dimension: int, excess: float) -> None:
        how = Encoding.fine(dimension, 2.0, seed=SEED, excess=excess)
        exact = (how.steps * 2.0) ** 2
        # The noise's deviation follows the norm, not its square.
        assert exact <= how.contribution.norm_squared
        assert math.sqrt(how.contribution.norm_squared / exact) < 1 + excess * 1.001

    def test_a_record_that_moves_little_needs_a_finer_grid(self) -> None:
        how = Encoding.fine(1_000, 1.0, record_sensitivity=0.01)
        what = how.contribution
        exact = (how.steps * 0.01) ** 2
        assert exact < what.sensitivity(Adjacency.REPLACE_ONE_RECORD).l2_squared < exact * 1.0041

    def test_a_fine_encoding_can_be_planned_and_summed(self) -> None:
        how = Encoding.fine(500, 1.0, seed=SEED)
        plan = plan_tally(Terms.of(100, Budget(2.0, 1e-5)), how.contribution, finest=1)
        assert plan.scale == 1
        assert plan.dimension == 512


class TestMoves:
    """Two neighbours' vectors under the same coins, which is what the accounting needs."""

    @pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "rotated"])
    @pytest.mark.parametrize("steps", [0.5, 20.0, 3_000.0])
    def test_neighbours_stay_as_near_as_is_accounted_for(
        self, steps: float, seed: bytes | None
    ) -> None:
        rng = np.random.default_rng(13)
        how = Encoding(256, 1.0, steps, seed, record_sensitivity=0.1, client_sensitivity=0.5)
        what = how.contribution
        for turn in range(60):
            apart = (0.1, 0.5)[turn % 2]
            one = clipped(rng.normal(size=256), 0.9)
            other = clipped(one + clipped(rng.normal(size=256), apart / 2), 1.0)
            near, far = (
                how.encode(vector, ScriptedSecrets(b"%d" % turn)) for vector in (one, other)
            )
            relation = (Adjacency.REPLACE_ONE_RECORD, Adjacency.REPLACE_ONE_CLIENT)[turn % 2]
            assert squared(near - far) <= what.sensitivity(relation).l2_squared

    def test_halves_in_every_entry_come_close_to_the_bound_and_never_pass_it(self) -> None:
        """The worst case: every entry is half a step apart, so T² = D/4 and the mean is D/2."""
        size = 40_000
        how = Encoding(size, 1_000.0, 1.0, record_sensitivity=math.sqrt(size) / 2)
        bound = how.contribution.sensitivity(Adjacency.REPLACE_ONE_RECORD).l2_squared
        one = np.random.default_rng(15).uniform(-3, 3, size=size)
        worst = 0
        for turn in range(20):
            pair = [how.encode(v, ScriptedSecrets(b"%d" % turn)) for v in (one, one + 0.5)]
            worst = max(worst, squared(pair[0] - pair[1]))
        assert 0.85 * bound < worst <= bound

    def test_coins_of_their_own_would_move_neighbours_further_apart(self) -> None:
        """The wrong variant: rounding errors of unrelated coins add up."""
        how = Encoding(40_000, 1_000.0, 1.0, record_sensitivity=1.0)
        one = np.random.default_rng(16).uniform(-3, 3, size=40_000)
        pair = [how.encode(v, ScriptedSecrets(label)) for v, label in ((one, b"a"), (one, b"b"))]
        assert squared(pair[0] - pair[1]) > 12_000
        assert how.contribution.sensitivity(Adjacency.REPLACE_ONE_RECORD).l2_squared < 12_000

    def test_coins_are_drawn_once_whatever_the_data(self) -> None:
        """A second draw that depends on data would be told by the noise that follows."""
        how = Encoding(50, 1.0, 2.0, record_sensitivity=0.5)
        coins = Coins(b"once")
        for turn in range(50):
            made = how.encode(np.full(50, 1.0 + turn), coins)
            how.contribution.check(made)
        assert coins.times == 50

    def test_what_coins_leave_open_is_accounted_for_as_moved_mass(self) -> None:
        what = Encoding(50, 1.0, 100.0, record_sensitivity=0.5).contribution
        assert what.sensitivity(Adjacency.REPLACE_ONE_RECORD).beyond == 1e-20
        terms = Terms.of(10, Budget(1.0, 1e-5), adjacency=Adjacency.REPLACE_ONE_RECORD)
        release = plan_tally(terms, what, finest=1).release
        assert release is not None
        sure = replace(release, sensitivity=replace(release.sensitivity, beyond=0.0))
        assert release.cost().slip == sure.cost().slip + 1e-20
        with pytest.raises(ParameterError, match="delta"):
            plan_tally(terms.costing(Budget(1.0, 1e-14)), what, finest=1)

    @pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.nan, math.inf, 1e-9])
    def test_a_move_that_floats_would_drown_is_refused(self, sensitivity: float) -> None:
        with pytest.raises(ParameterError, match="a move is positive"):
            Encoding(5, 1.0, 10.0, record_sensitivity=sensitivity)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimension": 0},
        {"dimension": 2.0},
        {"clip_norm": 0.0},
        {"clip_norm": math.nan},
        {"steps": -1.0},
        {"steps": math.inf},
        {"seed": b"short"},
    ],
    ids=repr,
)
def test_an_encoding_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        Encoding(**({"dimension": 3, "clip_norm": 1.0, "steps": 10.0} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "rotated"])
def test_it_is_read_from_what_it_writes(seed: bytes | None) -> None:
    how = Encoding(7, 0.1, 12.5, seed, record_sensitivity=0.25, client_sensitivity=0.2)
    assert Encoding.read(json.loads(json.dumps(how.as_mapping()))) == how
    assert SEED.hex() not in repr(how)


@pytest.mark.audit
@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "rotated"])
def test_ten_million_entries_are_encoded_in_bounded_memory(seed: bytes | None) -> None:
    """Beside the vector and its integers: one copy for the largest entry, and some pieces."""
    size = 10_000_000
    vector = np.random.default_rng(14).normal(size=size).astype(np.float32)
    how = Encoding.fine(size, 1.0, seed=seed)
    tracemalloc.start()
    made = how.encode(vector, OsSecrets())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * how.length + 4 * size + 16 * 2**20
    how.contribution.check(made)
    tracemalloc.start()
    back = how.decode(made)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * size + 16 * 2**20
    off = np.linalg.norm(back - vector / np.linalg.norm(vector.astype(np.float64)))
    assert off < math.sqrt(how.length) / how.steps
