"""The circuit that finds the winner: one text, read by whoever interprets its gates.

Numbers are bundles of wires, lowest bit first along the first axis. XOR costs nothing, so wires
are plain arrays joined by `^`; `Gates` is what differs between bits in the clear, the garbler's
labels and the evaluator's.
"""

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, ProtocolError
from urna.privacy import SelectionRelease
from urna.privacy.selection import Coin

Wires = npt.NDArray[np.unsignedinteger]
"""Bits, or labels with a last axis of two words; other axes say which wire."""

Bits = npt.NDArray[np.uint8]

_MOST_BITS = 62  # of a noisy total and an index together
_MOST_CANDIDATES = 1 << 16


class Gates(Protocol):
    """What the gates of a circuit do."""

    def constant(self, bits: Bits) -> Wires:
        """Return wires that carry public bits."""
        ...

    def flip(self, wires: Wires, mask: Bits) -> Wires:
        """Invert the wires whose public mask is 1."""
        ...

    def both(self, a: Wires, b: Wires) -> Wires:
        """Return a AND b. Shapes broadcast."""
        ...


class ClearGates:
    """Bits in the clear, and how many gates cost something."""

    def __init__(self) -> None:
        self.ands = 0

    def constant(self, bits: Bits) -> Wires:
        """Return the bits themselves."""
        return bits.astype(np.uint8)

    def flip(self, wires: Wires, mask: Bits) -> Wires:
        """Invert where the mask is 1."""
        return wires ^ mask

    def both(self, a: Wires, b: Wires) -> Wires:
        """Return a AND b."""
        found = a & b
        self.ands += found.size
        return found


@dataclass(frozen=True, slots=True)
class Opened:
    """What becomes public, and nothing else does."""

    place: int
    """Of the winner, in the public order."""
    gap: int | None
    """Fewest grid steps the winner would have to lose to be overtaken; None if it stays hidden."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """Add up two shares and noise from both parties' coins; find the largest.

    Candidates stand in a public order: of equal totals the earlier wins.

    Guarantee:
        Sums are *folded*: a residue x of the modulus stands for itself below 2^width, for
        2^(width + 1) − 1 − x from there to 2^(width + 1), and for nothing beyond. On the circle
        of residues this is 1-Lipschitz: who moves a sum by d steps moves the total by d at most,
        wherever others have put it. That holds for every word a leader may put in as its share,
        numbers beyond the modulus included. Without it a leader, or a voter that keeps to no
        levels, could place a candidate on an edge where one step more takes everything away.

    Args:
        release: Whose winner is opened, and under which noise.
        width: Totals, in steps of the noise's grid, are whole numbers below 2^width.
        modulus: What shares add up to totals modulo: 2^(width + 1) by default, and no less.

    Raises:
        ParameterError: The numbers are too wide.
    """

    release: SelectionRelease
    width: int
    modulus: int | None = None

    def __post_init__(self) -> None:
        if type(self.width) is not int or not 1 <= self.width <= 48:
            raise ParameterError(f"totals have 1 to 48 bits, got {self.width}")
        if self.modulus is not None and not 2 << self.width <= self.modulus < 1 << 64:
            raise ParameterError(
                f"totals of {self.width} bits are folded within a modulus from 2^{self.width + 1} "
                f"up to 2^64, got {self.modulus}"
            )
        if self.candidates > _MOST_CANDIDATES or self.bits > _MOST_BITS:
            raise ParameterError(
                f"a circuit compares up to {_MOST_CANDIDATES:,} totals of {_MOST_BITS} bits with "
                f"their index, got {self.candidates:,} of {self.bits}"
            )

    @property
    def candidates(self) -> int:
        """How many candidates there are."""
        return self.release.candidates

    @property
    def index_bits(self) -> int:
        """Bits of a place in the order."""
        return (self.candidates - 1).bit_length()

    @property
    def noisy_bits(self) -> int:
        """Bits of a noisy total."""
        return max(self.width, self.release.digits) + 1

    @property
    def bits(self) -> int:
        """Bits of what is compared: a noisy total above an index."""
        return self.noisy_bits + self.index_bits

    @property
    def share_width(self) -> int:
        """Bits of each share."""
        return self.width + 1 if self.modulus is None else (self.modulus - 1).bit_length()

    @property
    def share_bits(self) -> int:
        """Wires of all of a party's shares."""
        return self.share_width * self.candidates

    @property
    def coin_bits(self) -> int:
        """Fair bits that each party tosses."""
        each = sum(coin.bits for coin in self.release.noise_coins())
        return each * self.release.largest_of * self.candidates

    @property
    def outputs(self) -> int:
        """Bits that are opened."""
        return self.index_bits + (self.noisy_bits if self.release.gap else 0)

    @property
    def ands(self) -> int:
        """Gates that cost something."""
        return _count(self)

    @property
    def digest(self) -> bytes:
        """What both parties must agree on."""
        text = json.dumps([self.release.as_mapping(), self.width, self.modulus], sort_keys=True)
        return hashlib.sha256(b"urna hidden circuit 3\0" + text.encode()).digest()

    def planes(self, shares: npt.NDArray[np.unsignedinteger]) -> Bits:
        """Return a party's shares as wires: bit by bit, all candidates of each."""
        words = shares.astype(np.uint64)
        places = np.arange(self.share_width, dtype=np.uint64)[:, None]
        return ((words[None] >> places) & np.uint64(1)).astype(np.uint8)

    def evaluate(self, gates: Gates, leader: Wires, helper: Wires, coins: Wires) -> Wires:
        """Return the opened wires.

        Args:
            gates: How gates are read.
            leader: The leader's shares, as `planes` has them.
            helper: The helper's.
            coins: `coin_bits` wires in a row, each the XOR of both parties' bit.
        """
        if self.modulus is None:
            whole = _add(gates, leader, helper, self.share_width)
            total = whole[:-1] ^ whole[-1:]
        else:
            total = _fold_modulo(gates, leader, helper, self.modulus, self.width)
        noisy = _add(gates, total, self._noise(gates, coins), self.noisy_bits)
        # Of equal totals the earlier has the larger index below it: no two are ever equal.
        backwards = np.arange(self.candidates)[::-1]
        index = (backwards[None] >> np.arange(self.index_bits)[:, None]) & 1
        values = np.concatenate([gates.constant(index.astype(np.uint8)), noisy])
        best, second = _tournament(gates, values, self.release.gap)
        place = best[: self.index_bits, 0]
        if second is None:
            return place
        lead = _subtract(gates, best, second)[self.index_bits :, 0]
        return np.concatenate([place, lead])

    def read(self, outputs: Bits) -> Opened:
        """Return what the opened bits say.

        Raises:
            ProtocolError: They name no candidate: somebody garbled another circuit.
        """
        numbers = [int(bit) for bit in outputs]
        backwards = sum(bit << i for i, bit in enumerate(numbers[: self.index_bits]))
        place = self.candidates - 1 - backwards
        if place < 0:
            raise ProtocolError("what was opened names no candidate")
        if not self.release.gap:
            return Opened(place, None)
        # Totals differ by `lead` whole steps and an index: it would lose the lead, and one more.
        lead = sum(bit << i for i, bit in enumerate(numbers[self.index_bits :]))
        return Opened(place, lead + 1)

    def _noise(self, gates: Gates, coins: Wires) -> Wires:
        """Return every candidate's noise: the largest of K geometric variables."""
        release = self.release
        kinds = release.noise_coins()
        each = release.largest_of * self.candidates
        digits = _below(gates, kinds, coins, each)
        several = digits.reshape(len(kinds), release.largest_of, self.candidates, *coins.shape[1:])
        largest = several[:, 0]
        for k in range(1, release.largest_of):
            larger = _greater(gates, several[:, k], largest)
            largest = largest ^ gates.both(several[:, k] ^ largest, larger[None])
        return largest


