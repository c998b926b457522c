"""What a vote needs of which only the winner is revealed: how wide ballots are, and how sure it is.

The noise is drawn where the winner is found; nobody adds any to a ballot of levels.
"""

import math
from typing import TypedDict

import numpy as np

from urna.errors import ParameterError
from urna.privacy import SelectionRelease
from urna.space import Space
from urna.systems.vote.shapes import LEVELS, LevelShape
from urna.systems.vote.windows import windows_of

__all__ = [
    "ALONE",
    "BESIDE",
    "SelectionKind",
    "choose_levels",
    "head_start",
    "lead_needed",
    "leading_chance",
    "priced_beside",
]


class SelectionKind(TypedDict):
    """What kind of selection it is, but for its epsilon."""

    largest_of: int
    fineness: int
    gap: bool


ALONE: SelectionKind = {"largest_of": 1, "fineness": 0, "gap": True}
"""The one that needs the smallest lead where it is alone in its ledger."""

BESIDE: SelectionKind = {"largest_of": 4, "fineness": 4, "gap": False}
"""The selection that composes best with sums."""

PARTS = {0.32: 0.5, 0.12: 0.7}
"""Noise over what all ballots can give a candidate, and the part from which the top level is
given above it; below all of them only the best get it."""

_SMALLEST = 1e-4  # epsilon of a winner that nobody would hold
_TRUST = 2.0  # exponent of what is expected of an axis: more than once was better


def choose_levels(candidates: int, *, noise_std: float, ballots: int) -> LevelShape:
    """Return ballots as wide as the noise asks for; how wide was fixed on simulated loss surfaces.

    Example:
        >>> choose_levels(100, noise_std=6.0, ballots=100).part
        1.0
    """
    noise = noise_std / (ballots * LEVELS)
    return LevelShape(candidates, next((p for least, p in PARTS.items() if noise > least), 1.0))


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


def lead_needed(probability: float, release: SelectionRelease) -> int:
    """Return the least lead, in votes, at which a candidate wins this probably."""
    high = 1
    while leading_chance(high, release) < probability:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if leading_chance(middle, release) < probability else (low, middle)
        )
    return high


def priced_beside(
    mu: float, candidates: int, kind: SelectionKind = BESIDE
) -> SelectionRelease | None:
    """Return the selection of largest epsilon that costs at most μ beside sums, to 1 %."""
    reach = LevelShape(candidates).reach

    def made(epsilon: float) -> SelectionRelease | None:
        try:
            return SelectionRelease(epsilon, reach, candidates, **kind)
        except ParameterError:
            return None

    low, high = _SMALLEST, 50.0
    found = None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        tried = made(middle)
        if tried is None or tried.mu <= mu:
            low, found = middle, tried or found
        else:
            high = middle
    return found
