"""How far two searches of the same clients fill in the same ballots."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError

__all__ = ["BallotAgreement", "ballot_agreement"]


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


def _ordered(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(np.isnan(values), np.inf, values)
