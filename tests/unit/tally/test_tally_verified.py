"""Verified ballots behind the seams: a winner."""

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.privacy import Budget, SelectionRelease
from urna.randomness import OsSecrets
from urna.tally import SelectionPlan, Terms, VerifiedSelection, public_order
from urna.tally.selection_plan import circuit_modulo, residues

TERMS = Terms.of(6, Budget(9.0, 1e-5), dropout=0.2)


def planned(fineness: int = 0, start: tuple[int, ...] = (0, 2, 0, 1)) -> SelectionPlan:
    release = SelectionRelease(9.0, 6, 4, fineness=fineness)
    return SelectionPlan(TERMS, release, 3, start, public_order(b"four", 4))


def test_the_largest_total_of_verified_ballots_wins_under_weak_noise() -> None:
    votes = {client: np.array([0, 0, 3, 0]) for client in range(6)}
    plan = planned(start=(0, 0, 0, 0))
    found = VerifiedSelection("h").select(votes, plan, OsSecrets())
    assert found.winner == 2
    assert found.gap is not None
    assert found.accepted == frozenset(range(6))
    assert found.lost == {}


@pytest.mark.parametrize("modulus", [(1 << 32) - (1 << 20) + 1, (1 << 61) - 1])
@pytest.mark.parametrize("fineness", [0, 3])
def test_shares_add_up_to_the_sum_and_its_head_start(fineness: int, modulus: int) -> None:
    plan, rng = planned(fineness), np.random.default_rng(1)
    exact = [5, 0, 18, 7]
    ours = [int.from_bytes(rng.bytes(12), "big") % modulus for _ in exact]
    theirs = [(s - a) % modulus for s, a in zip(exact, ours, strict=True)]
    one = residues(ours, plan, modulus)
    two = residues(theirs, plan, modulus, started=True)
    both = [(int(a) + int(b)) % modulus for a, b in zip(one, two, strict=True)]
    wanted = [(s << fineness) + h for s, h in zip(exact, plan.head_start, strict=True)]
    assert both == [wanted[place] for place in plan.order]
    assert max(both) < 1 << circuit_modulo(plan, modulus).width


def test_an_invalid_ballot_is_not_cast() -> None:
    votes = {client: np.array([0, 0, 4, 0]) for client in range(6)}
    with pytest.raises(ParameterError, match=r"0\.\.3"):
        VerifiedSelection("h").select(votes, planned(), OsSecrets())


def test_other_numbers_of_clients_are_refused() -> None:
    with pytest.raises(ParameterError, match="6 clients"):
        VerifiedSelection("h").select({}, planned(), OsSecrets())
