"""Noise that is made of clients' fair coins: what it hides, and how much of it is enough."""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from mpmath import mp
from scipy.special import ndtri

from urna.errors import ParameterError
from urna.privacy.budget import Budget
from urna.privacy.cost import Cost, Cover
from urna.privacy.moves import Move

__all__ = ["CoinRelease", "calibrate_coins", "coin_parameter"]

_CUT = 1e-45  # single probabilities below this are left out
_ROUNDING = 1e-9  # absolute, of a μ: more than summing rounded probabilities does to it
_SLIP = 0.25  # the part of what a budget sets aside for precision that one release takes
_MOST_COINS = 96  # of one client for one coordinate
_COPIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of the heaviest coin
_COINS = 100  # heavy ones, over all clients, below which noise is not worth trying
_FILL = 40  # light coins of a kind, over all clients, that fill steps four times as wide
_NEAR = 1.05  # more coins than it takes to come this close to the Gaussian are not worth it


@dataclass(frozen=True, slots=True)
class CoinRelease:
    """A sum of integer vectors under the noise of fair coins.

    Every coordinate of the sum holds Σ w·coin over the weights and over at least `shares` honest
    clients, whose coins are fair, independent and unknown; others' are known or whatever they
    are, but do not depend on these.
    """

    move: Move
    """In units of the sum."""
    weights: tuple[int, ...]
    """What each of a client's coins for one coordinate counts, in the same units."""
    shares: int
    largest: int
    """Most that one coordinate moves."""
    tail: float = 1e-15
    """Probability, on one side and in one coordinate, of noise too large to be looked at."""

    def __post_init__(self) -> None:
        counts = (*self.weights, self.shares, self.largest)
        if not self.weights or any(type(n) is not int or n < 1 for n in counts):
            raise ParameterError(f"weights and numbers of clients are positive, got {self}")
        if not 0 < self.tail < 0.01:
            raise ParameterError(f"a tail is a small probability, got {self.tail}")

    @property
    def noise_std(self) -> float:
        """Standard deviation of what the honest clients' coins leave in each coordinate."""
        return math.sqrt(self.shares * sum(w * w for w in self.weights)) / 2

    def cost(self) -> Cost:
        """Return the Gaussian of the coins' trade-off (`coin_parameter`).

        A coordinate that moves by d is η·d-GDP but for moved mass, so a move s is η·‖s‖₂-GDP.
        Coins are bits of a secret stream: nothing is lost in drawing them.
        """
        eta = coin_parameter(self.weights, self.shares, self.largest, self.tail)
        slip = 2 * self.move.coordinates * self.tail
        return Cost(mu=eta * self.move.l2, slip=slip + self.move.beyond)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        return {
            "kind": "coins",
            "l2_squared": self.move.l2_squared,
            "coordinates": self.move.coordinates,
            **({"beyond": self.move.beyond} if self.move.beyond else {}),
            "weights": list(self.weights),
            "shares": self.shares,
            "largest": self.largest,
            "tail": self.tail,
        }


@functools.lru_cache(maxsize=256)
def coin_parameter(weights: tuple[int, ...], shares: int, largest: int, tail: float) -> float:
    """Return η such that moving the coins' noise N by an integer d ≤ `largest` is η·d-GDP.

    Guarantee:
        Up to moving 2·`tail` of mass on either side, telling N from N + d, or from N − d, is at
        least as hard as telling N(0, 1) from N(η·d, 1).

        Proof. N is bounded and its probabilities are computed one by one, so the best tests
        are known: reject where P[N = x − d]/P[N = x] is large (Neyman & Pearson). Their errors
        (α, β) are the corners of the trade-off, which is linear between them. With
        G(α) = Φ(Φ⁻¹(1 − α) − μ), the bound β ≥ G(α + τ) − τ holds at a corner exactly if
        μ ≥ −Φ⁻¹(α + τ) − Φ⁻¹(β + τ), or trivially where α + τ or β + τ reaches one; and since
        α ↦ G(α + τ) − τ is convex, it holds between corners if it holds at them. That this
        bound is a μ-GDP pair with τ of its mass moved on either side is shown in
        `tradeoff.gaussian_parameter`. Nothing here asks N to be log-concave. N is symmetric
        about its mean, so −d is as d. Probabilities that are left out are below 1e-40 in
        sum, and count as moved mass with another τ.

    Args:
        weights: What each of a client's coins counts.
        shares: Clients whose coins are in the noise.
        largest: Largest d.
        tail: τ.

    Example:
        >>> eta = coin_parameter((1, 4), 100, 1, 1e-15)
        >>> std = math.sqrt(100 * 17) / 2
        >>> f"{eta * std:.3f}"  # 1 for a Gaussian of this standard deviation
        '1.126'
    """
    noise = _probabilities(weights, shares)
    return max(_moved(noise, d, tail) / d for d in range(1, largest + 1)) + _ROUNDING


