"""Answer, before any budget is spent, what a vote can find."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.privacy import Adjacency, Ballot, Budget, Unit, check_shards, gaussian_std
from urna.privacy.calibration import LARGEST_EPSILON
from urna.privacy.distributions import SKELLAM
from urna.tally import TallyPlan, plan_tally
from urna.vote.ballot import BallotKind, choose_ballot, describe_ballot

__all__ = ["VotePlan", "plan", "relative_noise"]

_MOST_CLIENTS = 10_000_000


@dataclass(frozen=True, slots=True)
class VotePlan:
    """The noise of a vote, and the guarantees that follow from it.

    Utility is stated for the most noise the opened sum can hold.
    """

    tally: TallyPlan

    @property
    def noise_std(self) -> float:
        """Standard deviation, in votes, that the fewest honest survivors leave."""
        return self.tally.noise_std

    @property
    def ballot_norm(self) -> float:
        """L2 norm of one ballot, in votes."""
        return self.tally.shape.norm / self.tally.shape.vote

    def success_probability(self, gap: float, bad: int | None = None) -> float:
        """Return a lower bound on the probability that a good candidate wins.

        With `gap` votes between the worst good candidate and the best bad one before noise,
        P[good wins] ≥ 1 − |bad|·P[D ≥ gap], where D is the difference of two entries' noise
        (DP-Hype, Theorem V.1, with the exact distribution of the integer noise for Φ).

        Args:
            gap: Votes between the fewest of a good and the most of a bad candidate.
            bad: Number of bad candidates; all but one by default.
        """
        if not math.isfinite(gap):
            raise ParameterError(f"the gap must be a finite number of votes, got {gap}")
        tail = self._difference_tail()
        steps = math.ceil(gap * self.tally.vote)
        # D is symmetric: P[D ≥ −s] = 1 − P[D ≥ s + 1].
        place = min(steps if steps >= 0 else 1 - steps, len(tail) - 1)
        miss = float(tail[place]) if steps >= 0 else 1.0 - float(tail[place])
        return min(1.0, max(0.0, 1.0 - self._bad(bad) * miss))

    def gap_for(self, probability: float, bad: int | None = None) -> float:
        """Return the least gap in votes at which a good candidate wins this probably."""
        _check_probability(probability)
        enough = self._bad(bad) * self._difference_tail() <= 1 - probability
        return int(np.argmax(enough)) / self.tally.vote

    def clients_for(
        self, agreement: float, probability: float = 0.95, bad: int | None = None
    ) -> int:
        """Return how many clients to invite when a fraction of those left makes up the gap.

        Args:
            agreement: The gap as a fraction of the fewest ballots that may be left: 0.3 if
                good candidates are named on 30 percentage points more of them than bad ones.
            probability: How probably a good candidate should win.
            bad: Number of bad candidates; all but one by default.

        Returns:
            A number that is enough, at most 0.5 % above the least.
        """
        if not 0 < agreement <= 1:
            raise ParameterError(f"agreement must lie in (0, 1], got {agreement}")

        def enough(clients: int) -> bool:
            vote = self._with(clients=clients)
            return vote.gap_for(probability, bad) <= agreement * vote.tally.fewest_ballots

        low, high = 1, max(2, self.tally.clients)
        while not enough(high):
            low, high = high, 2 * high
            if high > _MOST_CLIENTS:
                raise ParameterError("more than ten million clients would be needed")
        while high - low > max(1, low // 200):
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def shards_for(
        self, agreement: float, probability: float = 0.95, bad: int | None = None
    ) -> int:
        """Return into how many shards each client must split its records.

        The noise does not grow with the number of shards, so the answer is the gap over the
        fewest clients' share of it. It protects records, not clients, and more shards are
        smaller ones, which agree less: ask again with the agreement to be expected of them.

        Args:
            agreement: The gap as a fraction of the fewest ballots that may be left.
            probability: How probably a good candidate should win.
            bad: Number of bad candidates; all but one by default.
        """
        if not 0 < agreement <= 1:
            raise ParameterError(f"agreement must lie in (0, 1], got {agreement}")
        gap = Fraction(self.gap_for(probability, bad))
        return max(1, math.ceil(gap / (Fraction(agreement) * self.tally.fewest)))

    def epsilon_for(self, gap: float, probability: float = 0.95, bad: int | None = None) -> float:
        """Return the least epsilon, to 1 %, at which this gap suffices."""
        if not (math.isfinite(gap) and gap > 0):
            raise ParameterError(f"the gap must be finite and positive, got {gap}")

        def enough(epsilon: float) -> bool:
            budget = Budget(epsilon, self.tally.budget.delta)
            return self._with(budget=budget).gap_for(probability, bad) <= gap

        return _least(enough, start=self.tally.budget.epsilon)

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        tally, record = self.tally, {}
        if tally.adjacency.unit is Unit.RECORD:
            whole = tally.whole_client_epsilon
            record = {"whole_client_epsilon": whole if math.isfinite(whole) else None}
        return record | {
            "clients": tally.clients,
            "candidates": tally.dimension,
            "ballot": describe_ballot(tally.shape),
            "epsilon": tally.calibration.epsilon,
            "delta": tally.budget.delta,
            "adjacency": str(tally.adjacency),
            "unit": str(tally.adjacency.unit),
            "shards": tally.shards,
            "accountant": tally.calibration.accountant,
            "dropout": float(tally.dropout),
            "colluding": float(tally.colluding),
            "honest_survivors": tally.calibration.release.shares,
            "noise_family": tally.noise.name,
            "noise_std": self.noise_std,
            "most_noise_std": tally.most_noise_std,
            "noise_std_per_client": math.sqrt(tally.share) / tally.vote,
            "scale": tally.scale,
            "ring_bits": tally.ring_bits,
            "gap_for_95_percent": self.gap_for(0.95),
        }

    def _with(self, *, clients: int | None = None, budget: Budget | None = None) -> "VotePlan":
        tally = self.tally
        return replace(
            self,
            tally=plan_tally(
                clients=clients or tally.clients,
                shape=tally.shape,
                budget=budget or tally.budget,
                dropout=tally.dropout,
                colluding=tally.colluding,
                adjacency=tally.adjacency,
                family=tally.noise.name,
                removes_excess=tally.removes_excess,
                shards=tally.shards,
            ),
        )

    def _bad(self, bad: int | None) -> int:
        number = self.tally.dimension - 1 if bad is None else bad
        if not 0 <= number < self.tally.dimension:
            raise ParameterError(
                f"of {self.tally.dimension} candidates 0 to {self.tally.dimension - 1} can be bad, "
                f"got {number}"
            )
        return number

    def _difference_tail(self) -> npt.NDArray[np.float64]:
        """Return P[D ≥ s] for s = 0, 1, … grid steps, D the difference of two noises."""
        variance = 2 * self.tally.most_noise
        half, _ = self.tally.noise.distribution.half_weights(variance)
        total = 2 * sum(half) - half[0]
        tails, tail = [], 0
        for weight in reversed(half):
            tail += weight
            tails.append(tail / total)
        return np.array([*reversed(tails), 0.0])


def plan(
    *,
    clients: int,
    candidates: int,
    budget: Budget,
    ballot: Ballot | BallotKind | str | None = None,
    votes: int | None = None,
    dropout: float = 0.0,
    colluding: float = 0.0,
    adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
    family: str = SKELLAM.name,
    ring_bits: int | None = None,
    removes_excess: bool = True,
    shards: int = 1,
) -> VotePlan:
    """Plan a vote; nothing is spent.

    Args:
        clients: How many clients are invited.
        candidates: How many candidates they vote on.
        budget: What the vote may cost.
        ballot: How a client spreads its vote; by scores unless `votes` are given.
        votes: How many candidates each client names in a top-k ballot.
        dropout: Largest fraction of clients that may drop out.
        colluding: Largest fraction of clients that may tell the server their noise.
        adjacency: Between which electorates the guarantee holds.
        family: Name of the noise's family.
        ring_bits: 16, 32 or 64; by default the narrowest that cannot wrap.
        removes_excess: Whether the summation removes noise that turns out not to be needed.
        shards: Ballots that each client adds up, one for each shard of its records; more than
            one needs `Adjacency.REPLACE_ONE_RECORD`.

    Example:
        >>> vote = plan(clients=100, candidates=100, budget=Budget(1.0, 1e-5))
        >>> f"noise {vote.noise_std:.1f} votes, gap {vote.gap_for(0.95):.0f} votes"
        'noise 11.8 votes, gap 55 votes'
    """
    check_shards(adjacency, shards)
    noise = relative_noise(budget, clients * shards)
    return VotePlan(
        plan_tally(
            clients=clients,
            shape=choose_ballot(ballot, candidates=candidates, noise=noise, votes=votes),
            budget=budget,
            dropout=_fraction("dropout", dropout),
            colluding=_fraction("colluding", colluding),
            adjacency=adjacency,
            family=family,
            ring_bits=ring_bits,
            removes_excess=removes_excess,
            shards=shards,
        )
    )


def relative_noise(budget: Budget, ballots: int) -> float:
    """Return the noise of a tally over what so many ballots can weigh together, in L2.

    Public before anybody votes; the width of ballots follows it.
    """
    capped = Budget(min(budget.epsilon, LARGEST_EPSILON), budget.delta)
    return gaussian_std(capped, sensitivity=math.sqrt(2)) / max(ballots, 1)


def _fraction(name: str, value: float) -> Fraction:
    """Return the decimal number a user typed, exactly: 0.29 of 100 clients are 29."""
    if not 0 <= value < 1:
        raise ParameterError(f"{name} must be at least 0 and below 1, got {value}")
    return Fraction(repr(float(value)))


def _check_probability(probability: float) -> None:
    if not 0 < probability < 1:
        raise ParameterError(f"a probability lies strictly between 0 and 1, got {probability}")


def _least(enough: Callable[[float], bool], *, start: float) -> float:
    """Return the least value that is enough, to 1 %, rounded up."""
    low = high = min(start, LARGEST_EPSILON)
    while not enough(high):
        if high >= LARGEST_EPSILON:
            raise ParameterError(
                f"even epsilon {LARGEST_EPSILON:g} is not enough for this gap. Ask for more "
                "clients, a larger gap or a lower probability."
            )
        low, high = high, min(2 * high, LARGEST_EPSILON)
    while enough(low):
        low, high = low / 2, low
        if low < 1e-4:
            return high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
