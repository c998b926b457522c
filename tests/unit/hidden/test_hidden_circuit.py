"""The circuit in the clear against enumerated chances, and garbled against clear."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from urna.errors import ParameterError, ProtocolError
from urna.privacy import SelectionRelease
from urna.protocols.ballots.field import FAST
from urna.protocols.winner import Circuit, ClearGates, Opened
from urna.protocols.winner.circuit import Bits, Gates, Wires, _fold_modulo
from urna.protocols.winner.garble import Garbler, GateReader, decode, fresh_offset, read_labels
from urna.randomness import ScriptedSecrets

VOTES = 1500
PRIME = FAST.modulus  # of verified ballots
FALSE_ALARM = 1e-6  # how often a correct circuit would fail a test here on a fresh seed


def shared(
    circuit: Circuit, totals: list[int], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    modulus = 1 << circuit.share_width
    first = rng.integers(0, modulus, len(totals)).astype(np.uint64)
    return first, ((np.array(totals) - first.astype(np.int64)) % modulus).astype(np.uint64)


def clear(circuit: Circuit, shares: tuple[np.ndarray, np.ndarray], coins: Bits) -> Opened:
    leader, helper = map(circuit.planes, shares)
    wires = circuit.evaluate(ClearGates(), leader, helper, coins)
    return circuit.read(wires.astype(np.uint8))


def garbled(
    circuit: Circuit, shares: tuple[np.ndarray, np.ndarray], coins: Bits, source: ScriptedSecrets
) -> Opened:
    """Garble and evaluate; the leader's labels are handed over instead of transferred."""
    offset, seed, key = fresh_offset(source.take(16)), source.take(32), source.take(16)
    leader, helper = map(circuit.planes, shares)
    zeros = read_labels(source.take(16 * (leader.size + coins.size)))
    bits = np.concatenate([leader.ravel(), coins]).astype(np.uint64)
    held = zeros ^ (bits[:, None] * offset)

    def evaluate(gates: Gates, labels: Wires, own: Bits) -> Wires:
        wires = gates.constant(own)
        first = labels[: leader.size].reshape(wires.shape)
        return circuit.evaluate(gates, first, wires, labels[leader.size :])

    garbler = Garbler(key, offset, seed)
    outputs = evaluate(garbler, zeros, helper)
    evaluator = GateReader(key, garbler.tables, seed)
    labels = evaluate(evaluator, held, np.zeros_like(helper)).astype(np.uint64)
    assert len(garbler.tables) == 32 * circuit.ands
    return circuit.read(decode(labels, garbler.commitments(outputs)))


def noise_of(circuit: Circuit, coins: Bits) -> np.ndarray:
    """A second, slow and obvious way to draw the noise."""
    kinds, release = circuit.release.noise_coins(), circuit.release
    each = release.largest_of * circuit.candidates
    words = [[0] * each for _ in kinds]
    start = 0
    for bit in range(max(kind.bits for kind in kinds)):
        for digit, kind in enumerate(kinds):
            if kind.bits > bit:
                for i in range(each):
                    words[digit][i] |= int(coins[start]) << bit
                    start += 1
    drawn = [
        sum((words[digit][i] < kind.threshold) << digit for digit, kind in enumerate(kinds))
        for i in range(each)
    ]
    return np.array(drawn).reshape(release.largest_of, -1).max(axis=0)


CIRCUITS = [
    Circuit(SelectionRelease(1.0, 6, candidates, largest_of, fineness, gap), 7 + fineness)
    for candidates, largest_of, fineness, gap in [
        (2, 1, 0, True),
        (3, 1, 0, True),
        (5, 2, 1, True),
        (6, 3, 0, False),
        (8, 1, 2, True),
        (13, 1, 0, True),
    ]
]