def calibrate_coins(budget: Budget, move: Move, *, shares: int, largest: int) -> CoinRelease:
    """Return the least noise of coins under which one sum meets `budget`.

    Guarantee:
        The release's cost at the budget's delta is at most its epsilon, and a ledger of this
        cap takes it: every choice of weights is priced by its exact probabilities.

    Args:
        budget: What the release may cost.
        move: How far one protected unit moves the sum.
        shares: Fewest honest clients whose coins may be used. The release says how many of them
            are enough.
        largest: Most that one coordinate moves.

    Raises:
        ParameterError: No coins that are provided for hide such a move: there are too few
            clients for this budget.

    Example:
        >>> vote = calibrate_coins(Budget(1.0, 1e-5), Move(10, 10), shares=99, largest=1)
        >>> vote.weights, round(vote.noise_std, 1)
        ((1, 1, 1, 1, 1, 1), 12.0)
    """
    cover = Cover(budget)
    tail = _SLIP * cover.slip / (2 * move.coordinates)
    gaussian = move.l2 / cover.mu
    best: CoinRelease | None = None
    for copies in _COPIES:
        if copies * shares < _COINS and copies < _COPIES[-1]:
            continue  # so few coins are far from a Gaussian
        found = _lightest(copies, cover, CoinRelease(move, (1,), shares, largest, tail))
        found = None if found is None else _fewest(cover, found)
        if found is not None and (best is None or found.noise_std < best.noise_std):
            best = found
            if best.noise_std <= _NEAR * gaussian:
                return best
    if best is None:
        raise ParameterError(
            f"coins of {shares} honest clients do not hide a ballot at epsilon {budget.epsilon:g} "
            f"and delta {budget.delta:g}. Ask more clients, or allow a larger epsilon or delta."
        )
    return best


def _lightest(copies: int, cover: Cover, release: CoinRelease) -> CoinRelease | None:
    """Return the lightest of so many equal coins, smoothed by lighter ones, that is enough.

    Steps of the heavy coins are filled by powers of four below them, as many of each as it
    takes for their deviation to be about the next step.
    """
    gaussian = release.move.l2 / cover.mu
    fill = -(-_FILL // release.shares)
    weight, most = 1, 4 + math.ceil(4 * gaussian / math.sqrt(copies * release.shares))
    while weight <= most:
        lighter = [4**place for place in range(32) if 4**place < weight for _ in range(fill)]
        weights = (*lighter, *[weight] * copies)
        if len(weights) > _MOST_COINS:
            return None
        found = replace(release, weights=weights)
        near = found.noise_std / gaussian  # below 1 it is not tried: the Gaussian is hardly beaten
        if near >= 1 and cover.holds(found.cost()):
            return found
        weight = max(weight + max(1, weight // 50), math.floor(0.9 / max(near, 0.1) * weight))
    return None


def _fewest(cover: Cover, release: CoinRelease) -> CoinRelease:
    """Return the same coins of the fewest clients that are enough.

    More clients' coins never cost more: adding independent noise is post-processing.
    """
    low, high = 0, release.shares
    while high - low > 1:
        middle = (low + high) // 2
        enough = cover.holds(replace(release, shares=middle).cost())
        low, high = (low, middle) if enough else (middle, high)
    return replace(release, shares=high)


def _probabilities(weights: tuple[int, ...], shares: int) -> npt.NDArray[np.float64]:
    """Return the probabilities of Σ w·B_w, B_w binomial, from where they matter on.

    Sums of positive products only: each is right to a part in 10¹¹.
    """
    once = _binomial(shares)
    found = np.ones(1)
    for weight in weights:
        wider = np.zeros(len(found) + weight * (len(once) - 1))
        for place, probability in enumerate(once):
            wider[weight * place : weight * place + len(found)] += probability * found
        kept = np.flatnonzero(wider >= _CUT)
        found = wider[kept[0] : kept[-1] + 1]
    return found


@functools.lru_cache(maxsize=64)
def _binomial(count: int) -> npt.NDArray[np.float64]:
    """Return the probabilities of so many fair coins, from where they matter on."""
    centre = count // 2
    with mp.workprec(120):
        middle = float(mp.binomial(count, centre) / mp.mpf(2) ** count)
    up = np.arange(centre, count)
    above = middle * np.cumprod((count - up) / (up + 1))
    down = np.arange(centre, 0, -1)
    below = middle * np.cumprod(down / (count - down + 1))
    whole = np.concatenate([below[::-1], [middle], above])
    kept = np.flatnonzero(whole >= _CUT)
    return whole[kept[0] : kept[-1] + 1]


def _moved(noise: npt.NDArray[np.float64], d: int, tail: float) -> float:
    """Return μ of noise moved by d, from the corners of its trade-off."""
    null, moved = np.pad(noise, (0, d)), np.pad(noise, (d, 0))
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 is no point of either
        order = np.argsort(-(moved / null), kind="stable")
    null, moved = null[order], moved[order]
    rejected = _quantiles(np.cumsum(null), np.cumsum(null[::-1])[::-1] - null, tail)
    missed = _quantiles(np.cumsum(moved[::-1])[::-1] - moved, np.cumsum(moved), tail)
    return float(np.max(-rejected - missed))


def _quantiles(
    part: npt.NDArray[np.float64], rest: npt.NDArray[np.float64], tail: float
) -> npt.NDArray[np.float64]:
    """Return Φ⁻¹(part + tail), by the smaller of a probability and its complement."""
    low = ndtri(np.minimum(part + tail, 1.0))
    high = -ndtri(np.maximum(rest - tail, 0.0))
    return np.where(part < 0.5, low, high)
