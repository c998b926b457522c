"""Gradients and losses of all lanes at once, by torch.func, with dropout that follows from a key.

Works for any module torch.func can trace: the module is called with one lane's weights, and
vmap turns every operation into its batched form. Clients of equal size may be stacked as
well; then weights have two leading dimensions, client and lane.

PyTorch draws masks from a generator's state. That state differs between devices, between one
candidate and a stack of them, and between chunk sizes. Here a mask is a hash of (key, which
dropout call of the forward pass, element), so it is the same everywhere. Only dropout is
taken over; a module that draws other random numbers cannot be batched. This module imports torch.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.overrides import TorchFunctionMode

from urna.errors import CannotBatch
from urna.local.engine.model import Loss, TorchLoss, mean_loss
from urna.local.engine.stack import Tensors

__all__ = ["Batched", "KernelContext", "KeyedDropout", "dropout_mask", "refuse_recurrent"]

_ELEMENT = -7046029254386353131  # 0x9E3779B97F4A7C15, the golden ratio in 64 bits
_CALL = -3335678366873096957  # another odd constant: one stream per dropout call
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_CHANNELWISE: Mapping[Any, int] = {F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}


class KeyedDropout(TorchFunctionMode):
    """Take over dropout inside a `with` block around one forward pass.

    Args:
        key: The step's key from `step_key`, as a 0-d int64 tensor on the module's device.
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key = key
        self._calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the intercepted function returns
        """Replace dropout, and pass everything else on."""
        kwargs = kwargs or {}
        if func is F.dropout:
            return self._drop(*args, **kwargs, spatial=0)
        if func in _CHANNELWISE:
            return self._drop(*args, **kwargs, spatial=_CHANNELWISE[func])
        return func(*args, **kwargs)

    def _drop(
        self,
        input: Tensor,  # noqa: A002 - the name PyTorch passes it by
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        *,
        spatial: int,
    ) -> Tensor:
        del inplace  # a fresh tensor serves both
        if not training or p == 0.0:
            return input
        shape = tuple(input.shape)
        if spatial:  # whole channels are dropped: one draw for all their places
            shape = shape[: len(shape) - spatial] + (1,) * spatial
        call, self._calls = self._calls, self._calls + 1
        return input * dropout_mask(self._key, call, shape, p).to(input.dtype)


def dropout_mask(key: Tensor, call: int, shape: tuple[int, ...], p: float) -> Tensor:
    """Return the factors of one dropout call: 0 with probability p, else 1/(1−p).

    Args:
        key: The step's key, a 0-d int64 tensor.
        call: Which dropout call of the forward pass this is, from 0.
        shape: Shape of the mask.
        p: Probability that an element is dropped.
    """
    if p >= 1.0:
        return torch.zeros(shape, device=key.device)
    count = 1
    for length in shape:
        count *= length
    element = torch.arange(count, dtype=torch.int64, device=key.device)
    stream = (_CALL * (call + 1) + 2**63) % 2**64 - 2**63  # wraps like the device's arithmetic
    # The key comes before the product: a compiler would work out arange times a constant by
    # itself, in whole numbers that no longer fit into 64 bits.
    z = (element + (key + stream)) * _ELEMENT
    # SplitMix64's last step. Shifts of signed numbers drag the sign along; the masks cut it.
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _MIX_1
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _MIX_2
    z = (z >> 31) & (2**32 - 1)
    kept = z >= round(p * 2**32)
    return (kept.to(torch.float32) / (1.0 - p)).reshape(shape)


KernelContext = Callable[[int], contextlib.AbstractContextManager[Any]]
"""Told how many lanes there are, returns a context in which operations on all of them run."""

_NO_RULE = ("vmap", "Batching rule not implemented")
_INSTEAD = "use TorchObjective, which trains one candidate after the other"