@pytest.mark.parametrize(
    "circuit", CIRCUITS, ids=lambda c: f"{c.candidates}x{c.release.largest_of}"
)
def test_the_winner_and_its_gap_are_what_a_loop_finds(circuit: Circuit) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        totals = rng.integers(0, 1 << circuit.width, circuit.candidates).tolist()
        if rng.random() < 0.5:  # near ties
            totals = (totals[0] // 4 + rng.integers(0, 3, circuit.candidates)).tolist()
        coins = rng.integers(0, 2, circuit.coin_bits).astype(np.uint8)
        found = clear(circuit, shared(circuit, totals, rng), coins)
        noisy = np.array(totals) + noise_of(circuit, coins)
        winner = int(np.argmax(noisy))  # the earlier of equals
        assert found.place == winner
        needed = max(noisy[k] + (k < winner) for k in range(circuit.candidates) if k != winner)
        assert found.gap == (noisy[winner] - needed + 1 if circuit.release.gap else None)


def winning_chances(totals: list[int], release: SelectionRelease) -> np.ndarray:
    q = math.exp(-release.rate)
    size = 400
    steps = np.arange(size)
    below = [
        np.where(steps >= s, (1 - q ** np.maximum(steps - s + 1, 0.0)) ** release.largest_of, 0.0)
        for s in totals
    ]
    chances = []
    for j in range(len(totals)):
        own = np.diff(below[j], prepend=0.0)
        for k in range(len(totals)):
            if k != j:
                own = own * (below[k] if k > j else np.concatenate([[0.0], below[k][:-1]]))
        chances.append(own.sum())
    return np.array(chances)


def wins(circuit: Circuit, totals: list[int], votes: int, coins: np.random.Generator) -> np.ndarray:
    rng = np.random.default_rng(3)
    found = np.zeros(circuit.candidates, dtype=int)
    for _ in range(votes):
        tossed = np.unpackbits(
            np.frombuffer(coins.bytes(circuit.coin_bits // 8 + 1), dtype=np.uint8)
        )[: circuit.coin_bits]
        found[clear(circuit, shared(circuit, totals, rng), tossed).place] += 1
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("largest_of", [1, 2])
def test_winners_are_as_probable_as_enumerated(largest_of: int) -> None:
    totals = [3, 5, 4]
    release = SelectionRelease(1.5, 6, 3, largest_of, gap=False)
    chances = winning_chances(totals, release)
    assert chances.sum() == pytest.approx(1.0)
    found = wins(Circuit(release, 4), totals, VOTES, np.random.default_rng(11))
    p_value = stats.chisquare(found, VOTES * chances).pvalue
    assert p_value > FALSE_ALARM
    halved = winning_chances(totals, SelectionRelease(3.0, 6, 3, largest_of, gap=False))
    assert stats.chisquare(found, VOTES * halved).pvalue < FALSE_ALARM


@pytest.mark.parametrize(
    "circuit", CIRCUITS, ids=lambda c: f"{c.candidates}x{c.release.largest_of}"
)
def test_garbled_is_clear(circuit: Circuit) -> None:
    rng, source = np.random.default_rng(5), ScriptedSecrets(b"garbled")
    for _ in range(8):
        totals = rng.integers(0, 1 << circuit.width, circuit.candidates).tolist()
        shares = shared(circuit, totals, rng)
        coins = rng.integers(0, 2, circuit.coin_bits).astype(np.uint8)
        assert garbled(circuit, shares, coins, source) == clear(circuit, shares, coins)


@pytest.mark.audit
@pytest.mark.timeout(1800)
def test_garbled_is_clear_on_ten_thousand_votes() -> None:
    rng, source = np.random.default_rng(6), ScriptedSecrets(b"audit")
    for vote in range(10_000):
        circuit = CIRCUITS[vote % len(CIRCUITS)]
        totals = rng.integers(0, 1 << circuit.width, circuit.candidates).tolist()
        shares = shared(circuit, totals, rng)
        coins = rng.integers(0, 2, circuit.coin_bits).astype(np.uint8)
        assert garbled(circuit, shares, coins, source) == clear(circuit, shares, coins)


def test_a_circuit_of_200_candidates_fits_twenty_megabytes() -> None:
    circuit = Circuit(SelectionRelease(0.1, 6, 200, 4), 10)
    sent = 32 * circuit.ands + 16 * (circuit.coin_bits + circuit.share_bits)
    assert sent < 20e6


@pytest.mark.parametrize("width", [0, 49, 1.5])
def test_a_width_that_cannot_be_is_refused(width: int) -> None:
    with pytest.raises(ParameterError):
        Circuit(SelectionRelease(1.0, 6, 4), width)


@pytest.mark.parametrize("modulus", [128, 131, 200, PRIME, (1 << 61) - 1])
def test_shares_modulo_any_number_give_what_shares_modulo_a_power_of_two_do(modulus: int) -> None:
    release = SelectionRelease(1.0, 6, 5)
    plain, other = Circuit(release, 6), Circuit(release, 6, modulus)
    rng = np.random.default_rng(modulus % 1000)
    source = ScriptedSecrets(b"modulo")
    for vote in range(60):
        totals = rng.integers(0, 64, 5).tolist()
        coins = rng.integers(0, 2, plain.coin_bits).astype(np.uint8)
        first = [int.from_bytes(rng.bytes(20), "big") % modulus for _ in totals]
        if vote == 0:
            first = [0, modulus - 1, totals[2], 0, modulus - 1]  # where it just wraps, or not
        second = [(t - a) % modulus for t, a in zip(totals, first, strict=True)]
        shares = np.array(first, dtype=np.uint64), np.array(second, dtype=np.uint64)
        expected = clear(plain, shared(plain, totals, rng), coins)
        assert clear(other, shares, coins) == expected
        if vote < 3:
            assert garbled(other, shares, coins, source) == expected


@pytest.mark.parametrize("modulus", [127, 1 << 64])
def test_a_modulus_too_small_or_too_large_is_refused(modulus: int) -> None:
    with pytest.raises(ParameterError, match="modulus"):
        Circuit(SelectionRelease(1.0, 6, 4), 6, modulus)


def test_bits_that_name_no_candidate_are_refused() -> None:
    """Five candidates have three index bits, of which three patterns are nobody's."""
    circuit = Circuit(SelectionRelease(1.0, 6, 5, 1, 1, False), 8)
    assert circuit.read(np.array([0, 0, 1], dtype=np.uint8)).place == 0
    for pattern in (5, 6, 7):
        bits = np.array([pattern >> i & 1 for i in range(3)], dtype=np.uint8)
        with pytest.raises(ProtocolError, match="names no candidate"):
            circuit.read(bits)


@pytest.mark.parametrize("modulus", [None, 32, 37, 61])
def test_a_sum_that_is_pushed_anywhere_moves_totals_by_no_more_than_itself(
    modulus: int | None,
) -> None:
    """Residues of all sums: neighbours on the circle are neighbours as totals, at the edge too."""
    width = 4
    circuit = Circuit(SelectionRelease(50.0, 2, 2), width, modulus)
    steps = modulus or 1 << circuit.share_width

    def total(residue: int) -> int:
        """How far ahead of nothing a candidate is found, by the circuit without noise."""
        wires = circuit.evaluate(
            ClearGates(),
            circuit.planes(np.array([residue, 0], dtype=np.uint64)),
            circuit.planes(np.array([0, 0], dtype=np.uint64)),
            np.ones(circuit.coin_bits, dtype=np.uint8),  # no coin is below its threshold
        )
        opened = circuit.read(wires.astype(np.uint8))
        assert opened.gap is not None
        return opened.gap - 1

    found = [total(residue) for residue in range(steps)]
    assert found[: 1 << width] == list(range(1 << width))
    assert all(abs(found[i] - found[i - 1]) <= 1 for i in range(steps))  # the last beside the first


# --- a leader that puts in any word it likes -------------------------------------------------

Fold = Callable[[int, int], npt.NDArray[np.int64]]
"""Total by leader's word and helper's share, for a modulus and a width."""


def words_of(modulus: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return all words that a leader can put in, and all shares of an honest helper."""
    return np.arange(1 << (modulus - 1).bit_length())[:, None], np.arange(modulus)[None]


def by_circuit(modulus: int, width: int) -> npt.NDArray[np.int64]:
    size = (modulus - 1).bit_length()
    pairs = np.broadcast_arrays(*words_of(modulus))
    places = np.arange(size)[:, None]
    a, b = ((pair.ravel()[None] >> places & 1).astype(np.uint8) for pair in pairs)
    bits = _fold_modulo(ClearGates(), a, b, modulus, width).astype(np.int64)
    found: npt.NDArray[np.int64] = (bits << np.arange(width)[:, None]).sum(axis=0)
    return found.reshape(pairs[0].shape)


def low_bits(modulus: int, width: int) -> npt.NDArray[np.int64]:
    """A wrong variant: totals jump wherever a multiple of 2^width is passed."""
    a, b = words_of(modulus)
    return (a + b) % modulus % (1 << width)


def without_range(modulus: int, width: int) -> npt.NDArray[np.int64]:
    """A wrong variant: words beyond the modulus are taken for residues, and reduced once."""
    a, b = words_of(modulus)
    x = np.where(a + b >= modulus, a + b - modulus, a + b)
    top = 2 << width
    return np.where(x < top, np.minimum(x, top - 1 - x), 0)


def steepest(totals: npt.NDArray[np.int64]) -> int:
    """Return the largest step between neighbouring shares of the helper, around the circle."""
    return int(np.abs(totals - np.roll(totals, 1, axis=1)).max())


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_whatever_word_a_leader_puts_in_a_vote_moves_a_total_by_a_vote(width: int) -> None:
    """Every modulus up to six bits, every word of the leader's, every share of the helper's."""
    for modulus in range(2 << width, 64):
        totals = by_circuit(modulus, width)
        assert steepest(totals) == 1
        sums = np.add(*words_of(modulus)) % modulus
        honest = (sums < 1 << width) & (np.arange(len(totals)) < modulus)[:, None]
        assert (totals[honest] == sums[honest]).all()
        assert not totals[modulus:].any()
        assert steepest(low_bits(modulus, width)) == (1 << width) - 1
    assert width == 1 or steepest(without_range(37, width)) > 1


def test_a_vote_moves_a_total_by_a_vote_modulo_the_prime_in_use() -> None:
    """At every edge: where the fold begins, turns and ends, and where words leave the field."""
    width, modulus = 5, PRIME
    size = (modulus - 1).bit_length()
    beyond = (1 << size) - 1
    edges = [0, 1 << width, 2 << width, modulus - 1, modulus, modulus + (2 << width), beyond]
    words = {word for edge in edges for word in range(edge - 2, edge + 3) if 0 <= word <= beyond}

    def total(word: int, share: int) -> int:
        a, b = (np.array([[n >> at & 1] for at in range(size)], np.uint8) for n in (word, share))
        bits = _fold_modulo(ClearGates(), a, b, modulus, width)
        return sum(int(bit) << at for at, bit in enumerate(bits[:, 0]))

    for word in words:
        # Shares with which the sum passes each edge, and around the whole circle from 0 to p − 1.
        starts = {(edge - word) % modulus for edge in edges} | {0}
        for start in starts:
            run = [total(word, (start + step) % modulus) for step in range(-3, 4)]
            assert max(abs(a - b) for a, b in itertools.pairwise(run)) <= 1
    for number in (0, 1, 17, (1 << width) - 1):
        assert total(number, 0) == total(0, number) == total(modulus - 1, number + 1) == number


@pytest.mark.parametrize(
    ("fold", "holds"),
    [(by_circuit, True), (low_bits, False), (without_range, False)],
    ids=["folded", "low bits", "no range"],
)
def test_epsilon_holds_against_every_word_of_a_leader(fold: Fold, holds: bool) -> None:
    """Two candidates, ballots of one level: every word, every share, every neighbour."""
    width, modulus, epsilon = 4, 37, 0.25
    release = SelectionRelease(epsilon, 2, 2)
    chances = np.array(
        [[winning_chances([a, b], release) for b in range(1 << width)] for a in range(1 << width)]
    )
    totals = fold(modulus, width)
    moved = [np.roll(totals, by, axis=1) for by in (-1, 0, 1)]
    worst = 1.0
    # What a leader's word does to a candidate is one pair of totals for each of three moves.
    rows = np.stack([row.ravel() for row in (moved[1], *moved)], axis=1)
    kinds = np.unique(np.concatenate([rows[:, [0, by]] for by in (1, 2, 3)]), axis=0)
    for before, after in kinds:
        for other, later in kinds:
            ratio = chances[before, other] / chances[after, later]
            worst = max(worst, float(ratio.max()))
    assert (worst <= math.exp(epsilon) * (1 + 1e-6)) == holds


def test_a_shift_once_told_one_vote_by_hundreds_to_one() -> None:
    """A leader shifts its share until a candidate of 30 votes has the last total of seven bits."""
    release, width, modulus = SelectionRelease(0.25, 6, 2), 7, PRIME
    circuit = Circuit(release, width, modulus)
    leader = np.array([(1 << width) - 1 - 30, 0], dtype=np.uint64)

    def totals(votes: int) -> list[int]:
        helper = np.array([votes, 0], dtype=np.uint64)
        words = circuit.planes(leader), circuit.planes(helper)
        bits = _fold_modulo(ClearGates(), words[0], words[1], modulus, width)
        return (bits.astype(np.int64) << np.arange(width)[:, None]).sum(axis=0).tolist()

    def ratio(before: list[int], after: list[int]) -> float:
        return float((winning_chances(before, release) / winning_chances(after, release)).max())

    assert (totals(30), totals(31)) == ([127, 0], [127, 0])  # the fold turns here
    for votes in range(25, 36):
        assert ratio(totals(votes), totals(votes + 1)) <= math.exp(0.25)
    assert ratio([0, 0], [127, 0]) > 100  # what the low bits of the same two sums told
