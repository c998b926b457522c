"""The proof that all entries are bits: complete, sound up to its bound, and telling nothing."""

import itertools
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from urna.protocols.ballots import proof as proofs
from urna.protocols.ballots.field import FAST, Cubic, Field
from urna.protocols.ballots.proof import BLINDS, BitProof, Questions

SMALL = BitProof(Field(13, 2), 1)
TOY = BitProof(Field(19, 2), 3)
Q = TOY.field.modulus


def points(field: Field) -> list[tuple[int, int, int]]:
    """One of every three conjugate points outside a small field."""
    seen, found = set(), []
    for point in itertools.product(range(field.modulus), repeat=3):
        if (point[1] or point[2]) and (low := Cubic.of(field, point).low) not in seen:
            seen.add(low)
            found.append(point)
    return found


def accepted(proof: BitProof, whole: npt.NDArray[np.uint64], cubic: Cubic) -> bool:
    """Ask of a vector as one party's share, the other's being zero."""
    asked = proof.ask(cubic)
    answer = proof.answer(whole[None], asked)
    return bool(proof.decide(answer, np.zeros_like(answer), asked)[0])


def test_every_vector_of_bits_is_accepted_at_every_point_of_a_small_field() -> None:
    rng = np.random.default_rng(1)
    for point in points(TOY.field)[::190]:
        for bits in itertools.product((0, 1), repeat=3):
            whole = TOY.prove(np.array(bits), rng.integers(0, Q, 3))
            assert accepted(TOY, whole, Cubic.of(TOY.field, point))


@pytest.mark.parametrize("count", [1, 2, 5, 61, 402, 1200])
def test_shares_of_bits_are_accepted_and_any_single_change_is_refused(count: int) -> None:
    proof, q, rng = BitProof(FAST, count), FAST.modulus, np.random.default_rng(count)
    whole = proof.prove(rng.integers(0, 2, count), rng.integers(0, q, BLINDS))
    assert len(whole) == proof.length
    asked = proof.ask(FAST.query(rng.bytes(32)))
    places = sorted({*range(min(proof.length, 90)), *rng.integers(0, proof.length, 60).tolist()})
    helper = FAST.uniform([rng.bytes(32)] * (len(places) + 1), proof.length)
    leader = (whole + (np.uint64(q) - helper)) % q
    for row, place in enumerate(places):
        leader[row, place] = (leader[row, place] + np.uint64(rng.integers(1, q))) % q
    ours, theirs = proof.answer(leader.astype(np.uint32), asked), proof.answer(helper, asked)
    assert proof.decide(ours, theirs, asked).tolist() == [False] * len(places) + [True]
    theirs[-1, 2] = (theirs[-1, 2] + np.uint64(1)) % q
    assert not proof.decide(ours, theirs, asked)[-1]


@pytest.mark.parametrize("wrong", [2, 7, FAST.modulus - 1])
def test_an_entry_that_is_no_bit_is_refused_with_whatever_proof(wrong: int) -> None:
    proof, rng = BitProof(FAST, 20), np.random.default_rng(0)
    for place in range(20):
        bits = rng.integers(0, 2, 20)
        bits[place] = wrong
        honest = proof.prove(bits, rng.integers(0, FAST.modulus, 3))
        assert not accepted(proof, honest, FAST.query(rng.bytes(32)))


@pytest.fixture(scope="module")
def every_question() -> list[Questions]:
    """Every query there is in the field of 13 elements, one of three conjugates each."""
    return [SMALL.ask(Cubic.of(SMALL.field, point)) for point in points(SMALL.field)]


def passes(vectors: npt.NDArray[np.uint64], every_question: list[Questions]) -> list[int]:
    """Count the points outside the field at which each vector is accepted."""
    zero = np.zeros((len(vectors), 6), dtype=np.uint64)
    found = [SMALL.decide(SMALL.answer(vectors, asked), zero, asked) for asked in every_question]
    return [int(count) for count in 3 * np.sum(found, axis=0)]


