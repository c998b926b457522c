"""How a model is trained, beside its budget: everything here is public."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from urna.errors import ParameterError
from urna.systems.train.layout import Measurement
from urna.systems.train.optimisers import FedAvgM, ServerOptimiser, as_plain
from urna.systems.train.sampling import Sampling

__all__ = ["ACCURACY", "LOSS", "SHORT", "Clip", "EarlyStop", "Settings", "Validation"]

LOSS, ACCURACY = "validation loss", "validation accuracy"
"""What clients measure where training is validated."""

SHORT = "short updates"
"""What clients measure where the clip norm adapts: is the update at most as long as it?"""

_CLIP = 0.3
_STEEPEST = 10.0  # powers of e by which a clip norm changes in one round
_SMALLEST, _LARGEST = 1e-12, 1e12  # beyond which it is not followed


@dataclass(frozen=True, slots=True)
class Clip:
    """How long an update may be: a fixed norm, or one that follows a private quantile.

    With a quantile (Andrew et al. 2021) clients measure whether their update is short; the noisy
    share of short updates moves the clip norm: C ← C·exp(−rate·(share − quantile)).

    Guarantee:
        The share is measured in the same vector as the update; the noise of the round is made
        for both.

    Args:
        first: The clip norm of the first round.
        quantile: The fraction of updates that should be short; None for a fixed norm.
        rate: How fast the clip norm follows.
        weight: Of the measurement in a client's vector.
    """

    first: float
    quantile: float | None = None
    rate: float = 0.2
    weight: float = 0.25

    def __post_init__(self) -> None:
        for name, value in (("a clip norm", self.first), ("the rate", self.rate)):
            if not (math.isfinite(value) and value > 0):
                raise ParameterError(f"{name} must be finite and positive, got {value}")
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise ParameterError(f"a quantile lies between 0 and 1, got {self.quantile}")

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What clients measure for it."""
        return () if self.quantile is None else (Measurement(SHORT, self.weight),)

    def after(self, clip_norm: float, measured: Mapping[str, float]) -> float:
        """Return the next round's clip norm; a share beyond 0..1 is noise and counts as these."""
        if self.quantile is None:
            return clip_norm
        share = min(max(measured[SHORT], 0.0), 1.0)
        power = min(max(-self.rate * (share - self.quantile), -_STEEPEST), _STEEPEST)
        low, high = min(_SMALLEST, self.first), max(_LARGEST, self.first)
        return min(max(clip_norm * math.exp(power), low), high)

    def as_mapping(self) -> dict[str, Any]:
        """Return the same as plain values."""
        if self.quantile is None:
            return {"kind": "fixed", "first": self.first}
        return {"kind": "adaptive", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Validation:
    """Clients judge the model they are sent on rows they do not train on.

    A plain average of clients' losses would reveal their data; this is a private sum, in the same
    vector as the updates.

    Args:
        part: Fraction of a client's rows that it judges by.
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
    alone and costs nothing. It saves nothing either: epsilon is stated of all planned rounds,
    because data had a say in how many there were.

    Args:
        window: Rounds whose losses are averaged.
        patience: How many rounds the best window may lie back.
    """

    window: int = 8
    patience: int = 16

    def __post_init__(self) -> None:
        if min(self.window, self.patience) < 1:
            raise ParameterError("window and patience are one round or more")

    def reached(self, losses: list[float]) -> bool:
        """Return whether it is time to stop, from all losses so far."""
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
        clip: How long a client's update may be: a norm, or a `Clip` that follows a quantile. By
            default 0.3; with samples of records, what a whole batch's gradients can add up to.
        sampling: Who takes part in which round.
        validation: Whether clients judge the model in every round.
        stop: When to stop early; needs `validation`.
        tail: Fraction of the rounds, the last ones, whose weights are averaged into the model.
            Noise averages out with them, at no cost.
        record_clip: Where single records are protected: how long one record's gradient may be.
        attempts: How often a round that loses more clients than planned is tried.
        seed: Public seed of first weights, batches and turns.
    """

    optimiser: ServerOptimiser = field(default_factory=FedAvgM)
    clip: Clip | float | None = None
    sampling: Sampling = field(default_factory=Sampling)
    validation: Validation | None = None
    stop: EarlyStop | None = None
    tail: float = 0.0
    record_clip: float | None = None
    attempts: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sampling.batch and self.record_clip is None:
            raise ParameterError("samples of records need a `record_clip`: name how long it is")
        object.__setattr__(self, "clip", self.clipping)
        if self.stop is not None and self.validation is None:
            raise ParameterError("to stop early, let clients validate: name a `validation`")
        if not 0 <= self.tail < 1:
            raise ParameterError(f"the tail is a part of the rounds below 1, got {self.tail}")
        if self.attempts < 1:
            raise ParameterError(f"a round is tried once or more often, got {self.attempts}")
        if self.record_clip is not None:
            if not (math.isfinite(self.record_clip) and self.record_clip > 0):
                raise ParameterError(f"record_clip is positive, got {self.record_clip}")
            if self.measurements:
                raise ParameterError(
                    "where single records are protected, the clip norm is fixed and nothing is "
                    "validated: nothing is known of how far one record moves a measurement"
                )

    @property
    def clipping(self) -> Clip:
        """How long a client's update may be."""
        if isinstance(self.clip, Clip):
            return self.clip
        whole = (self.record_clip or 0.0) * self.sampling.batch or _CLIP
        return Clip(float(whole if self.clip is None else self.clip))

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All that clients measure."""
        judged = () if self.validation is None else self.validation.measurements
        return (*judged, *self.clipping.measurements)

    def as_mapping(self) -> dict[str, Any]:
        """Return the same as plain values."""
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
