"""How a budget is divided between a vote and what follows it, before anybody computes anything.

A dry run decides: clients that are nothing but numbers vote and train under the noise there will
be. They have a few rows of Gaussian clusters, each client its own variant of the same truth, and
train a linear classifier; all of it is public and repeatable.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from urna.data import MIN_SAMPLES
from urna.errors import Inconclusive, ParameterError
from urna.forecast.votes import draw_winners
from urna.privacy import Budget, Unit
from urna.privacy.budget import rounded_up
from urna.space import Axis, Space
from urna.systems.train import Settings
from urna.systems.train.plan import plan_training
from urna.systems.vote import COUNTS, PosteriorDecoder, Reveal, VotePlan, VoteSettings, plan_vote
from urna.systems.vote.plan import EVEN
from urna.tally import Options, Terms

__all__ = [
    "AGREEMENT",
    "RATES",
    "VOTE_SHARE",
    "Division",
    "DryRun",
    "check_likely",
    "divide",
    "likely",
    "said_likely",
    "shards_of",
]

PARTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""Parts of the squared budget that a vote may get."""

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Step sizes that are voted on unless one says otherwise."""

VOTE_SHARE = 0.1
"""Part of a budget, as a share of μ², that a vote on the settings of an average takes."""

AGREEMENT = 0.4
"""Of the ballots: the gap by which good candidates of usual clients lead."""

_DECIDED = 0.8  # how probably a good candidate wins a vote that is worth its budget
_VOTES, _SEEDS, _ROUNDS = 200, 3, 20  # made-up votes for each part; trainings, and their rounds
_CLASSES, _FEATURES, _ROWS, _JUDGED = 6, 16, 24, 400
_STEPS = 4  # of a client in one round
_SPREAD = 1.6  # of rows around their cluster's middle
_MOST = 128  # clients; more behave alike

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Division:
    """How a budget is divided between a vote and a training."""

    part: float
    """Of the square of μ: what the vote gets, or what a winner that comes first costs the rest."""
    vote: Budget
    train: Budget
    tried: tuple[tuple[float, float, float], ...] = ()
    """Parts, how probably a good candidate wins (`likely`), and the accuracy in the dry run."""

    @classmethod
    def of(cls, budget: Budget, part: float, reveal: Reveal = COUNTS) -> "Division":
        """Return a division by a part that is named."""
        if not 0 < part < 1:
            raise ParameterError(f"the vote's share of the budget lies in (0, 1), got {part}")
        return cls(part, *reveal.divide(budget, part))

    def __str__(self) -> str:
        rows = "\n".join(
            f"  {100 * part:4.0f} %   {100 * won:3.0f} %   {100 * reached:5.1f} %"
            + ("   <- chosen" if part == self.part else "")
            for part, won, reached in self.tried
        )
        dry = "dry run on made-up data: part for the vote, a good candidate wins, accuracy"
        return (
            f"of the budget (squares of mu) the vote gets {100 * self.part:.0f} %: epsilon "
            f"{self.vote.epsilon:.3g} for the vote, {self.train.epsilon:.3g} for what follows"
        ) + (f"\n{dry}\n{rows}" if rows else "")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "part": self.part,
            "vote_epsilon": self.vote.epsilon,
            "train_epsilon": self.train.epsilon,
            "tried": [list(row) for row in self.tried],
        }


def divide(
    budget: Budget,
    *,
    clients: int,
    parameters: int,
    rounds: int,
    settings: Settings | None = None,
    candidates: int = len(RATES),
    reveal: Reveal = COUNTS,
    seed: int = 0,
    **options: Unpack[Options],
) -> Division:
    """Divide a budget between a vote and a training, by a dry run that sees no data.

    For each way to divide it: clients of a made-up federation vote under the noise that the
    vote would have, and a model is trained with the winner under noise that is as long beside
    its updates as the real one would be. The way with the best accuracy wins, among those whose
    vote probably decides (`likely`), if there are any.

    Guarantee:
        Both parts fit into one ledger whose cap is the budget, in this order
        (`Reveal.divide`).

    Args:
        budget: What both together may cost.
        clients: How many clients there are.
        parameters: How many numbers the model has.
        rounds: Rounds of the training.
        settings: How the model is trained.
        candidates: How many candidates are voted on.
        reveal: What the vote reveals.
        seed: Public seed of the dry run.
        options: The rest of the terms.
    """
    rates = np.geomspace(0.003, 3.0, candidates)
    space = Space(lr=Axis.log(rates.tolist()))
    dry = DryRun(clients, seed)
    losses = dry.local_losses(rates)
    rng = np.random.default_rng([0x444956, seed])
    tried: list[tuple[float, float, float]] = []
    for part in PARTS:
        voting, training = reveal.divide(budget, part)
        terms = Terms.of(clients, voting, **options)
        vote = plan_vote(terms, space, VoteSettings(reveal=reveal))
        chances = _winners(losses, space, vote, rng)
        planned = plan_training(
            clients, parameters, budget=training, rounds=rounds, settings=settings, **options
        )
        reached = np.array(
            [
                np.mean(
                    [
                        dry.accuracy(float(rate), planned.noise_to_signal, _ROUNDS, turn)
                        for turn in range(_SEEDS)
                    ]
                )
                if chance > 0.01
                else 0.0
                for rate, chance in zip(rates, chances, strict=True)
            ]
        )
        tried.append((part, likely(vote), float(chances @ reached)))
    decided = [row for row in tried if row[1] >= _DECIDED] or tried
    part = max(decided, key=lambda row: row[2])[0]
    return replace(Division.of(budget, part, reveal), tried=tuple(tried))


def likely(vote: VotePlan) -> float:
    """Return how probably a good candidate wins that leads by `AGREEMENT` of the ballots.

    The one figure for it: of plans, of the dry run and of `urna init`.
    """
    return vote.success_probability(vote.gap_of(AGREEMENT))


def said_likely(vote: VotePlan) -> str:
    """Return that figure in words, as a sentence without its end."""
    least = "" if vote.reveal.winner else "at least "  # of counts it is a lower bound
    return (
        f"a good candidate that leads by {100 * AGREEMENT:.0f} % of the ballots wins with {least}"
        f"{100 * likely(vote):.0f} %"
    )


def shards_of(clients: int, records: float) -> int:
    """Return into how many shards few clients divide their records, of which each has as many."""
    return max(2, int(min(math.ceil(100 / clients), records // MIN_SAMPLES)))


def check_likely(vote: VotePlan, records: float = math.inf) -> None:
    """Refuse a vote that will probably be inconclusive, before anything is spent.

    Args:
        vote: The vote.
        records: How many each client has at least.

    Raises:
        Inconclusive: A good candidate wins (`likely`) less often than not.
    """
    if likely(vote) >= EVEN:
        return
    said = []
    if not vote.reveal.winner:
        with suppress(ParameterError):  # no number is enough: the rest may be
            said.append(f"{vote.clients_for(AGREEMENT, EVEN)} clients would do")
    with suppress(ParameterError):
        epsilon = vote.epsilon_for(vote.gap_of(AGREEMENT), EVEN)
        said.append(f"epsilon {rounded_up(epsilon)} would")
    if vote.terms.adjacency.unit is Unit.CLIENT:
        shards = shards_of(vote.terms.clients, records)
        said.append(f"single records may be protected instead (--unit record --shards {shards})")
    elif not vote.reveal.winner:
        shards = vote.shards_for(AGREEMENT, EVEN)
        said.append(f"more shards would, if each keeps enough records (--shards {shards})")
    said.append("or one model needs no vote (`urna average --unit record`)")
    raise Inconclusive(
        f"this vote will probably be inconclusive: {said_likely(vote)}. "
        f"{'; '.join(said).capitalize()}. Nothing was spent; to run it all the same, say --force "
        "(force = true under [vote])"
    )


def _winners(losses: Reals, space: Space, vote: VotePlan, rng: np.random.Generator) -> Reals:
    """Return how often each candidate wins a vote among such clients, as it would be held."""
    winners = list(draw_winners(losses, space, vote, PosteriorDecoder(), rng, _VOTES))
    return np.bincount(winners, minlength=len(space)) / _VOTES


@dataclass(slots=True)
class DryRun:
    """One made-up federation.

    Args:
        clients: How many clients there are.
        seed: Public seed.
    """

    clients: int
    seed: int = 0
    _rows: Reals = field(init=False, repr=False)
    _targets: Reals = field(init=False, repr=False)
    _test: Reals = field(init=False, repr=False)
    _answers: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([0x445259, self.seed])
        middles = rng.normal(size=(_CLASSES, _FEATURES))
        clients = min(self.clients, _MOST)
        labels = rng.integers(_CLASSES, size=(clients, _ROWS))
        moved = middles + 0.3 * rng.normal(size=(clients, _CLASSES, _FEATURES))
        rows = np.take_along_axis(moved, labels[:, :, None], axis=1)
        self._rows = rows + _SPREAD * rng.normal(size=rows.shape)
        self._targets = np.eye(_CLASSES)[labels]
        self._answers = rng.integers(_CLASSES, size=_JUDGED)
        self._test = middles[self._answers] + _SPREAD * rng.normal(size=(_JUDGED, _FEATURES))

    def local_losses(self, rates: Reals) -> Reals:
        """Return every client's loss on half of its rows after training on the other half.

        Shape (clients, rates).
        """
        half = _ROWS // 2
        found = []
        for rate in rates.tolist():
            weights = self._trained(
                np.zeros((_FEATURES, _CLASSES)), rate, 5 * _STEPS, slice(0, half)
            )
            rows, targets = self._rows[:, half:], self._targets[:, half:]
            chances = _softmax(rows @ weights)
            found.append(-np.log((chances * targets).sum(axis=2) + 1e-9).mean(axis=1))
        return np.stack(found, axis=1)

    def accuracy(self, rate: float, noise_to_signal: float, rounds: int, seed: int) -> float:
        """Return the share of right answers after federated training under noise.

        Args:
            rate: The clients' step size.
            noise_to_signal: Length of all noise over the longest way, as a plan says it.
            rounds: Rounds of training.
            seed: Public seed of the noise.
        """
        rng = np.random.default_rng([0x4E4F49, self.seed, seed])
        weights, velocity = np.zeros((_FEATURES, _CLASSES)), 0.0
        clip = 0.5
        deviation = clip * noise_to_signal * np.sqrt(rounds / weights.size)
        total = np.zeros_like(weights)
        for number in range(rounds):
            moved = self._trained(weights, rate, _STEPS, slice(None)) - weights
            norms = np.linalg.norm(moved, axis=(1, 2), keepdims=True)
            mean = (moved * np.minimum(1.0, clip / np.maximum(norms, 1e-12))).mean(axis=0)
            velocity = 0.9 * velocity + mean + deviation * rng.normal(size=weights.shape)
            weights = weights + 0.5 * velocity
            total += weights * (number >= rounds * 2 // 3)
        return float((np.argmax(self._test @ total, axis=1) == self._answers).mean())

    def _trained(self, weights: Reals, rate: float, steps: int, some: slice) -> Reals:
        rows, targets = self._rows[:, some], self._targets[:, some]
        each = np.broadcast_to(weights, (len(rows), *weights.shape[-2:])).copy()
        for _ in range(steps):
            slope = np.swapaxes(rows, 1, 2) @ (_softmax(rows @ each) - targets)
            each -= rate * slope / rows.shape[1]
        return each


def _softmax(logits: Reals) -> Reals:
    shifted = np.exp(np.clip(logits - logits.max(axis=-1, keepdims=True), -50, 0))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
