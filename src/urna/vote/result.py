"""What a private search returns."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.privacy import PrivacyStatement
from urna.space import Candidate, Space
from urna.vote.plan import VotePlan

__all__ = ["Result"]

_NAMED = 3  # near ties that are written out


@dataclass(frozen=True, slots=True)
class Result:
    """The winner of a vote, the tally it was read from, and what it cost.

    Everything in it was computed from the noisy tally and public facts.
    """

    space: Space
    winner: int
    """The winner's place in the space."""
    votes: npt.NDArray[np.float64]
    """Noisy votes for each candidate."""
    standard_error: float
    """Standard deviation of the noise in each entry of `votes`."""
    confidence: float
    """Probability that the winner truly leads, given the tally alone."""
    near_ties: tuple[int, ...]
    """Places of candidates that may well lead instead, most probable first."""
    privacy: PrivacyStatement
    plan: VotePlan
    decoder: str
    took_part: int
    """How many clients' ballots are in the sum."""
    lost: Mapping[int, str]
    """Who is not in the sum, and why."""

    @property
    def best(self) -> Candidate:
        """The winning hyperparameters."""
        candidate: Candidate = self.space[self.winner]
        return candidate

    def ranking(self, count: int = 5) -> list[tuple[Candidate, float]]:
        """Return the candidates with the most noisy votes, and those votes."""
        order = np.argsort(-self.votes, kind="stable")[:count]
        return [(self.space[int(i)], float(self.votes[i])) for i in order]

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return {
            "best": self.best,
            "winner": self.winner,
            "confidence": self.confidence,
            "near_ties": list(self.near_ties),
            "votes": self.votes.tolist(),
            "standard_error": self.standard_error,
            "decoder": self.decoder,
            "took_part": self.took_part,
            "lost": {str(client): reason for client, reason in self.lost.items()},
            "privacy": self.privacy.as_mapping(),
            "plan": self.plan.as_mapping(),
            "space": self.space.as_mapping(),
            "space_fingerprint": self.space.fingerprint,
        }

    def as_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.as_mapping(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        best = _written(self.best)
        ahead = math.floor(1000 * self.confidence) / 10  # never rounded up to certainty
        return (
            f"best: {best}\n"
            f"votes: {self.votes[self.winner]:.1f} ± {self.standard_error:.1f}, truly ahead with "
            f"probability {ahead:.1f} %\n"
            f"{self._near()}privacy: {self.privacy}"
        )

    def _near(self) -> str:
        if not self.near_ties:
            return ""
        named = "; ".join(_written(self.space[place]) for place in self.near_ties[:_NAMED])
        more = f"; and {len(self.near_ties) - _NAMED} more" * (len(self.near_ties) > _NAMED)
        return f"near ties, to choose from at no cost: {named}{more}\n"


def _written(candidate: Candidate) -> str:
    return ", ".join(f"{name}={value}" for name, value in candidate.items())
