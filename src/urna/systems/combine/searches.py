"""What clients found alone: settings they tried, and how good each was."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.systems.combine.frame import Floats, Frame, Integers


@dataclass(frozen=True, slots=True, eq=False)
class LocalSearch:
    """One client's settings and scores.

    Args:
        settings: One row per setting that was tried, one column per axis.
        scores: How good each was, the higher the better: an accuracy. What is not finite
            failed, and is never kept.
    """

    settings: Floats = field(repr=False)
    scores: Floats = field(repr=False)

    def __post_init__(self) -> None:
        if self.settings.ndim != 2 or self.scores.shape != self.settings.shape[:1]:
            raise ParameterError(
                f"a search has one score per setting, got {self.settings.shape} settings and "
                f"{self.scores.shape} scores"
            )
        if not np.isfinite(self.settings).all():
            raise ParameterError("settings must be finite numbers")

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, slots=True, eq=False)
class Searches:
    """All clients' searches, over the same axes.

    Args:
        frame: The axes.
        clients: What each client found.
        measured: Whether the axes were read off the clients' own settings. Then they are no
            public facts: one client can move their ends, and nothing is private over them.
    """

    frame: Frame
    clients: tuple[LocalSearch, ...]
    measured: bool = False

    def __post_init__(self) -> None:
        if not self.clients:
            raise ParameterError("there is nothing to combine: no client has searched")
        for client in self.clients:
            self.frame.units(client.settings)  # refuses what is not on the axes
        if not any(np.isfinite(client.scores).any() for client in self.clients):
            raise ParameterError("there is nothing to combine: every run of every client failed")

    def check_public(self) -> None:
        """Refuse to promise clients anything over axes that their own settings decide.

        Raises:
            ParameterError: The axes are no public facts.
        """
        if self.measured:
            raise ParameterError(
                "the axes were read off the clients' own settings, so one client could move them: "
                "where clients are protected, name the space that all of them searched (--space "
                "FILE.toml; `read_searches(..., space=...)`)"
            )

    def __len__(self) -> int:
        return len(self.clients)

    def usable(self) -> list[int]:
        """Return the places of the clients of whom some run ended in a score."""
        return [n for n, client in enumerate(self.clients) if np.isfinite(client.scores).any()]


@dataclass(frozen=True, slots=True, eq=False)
class KeptSettings:
    """The settings of one client that it puts into the combination."""

    settings: Floats = field(repr=False)
    scores: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    """How much each counts; one each, except where settings share a place as equals."""

    def __len__(self) -> int:
        return len(self.scores)

    def sums(self, frame: Frame) -> Integers:
        """Return the sums of the settings in whole steps, and last how many they are.

        Equals that share a place are averaged first, and rounded to a step.
        """
        if not len(self):
            return np.zeros(len(frame.rulers) + 1, dtype=np.int64)
        sums = self.weights @ frame.places(self.settings)
        rounded = np.rint(np.append(sums, self.weights.sum()))
        return np.asarray(rounded, dtype=np.int64)

    @staticmethod
    def together(some: Iterable["KeptSettings"]) -> "KeptSettings":
        """Return the settings of several clients as one.

        Raises:
            ParameterError: There are none.
        """
        listed = list(some)
        if not any(map(len, listed)):
            raise ParameterError("no client kept a setting, so there is nothing to combine")
        return KeptSettings(
            np.concatenate([kept.settings for kept in listed]),
            np.concatenate([kept.scores for kept in listed]),
            np.concatenate([kept.weights for kept in listed]),
        )


def keep_best(search: LocalSearch, share: float | None = None) -> KeptSettings:
    """Keep a client's best setting, or its best ones.

    Equals at the border share what room is left there: two settings that are both the best
    count a half each. So the result does not hang on the order of the list, and every
    client weighs the same.

    Args:
        search: The client's search.
        share: Which part of its settings to keep, rounded up; the one best by default.

    Example:
        >>> search = LocalSearch(np.array([[1.0], [2.0], [3.0]]), np.array([0.9, 0.9, 0.5]))
        >>> keep_best(search).weights
        array([0.5, 0.5])
    """
    if share is not None and not 0 < share <= 1:
        raise ParameterError(f"a client keeps a part of its settings in (0, 1], got {share}")
    finite = np.flatnonzero(np.isfinite(search.scores))
    count = 1 if share is None else math.ceil(share * len(search) - 1e-9)
    if not len(finite):
        return _chosen(search, finite, np.zeros(0))
    scores = search.scores[finite]
    border = np.sort(scores)[::-1][min(count, len(scores)) - 1]
    above, equal = scores > border, scores == border
    room = min(count, len(scores)) - int(above.sum())
    weights = np.where(above, 1.0, room / int(equal.sum()))
    taken = above | equal
    return _chosen(search, finite[taken], weights[taken])


def keep_good(
    search: LocalSearch, *, tolerance: float = 0.15, most: int = 10, least: float = 0.0
) -> KeptSettings:
    """Keep the settings that are nearly as good as a client's best.

    PrivTuna's rule. A client for which every setting is good says nothing and keeps none.

    Args:
        search: The client's search.
        tolerance: Scores within this part of the best are good.
        most: At most so many, the best first, equals in the order they were tried.
        least: A client whose best score is lower keeps nothing.
    """
    finite = np.isfinite(search.scores)
    best = float(search.scores[finite].max(initial=-np.inf))
    border = best - tolerance * abs(best)
    good = np.flatnonzero(finite & (search.scores > border)) if best >= least else np.zeros(0, int)
    if len(good) == len(search):
        good = good[:0]
    order = np.argsort(-search.scores[good], kind="stable")[:most]
    return _chosen(search, good[order], np.ones(len(order)))


def _chosen(
    search: LocalSearch, rows: npt.NDArray[np.signedinteger[Any]], weights: Floats
) -> KeptSettings:
    return KeptSettings(search.settings[rows], search.scores[rows], weights)
