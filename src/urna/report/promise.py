"""What a promise means to an attacker: beliefs, guesses, and the whole curve behind one epsilon."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr, ndtri

from urna.privacy import Budget, PrivacyStatement, gaussian_delta, gaussian_mu
from urna.privacy.budget import rounded_up
from urna.privacy.cost import GAUSSIAN, SLIP_PART
from urna.report.figures import Curve, Picture, curves
from urna.report.words import at_most

Array = npt.NDArray[np.float64]

_ROUNDING = 1 + 1e-9  # more than searches for μ and epsilon leave
_PRIORS = (0.01, 0.1, 0.5, 0.9)
_LATE = -math.log(0.9)  # what makes odds hold but for 10 δ
_WEAK = 0.95  # right guesses from which on a promise is called weak


@dataclass(frozen=True, slots=True)
class Odds:
    """What reading a result can do for somebody who wants to know about one protected unit.

    Guarantee:
        Everything here follows from the statement alone. Where its accountant is the Gaussian
        one, the statement's epsilon *is* that of some μ at delta less the part set aside for
        moved mass, so μ is found again by inverting it, rounded up; and the moved mass is at
        most that part over 1 + e^ε, or epsilon would have been infinite (`privacy.Cost.at`).

    Args:
        epsilon: Finite.
        delta: Beside it.
        mu: Of the Gaussian trade-off, where it is known.
    """

    epsilon: float
    delta: float
    mu: float | None = None

    @classmethod
    def of(cls, statement: PrivacyStatement) -> "Odds | None":
        """Return the odds of a statement; None where it promises nothing."""
        if not statement.private:
            return None
        epsilon, delta = statement.epsilon, statement.delta
        if statement.accountant != GAUSSIAN or epsilon <= 0:
            return cls(epsilon, delta)
        return cls(
            epsilon, delta, gaussian_mu(Budget(epsilon, delta * (1 - SLIP_PART))) * _ROUNDING
        )

    @property
    def factor(self) -> float:
        """How many times as probable an outcome can be; infinite beyond floating point."""
        return math.exp(self.epsilon) if self.epsilon < 700 else math.inf

    @property
    def right_guess(self) -> float:
        """Bound how often one is right who knows two cases to be equally probable.

        The best test errs, of two equally probable cases, with (1 − TV)/2. For μ-GDP, TV is
        2Φ(μ/2) − 1, and moved mass adds to it; for (ε, δ) it is (e^ε − 1 + 2δ)/(e^ε + 1)
        (Kairouz, Oh & Viswanath 2015).

        Example:
            >>> round(Odds(1.0, 0.0).right_guess, 3), round(Odds(1.0, 1e-5, 0.268).right_guess, 3)
            (0.731, 0.553)
        """
        general = float(expit(self.epsilon)) + self.delta * float(expit(-self.epsilon))
        if self.mu is None:
            return min(general, 1.0)
        return min(general, float(ndtr(self.mu / 2)) + self._slip, 1.0)

    def belief(self, before: float) -> float:
        """Bound a belief in the truth after reading the result, but for a chance of 10 δ.

        With L the privacy loss, δ ≥ E[(1 − e^(ε−L))⁺] ≥ P[L > ε + t]·(1 − e^(−t)). For e^(−t) = 0.9
        odds grow by more than e^ε/0.9 with a probability of at most 10 δ. (By more than e^ε they
        may grow with a probability far above δ.)

        Example:
            >>> round(Odds(1.0, 1e-5).belief(0.5), 3)
            0.751
        """
        return float(expit(self.epsilon + _LATE + math.log(before / (1 - before))))

    def detected(self, false_alarms: Array) -> Array:
        """Bound how often a test finds the unit, by how often it raises a false alarm."""
        alpha = np.asarray(false_alarms, dtype=np.float64)
        growing = np.minimum(self.factor * alpha, 1.0) if math.isfinite(self.factor) else alpha > 0
        falling = 1 - (1 - self.delta - alpha) * math.exp(-self.epsilon)
        found = np.minimum(np.minimum(growing + self.delta, falling), 1.0)
        if self.mu is not None:
            exact = ndtr(ndtri(np.minimum(alpha + self._slip, 1.0)) + self.mu) + self._slip
            found = np.minimum(found, exact)
        return np.asarray(np.maximum(found, alpha))

    def curve(self, points: int = 60) -> tuple[Array, Array] | None:
        """Return pairs (delta, epsilon) that all hold; None where only one pair is known.

        For every ε' the result is (ε', δ')-DP with δ' = δ_G(ε') + (1 + e^ε')·slip. Where ε' is
        so large that moved mass outweighs what it saves, the curve ends.
        """
        if self.mu is None:
            return None
        epsilons = np.linspace(0.0, 2.2 * self.epsilon, points)
        deltas = np.array(
            [
                gaussian_delta(1.0, sensitivity=self.mu, epsilon=float(epsilon))
                + (1 + math.exp(min(float(epsilon), 700.0))) * self._slip
                for epsilon in epsilons
            ]
        )
        end = int(np.argmin(deltas)) + 1
        return deltas[:end], epsilons[:end]

    @property
    def _slip(self) -> float:
        return SLIP_PART * self.delta * float(expit(-self.epsilon))


@dataclass(frozen=True, slots=True)
class Promise:
    """What a whole report promises, in words and in odds."""

    statement: PrivacyStatement
    odds: Odds | None

    @classmethod
    def of(cls, statement: PrivacyStatement) -> "Promise":
        """Return what a statement promises."""
        return cls(statement, Odds.of(statement))

    @property
    def epsilon(self) -> str:
        """As it is printed everywhere."""
        return rounded_up(self.statement.epsilon) if self.statement.private else "infinite"

    @property
    def factor(self) -> str:
        """How many times as probable an outcome can be."""
        value = math.inf if self.odds is None else self.odds.factor
        return f"{math.ceil(100 * value) / 100:,.2f}" if value < 1e6 else f"{value:.1e}"

    @property
    def average(self) -> str:
        """How often the best attack is right, averaged over the noise."""
        return "" if self.odds is None else at_most(self.odds.right_guess)

    @property
    def worst(self) -> str:
        """How sure of one of two cases a result can make an attacker, but for a chance of 10 δ."""
        return "" if self.odds is None else at_most(self.odds.belief(0.5))

    @property
    def weak(self) -> bool:
        """Whether attackers may nearly always be right."""
        return self.odds is not None and self.odds.right_guess >= _WEAK

    @property
    def beliefs(self) -> list[tuple[str, str, float, float]]:
        """Before and after, as text and as per cent of the room."""
        if self.odds is None:
            return []
        pairs = [(prior, self.odds.belief(prior)) for prior in _PRIORS]
        return [(f"{100 * a:g} %", at_most(b), 100 * a, 100 * b) for a, b in pairs]

    @property
    def pictures(self) -> list[Picture]:
        """The best attack, and the whole privacy curve where it is known."""
        if self.odds is None:
            return []
        curve = _curve(self.odds)
        return [_guesses(self.odds), *([] if curve is None else [curve])]

    def caveats(self, *, loud: bool) -> list[str]:
        """Return what the statement rests on: what is not protected at all, or the rest."""
        lines = (f"{caveat.rstrip('.')}." for caveat in self.statement.caveats)
        return [line for line in lines if ("NOT protected" in line) is loud]


def _guesses(odds: Odds) -> Picture:
    alpha = np.linspace(0.0, 1.0, 101)
    found = odds.detected(alpha)
    drawn = [
        Curve("at most", 100 * alpha, 100 * found),
        Curve("a coin", 100 * alpha, 100 * alpha, kind="dashes"),
    ]
    shown = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
    return Picture(
        curves("guesses", drawn, across="false positives, %", up="true positives, %"),
        "ROC curve of the best possible attack: true-positive rate (vertical) against "
        "false-positive rate (horizontal). The dashed line is a coin flip; the nearer the curve, "
        "the less is learned.",
        "At 5 % false positives the best attack has true positives of at most "
        f"{at_most(float(odds.detected(np.array([0.05]))[0]))}",
        ("false positives", "true positives at most"),
        tuple((f"{100 * a:g} %", at_most(float(odds.detected(np.array([a]))[0]))) for a in shown),
    )


def _curve(odds: Odds) -> Picture | None:
    found = odds.curve()
    if found is None:
        return None
    deltas, epsilons = found
    drawn = [Curve("epsilon", deltas, epsilons)]
    picked = range(0, len(deltas), max(1, len(deltas) // 12))
    return Picture(
        curves(
            "curve", drawn, across="delta", up="epsilon", log=True, mark=(odds.delta, odds.epsilon)
        ),
        "The whole privacy curve: every point on it is a promise that holds. The dot is the "
        "one that is quoted.",
        f"Epsilon against delta, from epsilon {epsilons[-1]:.3g} at delta {deltas[-1]:.1e} to 0 at "
        f"{deltas[0]:.3g}",
        ("delta", "epsilon"),
        tuple((f"{deltas[i]:.2e}", rounded_up(float(epsilons[i]))) for i in picked),
    )
