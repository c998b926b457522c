"""What one averaging will do, decided before anybody contributes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from urna.errors import ParameterError, UnknownName
from urna.noise import IntVector
from urna.privacy import Cover
from urna.privacy.distributions import LARGEST_STD
from urna.randomness import SEED_BYTES
from urna.systems.average.blind import Blind
from urna.systems.average.learners import AverageLearner, Vector
from urna.systems.average.pooled import Moments
from urna.tally import Encoding, TallyPlan, Terms, plan_tally, to_grid

__all__ = ["AveragePlan", "plan_average", "read_learner"]

_EXCESS = (0.002, 0.01, 0.05, 0.2)
"""Parts of the noise that rounding may cost; more only where noise is too large for less."""


@dataclass(frozen=True, slots=True)
class AveragePlan:
    """A learner under terms: its encoding, its noise, its ring."""

    learner: AverageLearner
    encoding: Encoding
    tally: TallyPlan

    @property
    def terms(self) -> Terms:
        """Who takes part, what it may cost, what may go wrong."""
        return self.tally.terms

    @property
    def noise_std(self) -> float:
        """Largest standard deviation of an entry of the decoded sum."""
        return self.encoding.error(self.tally.clients, self.tally.most_noise)

    def contribution(self, vector: Vector, key: bytes) -> IntVector:
        """Return a client's vector in grid steps, rounded by coins from a secret key.

        Guarantee:
            What the plan's accounting assumes, whatever the vector is.
        """
        return to_grid(self.encoding.encode(vector, _Coins(key)), self.tally)

    @property
    def caveats(self) -> str:
        """What is protected where it is not one record or one client, in a sentence."""
        if self.learner.group == 1:
            return ""
        return (
            f"What is protected are {self.learner.group} records of one client together: epsilon "
            f"is for all of them replaced at once (rows of one id are one record, and the first "
            f"{self.learner.group} of them count). "
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        return {
            **self.tally.as_mapping(),
            "bytes_per_client": self.tally.bytes_per_client,
            "learner": self.learner.as_mapping(),
            "encoding": self.encoding.as_mapping(),
            "noise_std": self.noise_std,
            "removes_excess": self.tally.removes_excess,
        }


def plan_average(
    terms: Terms, learner: AverageLearner, *, removes_excess: bool = True
) -> AveragePlan:
    """Choose the grid, size the noise and the ring.

    Args:
        terms: Who takes part, what it may cost, and what may go wrong.
        learner: What each client computes.
        removes_excess: Whether the summation removes noise that turns out not to be needed.

    Raises:
        ParameterError: Terms and learner protect different units, or nothing can be planned.
    """
    if learner.unit is not terms.adjacency.unit:
        raise ParameterError(
            f"the learner is planned for a {learner.unit}, the terms protect a "
            f"{terms.adjacency.unit}: name one of them alike"
        )
    if terms.shards > 1:
        raise ParameterError("shards are for votes; a model is made of all of a client's records")
    limit = Cover(terms.budget).mu
    for excess in _EXCESS:
        encoding = learner.encoding(excess)
        moved = encoding.contribution.sensitivity(terms.adjacency).l2
        if moved / limit < 0.9 * LARGEST_STD:
            break
    tally = plan_tally(terms, encoding.contribution, finest=1, removes_excess=removes_excess)
    return AveragePlan(learner, encoding, tally)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], AverageLearner]] = {
    "blind": Blind.read,
    "moments": Moments.read,
}


def read_learner(mapping: Mapping[str, Any]) -> AverageLearner:
    """Read what a learner's `as_mapping` wrote.

    Raises:
        UnknownName: There is no such learner.
        ParameterError: It cannot be.
    """
    kind = str(mapping.get("kind"))
    if kind not in _READERS:
        raise UnknownName("learner", kind, _READERS)
    return _READERS[kind](mapping)


class _Coins:
    """One key, handed out once: rounding under a proven move draws its coins once."""

    private = True

    def __init__(self, key: bytes) -> None:
        if len(key) != SEED_BYTES:
            raise ParameterError(f"a key of coins has {SEED_BYTES} bytes, got {len(key)}")
        self._key = key

    def take(self, count: int) -> bytes:
        if count != len(self._key):
            raise ParameterError("coins are drawn once, from one key")
        key, self._key = self._key, b""
        return key
