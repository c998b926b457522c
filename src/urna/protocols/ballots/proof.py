"""Prove in zero knowledge, to two who hold shares, that every entry of a vector is 0 or 1.

Urna's own proof, after the fully linear proofs of Boneh et al. (CRYPTO 2019) but without joint
randomness. It is not Prio3. `docs/decisions/0028-verified-ballots.md` has the
proofs of soundness and of zero knowledge in full.

The bits x₁ … x_N, zeros and three random blinds are the values of a polynomial f on the n-th roots
of unity. With Z, which vanishes on all of them but the blinds' three, all entries but the blinds
are bits exactly if Z divides f·(f − 1). The client shares f's values and those of the quotient h
among leader and helper. Both are asked for f and h modulo one irreducible cubic, a linear function
of their shares; the sums of their answers are f(t) and h(t) at a point t outside the field, and
f(t)·(f(t) − 1) must be h(t)·Z(t).
"""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.ballots.field import Cubic, Elements, Field

BLINDS = 3
"""Random values of f, as many as f(t) has coefficients."""

ANSWER = 6
"""Elements of an answer: f and h modulo the cubic."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What one query asks of a share: linear functions, the same for every report."""

    cubic: Cubic
    of_values: Elements
    """(bits + 3) × 3: f modulo the cubic from its values."""
    of_quotient: Elements
    """(order + 2) × 3: h modulo the cubic from its values."""
    vanishing: Elements
    """Z modulo the cubic."""


@dataclass(frozen=True, slots=True)
class BitProof:
    """The proof for vectors of so many bits over a field.

    A share is `bits` values, three blinds and `order + 2` values of the quotient.

    Guarantee:
        *Soundness*: of the points t outside the field, at most 2·order lead to accepting a given
        sharing that is no vector of bits, out of q³ − q. *Zero knowledge*: for every such t,
        one party's share together with the other's answer is distributed alike for all vectors
        of bits.
    """

    field: Field
    bits: int

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ParameterError(f"a proof is about at least one bit, got {self.bits}")

    @property
    def order(self) -> int:
        """How many roots of unity f is given on: n, the least that fits and divides q − 1."""
        return _order(self.field, self.bits + BLINDS)

    @property
    def length(self) -> int:
        """Elements of a share."""
        return self.bits + BLINDS + self.order + 2

    @property
    def soundness(self) -> float:
        """Largest probability that a vector that is not of bits is accepted."""
        q = self.field.modulus
        return 2 * (self.order - 1) / (q**3 - q)

    def prove(self, bits: npt.NDArray[np.integer], blinds: npt.NDArray[np.integer]) -> Elements:
        """Return what is shared: the bits, the blinds and the quotient's values.

        Nothing is checked: what is no vector of bits gets a proof that will not be accepted.
        """
        if bits.shape != (self.bits,) or blinds.shape != (BLINDS,):
            raise ParameterError(f"a proof is about {self.bits} bits and has {BLINDS} blinds")
        q, tables = self.field.modulus, _tables(self.field, self.bits)
        bits, blinds = self.field.elements(bits), self.field.elements(blinds)
        placed = np.zeros(self.order)
        placed[: self.bits] = bits
        # Bits times 32-bit numbers: their sums are exact in double precision. Larger entries,
        # which only somebody who cheats has, are cut as any other.
        if bits.max() <= 1:
            circle = np.convolve(tables.circle, placed, "valid").astype(np.uint64)
            extra = (tables.extra @ placed).astype(np.uint64)
            values = np.append(circle, extra)
        else:
            column = placed.astype(np.uint64)[:, None]
            values = self.field.products(_unrolled(tables, self.order), column)[:, 0]
        for place in range(BLINDS):
            values = values + tables.blind[:, place] * blinds[place] % q
        values = values % q * tables.scale % q
        quotient = values * ((values + np.uint64(q - 1)) % q) % q * tables.over_vanishing % q
        return np.concatenate([bits, blinds, quotient])

    def ask(self, cubic: Cubic) -> Questions:
        """Return what a query asks, computed once for all reports."""
        field, n, tables = self.field, self.order, _tables(self.field, self.bits)
        q = field.modulus
        roots = tables.roots
        used = np.append(roots[: self.bits], roots[n - BLINDS :])
        # L_j(X) = (Xⁿ − 1)/n · r_j/(X − r_j)
        circle = cubic.power(n)
        circle[0] = (circle[0] + np.uint64(q - 1)) % q
        scaled = used * np.uint64(pow(n, -1, q)) % q
        of_values = cubic.times(circle, cubic.one_over(used)) * scaled[:, None] % q
        # Z = (Xⁿ − 1)/∏(X − blind)
        vanishing = circle
        for over in cubic.one_over(roots[n - BLINDS :]):
            vanishing = cubic.times(vanishing, over)
        # W = (Xⁿ − sⁿ)(X − e)(X − e'); λ_k = W/((X − b_k)·W'(b_k))
        points = tables.points
        node = cubic.power(n)
        node[0] = (node[0] + np.uint64(q - pow(field.generator, n, q))) % q
        for extra in points[n:].tolist():
            node = cubic.times(node, np.array([q - extra, 1, 0], dtype=np.uint64))
        of_quotient = cubic.times(node, cubic.one_over(points))
        of_quotient = of_quotient * tables.over_slope[:, None] % q
        return Questions(cubic, of_values, of_quotient, vanishing)

    def answer(
        self, shares: npt.NDArray[np.unsignedinteger], asked: Questions
    ) -> npt.NDArray[np.uint64]:
        """Return one party's answers, a row for each report: its shares of f(t) and h(t)."""
        known = self.bits + BLINDS
        return np.hstack(
            [
                self.field.products(shares[:, :known], asked.of_values),
                self.field.products(shares[:, known : self.length], asked.of_quotient),
            ]
        )

    def decide(self, ours: Elements, theirs: Elements, asked: Questions) -> npt.NDArray[np.bool_]:
        """Say of each report whether both parties' answers prove it to be a vector of bits."""
        q, cubic = self.field.modulus, asked.cubic
        opened = (ours + theirs) % q
        value, quotient = opened[:, :3], opened[:, 3:]
        less_one = value.copy()
        less_one[:, 0] = (less_one[:, 0] + np.uint64(q - 1)) % q
        left = cubic.times(value, less_one)
        right = cubic.times(quotient, asked.vanishing)
        return np.asarray((left == right).all(axis=1))


