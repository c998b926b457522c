"""How long an update may be: a fixed norm, or one that follows a private quantile."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from urna.errors import ParameterError
from urna.systems.train.layout import Measurement

__all__ = ["AdaptiveClip", "Clip", "FixedClip", "as_clip"]

SHORT = "short updates"
"""Measured where the clip norm adapts: is the update at most as long as the clip norm?"""

_STEEPEST = 10.0  # powers of e by which a clip norm changes in one round
_SMALLEST, _LARGEST = 1e-12, 1e12  # beyond which it is not followed


class Clip(Protocol):
    """Decides the clip norm of every round from public values alone."""

    @property
    def first(self) -> float:
        """The clip norm of the first round."""
        ...

    @property
    def measurement(self) -> Measurement | None:
        """What clients measure for it."""
        ...

    def after(self, clip_norm: float, measured: Mapping[str, float]) -> float:
        """Return the next round's clip norm."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        ...


@dataclass(frozen=True, slots=True)
class FixedClip:
    """The same clip norm in every round."""

    first: float

    def __post_init__(self) -> None:
        _check(self.first)

    @property
    def measurement(self) -> Measurement | None:
        """Nothing."""
        return None

    def after(self, clip_norm: float, measured: Mapping[str, float]) -> float:
        """Return the same."""
        del measured
        return clip_norm

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "fixed", "first": self.first}


@dataclass(frozen=True, slots=True)
class AdaptiveClip:
    """A clip norm that follows a quantile of the updates' norms (Andrew et al. 2021).

    Clients measure whether their update is short; the noisy share of those is what moves the clip
    norm: C ← C·exp(−rate·(share − quantile)).

    Guarantee:
        The share is a private sum of its own weight in the same vector as the update; the
        noise of the round is made for both.

    Args:
        first: The clip norm of the first round.
        quantile: The part of updates that should be short.
        rate: How fast the clip norm follows.
        weight: Of the measurement in a client's vector.
    """

    first: float = 0.1
    quantile: float = 0.5
    rate: float = 0.2
    weight: float = 0.25

    def __post_init__(self) -> None:
        _check(self.first)
        if not 0 < self.quantile < 1:
            raise ParameterError(f"a quantile lies between 0 and 1, got {self.quantile}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ParameterError(f"the rate must be finite and positive, got {self.rate}")

    @property
    def measurement(self) -> Measurement | None:
        """Whether an update is short."""
        return Measurement(SHORT, self.weight)

    def after(self, clip_norm: float, measured: Mapping[str, float]) -> float:
        """Return the next round's clip norm; a share beyond 0..1 is noise and counts as these."""
        share = min(max(measured[SHORT], 0.0), 1.0)
        power = min(max(-self.rate * (share - self.quantile), -_STEEPEST), _STEEPEST)
        low, high = min(_SMALLEST, self.first), max(_LARGEST, self.first)
        return min(max(clip_norm * math.exp(power), low), high)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "adaptive", **asdict(self)}


def as_clip(value: "Clip | float") -> Clip:
    """Return a clip norm from what people type."""
    return FixedClip(float(value)) if isinstance(value, int | float) else value


def read_clip(mapping: Mapping[str, Any]) -> Clip:
    """Read what `as_mapping` wrote."""
    fields = {name: float(value) for name, value in mapping.items() if name != "kind"}
    return FixedClip(**fields) if mapping["kind"] == "fixed" else AdaptiveClip(**fields)


def _check(norm: float) -> None:
    if not (math.isfinite(norm) and norm > 0):
        raise ParameterError(f"a clip norm must be finite and positive, got {norm}")
