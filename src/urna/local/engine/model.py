"""What is trained together, and its weights: one lane for each candidate or client."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from urna.local.engine.loss import Loss, TorchLoss
from urna.local.speed import Speed
from urna.space import Value

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Model", "Tick", "Weights", "joined"]

Tick = Callable[[float], None]
"""Called after each epoch with the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class Model:
    """A module to train, and where and how it is trained; nothing of it differs by candidate.

    Args:
        factory: Makes a fresh module; called with `shape`.
        shape: What the factory is called with, as sorted (name, value) pairs.
        loss: A `TorchLoss`, or a function (outputs, targets) -> mean loss over the rows.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        speed: What may be done to be faster.
        repeatable: Whether a GPU should give the same bits every time.
    """

    factory: Callable[..., Any]
    shape: tuple[tuple[str, Value], ...] = ()
    loss: Loss = TorchLoss.CROSS_ENTROPY
    device: str = "auto"
    speed: Speed = field(default_factory=Speed)
    repeatable: bool = False

    def build(self) -> Any:  # noqa: ANN401 - a torch module
        """Call the factory."""
        return self.factory(**dict(self.shape))


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of several lanes, by name; the first dimension of each tensor is the lane."""

    parameters: "dict[str, Tensor]"
    buffers: "dict[str, Tensor]"

    def each(self, change: "Callable[[Tensor], Tensor]") -> "Weights":
        """Return the weights with every tensor changed."""
        parts = (
            {n: change(t) for n, t in part.items()} for part in (self.parameters, self.buffers)
        )
        return Weights(*parts)


def joined(parts: Sequence[Weights]) -> Weights:
    """Return all lanes of the first weights, then of the next."""
    import torch  # noqa: PLC0415 - the core runs without torch

    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Weights(
        {n: torch.cat([part.parameters[n] for part in parts]) for n in first.parameters},
        {n: torch.cat([part.buffers[n] for part in parts]) for n in first.buffers},
    )
