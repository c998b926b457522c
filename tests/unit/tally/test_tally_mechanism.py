import contextlib
import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Budget
from urna.protocols.secagg.masks import centred, wrapped, zeros
from urna.systems.vote import Ballots, BallotShape
from urna.tally import BoundedVector, TallyPlan, Terms, add_noise, in_units, to_grid
from urna.testing import ScriptedSecrets, unpriced_plan

CANDIDATES = 6
TOP_3 = unpriced_plan(clients=4, candidates=CANDIDATES, votes=3, scale=8)
NOISY = unpriced_plan(clients=4, candidates=CANDIDATES, votes=3, share=Fraction(41, 2))
RANKED = replace(NOISY, contribution=Ballots(BallotShape((5, 3, 1), CANDIDATES)))


def votes(*marks: int) -> IntVector:
    return np.array(marks, dtype=np.int64)


@given(st.lists(st.integers(-1, 2), min_size=CANDIDATES, max_size=CANDIDATES))
def test_exactly_the_ballots_with_three_ones_or_none_come_on_the_grid(marks: list[int]) -> None:
    if set(marks) <= {0, 1} and sum(marks) in (0, 3):
        assert to_grid(votes(*marks), TOP_3).tolist() == [8 * mark for mark in marks]
    else:
        with pytest.raises(ParameterError, match="a ballot holds the weights 1 … 1 on 3"):
            to_grid(votes(*marks), TOP_3)


@pytest.mark.parametrize("chosen", range(1, CANDIDATES))
def test_no_two_ballots_on_the_grid_differ_by_more_than_is_priced(chosen: int) -> None:
    plan = unpriced_plan(clients=4, candidates=CANDIDATES, votes=chosen, scale=1)
    accepted = []
    for marks in itertools.product((0, 1), repeat=CANDIDATES):
        with contextlib.suppress(ParameterError):
            accepted.append(to_grid(votes(*marks), plan))
    differences = [a - b for a in accepted for b in accepted]
    sensitivity = plan.contribution.sensitivity(plan.terms.adjacency)
    assert sensitivity.l2_squared == max(int(d @ d) for d in differences)
    assert sensitivity.coordinates == max(np.count_nonzero(d) for d in differences)


@given(st.permutations([5, 3, 1, 0, 0, 0]))
def test_a_ranked_ballot_may_stand_in_any_order(marks: list[int]) -> None:
    assert to_grid(votes(*marks), RANKED).tolist() == [RANKED.scale * mark for mark in marks]


@pytest.mark.parametrize(
    "marks",
    [
        (6, 3, 1, 0, 0, 0),
        (5, 4, 1, 0, 0, 0),
        (5, 5, 0, 0, 0, 0),
        (5, 3, 1, 1, 0, 0),
        (3, 3, 3, 0, 0, 0),
        (5, 3, 0, 0, 0, 0),
    ],
    ids=["largest", "second", "twice", "one more", "third", "one less"],
)
def test_a_ranked_ballot_with_other_weights_than_planned_is_refused(marks: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match=r"holds the weights 5 … 1 on 3 candidates"):
        to_grid(votes(*marks), RANKED)


def test_an_abstention_is_a_ballot() -> None:
    assert to_grid(votes(0, 0, 0, 0, 0, 0), TOP_3).tolist() == [0] * 6


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones(5, dtype=np.int64),
        np.zeros((1, 6), dtype=np.int64),
        np.zeros(6),
        np.zeros(6, dtype=np.bool_),
        np.array([np.nan] * 6),
    ],
    ids=["short", "matrix", "floats", "truths", "nan"],
)
def test_what_is_no_vector_of_integers_is_refused(wrong: IntVector) -> None:
    with pytest.raises(ParameterError, match="a contribution holds 6 integers, got shape"):
        to_grid(wrong, TOP_3)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint64])
def test_narrow_integers_do_not_wrap_when_scaled(kind: type[np.integer]) -> None:
    plan = unpriced_plan(clients=2, candidates=2, votes=1, scale=4096, ring_bits=64)
    encoded = to_grid(np.array([1, 0], dtype=kind), plan)
    assert encoded.dtype == np.int64
    assert encoded.tolist() == [4096, 0]


@pytest.mark.parametrize("bits", [16, 32, 64])
@given(data=st.data())
def test_residues_are_read_back_as_the_number_nearest_to_zero(
    bits: int, data: st.DataObject
) -> None:
    half = 1 << (bits - 1)
    numbers = st.one_of(
        st.sampled_from([-half, 1 - half, -1, 0, 1, half - 1]), st.integers(-half, half - 1)
    )
    vector = np.array(data.draw(st.lists(numbers, max_size=8)), dtype=np.int64)
    residues = wrapped(vector, bits)
    assert [int(r) for r in residues] == [int(v) % (1 << bits) for v in vector]
    assert centred(residues).tolist() == vector.tolist()


@pytest.mark.parametrize("bits", [16, 32, 64])
@given(data=st.data())
def test_sums_of_residues_are_sums(bits: int, data: st.DataObject) -> None:
    quarter = 1 << (bits - 2)
    parts = data.draw(st.lists(st.integers(-quarter, quarter - 1), min_size=1, max_size=2))
    # A long way around the ring and back: residues forget it.
    ring = zeros(1, bits)
    for part in [*parts, quarter, quarter - 1, -quarter, 1 - quarter]:
        ring += wrapped(np.array([part], dtype=np.int64), bits)
    assert centred(ring).tolist() == [sum(parts)]


def test_noise_comes_from_one_fresh_seed_per_client() -> None:
    secrets = ScriptedSecrets(b"noise")
    nothing = np.zeros(CANDIDATES, dtype=np.int64)
    first, second = (add_noise(nothing, RANKED, secrets) for _ in range(2))
    again = ScriptedSecrets(b"noise")
    table = RANKED.noise.table(RANKED.share)
    assert first.tolist() == table.draw(again.take(32), CANDIDATES).tolist()
    assert second.tolist() == table.draw(again.take(32), CANDIDATES).tolist()
    assert first.tolist() != second.tolist()


def test_noise_does_not_depend_on_the_ballot() -> None:
    ballot = to_grid(votes(5, 0, 3, 0, 0, 1), RANKED)
    noisy = add_noise(ballot, RANKED, ScriptedSecrets(b"same"))
    nothing = add_noise(np.zeros_like(ballot), RANKED, ScriptedSecrets(b"same"))
    assert (noisy - nothing).tolist() == ballot.tolist()


def test_a_total_is_read_in_units() -> None:
    assert TOP_3.scale > 1
    total = votes(0, 1, -1, 7, 9 * TOP_3.scale, 123_457)
    assert (in_units(total, TOP_3) * TOP_3.scale).tolist() == total.tolist()
    ballot = votes(5, 0, 3, 0, 0, 1)
    assert in_units(to_grid(ballot, RANKED), RANKED).tolist() == ballot.tolist()


def test_a_plan_without_noise_takes_no_secrets() -> None:
    exact = TallyPlan(Terms.of(3, Budget(1.0, 1e-5)), BoundedVector(4, norm_squared=9), None, 16)

    class Nothing:
        private = True

        def take(self, count: int) -> bytes:
            raise AssertionError(f"{count} bytes were asked for")

    vector = votes(1, -2, 0, 2)
    assert add_noise(vector, exact, Nothing()).tolist() == vector.tolist()