@functools.lru_cache(maxsize=16)
def _count(circuit: Circuit) -> int:
    gates = ClearGates()
    nothing = np.zeros((circuit.share_width, circuit.candidates), dtype=np.uint8)
    circuit.evaluate(gates, nothing, nothing, np.zeros(circuit.coin_bits, dtype=np.uint8))
    return gates.ands


def _below(gates: Gates, kinds: tuple[Coin, ...], coins: Wires, each: int) -> Wires:
    """Toss `each` coins of every kind: return which of the fair bits are below the threshold.

    From the lowest bit u to the highest, with the threshold's bit t: where t = 1, u is below if
    it is 0 or what is beneath it is below; where t = 0, if it is 0 and what is beneath is below.
    """
    lengths = np.array([kind.bits for kind in kinds])
    below: Wires = coins[:0]
    start = 0
    for bit in range(int(lengths.max())):
        first = int(np.searchsorted(lengths, bit, side="right"))  # longer coins come later
        some = (len(kinds) - first) * each
        tossed = coins[start : start + some]
        start += some
        places = [(kind.threshold >> bit) & 1 for kind in kinds[first:]]
        ones = np.repeat(np.array(places, dtype=np.uint8), each)
        if bit == 0:  # every threshold is odd
            below = gates.flip(tossed, ones)
            continue
        rest = below[first * each :]
        found = gates.both(gates.flip(tossed, 1 - ones), gates.flip(rest, ones))
        below = np.concatenate([below[: first * each], gates.flip(found, ones)])
    return below


def _add(gates: Gates, a: Wires, b: Wires, width: int) -> Wires:
    """Return a + b modulo 2^width."""
    total: list[Wires] = []
    carry: Wires | None = None
    for place in range(width):
        terms = [number[place] for number in (a, b) if place < len(number)]
        found = functools.reduce(np.bitwise_xor, terms + ([] if carry is None else [carry]))
        last = place == width - 1
        if last:
            pass
        elif len(terms) == 2:
            if carry is None:
                carry = gates.both(*terms)
            else:
                carry = carry ^ gates.both(terms[0] ^ carry, terms[1] ^ carry)
        elif terms and carry is not None:
            carry = gates.both(terms[0], carry)
        elif not terms:
            carry = None
        total.append(found)
        if carry is None and place + 1 >= max(len(a), len(b)):
            break
    return np.stack(total)


