"""Add contributions up by secure aggregation: nobody sees more than the noisy sum."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from urna.protocols.secagg import Outcome, ServerModel, Stage, run
from urna.randomness import SecretSource
from urna.tally.plan import TallyPlan
from urna.tally.summation import ClientId, Contributions, Tallied, check_clients, really_released
from urna.tally.terms import Terms

SERVERS: Mapping[ServerModel, str] = {
    ServerModel.HONEST_BUT_CURIOUS: "taken to be honest-but-curious",
    ServerModel.DISHONEST: "not trusted with anything",
}
"""What a server is trusted with, in words."""


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

    @property
    def secure(self) -> bool:
        """True: single contributions stay hidden from the server."""
        return True

    @property
    def removes_excess(self) -> bool:
        """True: noise for dropouts that did not happen is removed."""
        return True

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


def tallied(outcome: Outcome, plan: TallyPlan) -> Tallied:
    """Return what a round's outcome means for the sum, and what became public."""
    survivors = len(outcome.survivors)
    return Tallied(
        total=outcome.total,
        accepted=outcome.survivors,
        lost={
            client: str(loss)
            for client, loss in sorted(outcome.lost.items())
            if client not in outcome.survivors
        },
        noise_variance=outcome.noise_variance,
        release=really_released(plan, survivors, outcome.noise_variance / Fraction(survivors)),
        faults=outcome.faults,
    )
