"""Which candidates may stop early, and what that does to ballots.

Guarantee:
    What is voted on are losses at equal effort. A candidate that a race stops has an
    infinite loss, whatever its loss was when it stopped, so it is never compared with one
    that was trained longer; it enters a ballot only after all that were trained to the end.
    At least `finalists` candidates are trained to the end.

Assumes:
    A ballot names no more candidates than there are finalists. Choose `finalists` at least as
    large as the number of votes or ranks of a ballot. With 5 votes the default of 20 left at
    least 95 % of Adult's first choices as they were; a ballot of 20 ranks wants 24 or more
    finalists (docs/guide/local-search.md has the figures).

Finalists go on from the weights they had, and run with the kernels of the full search: their
losses are the full search's, bit for bit on a CPU.

A race is a client's own matter and costs no privacy. It may change whom a client votes for;
`ballot_agreement` tells how often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.local.objective import Losses

__all__ = ["BallotAgreement", "OptimisticStop", "Race", "SuccessiveHalving", "ballot_agreement"]


class Race(Protocol):
    """Decides after each epoch who is trained further."""

    @property
    def finalists(self) -> int:
        """Fewest candidates trained to the end; with no more left, nobody is asked again."""
        ...

    def survivors(
        self,
        *,
        start: Losses,
        before: Losses,
        now: Losses,
        racing: Sequence[int],
        finished: Sequence[int],
        epoch: int,
        epochs: int,
    ) -> list[int]:
        """Return those of `racing` that go on.

        Args:
            start: Validation losses before any training, by place in the group.
            before: Validation losses one epoch ago.
            now: Validation losses after this epoch.
            racing: Places of the candidates still in the race.
            finished: Places of those whose loss is final already.
            epoch: The epoch just trained, from 0.
            epochs: Epochs in all.
        """
        ...


@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """After each epoch keep the best share (Jamieson and Talwalkar 2016).

    Args:
        factor: One in this many goes on; 2 halves.
        finalists: Fewest candidates trained to the end.
        first_epoch: Epochs before anybody is stopped.
    """

    factor: float = 4.0
    finalists: int = 20
    first_epoch: int = 1

    def __post_init__(self) -> None:
        _check(self.finalists)
        if not self.factor > 1 or self.first_epoch < 1:
            raise ParameterError(
                f"halving needs a factor > 1 and a first epoch >= 1, got {self.factor} and "
                f"{self.first_epoch}"
            )

    def survivors(
        self,
        *,
        start: Losses,
        before: Losses,
        now: Losses,
        racing: Sequence[int],
        finished: Sequence[int],
        epoch: int,
        epochs: int,
    ) -> list[int]:
        """Keep the best share of those racing; ties at the border go on together."""
        del start, before, finished, epochs
        if epoch + 1 < self.first_epoch:
            return list(racing)
        count = max(int(np.ceil(len(racing) / self.factor)), self.finalists)
        return _best(now, racing, count)


@dataclass(frozen=True, slots=True)
class OptimisticStop:
    """Stop whoever cannot catch up even if its best hopes come true.

    In the spirit of bandits, a candidate is judged by the most it may still reach. Learning
    curves flatten, so what it gained per epoch so far (or in the last epoch, if that was
    more), times the epochs left, is more than it will usually gain; `optimism` multiplies
    that. A candidate goes on while this bound is below the loss that the last finalist has
    already.

    Args:
        optimism: Factor on the extrapolated gain; larger is safer and slower.
        finalists: Fewest candidates trained to the end.
    """

    optimism: float = 1.0
    finalists: int = 24

    def __post_init__(self) -> None:
        _check(self.finalists)
        if not (np.isfinite(self.optimism) and self.optimism >= 0):
            raise ParameterError(f"optimism must be finite and >= 0, got {self.optimism}")

    def survivors(
        self,
        *,
        start: Losses,
        before: Losses,
        now: Losses,
        racing: Sequence[int],
        finished: Sequence[int],
        epoch: int,
        epochs: int,
    ) -> list[int]:
        """Keep those whose optimistic bound reaches the finalists."""
        known = np.sort(_ordered(now[[*racing, *finished]]))
        bar = known[min(self.finalists, len(known)) - 1] if len(known) else np.inf
        places = np.array(racing, dtype=np.intp)
        places = places[np.isfinite(now[places])]
        lately = _ordered(before[places]) - now[places]
        so_far = (_ordered(start[places]) - now[places]) / (epoch + 1)
        gain = np.maximum(np.maximum(lately, so_far), 0.0)
        hope = now[places] - self.optimism * gain * (epochs - epoch - 1)
        hopeful = set(places[hope <= bar].tolist())
        # A finished candidate's place among the best is taken; the rest are filled up.
        best = set(_best(now, racing, self.finalists))
        return [m for m in racing if m in hopeful or m in best]


@dataclass(frozen=True, slots=True)
class BallotAgreement:
    """How far a race's ballots are those of the full search."""

    clients: int
    same_first: float
    """Share of clients whose best candidate is the same."""
    same_ballot: float
    """Share of clients whose best k candidates are the same set."""
    overlap: float
    """Mean share of the full ballot that the race's ballot holds as well."""


def ballot_agreement(
    full: npt.NDArray[np.float64], raced: npt.NDArray[np.float64], votes: int
) -> BallotAgreement:
    """Compare the ballots of two searches, both of shape (clients, candidates).

    Candidates whose full losses tie with the best (or with the border of the ballot) count
    as the same: a ballot draws among ties at random anyway.

    Example:
        >>> full = np.array([[0.1, 0.2, 0.3, 0.4]])
        >>> raced = np.array([[0.1, 0.3, 0.2, np.inf]])
        >>> ballot_agreement(full, raced, votes=2)
        BallotAgreement(clients=1, same_first=1.0, same_ballot=0.0, overlap=0.5)
    """
    if full.shape != raced.shape or full.ndim != 2:
        raise ParameterError(
            f"both searches need the shape (clients, candidates), got {full.shape} and "
            f"{raced.shape}"
        )
    if not 1 <= votes <= full.shape[1]:
        raise ParameterError(f"votes must lie in 1..{full.shape[1]}, got {votes}")
    firsts, overlaps = [], []
    for mine, theirs in zip(_ordered(full), _ordered(raced), strict=True):
        order = np.argsort(theirs, kind="stable")
        border = np.sort(mine)[votes - 1]
        firsts.append(mine[order[0]] <= mine.min())
        overlaps.append(np.mean(mine[order[:votes]] <= border))
    overlap = np.array(overlaps)
    return BallotAgreement(
        clients=len(full),
        same_first=float(np.mean(firsts)),
        same_ballot=float(np.mean(overlap == 1.0)),
        overlap=float(overlap.mean()),
    )


def _best(losses: Losses, places: Sequence[int], count: int) -> list[int]:
    """Return the best `count` of `places` and whoever ties with the last of them.

    Candidates without a finite loss have diverged and are not kept.
    """
    values = _ordered(losses[list(places)])
    if not len(values):
        return []
    border = np.sort(values)[min(count, len(values)) - 1]
    return [m for m, v in zip(places, values, strict=True) if v <= border and np.isfinite(v)]


def _ordered(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(np.isnan(values), np.inf, values)


def _check(finalists: int) -> None:
    if finalists < 1:
        raise ParameterError(f"finalists must be at least 1, got {finalists}")
