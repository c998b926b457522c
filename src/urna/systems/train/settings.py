"""How a model is trained and who takes part, beside the budget: everything here is public."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName
from urna.randomness import SecretSource
from urna.systems.train.layout import Layout, Measurement
from urna.systems.train.optimisers import FedAvgM, ServerOptimiser, as_plain
from urna.tally import Part, exact_part

__all__ = [
    "ACCURACY",
    "LOSS",
    "SHORT",
    "Clip",
    "EarlyStop",
    "Sampling",
    "SamplingKind",
    "Settings",
    "Validation",
    "drawn",
    "drawn_records",
]

LOSS, ACCURACY = "validation loss", "validation accuracy"
"""What clients measure where training is validated."""

SHORT = "short updates"
"""What clients measure where the clip norm adapts: is the update at most as long as it?"""

_DRAW_BYTES = 16
_WORD_BITS = 64
_CLIP = 0.3
_STEEPEST = 10.0  # powers of e by which a clip norm changes in one round
_SMALLEST, _LARGEST = 1e-12, 1e12  # beyond which it is not followed


@dataclass(frozen=True, slots=True)
class Clip:
    """How long an update may be: a fixed norm, or one that follows a private quantile.

    With a quantile (Andrew et al. 2021) clients measure whether their update is short, in the same
    vector and under the same noise; C ← C·exp(−rate·(noisy share of short updates − quantile)).

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
        """Return the next round's clip norm."""
        if self.quantile is None:
            return clip_norm
        share = min(max(measured[SHORT], 0.0), 1.0)  # what is beyond is noise
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
    """Clients judge the model on rows they do not train on, as a private sum beside the updates.

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

    It reads released sums alone and costs nothing. It saves nothing either: epsilon is stated of
    all planned rounds, because data had a say in how many there were.

    Args:
        window: Rounds whose losses are averaged, so that noise does not decide.
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
        sums = np.convolve(losses, np.ones(self.window), mode="valid")
        return len(sums) - 1 - int(sums.argmin()) >= self.patience


class SamplingKind(StrEnum):
    """Who takes part in which round.

    Cohorts take turns in public. With Poisson sampling every client sends a vector in every round,
    and its data, or each of its records, enter by its own secret draw: that amplifies.
    """

    EVERYONE = "everyone"
    COHORTS = "cohorts"
    POISSON = "poisson"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Who takes part in which round.

    Guarantee:
        Of cohorts of m clients: after r rounds no client has taken part in more than ⌈r·m/n⌉: of
        any r·m consecutive places of one endless cycle at most ⌈r·m/n⌉ are equal modulo n.

    Assumes:
        Of cohorts: nothing. All colluding clients may be in one client's cohort; `plan_training`
        counts out min(⌈n·colluding⌉, m − 1) of each.
        Of Poisson sampling: nobody but the client learns its draws. It takes as long, and sends
        as much, whatever it draws.

    Args:
        kind: Everyone, cohorts in turn, or secret Poisson sampling of clients or of records.
        part: Fraction of the clients in a cohort, or the probability of being drawn.
        batch: Of records: how many are expected in a round that loses no client. Public, and what
            the sum is divided by: the number that was drawn is secret.

    Example:
        >>> Sampling.of("cohorts", "0.3").members(1, 10, seed=0)
        [0, 3, 9]
    """

    kind: SamplingKind = SamplingKind.EVERYONE
    part: Fraction = Fraction(1)
    batch: int = 0

    @classmethod
    def of_records(cls, batch: int, records: int) -> "Sampling":
        """Return secret Poisson samples of all clients' records, `batch` of them expected.

        About how many `records` there are is public; privacy rests on the rate alone.

        Example:
            >>> Sampling.of_records(1_024, 60_000).rate
            Fraction(32, 1875)
        """
        if not 0 < batch < records:
            raise ParameterError(
                f"a batch holds a record or more and fewer than all, got {batch:,} of {records:,}"
            )
        return cls(SamplingKind.RECORDS, Fraction(batch, records), batch)

    @classmethod
    def of(cls, kind: SamplingKind | str, part: Part) -> "Sampling":
        """Return cohorts of a fraction, or Poisson sampling of a probability, as people type it."""
        if kind == SamplingKind.RECORDS:
            raise ParameterError("samples of records have a batch size: see `Sampling.of_records`")
        if kind not in list(SamplingKind):
            raise UnknownName("sampling", kind, SamplingKind)
        if kind == SamplingKind.EVERYONE:
            return cls()
        exact = exact_part("the sampled part", part)
        if not exact:
            raise ParameterError("the part that is sampled must be above 0")
        return cls(SamplingKind(kind), exact)

    @property
    def rate(self) -> Fraction | None:
        """Probability of a client's or a record's secret draw; None where there are none."""
        return self.part if self.batch else self.client_rate

    @property
    def client_rate(self) -> Fraction | None:
        """Probability of a client's secret draw; None where clients are not drawn."""
        return self.part if self.kind is SamplingKind.POISSON else None

    def size(self, clients: int) -> int:
        """Return how many of all clients take part in each round."""
        if self.kind is not SamplingKind.COHORTS:
            return clients
        return max(2, math.ceil(clients * self.part))

    def members(self, number: int, clients: int, *, seed: int) -> list[int]:
        """Return who takes part in a round, ascending; everything about it is public."""
        if self.kind is not SamplingKind.COHORTS:
            return list(range(clients))
        size = self.size(clients)
        order = np.random.default_rng([0x434F48, seed]).permutation(clients)
        first = (number - 1) * size
        return sorted(int(order[place % clients]) for place in range(first, first + size))

    def counts(self, rounds: int, clients: int) -> int:
        """Return how many of these rounds any one client takes part in, at most."""
        return math.ceil(Fraction(rounds * self.size(clients), clients))

    def as_mapping(self) -> dict[str, str]:
        """Return the same as plain values."""
        return {
            "kind": str(self.kind),
            **({} if self.kind is SamplingKind.EVERYONE else {"part": str(self.part)}),
            **({"batch": str(self.batch)} if self.batch else {}),
        }


def drawn(rate: Fraction | None, secrets: SecretSource) -> bool:
    """Draw for one client in one round, exactly to 2^-128; True where there is no rate."""
    if rate is None:
        return True
    number = int.from_bytes(secrets.take(_DRAW_BYTES), "big")
    return number * rate.denominator < rate.numerator << (8 * _DRAW_BYTES)


def drawn_records(rate: Fraction, count: int, secrets: SecretSource) -> npt.NDArray[np.bool_]:
    """Draw each of so many records, with a probability of at most `rate` and 2^-64 less."""
    words = np.frombuffer(secrets.take(_WORD_BITS // 8 * count), dtype="<u8")
    return np.asarray(words < np.uint64(math.floor(rate * (1 << _WORD_BITS))))


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is trained.

    Args:
        optimiser: What the server does with the mean update.
        clip: How long a client's update may be: a norm or a `Clip`. By default 0.3; with samples
            of records, what a whole batch's gradients can add up to.
        sampling: Who takes part in which round.
        validation: Whether clients judge the model in every round.
        stop: When to stop early; needs `validation`.
        tail: Fraction of the rounds, the last ones, whose weights are averaged into the model.
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
            Layout(1, self.measurements, record_clip=self.record_clip)  # refuses measurements

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
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("validation", "stop"):
            plain[name] = plain[name] and asdict(plain[name])
        return plain | {
            "optimiser": as_plain(self.optimiser),
            "clip": self.clipping.as_mapping(),
            "sampling": self.sampling.as_mapping(),
        }
