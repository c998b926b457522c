"""What a client's vector contains in one round of training: its update, and a few measurements.

The update is clipped and divided by the clip norm, so its norm is at most one. Measurements (is my
update short? how well does the model do on my rows?) are numbers from 0 to 1, moved to −½..½ and
weighted. With weights w the vector's norm is at most √(1 + Σ(w/2)²), and noise is made for that.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.randomness import SecretSource
from urna.tally import BoundedVector, Encoding

__all__ = ["EXCESS", "Layout", "Measurement", "Summary", "client_log", "norm_of"]

EXCESS = 0.0045
"""Rounding to the grid makes noise larger by less than this part of itself."""

_PIECE = 1 << 16  # entries at a time: what is computed with them stays in the cache

client_log = logging.getLogger("urna.systems.train.client")
"""A client's own log: what its data did to it, for nobody else."""

Reals = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A number from 0 to 1 that every client measures in every round."""

    name: str
    weight: float
    """How much of the noise it is worth: more makes it more exact, and updates noisier."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ParameterError(f"a measurement has a positive weight, got {self.weight}")


@dataclass(frozen=True, slots=True)
class Summary:
    """One round's noisy sum, decoded."""

    update: npt.NDArray[np.float64]
    """The mean of the clients' updates, in units of the clip norm."""
    update_error: float
    """Standard deviation of one of its entries, from noise and rounding."""
    measured: Mapping[str, float]
    """Means of the measurements; noise may bring them outside of 0..1."""
    errors: Mapping[str, float]
    """Their standard deviations, from noise."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a client's vector.

    Guarantee:
        What is encoded has an L2 norm of at most `norm`, for every input.

    Args:
        parameters: Entries of an update.
        measurements: What is measured beside it.
        steps: Grid steps per unit; by default fine enough that rounding costs `EXCESS` of noise.
        record_clip: How long one record's part of an update may be, in units of the clip norm.
    """

    parameters: int
    measurements: tuple[Measurement, ...] = ()
    steps: float | None = None
    record_clip: float | None = None

    def __post_init__(self) -> None:
        if type(self.parameters) is not int or self.parameters < 1:
            raise ParameterError(f"an update has a parameter or more, got {self.parameters}")
        if self.record_clip is not None and self.measurements:
            raise ParameterError(
                "nothing is known of how far one record moves a measurement: where single records "
                "are protected, fix the clip norm and validate nothing"
            )

    @property
    def dimension(self) -> int:
        """Entries of the whole vector."""
        return self.parameters + len(self.measurements)

    @property
    def norm(self) -> float:
        """Largest L2 norm of the whole vector."""
        return math.sqrt(1 + sum((m.weight / 2) ** 2 for m in self.measurements))

    @property
    def encoding(self) -> Encoding:
        """How it becomes integers."""
        replaced = None if self.record_clip is None else 2 * self.record_clip
        if self.steps is not None:
            return Encoding(self.dimension, self.norm, self.steps, None, replaced)
        # Of a record that is left out; of one that is replaced it costs a quarter.
        excess = EXCESS if replaced is None else EXCESS / 4
        return Encoding.fine(self.dimension, self.norm, excess=excess, record_sensitivity=replaced)

    @property
    def contribution(self) -> BoundedVector:
        """What a valid integer vector is."""
        encoding = self.encoding
        if self.record_clip is None:
            return encoding.contribution
        return replace(encoding.contribution, removed_squared=encoding.apart(self.record_clip))

    def encode(
        self,
        update: Reals | None,
        clip_norm: float,
        measured: Mapping[str, float],
        secrets: SecretSource,
    ) -> IntVector:
        """Return a client's vector on the grid. What is not finite or misshapen counts as nothing.

        The reason is in the client's own log, and nowhere else. Without an update a client puts in
        nothing at all.
        """
        whole = np.zeros(self.dimension)
        if update is None:
            return self.encoding.encode(whole, secrets)
        part = whole[: self.parameters]
        if update.shape != part.shape:
            client_log.warning(
                "this client's update has the shape %s, not (%d,): it contributes nothing",
                update.shape,
                self.parameters,
            )
        elif math.isfinite(norm := norm_of(update)):
            np.divide(update, max(norm, clip_norm), out=part)
        else:
            client_log.warning("this client's update is not finite: it contributes nothing")
        for place, measurement in enumerate(self.measurements, start=self.parameters):
            value = measured.get(measurement.name, math.nan)
            if math.isfinite(value):
                whole[place] = measurement.weight * (min(max(value, 0.0), 1.0) - 0.5)
        return self.encoding.encode(whole, secrets)

    def read(self, total: IntVector, *, clients: float, variance: Fraction) -> Summary:
        """Decode a noisy sum of so many expected clients, or sampled records, and this variance."""
        encoding = self.encoding
        means = encoding.decode(total) / clients
        error = encoding.error(math.ceil(clients), variance) / clients
        measured = {
            m.name: float(means[place]) / m.weight + 0.5
            for place, m in enumerate(self.measurements, start=self.parameters)
        }
        errors = {m.name: error / m.weight for m in self.measurements}
        return Summary(means[: self.parameters], error, measured, errors)

    def as_mapping(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {
            "parameters": self.parameters,
            "measurements": {m.name: m.weight for m in self.measurements},
            "steps": self.encoding.steps,
            "record_clip": self.record_clip,
        }

    @classmethod
    def read_mapping(cls, mapping: Mapping[str, Any]) -> "Layout":
        """Read what `as_mapping` wrote."""
        measured = mapping["measurements"].items()
        weighted = tuple(Measurement(str(name), float(weight)) for name, weight in measured)
        clip = mapping["record_clip"]
        clip = None if clip is None else float(clip)
        return cls(mapping["parameters"], weighted, float(mapping["steps"]), clip)


def norm_of(vector: Reals) -> float:
    """Return the L2 norm in float64, without overflow; NaN or infinite where an entry is."""
    flat = vector.ravel()
    largest = max(float(flat.max(initial=0.0)), -float(flat.min(initial=0.0)))
    if not math.isfinite(largest) or largest == 0:
        return largest
    squares = 0.0
    for start in range(0, len(flat), _PIECE):
        piece = np.divide(flat[start : start + _PIECE], largest, dtype=np.float64)
        squares += float(np.square(piece, out=piece).sum())
    return largest * math.sqrt(squares)