@dataclass(frozen=True, slots=True)
class Batched:
    """One module's batched gradient and validation loss.

    Lanes are numbered client by client; how many clients there are, the data says.

    Args:
        module: Supplies the structure only; its own weights are not used.
        loss: As for `TorchObjective`.
        smoothing: Whether any lane smooths its labels.
        kernels: The context of kernels of our own; by default PyTorch's run.
    """

    module: nn.Module
    loss: Loss
    smoothing: bool = False
    kernels: KernelContext = contextlib.nullcontext

    def gradients(
        self,
        parameters: Tensors,
        buffers: Tensors,
        inputs: Tensor,
        targets: Tensor,
        key: Tensor,
        smoothing: Tensor,
    ) -> tuple[Tensors, Tensors]:
        """Return every lane's gradient on its client's batch, and its buffers afterwards.

        Args:
            parameters: Stacked weights, one row per lane.
            buffers: Stacked buffers (batch norm's running statistics).
            inputs: One batch per client, shape (clients, rows, ...).
            targets: Shape (clients, rows).
            key: Keys of the dropout masks, one per client.
            smoothing: Label smoothing, one per lane.
        """
        self.module.train()

        def one(
            weights: Tensors, state: Tensors, x: Tensor, y: Tensor, key: Tensor, smoothing: Tensor
        ) -> tuple[Tensors, Tensors]:
            def training_loss(weights: Tensors) -> tuple[Tensor, Tensors]:
                # Modules update buffers in place; each call gets its own to update.
                after = {name: tensor.clone() for name, tensor in state.items()}
                with KeyedDropout(key):
                    outputs = functional_call(self.module, (weights, after), (x,))
                return self._training_loss(outputs, y, smoothing), after

            gradients, after = grad(training_loss, has_aux=True)(weights)
            return gradients, after

        each_lane = vmap(one, in_dims=(0, 0, None, None, None, 0))
        found, after = self._over_clients(
            each_lane, parameters, buffers, inputs, targets, key, smoothing
        )
        return found, after

    def validation(
        self, parameters: Tensors, buffers: Tensors, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return every lane's mean loss on its client's rows, and its share of right answers.

        The share is NaN where targets are not classes.
        """
        self.module.eval()

        def one(weights: Tensors, state: Tensors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            outputs = functional_call(self.module, (weights, state), (x,)).float()
            loss = mean_loss(outputs, y, self.loss, 0.0)
            if y.dtype.is_floating_point or outputs.dim() != 2:
                return loss, torch.full_like(loss, float("nan"))
            return loss, (outputs.argmax(1) == y).float().mean()

        each_lane = vmap(one, in_dims=(0, 0, None, None))
        with torch.no_grad():
            losses, right = self._over_clients(each_lane, parameters, buffers, inputs, targets)
        return losses, right

    def _training_loss(self, outputs: Tensor, targets: Tensor, smoothing: Tensor) -> Tensor:
        if self.loss != TorchLoss.CROSS_ENTROPY or (not self.smoothing and not _by_rows(outputs)):
            return mean_loss(outputs, targets, self.loss, 0.0)
        logs = _log_softmax(outputs)
        right = F.nll_loss(logs, targets)
        if not self.smoothing:
            return right
        # PyTorch takes label smoothing as a Python number only; here it differs by lane.
        return (1 - smoothing) * right - smoothing * logs.mean(dim=1).mean()

    def _over_clients(self, each_lane: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Call with lanes flat for one client, and folded by client for several."""
        weights, state, inputs, targets, *rest = arguments
        lanes, clients = len(next(iter(weights.values()))), len(inputs)
        try:
            if clients == 1:
                key = [r[0] if r.dtype == torch.int64 else r for r in rest]
                with self.kernels(lanes):
                    return each_lane(weights, state, inputs[0], targets[0], *key)
            folded = [
                {n: t.unflatten(0, (clients, -1)) for n, t in part.items()}
                for part in (weights, state)
            ]
            rest = [r if r.dtype == torch.int64 else r.unflatten(0, (clients, -1)) for r in rest]
            with self.kernels(lanes):
                results = vmap(each_lane)(*folded, inputs, targets, *rest)
        except RuntimeError as error:
            if any(text in str(error) for text in _NO_RULE) and not isinstance(
                error, torch.OutOfMemoryError
            ):
                raise CannotBatch(
                    "this module cannot be batched over candidates (torch.func refused it: random "
                    "numbers other than dropout, control flow that depends on the data, or an "
                    f"operation it has no rule for); {_INSTEAD}"
                ) from error
            raise
        return tuple(
            {n: t.flatten(0, 1) for n, t in part.items()}
            if isinstance(part, dict)
            else part.flatten()
            for part in results
        )


def refuse_recurrent(module: nn.Module) -> None:
    """Refuse layers for which torch.func goes through candidates one by one, or not at all."""
    if any(isinstance(part, nn.RNNBase | nn.RNNCellBase) for part in module.modules()):
        raise CannotBatch(f"recurrent layers gain nothing from being trained together; {_INSTEAD}")


def _by_rows(outputs: Tensor) -> bool:
    return outputs.device.type == "cpu" and outputs.dim() == 2


def _log_softmax(outputs: Tensor) -> Tensor:
    """Return the logarithms of the classes' probabilities.

    On a CPU many rows at a time: PyTorch's kernel for a few neighbouring numbers takes ten times
    as long as the one for many columns.
    """
    if _by_rows(outputs):
        return F.log_softmax(outputs.t(), dim=0).t()
    return F.log_softmax(outputs, dim=1)
