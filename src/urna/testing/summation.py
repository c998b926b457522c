"""What every way of adding up must do, as a suite that implementations subclass."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np
import pytest

from urna.errors import ParameterError, RoundAborted
from urna.noise import IntVector
from urna.privacy import Adjacency, Budget, Calibration, SumRelease
from urna.protocols.secagg import ServerModel
from urna.randomness import SEED_BYTES, ScriptedSecrets
from urna.systems.vote import Ballots, BallotShape, fill_ballot
from urna.tally import (
    BoundedVector,
    ClientId,
    Contribution,
    Contributions,
    Part,
    Summation,
    Tallied,
    TallyPlan,
    Terms,
    to_grid,
)

__all__ = ["SILENT", "SummationContract", "ballots_for", "unpriced_plan"]

SILENT = Fraction(1, 1 << 100)
"""A draw of this variance is zero but once in 2^100 times."""

_FALSE_ALARM_SIGMAS = 4.9  # two-sided normal: a right summation fails once in a million seeds


def unpriced_plan(
    *,
    clients: int,
    candidates: int,
    votes: int = 2,
    contribution: Contribution | None = None,
    scale: int = 16,
    dropout: Part = 0,
    colluding: Part = 0,
    server: ServerModel = ServerModel.HONEST_BUT_CURIOUS,
    ring_bits: int = 32,
    share: Fraction = SILENT,
) -> TallyPlan:
    """Return a plan with noise that nobody priced, for tests alone. It promises nothing.

    By default the noise is as good as none, to see sums as they are; `share` is the variance
    of each client's noise in grid steps squared. `contribution` stands in for ballots.
    """
    terms = Terms.of(
        clients, Budget(1.0, 1e-5), dropout=dropout, colluding=colluding, server=server
    )
    what = contribution or Ballots(BallotShape.top_k(votes, candidates))
    sensitivity = what.sensitivity(Adjacency.REPLACE_ONE_CLIENT).scaled(scale)
    calibration = Calibration(scale, SumRelease(sensitivity, share, terms.honest), math.inf)
    return TallyPlan(terms, what, calibration, ring_bits)


def ballots_for(plan: TallyPlan, rng: np.random.Generator) -> dict[ClientId, IntVector]:
    """Return a random ballot, in grid steps, for each client; the last client abstains.

    Raises:
        ParameterError: The plan is not one of ballots.
    """
    if not isinstance(plan.contribution, Ballots):
        raise ParameterError("this plan sums something else than ballots")
    losses = rng.random((plan.clients, plan.dimension))
    losses[-1] = np.inf
    shape = plan.contribution.shape
    return {
        client: to_grid(fill_ballot(row, shape, rng.bytes(SEED_BYTES)), plan)
        for client, row in enumerate(losses)
    }


class SummationContract(ABC):
    """Subclass it as `TestSomething` and say how your summation is made.

    All clients here keep to the protocol, some vanish. What becomes of a sum that a client
    spoils is no part of this contract: `urna.tally.check_sum` looks at every opened sum.

    Example:
        >>> from urna.tally import ClearSummation
        >>> class TestClearSummation(SummationContract):
        ...     def make_summation(self, absent=frozenset()):
        ...         return ClearSummation(absent)
    """

    clients = 10
    server = ServerModel.HONEST_BUT_CURIOUS
    """Which server the plans name."""

    @abstractmethod
    def make_summation(self, absent: frozenset[ClientId] = frozenset()) -> Summation:
        """Return a summation in which `absent` drop out before they send their vector."""

    def rng(self) -> np.random.Generator:
        """Return a public generator for the ballots."""
        return np.random.default_rng(20_261_115)

    def plan(
        self, candidates: int, dropout: Part = 0, colluding: Part = 0, share: Fraction = SILENT
    ) -> TallyPlan:
        """Return a plan for this suite's clients and server."""
        return unpriced_plan(
            clients=self.clients,
            candidates=candidates,
            dropout=dropout,
            colluding=colluding,
            server=self.server,
            share=share,
        )

    def tally(
        self,
        contributions: Contributions,
        plan: TallyPlan,
        label: bytes,
        absent: frozenset[ClientId] = frozenset(),
    ) -> Tallied:
        """Add up, and see that nobody is accused: all clients here are honest."""
        summation = self.make_summation(absent)
        tallied = summation.tally(contributions, plan, ScriptedSecrets(label))
        assert dict(tallied.faults) == {}
        return tallied

    @pytest.mark.parametrize("ring_bits", [16, 32, 64])
    def test_the_total_is_the_exact_sum(self, ring_bits: int) -> None:
        plan = unpriced_plan(
            clients=self.clients, candidates=37, ring_bits=ring_bits, server=self.server
        )
        ballots = ballots_for(plan, self.rng())
        tallied = self.tally(ballots, plan, b"exact")
        assert tallied.total.tolist() == _sum(ballots, tallied.accepted)
        assert tallied.accepted == frozenset(range(self.clients))
        assert dict(tallied.lost) == {}

    def test_the_largest_sum_a_ring_may_hold_does_not_wrap(self) -> None:
        scale = (1 << 15) // self.clients - 1
        plan = unpriced_plan(
            clients=self.clients,
            candidates=3,
            votes=1,
            scale=scale,
            ring_bits=16,
            server=self.server,
        )
        unanimous = to_grid(np.array([0, 1, 0]), plan)
        ballots = dict.fromkeys(range(self.clients), unanimous)
        tallied = self.tally(ballots, plan, b"full")
        assert tallied.total.tolist() == [0, self.clients * scale, 0]

    def test_signed_vectors_are_summed_like_any_other(self) -> None:
        plan = unpriced_plan(
            clients=self.clients,
            candidates=5,
            contribution=BoundedVector(5, norm_squared=500),
            server=self.server,
        )
        rng = self.rng()
        vectors = {
            client: to_grid(rng.integers(-10, 11, size=5), plan) for client in range(self.clients)
        }
        tallied = self.tally(vectors, plan, b"signed")
        assert tallied.total.tolist() == _sum(vectors, tallied.accepted)

    def test_a_vector_may_be_produced_when_it_is_asked_for(self) -> None:
        plan = self.plan(11)
        ballots = ballots_for(plan, self.rng())
        made: list[ClientId] = []

        def produce(client: ClientId) -> IntVector:
            made.append(client)
            return ballots[client]

        later: Contributions = {
            client: functools.partial(produce, client) if client % 2 else ballot
            for client, ballot in ballots.items()
        }
        tallied = self.tally(later, plan, b"later")
        assert tallied.total.tolist() == _sum(ballots, ballots)
        assert sorted(made) == [client for client in ballots if client % 2], "each once"

    @pytest.mark.parametrize("gone", [frozenset({0}), frozenset({3, 7})], ids=["one", "two"])
    def test_clients_that_drop_out_are_named_and_left_out(self, gone: frozenset[int]) -> None:
        plan = self.plan(11, dropout="1/5")
        ballots = ballots_for(plan, self.rng())
        tallied = self.tally(ballots, plan, b"dropouts", gone)
        there = frozenset(range(self.clients)) - gone
        assert tallied.accepted == there
        assert tallied.lost.keys() == gone
        assert all(tallied.lost.values()), "every loss has a reason"
        assert tallied.total.tolist() == _sum(ballots, there)

    def test_with_too_few_clients_the_round_aborts(self) -> None:
        plan = self.plan(11, dropout="1/5")
        gone = frozenset(range(self.clients - plan.terms.fewest + 1))
        ballots = ballots_for(plan, self.rng())
        with pytest.raises(RoundAborted) as aborted:
            self.tally(ballots, plan, b"abort", gone)
        assert aborted.value.lost.keys() == gone
        assert aborted.value.faults == {}

    @pytest.mark.parametrize("gone", [frozenset(), frozenset({2, 5})], ids=["nobody", "two gone"])
    def test_the_release_claims_no_more_noise_than_the_sum_holds(
        self, gone: frozenset[int]
    ) -> None:
        plan = self.plan(5, dropout="1/5", colluding="1/10")
        ballots = ballots_for(plan, self.rng())
        tallied = self.tally(ballots, plan, b"claims", gone)
        planned, released = plan.release, tallied.release
        assert planned is not None
        assert isinstance(released, SumRelease)
        # Readers know their own noise, so it is in the sum and does not protect from them.
        there = len(tallied.accepted)
        honest = tallied.noise_variance * Fraction(there - plan.terms.readers, there)
        assert planned.variance <= released.variance <= honest
        assert released.sensitivity == planned.sensitivity
        assert released.family == planned.family

    @pytest.mark.statistical
    @pytest.mark.parametrize("gone", [frozenset(), frozenset({4, 9})], ids=["nobody", "two gone"])
    def test_the_noise_in_the_sum_is_the_noise_it_states(self, gone: frozenset[int]) -> None:
        """False-alarm rate: a millionth each for mean and variance.

        The same check must notice when one client of ten has added nothing.
        """
        plan = self.plan(20_000, dropout="1/5", share=Fraction(41, 2))
        ballots = ballots_for(plan, self.rng())
        tallied = self.tally(ballots, plan, b"variance", gone)
        true = np.array(_sum(ballots, tallied.accepted))
        noise = np.asarray(tallied.total - true, dtype=np.float64)
        stated = float(tallied.noise_variance)
        assert abs(noise.mean()) < _FALSE_ALARM_SIGMAS * math.sqrt(stated / plan.dimension)
        assert _plausible(noise, stated)
        one_silent = stated + float(plan.share)
        assert not _plausible(noise, one_silent)

    def test_scripted_secrets_repeat_the_sum(self) -> None:
        plan = self.plan(50, share=Fraction(41, 2))
        ballots = ballots_for(plan, self.rng())

        def total(label: bytes) -> list[int]:
            return list(self.tally(ballots, plan, label).total.tolist())

        assert total(b"one") == total(b"one")
        assert total(b"one") != total(b"another")

    def test_every_round_draws_fresh_noise(self) -> None:
        plan = self.plan(50, share=Fraction(41, 2))
        ballots = ballots_for(plan, self.rng())
        secrets, summation = ScriptedSecrets(b"rounds"), self.make_summation()
        first = summation.tally(ballots, plan, secrets).total
        assert first.tolist() != summation.tally(ballots, plan, secrets).total.tolist()

    def test_contributions_that_do_not_fit_the_plan_are_refused(self) -> None:
        plan = self.plan(5)
        ballots = ballots_for(plan, self.rng())
        short = ballots | {0: np.zeros(4, dtype=np.int64)}
        fewer = {client: ballot for client, ballot in ballots.items() if client}
        for wrong in (short, fewer):
            with pytest.raises(ParameterError):
                self.tally(wrong, plan, b"wrong")

    def test_it_says_in_words_who_saw_what(self) -> None:
        summation = self.make_summation()
        said = summation.describe(self.plan(5).terms)
        assert len(said.split()) > 5
        assert ("in the clear" in said) == (not summation.secure)


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
