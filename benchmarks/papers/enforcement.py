"""What becomes of epsilon and accuracy when clients vanish: Hyades' schemes side by side.

For studies: a whole training under one scheme and one rate of dropouts, with the noise that the
scheme would leave in every round drawn at once, by public generators. Encoding, clipping and the
integer noise are the real ones; nothing here is private.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from benchmarks.papers.rdp import THEOREM_ORDERS, epsilon_from_rdp, gaussian_rdp, sampled_rdp

from urna.errors import ParameterError
from urna.noise import SKELLAM
from urna.privacy import gaussian_epsilon
from urna.protocols.secagg import NoisePlan, Removal
from urna.randomness import ScriptedSecrets, derive_seed
from urna.systems.train import FedAvgM, Layout, Learner, ServerOptimiser

__all__ = [
    "Account",
    "EveryRound",
    "PoissonRounds",
    "Scheme",
    "Study",
    "noise_left",
    "train_under",
]

Vector = npt.NDArray[np.float32]


class Scheme(StrEnum):
    """How much noise is in a sum when clients vanish."""

    NONE = "non-private"
    """No noise at all, and nobody is clipped for it."""
    CENTRAL = "central"
    """A trusted server adds the target to whatever sum it has."""
    ORIG = "orig"
    """Every client adds an equal part of the target; what the lost ones would add is missing."""
    EARLY = "early"
    """The same, and training stops before the budget is exceeded."""
    CONSTANT = "constant"
    """Every client adds as if a fixed part were always lost; nothing is removed."""
    PRECISE = "precise"
    """XNoise, one component per tolerated dropout."""
    APPROXIMATE = "approximate"
    """XNoise, about log₂ of that many."""


def noise_left(
    scheme: Scheme, target: Fraction, *, clients: int, tolerated: int, lost: int
) -> Fraction:
    """Return the variance that a scheme leaves in a sum.

    Args:
        scheme: The scheme.
        target: The variance that the accounting asks for.
        clients: How many were asked.
        tolerated: How many losses the scheme was planned for.
        lost: How many were lost.

    Example:
        >>> noise_left(Scheme.ORIG, Fraction(10), clients=10, tolerated=4, lost=2)
        Fraction(8, 1)
    """
    if not 0 <= lost <= tolerated < clients:
        raise ParameterError(f"{lost} of {clients} are lost, {tolerated} may be")
    match scheme:
        case Scheme.NONE:
            return Fraction(0)
        case Scheme.CENTRAL:
            return target
        case Scheme.ORIG | Scheme.EARLY:
            return target * Fraction(clients - lost, clients)
        case Scheme.CONSTANT:
            return target * Fraction(clients - lost, clients - tolerated)
        case Scheme.PRECISE | Scheme.APPROXIMATE:
            plan = NoisePlan(Removal(scheme.value), target, clients, 0, tolerated)
            return plan.honest_left(lost)


class Account(Protocol):
    """Adds up what rounds really cost."""

    def add(self, variance: float) -> None:
        """Count one round whose sum has this variance, in units of the clip norm squared."""
        ...

    def epsilon(self) -> float:
        """Return what all rounds so far cost."""
        ...

    def after(self, variance: float) -> float:
        """Return what one more such round would bring epsilon to."""
        ...


@dataclass(slots=True)
class EveryRound:
    """Everybody takes part in every round, and may be replaced: squares of μ add up."""

    delta: float
    squares: float = 0.0

    def add(self, variance: float) -> None:
        """Count one round: replacing a client moves the sum by twice the clip norm."""
        self.squares += 4 / variance

    def epsilon(self) -> float:
        """Return what all rounds so far cost."""
        return gaussian_epsilon(math.sqrt(self.squares), self.delta)

    def after(self, variance: float) -> float:
        """Return what one more such round would bring epsilon to."""
        return gaussian_epsilon(math.sqrt(self.squares + 4 / variance), self.delta)


@dataclass(slots=True)
class PoissonRounds:
    """The paper's account: clients drawn by lot, one left out, Theorem 1.

    Assumes:
        Nobody knows who was drawn; a server that draws knows.
    """

    rate: float
    delta: float
    tight: bool = False
    spent: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(THEOREM_ORDERS)))

    def add(self, variance: float) -> None:
        """Count one round."""
        self.spent = self.spent + self._curve(variance)

    def epsilon(self) -> float:
        """Return what all rounds so far cost."""
        return self._at(self.spent)

    def after(self, variance: float) -> float:
        """Return what one more such round would bring epsilon to."""
        return self._at(self.spent + self._curve(variance))

    def _at(self, spent: npt.NDArray[np.float64]) -> float:
        if not spent.any():
            return 0.0
        return epsilon_from_rdp(dict(zip(THEOREM_ORDERS, spent.tolist(), strict=True)), self.delta)

    def _curve(self, variance: float) -> npt.NDArray[np.float64]:
        return np.array(
            [
                sampled_rdp(
                    order,
                    rate=self.rate,
                    curve=lambda a: gaussian_rdp(a, l2_squared=1.0, variance=variance),
                    tight=self.tight,
                )
                for order in THEOREM_ORDERS
            ]
        )


@dataclass(frozen=True, slots=True)
class Study:
    """What one training under one scheme gave."""

    scheme: Scheme
    dropout: float
    epsilons: tuple[float, ...]
    """After each round."""
    accuracies: tuple[float, ...]
    """On test rows, after each round that was judged."""
    weights: Vector = field(repr=False)

    @property
    def rounds(self) -> int:
        """How many rounds were held."""
        return len(self.epsilons)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        finite = [None if math.isinf(e) else e for e in self.epsilons]
        return {
            "scheme": str(self.scheme),
            "dropout": self.dropout,
            "rounds": self.rounds,
            "epsilon": finite[-1] if finite else 0.0,
            "epsilons": finite,
            "accuracy": self.accuracies[-1] if self.accuracies else None,
            "accuracies": list(self.accuracies),
        }


def train_under(
    learner: Learner[Any],
    clients: Sequence[Any],
    scheme: Scheme,
    *,
    noise_multiplier: float,
    account: Account,
    epsilon: float,
    clip_norm: float,
    rounds: int,
    dropout: float,
    tolerated: float = 0.4,
    rate: float | None = None,
    optimiser: ServerOptimiser | None = None,
    score: Callable[[Vector], float],
    judge_every: int = 5,
    tail: float = 0.0,
    seed: int = 0,
) -> Study:
    """Train under one scheme while a part of the clients vanishes in every round.

    Args:
        learner: What is trained.
        clients: Each client's data.
        scheme: How much noise remains.
        noise_multiplier: The target's deviation over the clip norm.
        account: Adds up what the rounds cost.
        epsilon: The budget, at which `Scheme.EARLY` stops.
        clip_norm: How long an update may be.
        rounds: How many rounds are planned.
        dropout: Part of the clients of a round that vanish after they were drawn.
        tolerated: Part that schemes are planned for.
        rate: Probability with which a client is drawn; None for everybody in every round.
        optimiser: What the server does with the mean.
        score: Share of right answers of weights on test rows.
        judge_every: Rounds between two judgements; the last is always judged.
        tail: Share of the last rounds whose weights are averaged into the model.
        seed: Public seed of everything.
    """
    rng = np.random.default_rng([0x48594144, seed])
    how = optimiser or FedAvgM()
    model = weights = learner.first_weights(seed=seed)
    layout, slots = Layout(len(weights)), dict[str, npt.NDArray[np.float64]]()
    steps, coins = layout.encoding.steps, ScriptedSecrets(b"study %d" % seed)
    epsilons, accuracies = list[float](), list[float]()
    late = list[Vector]()
    for number in range(1, rounds + 1):
        drawn = np.arange(len(clients))
        if rate is not None:
            drawn = np.flatnonzero(rng.random(len(clients)) < rate)
            if len(drawn) < 3:
                continue
        lost = math.floor(len(drawn) * dropout)
        most = max(lost, min(math.floor(len(drawn) * tolerated), len(drawn) - 1))
        chosen = np.sort(rng.permutation(drawn)[lost:])
        unit = noise_left(scheme, Fraction(1), clients=len(drawn), tolerated=most, lost=lost)
        variance = float(unit) * noise_multiplier**2
        if scheme is Scheme.EARLY and account.after(variance) > epsilon:
            break
        rows = learner.train(
            weights,
            [clients[place] for place in chosen],
            number=number,
            seeds=[seed + 1 + int(place) for place in chosen],
        )
        if scheme is Scheme.NONE:
            update = np.mean(np.asarray(rows) - weights, axis=0).astype(np.float64)
            epsilons.append(math.inf)
        else:
            total = np.zeros(layout.dimension, dtype=np.int64)
            for row in rows:
                total += layout.encode(row - weights, clip_norm, {}, coins)
            on_grid = Fraction(round(variance * steps**2))
            noise = derive_seed(bytes(32), b"%d %d %s" % (seed, number, scheme.encode()))
            total += SKELLAM.table(on_grid).draw(noise, layout.dimension)
            update = clip_norm * layout.read(total, clients=len(chosen), variance=on_grid).update
            account.add(variance)
            epsilons.append(account.epsilon())
        step, found = how.step(update, slots)
        slots = dict(found)
        weights = (weights + step).astype(np.float32)
        if number > rounds * (1 - tail):
            late.append(weights)
        model = np.mean(late, axis=0, dtype=np.float32) if late else weights
        if number % judge_every == 0 or number == rounds:
            accuracies.append(score(model))
    if not accuracies or scheme is Scheme.EARLY:
        accuracies.append(score(model))
    return Study(scheme, dropout, tuple(epsilons), tuple(accuracies), model)
