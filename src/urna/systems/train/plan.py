"""What training will cost and bring, decided before anybody computes anything."""

import math
from dataclasses import dataclass
from typing import Any, Unpack

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, Unit
from urna.privacy.distributions import LARGEST_STD
from urna.systems.train.layout import Layout
from urna.systems.train.settings import Settings
from urna.tally import Options, TallyPlan, Terms, plan_tally

__all__ = ["TrainPlan", "plan_training"]

_HOPELESS = 30.0  # times the longest possible way of the model
_ENCODE = 1.2e-8  # seconds for one entry, on one core
_SHOWN = ("noise_multiplier", "update_error", "noise_to_signal", "rounding_excess")


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """Everything public about one training: noise, ring, bytes, rough times."""

    clients: int
    """All of them, whether they take part in every round or not."""
    rounds: int
    settings: Settings
    layout: Layout
    tally: TallyPlan
    """The plan of each round's sum."""

    @property
    def terms(self) -> Terms:
        """The terms of each round's sum; its clients are those of one round."""
        return self.tally.terms

    @property
    def expected(self) -> float:
        """How many clients, or sampled records, are expected in a sum that loses nobody."""
        sampling = self.settings.sampling
        return sampling.batch or self.terms.clients * float(sampling.client_rate or 1)

    @property
    def counted(self) -> int:
        """The most rounds any one client takes part in."""
        return self.settings.sampling.counts(self.rounds, self.clients)

    @property
    def whole_client_epsilon(self) -> float:
        """What is proven for all data of one client, over all its rounds."""
        return self.tally.whole_client_over(self.counted)

    @property
    def noise_multiplier(self) -> float:
        """Deviation of the sum's noise over the largest norm of one client's vector."""
        release = self.tally.release
        norm_squared = self.layout.contribution.norm_squared
        return 0.0 if release is None else math.sqrt(release.variance / norm_squared)

    @property
    def update_error(self) -> float:
        """Deviation of one entry of the mean update, in units of the clip norm."""
        deviation = math.sqrt(self.tally.most_noise) / self.layout.encoding.steps
        return deviation / self.expected

    @property
    def noise_to_signal(self) -> float:
        """Length of all rounds' noise over the longest way of updates; above one it drowns them."""
        longest = 1.0
        if self.settings.sampling.batch and self.layout.record_clip is not None:
            longest = self.layout.record_clip
        return self.update_error * math.sqrt(self.layout.parameters / self.rounds) / longest

    @property
    def rounding_excess(self) -> float:
        """The part of the noise that is there because vectors were rounded."""
        layout, relation = self.layout, self.terms.adjacency
        if self.tally.rate is not None:
            relation = relation.left_out
        exact = layout.encoding.steps * (layout.record_clip or layout.norm)
        moved = layout.contribution.sensitivity(relation).l2
        return moved / exact / (2 if relation.replaces else 1) - 1

    @property
    def seconds_per_round(self) -> tuple[float, float]:
        """Rough time one client and the server compute in a round, without training."""
        protocol, encoding = self.tally.round_plan, _ENCODE * self.layout.dimension
        return protocol.client_seconds + encoding, protocol.server_seconds + encoding

    def check_hopeful(self) -> None:
        """Refuse training whose noise drowns everything, with what would help."""
        if self.noise_to_signal > _HOPELESS:
            raise ParameterError(
                f"the noise of all rounds together is {self.noise_to_signal:.0f} times as long as "
                f"the longest way the model could go: {self.layout.parameters:,} parameters are "
                f"too many for {self.expected:g} clients a round at epsilon "
                f"{self.terms.budget.epsilon:g}. Take a smaller model, more clients, a larger "
                "epsilon, or say `force`."
            )

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        protocol = self.tally.round_plan
        client, server = self.seconds_per_round
        said = self.tally.as_mapping()
        if self.terms.adjacency.unit is Unit.RECORD:
            whole = self.whole_client_epsilon
            said["whole_client_epsilon"] = whole if math.isfinite(whole) else None
        return {
            **said,
            "all_clients": self.clients,
            "rounds": self.rounds,
            "rounds_of_one_client": self.counted,
            "settings": self.settings.as_mapping(),
            "layout": self.layout.as_mapping(),
            **{name: getattr(self, name) for name in _SHOWN},
            "neighbours": protocol.neighbours,
            "threshold": protocol.threshold,
            "noise_components": 1 + (protocol.noise.shared if protocol.noise else 0),
            "removal": str(self.terms.removal),
            "bytes_per_client_and_round": protocol.bytes_per_client,
            "model_bytes": 4 * self.layout.parameters,
            "client_seconds_per_round": client,
            "server_seconds_per_round": server,
        }


def plan_training(
    clients: int,
    parameters: int,
    *,
    budget: Budget,
    rounds: int,
    settings: Settings | None = None,
    removes_excess: bool = True,
    **options: Unpack[Options],
) -> TrainPlan:
    """Plan a training: the least noise, the narrowest ring.

    Args:
        clients: How many clients there are in all.
        parameters: How many numbers the model has.
        budget: What all rounds together may cost.
        rounds: How many rounds there will be at most.
        settings: How the model is trained.
        removes_excess: Whether the summation removes noise that turns out not to be needed.
        options: The rest of the terms; see `urna.tally.Terms`. `colluding` is a part of them all.

    Raises:
        ParameterError: It cannot work, whatever the data; the message says why.

    Example:
        >>> planned = plan_training(539, 25_450, budget=Budget(6.0, 1e-3), rounds=80)
        >>> planned.tally.ring_bits, round(planned.rounding_excess, 4) < 0.005
        (32, True)
    """
    if type(rounds) is not int or rounds < 1:
        raise ParameterError(f"training has a round or more, got {rounds}")
    how = settings or Settings()
    # Cohorts take turns in public: all who collude may be in one client's cohort.
    terms = Terms.of(clients, budget, **options).for_some(how.sampling.size(clients))
    if (terms.adjacency.unit is Unit.RECORD) != (how.record_clip is not None):
        raise ParameterError(
            f"{Adjacency.REPLACE_ONE_RECORD} (or adding or removing one) and `record_clip` go "
            "together: single records are protected where each one's gradient is clipped, and only "
            "there"
        )
    record_clip = None if how.record_clip is None else how.record_clip / how.clipping.first
    layout = Layout(parameters, how.measurements, record_clip=record_clip)
    size = f"{layout.dimension:,} entries of {terms.clients} clients a round"
    try:
        tally = plan_tally(
            terms,
            layout.contribution,
            rounds=how.sampling.counts(rounds, clients),
            removes_excess=removes_excess,
            finest=1,
            rate=how.sampling.rate,
        )
    except ParameterError as error:
        raise ParameterError(f"{size} cannot be summed: {error}") from error
    if math.sqrt(tally.share) > LARGEST_STD / 2:
        raise ParameterError(
            f"{size} cannot be summed: one client's noise would have a deviation "
            f"of {math.sqrt(tally.share):,.0f} grid steps, and at most {LARGEST_STD // 2:,} can be "
            "drawn in reasonable time. Take a smaller model, more clients, or fewer rounds."
        )
    try:
        tally.round_plan  # noqa: B018 - a graph that cannot be is refused here
    except ParameterError as error:
        if terms.clients == clients or not terms.colluders:
            raise
        raise ParameterError(
            f"of {clients} clients so many may collude that {terms.colluders} of the "
            f"{terms.clients} in one cohort do, because the turns are public; masks then hide "
            f"nobody. Take larger cohorts, or plan for fewer colluding clients. ({error})"
        ) from error
    return TrainPlan(clients, rounds, how, layout, tally)