def _fold_modulo(gates: Gates, a: Wires, b: Wires, modulus: int, width: int) -> Wires:
    """Return the folded sum of two shares modulo a number.

    x = a + b modulo the number is read as x below 2^width, as 2^(width + 1) − 1 − x below
    2^(width + 1), and as 0 beyond. The helper's share is a residue. The leader's may be any word
    of as many bits; one that is no residue is read as 0, whatever the helper's share is.
    """
    size, one = len(a), np.array(1, dtype=np.uint8)
    excess = (1 << size) - modulus
    raised, beyond = _add_constant(gates, a, excess)
    # a + b + excess carries out of `size` bits exactly if a + b reaches the modulus; what is left
    # below is then the residue, and otherwise the residue and the excess.
    whole = _add(gates, raised, b, size + 1)
    below = gates.flip(whole[size], one)
    nothing = gates.constant(np.zeros(b.shape[1], dtype=np.uint8))
    back = np.stack([below if modulus >> place & 1 else nothing for place in range(size)])
    residue = _add(gates, whole[:size], back, size)
    outside = np.concatenate([residue[width + 1 :], beyond[None]])
    inside = _all(gates, gates.flip(outside, one))
    return gates.both(residue[:width] ^ residue[width], inside)


def _add_constant(gates: Gates, a: Wires, constant: int) -> tuple[Wires, Wires]:
    """Return the low bits of a + constant, and whether it is carried out of them."""
    found: list[Wires] = []
    carry: Wires | None = None
    for place in range(len(a)):
        one = np.array(constant >> place & 1, dtype=np.uint8)
        found.append(gates.flip(a[place] if carry is None else a[place] ^ carry, one))
        if carry is not None:
            # Majority: both where the constant is 0, either where it is 1.
            both = gates.both(gates.flip(a[place], one), gates.flip(carry, one))
            carry = gates.flip(both, one)
        elif one:
            carry = a[place]  # nothing is carried below the constant's lowest one
    if carry is None:
        carry = gates.constant(np.zeros(a.shape[1], dtype=np.uint8))
    return np.stack(found), carry


def _all(gates: Gates, bits: Wires) -> Wires:
    """Return whether all bits along the first axis are 1."""
    while len(bits) > 1:
        pairs = len(bits) // 2
        both = gates.both(bits[:pairs], bits[pairs : 2 * pairs])
        bits = np.concatenate([both, bits[2 * pairs :]])
    return np.asarray(bits[0])


def _subtract(gates: Gates, a: Wires, b: Wires) -> Wires:
    """Return a − b modulo 2^bits: the borrow is set where b and what is owed exceed a."""
    found = [a[0] ^ b[0]]
    # b AND NOT a = b XOR (a AND b)
    borrow = b[0] ^ gates.both(a[0], b[0])
    for place in range(1, len(a)):
        found.append(a[place] ^ b[place] ^ borrow)
        if place < len(a) - 1:
            # b where a and b differ, what was owed where they do not.
            borrow = borrow ^ gates.both(a[place] ^ b[place], b[place] ^ borrow)
    return np.stack(found)


def _greater(gates: Gates, a: Wires, b: Wires) -> Wires:
    """Return whether a > b."""
    found = a[0] ^ gates.both(a[0], b[0])
    for place in range(1, len(a)):
        found = found ^ gates.both(a[place] ^ b[place], a[place] ^ found)
    return np.asarray(found)


def _tournament(gates: Gates, values: Wires, runner_up: bool) -> tuple[Wires, Wires | None]:
    """Return the largest of different values, and the second largest where it is asked for."""
    best, second = values, None
    while best.shape[1] > 1:
        pairs = best.shape[1] // 2
        left, right = best[:, : 2 * pairs : 2], best[:, 1 : 2 * pairs : 2]
        rest = best[:, 2 * pairs :]
        wins = _greater(gates, left, right)[None]
        winner = right ^ gates.both(left ^ right, wins)
        if runner_up:
            loser = left ^ right ^ winner
            if second is not None:
                low, high = second[:, : 2 * pairs : 2], second[:, 1 : 2 * pairs : 2]
                kept = high ^ gates.both(low ^ high, wins)
                closer = _greater(gates, kept, loser)[None]
                loser = loser ^ gates.both(loser ^ kept, closer)
                waiting = second[:, 2 * pairs :]
            else:
                shape = (len(values), best.shape[1] - 2 * pairs)
                waiting = gates.constant(np.zeros(shape, dtype=np.uint8))
            second = np.concatenate([loser, waiting], axis=1)
        best = np.concatenate([winner, rest], axis=1)
    return best, second