@dataclass(frozen=True, slots=True)
class _Tables:
    """What depends on the number of bits alone."""

    roots: Elements
    points: Elements
    """Where h is given: the coset of the generator, and two points of another."""
    circle: npt.NDArray[np.float64]
    """1/(s·ω^d − 1) for d = 1 − n … n − 1: f on the coset is a cyclic convolution."""
    extra: npt.NDArray[np.float64]
    """The same for the two points more, a row each."""
    blind: Elements
    """The columns of the blinds."""
    scale: Elements
    """(bⁿ − 1)/n at every point b."""
    over_vanishing: Elements
    """1/Z at every point."""
    over_slope: Elements
    """1/W' at every point."""


@functools.lru_cache(maxsize=32)
def _tables(field: Field, bits: int) -> _Tables:
    q, n = field.modulus, _order(field, bits + BLINDS)
    s = field.generator
    roots = field.powers(field.root(n), n)
    coset = roots * np.uint64(s) % q
    extra = roots[:2] * np.uint64(s * s % q) % q
    points = np.append(coset, extra)
    one = np.uint64(q - 1)
    on_coset = field.inverses((coset + one) % q)  # by d: 1/(s·ω^d − 1)
    ratio = extra[:, None] * np.roll(roots[::-1], 1) % q  # e/r_j
    on_extra = field.inverses((ratio + one) % q)
    places = np.arange(n - BLINDS, n)
    by_difference = (np.arange(n)[:, None] - places) % n
    ends = field.powers(pow(s, n, q), 3)[1:]  # sⁿ and s²ⁿ
    to_n = np.append(np.full(n, ends[0]), np.full(2, ends[1]))
    scale = (to_n + one) % q
    away = (points[:, None] + (np.uint64(q) - roots[places])) % q
    over_vanishing = field.inverses(scale)
    for place in range(BLINDS):
        over_vanishing = over_vanishing * away[:, place] % q
    # W'(b) on the coset: n·bⁿ⁻¹(b − e)(b − e'); at e: (eⁿ − sⁿ)(e − e').
    slope = np.ones(n + 2, dtype=np.uint64)
    slope[:n] = np.uint64(n) * ends[0] % q * field.inverses(coset) % q
    for e in extra:
        slope[:n] = slope[:n] * ((coset + (np.uint64(q) - e)) % q) % q
    apart = (ends[1] + (np.uint64(q) - ends[0])) % q
    between = (extra + (np.uint64(q) - extra[::-1])) % q
    slope[n:] = apart * between % q
    return _Tables(
        roots,
        points,
        np.append(on_coset[1:], on_coset).astype(np.float64),
        on_extra.astype(np.float64),
        np.vstack([on_coset[by_difference], on_extra[:, places]]),
        scale * np.uint64(pow(n, -1, q)) % q,
        over_vanishing,
        field.inverses(slope),
    )


def _unrolled(tables: _Tables, n: int) -> Elements:
    """Return the matrix from f's values to sums at h's points, before scaling."""
    difference = np.arange(n)[:, None] - np.arange(n) + n - 1
    return np.vstack([tables.circle[difference], tables.extra]).astype(np.uint64)


@functools.lru_cache(maxsize=256)
def _order(field: Field, least: int) -> int:
    """Return the least divisor of q − 1 from `least` on that leaves two more cosets."""
    whole = field.modulus - 1
    for order in range(least, whole // 3 + 1):
        if whole % order == 0:
            return order
    raise ParameterError(f"a field of {field.modulus} elements has no room for {least} values")