def best_cheat(entry: int) -> npt.NDArray[np.uint64]:
    """Return the quotient with which an entry that is no bit passes at most points.

    f·(f − 1) − h·Z may be any polynomial of degree 2n − 2 = 6 that is f·(f − 1) on Z's root: the
    product of two irreducible cubics, scaled to be so.
    """
    n, q, blinds = SMALL.order, SMALL.field.modulus, [1, 5, 8]
    tables = proofs._tables(SMALL.field, 1)
    roots = tables.roots.tolist()
    cubics = [(*Cubic.of(SMALL.field, point).low, 1) for point in points(SMALL.field)[:2]]

    def at(x: int) -> int:
        values = [sum(c * x**k for k, c in enumerate(cubic)) for cubic in cubics]
        return values[0] * values[1] % q

    scale = entry * (entry - 1) * pow(at(roots[0]), -1, q)
    quotient = []
    for b in tables.points.tolist():
        values = enumerate([entry, *blinds])
        f = sum(v * _lagrange(roots, place, b, q) for place, v in values) % q
        quotient.append((f * (f - 1) - scale * at(b)) * pow(b - roots[0], -1, q) % q)
    assert n == 4
    return np.array([entry, *blinds, *quotient], dtype=np.uint64)


def _lagrange(roots: list[int], place: int, x: int, q: int) -> int:
    value = 1
    for other, root in enumerate(roots):
        if other != place:
            value = value * (x - root) * pow(roots[place] - root, -1, q) % q
    return value


def test_the_quotient_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(5)
    bits, blinds = rng.integers(0, 2, 3), rng.integers(0, Q, 3)
    n, tables = TOY.order, proofs._tables(TOY.field, 3)
    roots = tables.roots.tolist()
    values = [*bits.tolist(), *[0] * (n - 6), *blinds.tolist()]
    for b, h in zip(tables.points.tolist(), TOY.prove(bits, blinds)[6:].tolist(), strict=True):
        f = sum(v * _lagrange(roots, k, b, Q) for k, v in enumerate(values)) % Q
        z = np.prod([b - root for root in roots[: n - 3]], dtype=object) % Q
        assert h * z % Q == f * (f - 1) % Q


def test_no_cheat_passes_at_more_points_than_the_bound_and_the_best_reaches_it(
    every_question: list[Questions],
) -> None:
    """Exactly, over all points outside a field of 13 elements; the bound is six of 2184."""
    every = 13**3 - 13
    assert 3 * len(every_question) == every
    assert SMALL.soundness * every == pytest.approx(6)
    cheats = np.random.default_rng(2).integers(0, 13, (400, SMALL.length)).astype(np.uint64)
    cheats[:, 0] = 2 + cheats[:, 0] % 11
    right = SMALL.prove(np.array([1]), np.array([1, 5, 8]))
    *counts, best, honest = passes(np.vstack([cheats, best_cheat(7), right]), every_question)
    assert max(counts) <= 6
    assert sum(counts) > 0  # chance does pass now and then: the count sees it
    assert best == 6
    assert honest == every


def views(proof: BitProof, bits: tuple[int, ...], cubic: Cubic, blinds: int = BLINDS) -> Counter:
    """Count what both answers add up to, over all blinds: all that the other's answer tells."""
    asked = proof.ask(cubic)
    choices = itertools.product(range(proof.field.modulus), repeat=blinds)
    whole = np.array(
        [proof.prove(np.array(bits), np.array([*b, *[0] * (BLINDS - blinds)])) for b in choices]
    )
    return Counter(map(tuple, proof.answer(whole, asked).tolist()))


@pytest.mark.parametrize("point", [(0, 1, 0), (3, 0, 7), (12, 5, 5)])
def test_answers_tell_nothing_of_the_bits(point: tuple[int, int, int]) -> None:
    """Exactly, over all blinds in a field of 13 elements: every f(t) comes up once."""
    cubic = Cubic.of(SMALL.field, point)
    found = [views(SMALL, (bit,), cubic) for bit in (0, 1)]
    assert found[0] == found[1]
    assert len(found[0]) == 13**3
    assert set(found[0].values()) == {1}


def test_two_blinds_would_tell_the_bits_apart() -> None:
    cubic = Cubic.of(SMALL.field, (3, 0, 7))
    assert views(SMALL, (0,), cubic, 2) != views(SMALL, (1,), cubic, 2)


def test_soundness_of_a_whole_batch() -> None:
    proof = BitProof(FAST, 800)
    assert 10_000 * proof.soundness < 2.0**-71
