"""Verified ballots behind the seams: a winner, or a noisy tally in a ledger."""

import math
from pathlib import Path

import numpy as np
import pytest

from urna.errors import BudgetExceeded, ParameterError, RoundAborted
from urna.privacy import Budget, Ledger, SelectionRelease
from urna.protocols.ballots import CODECS, CountPlan, Layout
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.tally import SelectionPlan, Terms, VerifiedSelection, public_order, verified_tally
from urna.tally.verified import ahead, circuit_modulo, residues

TERMS = Terms.of(6, Budget(9.0, 1e-5), dropout=0.2)
BUDGET = Budget(1.0, 1e-5)


def planned(fineness: int = 0, start: tuple[int, ...] = (0, 2, 0, 1)) -> SelectionPlan:
    release = SelectionRelease(9.0, 6, 4, fineness=fineness)
    return SelectionPlan(TERMS, release, 3, start, public_order(b"four", 4))


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_total_of_verified_ballots_wins_under_weak_noise(codec: str) -> None:
    votes = {client: np.array([0, 0, 3, 0]) for client in range(6)}
    plan = planned(start=(0, 0, 0, 0))
    found = VerifiedSelection("h", codec).select(votes, plan, OsSecrets())
    assert found.winner == 2
    assert found.gap is not None
    assert found.accepted == frozenset(range(6))
    assert found.lost == {}


@pytest.mark.parametrize("modulus", [(1 << 32) - (1 << 20) + 1, (1 << 66) + 3])
@pytest.mark.parametrize("fineness", [0, 3])
def test_shares_add_up_to_the_sum_and_its_head_start(fineness: int, modulus: int) -> None:
    plan, rng = planned(fineness), np.random.default_rng(1)
    exact = [5, 0, 18, 7]
    ours = [int.from_bytes(rng.bytes(12), "big") % modulus for _ in exact]
    theirs = [(s - a) % modulus for s, a in zip(exact, ours, strict=True)]
    one = residues(ours, plan, modulus)
    two = ahead(residues(theirs, plan, modulus), plan, modulus)
    both = [(int(a) + int(b)) % modulus for a, b in zip(one, two, strict=True)]
    wanted = [(s << fineness) + h for s, h in zip(exact, plan.head_start, strict=True)]
    assert both == [wanted[place] for place in plan.order]
    assert max(both) < 1 << circuit_modulo(plan, modulus).width


def test_an_invalid_ballot_is_not_cast() -> None:
    votes = {client: np.array([0, 0, 4, 0]) for client in range(6)}
    with pytest.raises(ParameterError, match=r"0\.\.3"):
        VerifiedSelection("h").select(votes, planned(), OsSecrets())


def noisy() -> CountPlan:
    return CountPlan.noisy(Layout(10, 1, 2), BUDGET, clients=40, least=38)


def approvals() -> dict[int, np.ndarray]:
    rng = np.random.default_rng(3)
    return {client: rng.permutation([1, 1, *[0] * 8]) for client in range(40)}


def test_a_noisy_tally_is_in_the_ledger_and_states_what_it_cost(tmp_path: Path) -> None:
    ledger, plan = Ledger.open(tmp_path / "ledger.json", BUDGET), noisy()
    found = verified_tally(approvals(), plan, BUDGET, OsSecrets(), helper="h", ledger=ledger)
    assert found.privacy.epsilon <= 1.0
    assert found.privacy.private
    assert "h not colluding" in str(found.privacy)
    assert [entry.release for entry in ledger.entries()] == [plan.release]
    off = found.votes - sum(approvals().values())
    assert np.abs(off).max() <= plan.tossing * sum(plan.layout.coins) / 2
    assert np.abs(off).max() > 0
    with pytest.raises(BudgetExceeded):
        verified_tally(approvals(), plan, BUDGET, OsSecrets(), helper="h", ledger=ledger)


def test_a_tally_that_comes_to_nothing_counts_nothing(tmp_path: Path) -> None:
    ledger, plan = Ledger.open(tmp_path / "ledger.json", BUDGET), noisy()

    def lost() -> np.ndarray:
        raise RoundAborted("nobody is there")

    votes = {**approvals(), 3: lost}
    with pytest.raises(RoundAborted):
        verified_tally(votes, plan, BUDGET, OsSecrets(), helper="h", ledger=ledger)
    again = verified_tally(approvals(), plan, BUDGET, OsSecrets(), helper="h", ledger=ledger)
    assert again.entry is not None


def test_scripted_coins_are_not_private() -> None:
    found = verified_tally(approvals(), noisy(), BUDGET, ScriptedSecrets(b"x"), helper="h")
    assert math.isinf(found.privacy.epsilon)


def test_a_tally_without_coins_is_not_opened() -> None:
    exact = CountPlan(Layout(10, 1, 2), 40, 38)
    with pytest.raises(ParameterError, match="under noise"):
        verified_tally(approvals(), exact, BUDGET, OsSecrets(), helper="h")


def test_other_numbers_of_clients_are_refused() -> None:
    with pytest.raises(ParameterError, match="40 clients"):
        verified_tally({}, noisy(), BUDGET, OsSecrets(), helper="h")
