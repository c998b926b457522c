"""Answer, before any budget is spent, what a vote can find."""

import logging
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Budget, NonPrivateRelease, Release, SelectionRelease, gaussian_std
from urna.privacy.budget import rounded_up
from urna.privacy.calibration import LARGEST_EPSILON
from urna.protocols.secagg import ServerModel
from urna.space import Space
from urna.systems.vote.ballot import LEVELS, Ballot, BallotKind, Ballots, LevelShape, fill_ballot
from urna.systems.vote.settings import COUNTS, Reveal, VoteSettings, choose_ballot, choose_levels
from urna.systems.vote.windows import windows_of
from urna.tally import Options, SelectionPlan, TallyPlan, Terms, plan_tally, public_order, to_grid

_log = logging.getLogger(__name__)

_MOST_CLIENTS = 10_000_000
_FAINTEST, _STEP = 1e-4, 1.01  # epsilons that are tried
EVEN = 0.5
"""A vote in which the unanimous choice of all wins less often than this is hopeless."""
_TRUST = 2.0  # exponent of what is expected of an axis: more than once was better


@dataclass(frozen=True, slots=True)
class VotePlan:
    """What a vote will reveal, its ballots, its noise, and the guarantees that follow from them.

    Utility is stated for the most noise that can be there. Gaps and leads are in votes: where
    only the winner is revealed, in levels.

    Raises:
        ParameterError: The mechanism does not reveal this, or not under these terms.
    """

    mechanism: TallyPlan | SelectionPlan
    """The noisy sum of which counts are read, or the noisy selection of the winner."""
    shape: Ballot
    reveal: Reveal = COUNTS

    def __post_init__(self) -> None:
        if isinstance(self.mechanism, SelectionPlan) is not self.reveal.winner:
            raise ParameterError("counts are read from a sum, and a winner alone is selected")
        if self.reveal.verified and self.terms.server is ServerModel.DISHONEST:
            raise ParameterError(
                "verified ballots are not summed under masks, so nothing is planned against a "
                "dishonest server: leave `server` (--server) out"
            )

    @property
    def tally(self) -> TallyPlan:
        """The noisy sum; a ParameterError where only the winner is revealed."""
        if not isinstance(self.mechanism, TallyPlan):
            raise ParameterError("this vote reveals its winner alone: there is no noisy sum")
        return self.mechanism

    @property
    def selection(self) -> SelectionPlan:
        """The noisy selection; a ParameterError where counts are revealed."""
        if not isinstance(self.mechanism, SelectionPlan):
            raise ParameterError("this vote reveals counts: no winner is selected")
        return self.mechanism

    @property
    def event(self) -> Release:
        """What the vote is in a ledger."""
        return self.mechanism.release or NonPrivateRelease("no noise")

    @property
    def terms(self) -> Terms:
        """Who takes part, what it may cost, and what may go wrong."""
        return self.mechanism.terms

    @property
    def candidates(self) -> int:
        """How many candidates there are."""
        return self.shape.candidates

    @property
    def vote(self) -> float:
        """Grid steps per vote in the noisy sum."""
        return self.shape.vote * self.tally.scale

    @property
    def fewest_ballots(self) -> int:
        """Ballots that are sure to be counted."""
        return self.terms.fewest * self.terms.shards

    @property
    def noise_std(self) -> float:
        """Standard deviation, in votes, that the fewest honest survivors leave."""
        if self.reveal.winner:
            return self.selection.release.noise_std
        return self.tally.noise_std / self.shape.vote

    @property
    def most_noise_std(self) -> float:
        """Largest standard deviation of the noise, in votes."""
        return self.noise_std if self.reveal.winner else self.tally.most_noise_std / self.shape.vote

    def fill(self, losses: object, key: bytes) -> IntVector:
        """Return a ballot from losses, an empty one if they allow for none; the key breaks ties.

        What a client's data caused is nobody else's business: it is logged, and not raised.
        """
        try:
            ballot = fill_ballot(np.asarray(losses, dtype=np.float64), self.shape, key)
            self.shape.check(ballot)
        except Exception as error:
            _log.warning("a ballot stays empty: none was filled (%s)", type(error).__name__)
            return np.zeros(self.candidates, dtype=np.int64)
        return ballot

    def contribution(self, ballot: IntVector) -> IntVector:
        """Return what a client puts in: its ballots, checked and in grid steps."""
        if self.reveal.winner:
            Ballots(self.shape, self.terms.shards).check(ballot)
            return np.asarray(ballot, dtype=np.int64)
        return to_grid(ballot, self.tally)

    @property
    def largest_gap(self) -> float:
        """The lead, in votes, of a candidate that every ballot left puts first, and no other."""
        return self.fewest_ballots * self.shape.most / self.shape.vote

    def gap_of(self, agreement: float) -> float:
        """Return the gap, in votes, that a fraction of the fewest ballots makes up."""
        gap = agreement * self.fewest_ballots
        return math.floor(gap * self.shape.most) if self.reveal.winner else gap

    @property
    def best_case(self) -> float:
        """How probably that candidate has the most noisy votes: no vote can do better.

        E_z Φ(gap/σ + z)^(m − 1) over a standard normal z, for noise of deviation σ on counts; for
        a winner alone the chance of one that leads by as much, and wins ties.
        """
        if self.reveal.winner:
            return leading_chance(int(self.largest_gap) + 1, self.selection.release)
        z = np.linspace(-8.0, 8.0, 321)
        density = np.exp(-(z**2) / 2)
        ahead = (self.candidates - 1) * log_ndtr(self.largest_gap / self.most_noise_std + z)
        return float(density @ np.exp(ahead) / density.sum())

    def check_hopeful(self, *, rehearsed: bool = False) -> None:
        """Refuse a vote that could not name even the unanimous choice of all.

        Where its decoder heeds a rehearsal, that decides what counts cannot: no noise is too much.
        """
        if self.candidates < 2:
            raise ParameterError("there is one candidate only: nothing is left to vote on")
        if rehearsed or self.best_case >= EVEN:
            return
        raise ParameterError(
            f"this vote cannot succeed: {self.fewest_ballots} ballots that all agree make a lead "
            f"of {self.largest_gap:.1f} votes, the noise is ± {self.most_noise_std:.1f}, and even "
            f"then their choice wins with probability {self.best_case:.2f} only. {self._remedy()} "
            "To hold it all the same, say so (`force=True`, --force)."
        )

    def _remedy(self) -> str:
        """Say what would make the unanimous choice win."""

        def enough(vote: VotePlan) -> bool:
            return vote.best_case >= EVEN

        said = []
        with suppress(ParameterError):  # no number is enough: the rest may be
            said.append(f"{self._least_clients(enough)} clients would do")
        with suppress(ParameterError):
            said.append(f"epsilon {rounded_up(self._least_epsilon(enough))} would")
        if self.terms.shards == 1 and not self.reveal.winner:
            said.append(
                "or, where clients may be seen and only their records may not, shards that vote "
                "(--unit record --shards B)"
            )
        text = "; ".join(said) or "ask more clients, or raise epsilon"
        return text[:1].upper() + text[1:] + "."

    def success_probability(self, gap: float, bad: int | None = None) -> float:
        """Return a lower bound on the probability that a good candidate wins.

        With `gap` votes between the worst good candidate and the best bad one before noise,
        P[good wins] ≥ 1 − |bad|·P[D ≥ gap], where D is the difference of two entries' noise
        (DP-Hype, Theorem V.1, with the exact distribution of the integer noise for Φ). Of a
        winner alone it is the chance where all bad candidates are equal. All but one are bad by
        default.
        """
        if not math.isfinite(gap):
            raise ParameterError(f"the gap must be a finite number of votes, got {gap}")
        if self.reveal.winner:
            release = replace(self.selection.release, candidates=self._bad(bad) + 1)
            return leading_chance(math.floor(gap), release)
        tail = self._difference_tail()
        steps = math.ceil(gap * self.vote)
        # D is symmetric: P[D ≥ −s] = 1 − P[D ≥ s + 1].
        place = min(steps if steps >= 0 else 1 - steps, len(tail) - 1)
        miss = float(tail[place]) if steps >= 0 else 1.0 - float(tail[place])
        return min(1.0, max(0.0, 1.0 - self._bad(bad) * miss))

    def gap_for(self, probability: float, bad: int | None = None) -> float:
        """Return the least gap in votes at which a good candidate wins this probably."""
        if not 0 < probability < 1:
            raise ParameterError(f"a probability lies strictly between 0 and 1, got {probability}")
        if self.reveal.winner:
            release = replace(self.selection.release, candidates=self._bad(bad) + 1)
            return _least_whole(lambda lead: leading_chance(lead, release) >= probability, high=1)
        enough = self._bad(bad) * self._difference_tail() <= 1 - probability
        return int(np.argmax(enough)) / self.vote

    def clients_for(
        self, agreement: float, probability: float = 0.95, bad: int | None = None
    ) -> int:
        """Return how many clients to invite when a fraction of those left makes up the gap.

        The agreement is the gap as a fraction of the fewest ballots that may be left: 0.3 if good
        candidates are named on 30 percentage points more of them than bad ones.
        """
        _check_agreement(agreement)
        return self._least_clients(
            lambda vote: vote.gap_for(probability, bad) <= vote.gap_of(agreement)
        )

    def shards_for(
        self, agreement: float, probability: float = 0.95, bad: int | None = None
    ) -> int:
        """Return into how many shards each client must split its records.

        The noise does not grow with the number of shards, so the answer is the gap over the
        fewest clients' share of it. It protects records, not clients, and more shards are
        smaller ones, which agree less: ask again with the agreement to be expected of them.
        The arguments are those of `clients_for`.
        """
        _check_agreement(agreement)
        gap = Fraction(self.gap_for(probability, bad))
        each = Fraction(agreement) * (self.shape.most if self.reveal.winner else 1)
        return max(1, math.ceil(gap / (each * self.terms.fewest)))

    def epsilon_for(self, gap: float, probability: float = 0.95, bad: int | None = None) -> float:
        """Return the least epsilon, to 1 %, at which this gap suffices."""
        if not (math.isfinite(gap) and gap > 0):
            raise ParameterError(f"the gap must be finite and positive, got {gap}")
        return self._least_epsilon(lambda vote: vote.gap_for(probability, bad) <= gap)

    def under(self, terms: Terms) -> "VotePlan":
        """Return the plan of a vote that reveals the same of the same ballots under other terms."""
        if not self.reveal.winner:
            return replace(self, mechanism=self.tally.under(terms))
        release = replace(self.selection.release, epsilon=float(terms.budget.epsilon))
        return replace(self, mechanism=replace(self.selection, terms=terms, release=release))

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        both = {
            **self.mechanism.as_mapping(),
            "candidates": self.candidates,
            "ballot": str(self.shape),
            "best_case": self.best_case,
        }
        if self.reveal.winner:
            return both
        return {
            **both,
            "bytes_per_client": self.tally.bytes_per_client,
            "noise_std": self.noise_std,
            "most_noise_std": self.most_noise_std,
            "noise_std_per_client": math.sqrt(self.tally.share) / self.vote,
            "gap_for_95_percent": self.gap_for(0.95),
            "largest_gap": self.largest_gap,
        }

    def _bad(self, bad: int | None) -> int:
        number = self.candidates - 1 if bad is None else bad
        if not 0 <= number < self.candidates:
            raise ParameterError(
                f"of {self.candidates} candidates 0 to {self.candidates - 1} can be bad, "
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

    def _least_clients(self, enough: Callable[["VotePlan"], bool]) -> int:
        """Return the least number of clients that is enough."""
        return _least_whole(
            lambda clients: enough(self.under(self.terms.among(clients))),
            high=self.terms.clients,
            most=_MOST_CLIENTS,
            beyond=f"more than {_MOST_CLIENTS:,} clients would be needed",
        )

    def _least_epsilon(self, enough: Callable[["VotePlan"], bool]) -> float:
        """Return an epsilon that is enough, at most 1 % above the least."""

        def epsilon_at(step: int) -> float:
            return LARGEST_EPSILON * _STEP ** (step - steps)

        def does(step: int) -> bool:
            budget = Budget(epsilon_at(step), self.terms.budget.delta)
            with suppress(ParameterError):  # there is no such noise
                return enough(self.under(self.terms.costing(budget)))
            return False

        steps = math.ceil(math.log(LARGEST_EPSILON / _FAINTEST, _STEP))
        beyond = (
            f"even epsilon {LARGEST_EPSILON:g} is not enough for this gap. Ask for more "
            "clients, a larger gap or a lower probability."
        )
        return epsilon_at(_least_whole(does, high=steps, most=steps, beyond=beyond))


def plan(
    *,
    clients: int,
    candidates: Space | int,
    budget: Budget,
    reveal: Reveal = COUNTS,
    ballot: Ballot | BallotKind | str | None = None,
    votes: int | None = None,
    removes_excess: bool = True,
    **options: Unpack[Options],
) -> VotePlan:
    """Plan a vote; nothing is spent.

    Args:
        clients: How many clients are invited.
        candidates: What they vote on, or how many candidates there are.
        budget: What the vote may cost.
        reveal: What the vote reveals.
        ballot: How a client spreads its vote; by scores unless `votes` are given.
        votes: How many candidates each client names in a top-k ballot.
        removes_excess: Whether the summation removes noise that turns out not to be needed.
        options: The rest of the terms: `dropout`, `colluding`, `adjacency`, `shards`, `family`,
            `server`; see `urna.tally.Terms`.

    Example:
        >>> vote = plan(clients=100, candidates=100, budget=Budget(1.0, 1e-5))
        >>> f"noise {vote.noise_std:.1f} votes, gap {vote.gap_for(0.95):.0f} votes"
        'noise 11.8 votes, gap 55 votes'
    """
    how = VoteSettings(reveal=reveal, ballot=ballot, votes=votes)
    terms = Terms.of(clients, budget, **options)
    return plan_vote(terms, candidates, how, removes_excess=removes_excess)


def plan_vote(
    terms: Terms,
    candidates: Space | int,
    how: VoteSettings | None = None,
    *,
    removes_excess: bool = True,
) -> VotePlan:
    """Plan a vote under terms that are there already; nothing is spent.

    A winner alone takes all of epsilon, and no delta, and needs to know the space. `removes_excess`
    says whether the summation removes noise that turns out not to be needed.

    Raises:
        ParameterError: The parts do not go with each other, or no such noise can be drawn.
    """
    how = how or VoteSettings()
    count = len(candidates) if isinstance(candidates, Space) else candidates
    if type(count) is not int or count < 1:
        raise ParameterError(f"a vote needs at least one candidate, got {candidates}")
    ballots = terms.clients * terms.shards
    if not how.reveal.winner:
        noise = relative_noise(terms.budget, ballots)
        shape = choose_ballot(how.ballot, candidates=count, noise=noise, votes=how.votes)
        tally = plan_tally(terms, Ballots(shape, terms.shards), removes_excess=removes_excess)
        return VotePlan(tally, shape, how.reveal)
    if not isinstance(candidates, Space):
        raise ParameterError("a winner alone is selected from a space: name the candidates")
    if count < 2:
        raise ParameterError("there is one candidate only: nothing is left to vote on")
    release = SelectionRelease(float(terms.budget.epsilon), LevelShape(count).reach, count)
    levels = choose_levels(count, noise_std=release.noise_std, ballots=ballots)
    Ballots(levels, terms.shards).sensitivity(terms.adjacency)  # refuses unknown relations
    order = public_order(candidates.fingerprint.encode(), count)
    start = head_start(candidates, release)
    return VotePlan(SelectionPlan(terms, release, LEVELS, start, order), levels, how.reveal)


def head_start(space: Space, release: SelectionRelease) -> tuple[int, ...]:
    """Return what each candidate is given in advance, in steps of the noise's grid.

    Where an axis works may be said or, by its name, expected (`urna.systems.vote.windows`); nobody
    knows it. What is expected of a candidate is averaged over those windows, and one of prior
    weight b starts 2·ln b behind, in units in which the noise falls by a factor e: noise then
    makes it win b² times as often as others, since what fails once here mostly fails for all
    clients. It depends on the public space and noise alone.
    """
    weight = np.ones(len(space))
    for name, axis in space.axes.items():
        windows = windows_of(name, axis, [candidate[name] for candidate in space])
        weight *= sum(window.weight * window.expected for window in windows)
    behind = _TRUST * np.log(weight) / release.rate
    return tuple(int(steps) for steps in np.rint(behind - behind.min()))


def leading_chance(lead: int, release: SelectionRelease) -> float:
    """Return how probably a candidate wins that leads all others, which are equal, by so much.

    Σ_t P(N = t)·P(N < t + lead)^(m − 1), for noise on whole votes and ties that are lost.
    """
    rate = release.rate * (1 << release.fineness)
    steps = np.arange(math.ceil(40 / rate))
    chance = np.diff((-np.expm1(-rate * (steps + 1))) ** release.largest_of, prepend=0.0)
    behind = np.maximum(-np.expm1(-rate * (steps + lead)), 0.0) ** release.largest_of
    return float(chance @ behind ** (release.candidates - 1))


def relative_noise(budget: Budget, ballots: int) -> float:
    """Return the noise of a tally over what so many ballots can weigh together, in L2.

    Public before anybody votes; the width of ballots follows it.
    """
    capped = Budget(min(budget.epsilon, LARGEST_EPSILON), budget.delta)
    return gaussian_std(capped, sensitivity=math.sqrt(2)) / max(ballots, 1)


def _check_agreement(agreement: float) -> None:
    if not 0 < agreement <= 1:
        raise ParameterError(f"agreement must lie in (0, 1], got {agreement}")


def _least_whole(
    enough: Callable[[int], bool], *, high: int, most: int = sys.maxsize, beyond: str = ""
) -> int:
    """Return the least number above 1 that is enough, or `high`, which is tried first.

    Raises:
        ParameterError: `most` is not enough; it says `beyond`.
    """
    low = 1
    while not enough(high):
        if high >= most:
            raise ParameterError(beyond)
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
