"""What every way of adding up must do, as a suite that implementations subclass."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np
import pytest

from urna.errors import ParameterError, RoundAborted
from urna.noise import IntVector
from urna.privacy import Adjacency, BallotShape, Budget, Calibration, TallyRelease, honest_survivors
from urna.privacy.calibration import readers
from urna.randomness import SEED_BYTES, ScriptedSecrets
from urna.tally import ClientId, Summation, TallyPlan, encode
from urna.vote import fill_ballot

__all__ = ["SILENT", "SummationContract", "ballots_for", "unpriced_plan"]

SILENT = Fraction(1, 1 << 100)
"""A draw of this variance is zero but once in 2^100 times."""

_FALSE_ALARM_SIGMAS = 4.9  # two-sided normal: a right summation fails once in a million seeds


def unpriced_plan(
    *,
    clients: int,
    candidates: int,
    votes: int = 2,
    scale: int = 16,
    dropout: Fraction = Fraction(0),
    colluding: Fraction = Fraction(0),
    ring_bits: int = 32,
    share: Fraction = SILENT,
) -> TallyPlan:
    """Return a plan with noise that nobody priced, for tests alone. It promises nothing.

    By default the noise is as good as none, to see sums as they are; `share` is the variance
    of each client's noise in grid steps squared.
    """
    shape = BallotShape.top_k(votes, candidates)
    shifts = tuple((s * scale, n) for s, n in shape.shifts(Adjacency.REPLACE_ONE_CLIENT))
    shares = honest_survivors(clients, dropout=dropout, colluding=colluding)
    return TallyPlan(
        clients=clients,
        shape=shape,
        calibration=Calibration(scale, TallyRelease(shifts, share, shares), math.inf, "none"),
        adjacency=Adjacency.REPLACE_ONE_CLIENT,
        budget=Budget(1.0, 1e-5),
        dropout=dropout,
        colluding=colluding,
        ring_bits=ring_bits,
    )


def ballots_for(plan: TallyPlan, rng: np.random.Generator) -> dict[ClientId, IntVector]:
    """Return a random encoded ballot for each client of a plan; the last client abstains."""
    losses = rng.random((plan.clients, plan.dimension))
    losses[-1] = np.inf
    return {
        client: encode(fill_ballot(row, plan.shape, rng.bytes(SEED_BYTES)), plan)
        for client, row in enumerate(losses)
    }


class SummationContract(ABC):
    """Subclass it as `TestSomething` and say how your summation is made.

    Example:
        >>> from urna.tally import ClearSummation
        >>> class TestClearSummation(SummationContract):
        ...     def make_summation(self, absent=frozenset()):
        ...         return ClearSummation(absent)
    """

    clients = 10

    @abstractmethod
    def make_summation(self, absent: frozenset[ClientId] = frozenset()) -> Summation:
        """Return a summation in which `absent` drop out before they send their vector."""

    def rng(self) -> np.random.Generator:
        """Return a public generator for the ballots."""
        return np.random.default_rng(20_261_115)

    @pytest.mark.parametrize("ring_bits", [16, 32, 64])
    def test_the_total_is_the_exact_sum(self, ring_bits: int) -> None:
        plan = unpriced_plan(clients=self.clients, candidates=37, ring_bits=ring_bits)
        ballots = ballots_for(plan, self.rng())
        tallied = self.make_summation().tally(ballots, plan, ScriptedSecrets(b"exact"))
        assert tallied.total.tolist() == _sum(ballots, tallied.accepted)
        assert tallied.accepted == frozenset(range(self.clients))
        assert dict(tallied.lost) == {}

    def test_the_largest_sum_a_ring_may_hold_does_not_wrap(self) -> None:
        scale = (1 << 15) // self.clients - 1
        plan = unpriced_plan(clients=self.clients, candidates=3, votes=1, scale=scale, ring_bits=16)
        unanimous = encode(np.array([0, 1, 0]), plan)
        ballots = dict.fromkeys(range(self.clients), unanimous)
        tallied = self.make_summation().tally(ballots, plan, ScriptedSecrets(b"full"))
        assert tallied.total.tolist() == [0, self.clients * scale, 0]

    @pytest.mark.parametrize("gone", [frozenset({0}), frozenset({3, 7})], ids=["one", "two"])
    def test_clients_that_drop_out_are_named_and_left_out(self, gone: frozenset[int]) -> None:
        plan = unpriced_plan(clients=self.clients, candidates=11, dropout=Fraction(1, 5))
        ballots = ballots_for(plan, self.rng())
        tallied = self.make_summation(gone).tally(ballots, plan, ScriptedSecrets(b"dropouts"))
        there = frozenset(range(self.clients)) - gone
        assert tallied.accepted == there
        assert tallied.lost.keys() == gone
        assert all(tallied.lost.values()), "every loss has a reason"
        assert tallied.total.tolist() == _sum(ballots, there)

    def test_with_too_few_clients_the_round_aborts(self) -> None:
        plan = unpriced_plan(clients=self.clients, candidates=11, dropout=Fraction(1, 5))
        gone = frozenset(range(self.clients - plan.fewest + 1))
        ballots = ballots_for(plan, self.rng())
        with pytest.raises(RoundAborted):
            self.make_summation(gone).tally(ballots, plan, ScriptedSecrets(b"abort"))

    @pytest.mark.parametrize("gone", [frozenset(), frozenset({2, 5})], ids=["nobody", "two gone"])
    def test_the_release_claims_no_more_noise_than_the_sum_holds(
        self, gone: frozenset[int]
    ) -> None:
        plan = unpriced_plan(
            clients=self.clients,
            candidates=5,
            dropout=Fraction(1, 5),
            colluding=Fraction(1, 10),
        )
        ballots = ballots_for(plan, self.rng())
        tallied = self.make_summation(gone).tally(ballots, plan, ScriptedSecrets(b"claims"))
        planned = plan.calibration.release
        # Readers know their own noise, so it is in the sum and does not protect from them.
        there = len(tallied.accepted)
        honest = tallied.noise_variance * Fraction(there - readers(there, plan.colluding), there)
        assert planned.variance <= tallied.release.variance <= honest
        assert tallied.release.shifts == planned.shifts
        assert tallied.release.family == planned.family

    @pytest.mark.statistical
    @pytest.mark.parametrize("gone", [frozenset(), frozenset({4, 9})], ids=["nobody", "two gone"])
    def test_the_noise_in_the_sum_is_the_noise_it_states(self, gone: frozenset[int]) -> None:
        """False-alarm rate: a millionth each for mean and variance.

        The same check must notice when one client of ten has added nothing.
        """
        plan = unpriced_plan(
            clients=self.clients,
            candidates=20_000,
            dropout=Fraction(1, 5),
            share=Fraction(41, 2),
        )
        ballots = ballots_for(plan, self.rng())
        tallied = self.make_summation(gone).tally(ballots, plan, ScriptedSecrets(b"variance"))
        true = np.array(_sum(ballots, tallied.accepted))
        noise = np.asarray(tallied.total - true, dtype=np.float64)
        stated = float(tallied.noise_variance)
        assert abs(noise.mean()) < _FALSE_ALARM_SIGMAS * math.sqrt(stated / plan.dimension)
        assert _plausible(noise, stated)
        one_silent = stated + float(plan.share)
        assert not _plausible(noise, one_silent)

    def test_scripted_secrets_repeat_the_sum(self) -> None:
        plan = unpriced_plan(clients=self.clients, candidates=50, share=Fraction(41, 2))
        ballots = ballots_for(plan, self.rng())

        def total(label: bytes) -> list[int]:
            tallied = self.make_summation().tally(ballots, plan, ScriptedSecrets(label))
            return list(tallied.total.tolist())

        assert total(b"one") == total(b"one")
        assert total(b"one") != total(b"another")

    def test_every_round_draws_fresh_noise(self) -> None:
        plan = unpriced_plan(clients=self.clients, candidates=50, share=Fraction(41, 2))
        ballots = ballots_for(plan, self.rng())
        secrets, summation = ScriptedSecrets(b"rounds"), self.make_summation()
        first = summation.tally(ballots, plan, secrets).total
        assert first.tolist() != summation.tally(ballots, plan, secrets).total.tolist()

    def test_contributions_that_do_not_fit_the_plan_are_refused(self) -> None:
        plan = unpriced_plan(clients=self.clients, candidates=5)
        ballots = ballots_for(plan, self.rng())
        short = ballots | {0: np.zeros(4, dtype=np.int64)}
        fewer = {client: ballot for client, ballot in ballots.items() if client}
        for wrong in (short, fewer):
            with pytest.raises(ParameterError):
                self.make_summation().tally(wrong, plan, ScriptedSecrets(b"wrong"))

    def test_it_says_in_words_who_saw_what(self) -> None:
        summation = self.make_summation()
        assert len(summation.described.split()) > 5
        assert ("in the clear" in summation.described) == (not summation.secure)


def _sum(ballots: Mapping[ClientId, IntVector], clients: Iterable[ClientId]) -> list[int]:
    """Add up column by column, in Python's own integers."""
    return [sum(map(int, column)) for column in zip(*(ballots[c] for c in clients), strict=True)]


def _plausible(noise: np.ndarray[tuple[int], np.dtype[np.float64]], variance: float) -> bool:
    """Hold a sample's mean square against a variance, by its standard error.

    The mean square of n draws has the standard error v·√((2 + κ)/n); the excess kurtosis κ of
    Skellam noise is 1/v.
    """
    error = variance * math.sqrt((2 + 1 / variance) / len(noise))
    return abs(float(np.square(noise).mean()) - variance) < _FALSE_ALARM_SIGMAS * error
