"""The seam between what is summed and how: contributions in, one noisy total out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from urna.errors import ParameterError, RoundAborted
from urna.noise import IntVector
from urna.privacy import TallyRelease
from urna.privacy.calibration import readers
from urna.randomness import SecretSource
from urna.secagg.masks import centred, wrapped, zeros
from urna.tally.mechanism import add_noise
from urna.tally.plan import TallyPlan

__all__ = ["ClearSummation", "ClientId", "Summation", "Tallied"]

ClientId = int


@dataclass(frozen=True, slots=True)
class Tallied:
    """A noisy sum and what became of each client."""

    total: IntVector
    """In grid steps."""
    accepted: frozenset[ClientId]
    """Whose contribution is in the sum."""
    lost: Mapping[ClientId, str]
    """Who is not in it, and why."""
    noise_variance: Fraction
    """Variance of the noise that is really in the sum, in grid steps squared."""
    release: TallyRelease
    """What became public: the sum under the noise that honest clients really left in it."""


class Summation(Protocol):
    """A way to add up contributions so that only their noisy sum is learnt."""

    @property
    def secure(self) -> bool:
        """Whether single contributions stay hidden from whoever adds them up."""
        ...

    @property
    def removes_excess(self) -> bool:
        """Whether noise for dropouts that did not happen is removed from the sum."""
        ...

    @property
    def described(self) -> str:
        """One sentence about who saw what, for every output."""
        ...

    def tally(
        self, contributions: Mapping[ClientId, IntVector], plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus every client's share of the noise.

        Args:
            contributions: Encoded ballots in grid steps, without noise; clients add theirs.
            plan: What is valid, how much noise, which ring.
            secrets: Where the clients' keys and noise come from.

        Raises:
            RoundAborted: Fewer clients are left than the plan allows. Nothing was revealed.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClearSummation:
    """Add the noisy contributions up in the clear: for tests, baselines and comparisons.

    Guarantee:
        Towards somebody who sees only the total, that of the plan. Whoever adds up sees each
        client's contribution under that client's own small share of the noise.

    Args:
        absent: Clients that drop out before they send anything.
    """

    absent: frozenset[ClientId] = field(default_factory=frozenset)

    @property
    def secure(self) -> bool:
        """False: the sum is made in the clear."""
        return False

    @property
    def removes_excess(self) -> bool:
        """False: every client's whole share stays in the sum."""
        return False

    @property
    def described(self) -> str:
        """One sentence about who saw what."""
        return (
            "The sum was made in the clear: whoever added it up saw every client's own vector "
            "under that client's share of the noise alone, so the guarantee holds only towards "
            "those who see nothing but the result"
        )

    def tally(
        self, contributions: Mapping[ClientId, IntVector], plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus every client's share of the noise."""
        check_contributions(contributions, plan)
        present = contributions.keys() - self.absent
        if len(present) < plan.fewest:
            raise RoundAborted(
                f"{len(present)} of {plan.clients} clients are left; the plan needs {plan.fewest}. "
                "Nothing was summed. Plan for a larger dropout."
            )
        ring = zeros(plan.dimension, plan.ring_bits)
        for client in sorted(present):
            ring += wrapped(add_noise(contributions[client], plan, secrets), plan.ring_bits)
        total = centred(ring)
        return Tallied(
            total=total,
            accepted=frozenset(present),
            lost=dict.fromkeys(sorted(contributions.keys() & self.absent), "dropped out"),
            noise_variance=plan.share * len(present),
            release=really_released(plan, len(present)),
        )


def check_contributions(contributions: Mapping[ClientId, IntVector], plan: TallyPlan) -> None:
    """Refuse contributions that do not fit the plan."""
    if len(contributions) != plan.clients:
        raise ParameterError(
            f"the plan is for {plan.clients} clients, got {len(contributions)} contributions"
        )
    for client, vector in contributions.items():
        if vector.shape != (plan.dimension,):
            raise ParameterError(
                f"client {client} contributes shape {vector.shape}, the plan has "
                f"({plan.dimension},)"
            )


def really_released(plan: TallyPlan, survivors: int) -> TallyRelease:
    """Return the release under the noise that this many survivors' honest part left."""
    planned = plan.calibration.release
    honest = survivors - readers(plan.clients, plan.colluding)
    return TallyRelease(planned.shifts, planned.share, honest, planned.family)
