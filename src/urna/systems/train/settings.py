"""How a model is trained, beside its budget: everything here is public."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from urna.errors import ParameterError
from urna.systems.train.clipping import Clip, FixedClip, as_clip, read_clip
from urna.systems.train.layout import Measurement
from urna.systems.train.optimisers import FedAvgM, ServerOptimiser, as_plain, read_optimiser
from urna.systems.train.sampling import Everyone, Sampling, read_sampling

__all__ = ["ACCURACY", "LOSS", "EarlyStop", "Settings", "Validation"]

LOSS, ACCURACY = "validation loss", "validation accuracy"
"""What clients measure where training is validated."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Clients judge the model they are sent on rows they do not train on.

    A plain average of clients' losses would tell about their data; this is a private tally, in
    the same sum as the updates.

    Args:
        part: Share of a client's rows that it judges by.
        weight: Of each measurement in a client's vector.
        largest_loss: Larger losses count as this one. It must not come from the data.
    """

    part: float = 0.2
    weight: float = 0.35
    largest_loss: float = 4.0

    def __post_init__(self) -> None:
        if not 0 < self.part < 1:
            raise ParameterError(f"the part to judge by lies between 0 and 1, got {self.part}")
        if not (math.isfinite(self.largest_loss) and self.largest_loss > 0):
            raise ParameterError(f"the largest loss is positive, got {self.largest_loss}")

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What clients measure."""
        return Measurement(LOSS, self.weight), Measurement(ACCURACY, self.weight)

    def scaled(self, loss: float) -> float:
        """Return a loss as a number from 0 to 1; NaN stays NaN."""
        return loss if math.isnan(loss) else min(max(loss / self.largest_loss, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Stop once the private validation loss has stopped falling.

    Looks at means over `window` rounds, so that noise does not decide. It reads released sums
    alone and costs nothing; nor does it save anything in the statement, which is that of all
    planned rounds, because data had a say in how many there were.

    Args:
        window: Rounds of which losses are averaged.
        patience: How many rounds the best window may lie back.
    """

    window: int = 8
    patience: int = 16

    def __post_init__(self) -> None:
        if min(self.window, self.patience) < 1:
            raise ParameterError("window and patience are one round or more")

    def reached(self, losses: list[float]) -> bool:
        """Say whether it is time to stop, from all losses so far."""
        if len(losses) < self.window + self.patience:
            return False
        means = [
            sum(losses[at : at + self.window]) / self.window
            for at in range(len(losses) - self.window + 1)
        ]
        best = min(range(len(means)), key=means.__getitem__)
        return len(means) - 1 - best >= self.patience


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is trained.

    Args:
        optimiser: What the server does with the mean update.
        clip: How long a client's update may be: a norm, or `AdaptiveClip`.
        sampling: Who takes part in which round.
        validation: Whether clients judge the model in every round.
        stop: When to stop early; needs `validation`.
        tail: Share of the last rounds whose weights are averaged into the model; noise averages
            out with them, at no cost.
        record_clip: Where single records are protected: how long one record's gradient may be.
        attempts: How often a round is held that loses more clients than planned.
        seed: Public seed of first weights, batches and turns.
    """

    optimiser: ServerOptimiser = field(default_factory=FedAvgM)
    clip: Clip | float = 0.3
    sampling: Sampling = field(default_factory=Everyone)
    validation: Validation | None = None
    stop: EarlyStop | None = None
    tail: float = 0.0
    record_clip: float | None = None
    attempts: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", as_clip(self.clip))
        if self.stop is not None and self.validation is None:
            raise ParameterError("to stop early, let clients validate: name a `validation`")
        if not 0 <= self.tail < 1:
            raise ParameterError(f"the tail is a share of the rounds below 1, got {self.tail}")
        if self.attempts < 1:
            raise ParameterError(f"a round is held once or more often, got {self.attempts}")
        if self.record_clip is not None:
            if not (math.isfinite(self.record_clip) and self.record_clip > 0):
                raise ParameterError(f"record_clip is positive, got {self.record_clip}")
            if not isinstance(self.clip, FixedClip) or self.validation is not None:
                raise ParameterError(
                    "where single records are protected, the clip norm is fixed and nothing is "
                    "validated: nothing is known of how far one record moves a measurement"
                )

    @property
    def clipping(self) -> Clip:
        """How long a client's update may be."""
        return as_clip(self.clip)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All that clients measure."""
        short = self.clipping.measurement
        judged = () if self.validation is None else self.validation.measurements
        return (*judged, *(() if short is None else (short,)))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {
            "optimiser": as_plain(self.optimiser),
            "clip": self.clipping.as_mapping(),
            "sampling": self.sampling.as_mapping(),
            "validation": None if self.validation is None else asdict(self.validation),
            "stop": None if self.stop is None else asdict(self.stop),
            "tail": self.tail,
            "record_clip": self.record_clip,
            "attempts": self.attempts,
            "seed": self.seed,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Settings":
        """Read what `as_mapping` wrote."""
        optimiser = dict(mapping["optimiser"])
        validation, stop = mapping["validation"], mapping["stop"]
        return cls(
            read_optimiser(optimiser.pop("name"), **optimiser),
            read_clip(mapping["clip"]),
            read_sampling(mapping["sampling"]),
            None if validation is None else Validation(**validation),
            None if stop is None else EarlyStop(**stop),
            float(mapping["tail"]),
            mapping["record_clip"],
            int(mapping["attempts"]),
            int(mapping["seed"]),
        )
