"""The ways to add up: contributions and a plan in, one noisy total out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Protocol

from urna.errors import ParameterError, RoundAborted
from urna.noise import IntVector
from urna.privacy import NonPrivateRelease, Release
from urna.protocols.secagg import Outcome, ServerModel, Stage, run
from urna.protocols.secagg.masks import centred, wrapped, zeros
from urna.randomness import SecretSource
from urna.tally.mechanism import add_noise
from urna.tally.plan import TallyPlan
from urna.tally.terms import Terms

ClientId = int

Contributions = Mapping[ClientId, IntVector | Callable[[], IntVector]]
"""Every client's vector in grid steps, or what produces it once it is asked for."""


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
    release: Release
    """What became public: the sum under the noise that honest clients really left in it."""
    faults: Mapping[ClientId, str] = field(default_factory=dict)
    """Who broke the protocol, in the sum or not, and how."""


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

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who saw what, for every output."""
        ...

    def tally(
        self, contributions: Contributions, plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus every client's share of the noise.

        Args:
            contributions: Vectors in grid steps, without noise; clients add theirs.
            plan: What is valid, how much noise, which ring.
            secrets: Where the clients' keys and noise come from.

        Raises:
            RoundAborted: Fewer clients are left than the plan allows. Nothing was revealed.
        """
        ...


SERVERS: Mapping[ServerModel, str] = {
    ServerModel.HONEST_BUT_CURIOUS: "taken to be honest-but-curious",
    ServerModel.DISHONEST: "not trusted with anything",
}
"""What a server is trusted with, in words."""


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
    secure: ClassVar[bool] = False
    removes_excess: ClassVar[bool] = False

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who saw what."""
        del terms
        return (
            "The sum was made in the clear: whoever added it up saw every client's own vector "
            "under that client's share of the noise alone, so the guarantee holds only towards "
            "those who see nothing but the result"
        )

    def tally(
        self, contributions: Contributions, plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus every client's share of the noise."""
        check_clients(contributions, plan)
        present = contributions.keys() - self.absent
        lost = dict.fromkeys(sorted(contributions.keys() & self.absent), "dropped out")
        check_enough(len(present), plan, lost)
        ring = zeros(plan.dimension, plan.ring_bits)
        for client in sorted(present):
            vector = produced(contributions[client], plan)
            ring += wrapped(add_noise(vector, plan, secrets), plan.ring_bits)
        return Tallied(
            total=centred(ring),
            accepted=frozenset(present),
            lost=lost,
            noise_variance=plan.share * len(present),
            release=really_released(plan, len(present), plan.share),
        )


@dataclass(frozen=True, slots=True)
class SecureAggregation:
    """SecAgg+ with removable noise, all parties played in this process.

    Guarantee:
        The server's part computes from what a server would see: masked vectors, shares, the
        noisy sum and who took part. See `urna.protocols.secagg` for what is proven against which
        server; the plan's terms say which it is.

    Args:
        dropouts: Clients that vanish, and the stage from which on they are silent; for trying
            out what happens.
        workers: Processes for the clients; by default all cores for many clients.
    """

    dropouts: Mapping[ClientId, Stage] = field(default_factory=dict)
    workers: int | None = None
    secure: ClassVar[bool] = True
    removes_excess: ClassVar[bool] = True

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who saw what."""
        return (
            "Contributions were added up by secure aggregation (SecAgg+, all parties in one "
            f"process): the server's part, {SERVERS[terms.server]}, saw masked vectors, the noisy "
            "sum and who took part"
        )

    def tally(
        self, contributions: Contributions, plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus the planned noise."""
        check_clients(contributions, plan)
        outcome = run(
            contributions, plan.round_plan, secrets, dropouts=self.dropouts, workers=self.workers
        )
        return tallied(outcome, plan)


def produced(vector: IntVector | Callable[[], IntVector], plan: TallyPlan) -> IntVector:
    """Return a client's vector, produced now where it was not yet."""
    made = vector() if callable(vector) else vector
    if made.shape != (plan.dimension,):
        raise ParameterError(
            f"a contribution has shape {made.shape}, the plan has ({plan.dimension},)"
        )
    return made


def check_clients(contributions: Contributions, plan: TallyPlan) -> None:
    """Refuse contributions of more or fewer clients than planned."""
    if len(contributions) != plan.clients:
        raise ParameterError(
            f"the plan is for {plan.clients} clients, got {len(contributions)} contributions"
        )


def check_enough(left: int, plan: TallyPlan, lost: Mapping[ClientId, str]) -> None:
    """Abort where fewer clients are left than the plan allows: at least two, always."""
    if left < plan.terms.fewest:
        raise RoundAborted(
            f"{left} of {plan.clients} clients are left; the plan needs {plan.terms.fewest}. "
            "Nothing was revealed. Plan for a larger dropout.",
            lost,
        )


def really_released(plan: TallyPlan, survivors: int, left: Fraction) -> Release:
    """Return the release under the noise that the honest ones of so many survivors left.

    Args:
        plan: What was planned.
        survivors: How many clients' noise is in the sum.
        left: Variance that each of them left in it, in grid steps squared.
    """
    if plan.release is None:
        return NonPrivateRelease("the sum is exact")
    return replace(plan.release, share=left, shares=survivors - plan.terms.readers)


def tallied(outcome: Outcome, plan: TallyPlan) -> Tallied:
    """Return what a round's outcome means for the sum, and what became public."""
    survivors, count = outcome.survivors, len(outcome.survivors)
    return Tallied(
        total=outcome.total,
        accepted=survivors,
        lost={c: str(loss) for c, loss in sorted(outcome.lost.items()) if c not in survivors},
        noise_variance=outcome.noise_variance,
        release=really_released(plan, count, outcome.noise_variance / Fraction(count)),
        faults=outcome.faults,
    )
