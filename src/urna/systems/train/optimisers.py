"""What the server does with a noisy mean update, at no privacy cost: FedAvg, FedAvgM, FedAdam."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName

__all__ = ["OPTIMISERS", "FedAdam", "FedAvg", "FedAvgM", "ServerOptimiser", "read_optimiser"]

Vector = npt.NDArray[np.float64]
Slots = Mapping[str, Vector]
"""What an optimiser remembers from round to round, by name."""


class ServerOptimiser(Protocol):
    """Turns the mean of the clients' updates into a step."""

    name: ClassVar[str]

    def step(self, update: Vector, slots: Slots) -> tuple[Vector, Slots]:
        """Return what is added to the weights, and what to remember: at first nothing is."""
        ...


@dataclass(frozen=True, slots=True)
class FedAvg:
    """Step by the mean (McMahan et al. 2017).

    Example:
        >>> FedAvg(lr=0.5).step(np.array([2.0]), {})
        (array([1.]), {})
    """

    name: ClassVar[str] = "fedavg"
    lr: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

    def step(self, update: Vector, slots: Slots) -> tuple[Vector, Slots]:
        """Return the update times the rate."""
        return self.lr * update, slots


@dataclass(frozen=True, slots=True)
class FedAvgM:
    """FedAvg with momentum (Hsu, Qi & Brown 2019): v ← β·v + Δ, step lr·v."""

    name: ClassVar[str] = "fedavgm"
    lr: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        _check(self, "momentum")

    def step(self, update: Vector, slots: Slots) -> tuple[Vector, Slots]:
        """Return the velocity times the rate."""
        velocity = update + self.momentum * slots.get("velocity", np.zeros_like(update))
        return self.lr * velocity, {"velocity": velocity}


@dataclass(frozen=True, slots=True)
class FedAdam:
    """Adam on the mean update (Reddi et al. 2021): step lr·m/(√v + τ), without bias correction."""

    name: ClassVar[str] = "fedadam"
    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check(self, "beta1", "beta2")
        if not (math.isfinite(self.tau) and self.tau > 0):
            raise ParameterError(f"tau must be finite and positive, got {self.tau}")

    def step(self, update: Vector, slots: Slots) -> tuple[Vector, Slots]:
        """Return the step of Adam."""
        zeros = np.zeros_like(update)
        mean = self.beta1 * slots.get("mean", zeros) + (1 - self.beta1) * update
        square = self.beta2 * slots.get("square", zeros) + (1 - self.beta2) * np.square(update)
        return self.lr * mean / (np.sqrt(square) + self.tau), {"mean": mean, "square": square}


OPTIMISERS: Mapping[str, type[FedAvg] | type[FedAvgM] | type[FedAdam]] = {
    kind.name: kind for kind in (FedAvg, FedAvgM, FedAdam)
}


def as_plain(optimiser: ServerOptimiser) -> dict[str, Any]:
    """Return an optimiser as plain values."""
    fields: dict[str, Any] = asdict(optimiser) if is_dataclass(optimiser) else {}
    return {"name": optimiser.name, **fields}


def read_optimiser(name: str, **settings: float) -> ServerOptimiser:
    """Return an optimiser by name.

    Raises:
        UnknownName: The name is not one of `OPTIMISERS`.
        ParameterError: It has no such setting.
    """
    if name not in OPTIMISERS:
        raise UnknownName("server optimiser", name, OPTIMISERS)
    try:
        return OPTIMISERS[name](**settings)
    except TypeError as error:
        raise ParameterError(f"{name} has no such setting: {error}") from error


def _check(optimiser: FedAvg | FedAvgM | FedAdam, *shares: str) -> None:
    if not (math.isfinite(optimiser.lr) and optimiser.lr > 0):
        raise ParameterError(f"lr must be finite and positive, got {optimiser.lr}")
    for name in shares:
        if not 0 <= (value := getattr(optimiser, name)) < 1:
            raise ParameterError(f"{name} must be at least 0 and below 1, got {value}")
