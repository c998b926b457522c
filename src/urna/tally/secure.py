"""Add ballots up by secure summation: nobody sees more than the noisy sum."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from urna.noise import IntVector
from urna.privacy import TallyRelease
from urna.privacy.calibration import readers
from urna.randomness import SecretSource
from urna.secagg import Outcome, Plan, Removal, ServerModel, Stage, run
from urna.secagg import plan as plan_round
from urna.tally.plan import MOST_PRECISE, TallyPlan
from urna.tally.summation import ClientId, Tallied, check_contributions

__all__ = ["SecureSummation", "tallied"]


@dataclass(frozen=True, slots=True)
class SecureSummation:
    """SecAgg+ with removable noise, all parties played in this process.

    Guarantee:
        The server's part computes from what a server would see: masked vectors, shares, the
        noisy sum and who took part. See `urna.secagg` for what is proven against which server.

    Args:
        server: Which server the round protects against.
        dropouts: Clients that vanish, and the stage from which on they are silent; for trying
            out what happens.
        workers: Processes for the clients; by default all cores for a large electorate.
    """

    server: ServerModel = ServerModel.HONEST_BUT_CURIOUS
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

    @property
    def described(self) -> str:
        """One sentence about who saw what."""
        return (
            "Ballots were added up by secure summation (SecAgg+, all parties in one process): the "
            f"server's part, taken to be {self.server}, saw masked vectors, the noisy sum and who "
            "took part"
        )

    def tally(
        self, contributions: Mapping[ClientId, IntVector], plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus the planned noise."""
        check_contributions(contributions, plan)
        round_plan = self.round_plan(plan)
        outcome = run(
            contributions, round_plan, secrets, dropouts=self.dropouts, workers=self.workers
        )
        return tallied(outcome, plan)

    def round_plan(self, plan: TallyPlan) -> Plan:
        """Return the protocol's plan for this tally: graph, threshold, noise components."""
        removal = Removal.PRECISE
        if not plan.noise.distribution.closed_under_addition:
            removal = Removal.NONE
        elif plan.clients - plan.fewest > MOST_PRECISE:
            removal = Removal.APPROXIMATE
        return plan_round(
            clients=plan.clients,
            dimension=plan.dimension,
            ring_bits=plan.ring_bits,
            colluding=plan.colluding,
            dropout=plan.dropout,
            noise_variance=self._target(plan),
            xnoise=removal,
            server=self.server,
            family=plan.noise,
        )

    @staticmethod
    def _target(plan: TallyPlan) -> Fraction:
        """Return the variance the protocol aims at.

        It counts c colluders out; the plan counts out r ≥ c readers, one even if nobody
        colludes. With f the fewest survivors, aiming at v·(f − c)/(f − r) makes each of s ≥ f
        survivors leave v·(f − c)/((f − r)(s − c)), so s − r of them leave at least v, the
        calibrated variance, because (s − r)/(s − c) grows with s.
        """
        colluders = math.floor(plan.clients * plan.colluding)
        rest = plan.fewest - colluders
        return plan.calibration.release.variance * Fraction(rest, plan.calibration.release.shares)


def tallied(outcome: Outcome, plan: TallyPlan) -> Tallied:
    """Return what a round's outcome means for the tally: the sum, and what became public."""
    planned, survivors = plan.calibration.release, len(outcome.survivors)
    return Tallied(
        total=outcome.total,
        accepted=outcome.survivors,
        lost={
            client: f"{loss.reason} ({loss.stage.name.lower()})"
            for client, loss in sorted(outcome.lost.items())
            if client not in outcome.survivors
        },
        noise_variance=outcome.noise_variance,
        release=TallyRelease(
            planned.shifts,
            outcome.noise_variance / survivors,
            survivors - readers(plan.clients, plan.colluding),
            planned.family,
        ),
    )
