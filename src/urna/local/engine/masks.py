"""Dropout whose masks follow from a key, so that a batched run can repeat a plain loop's.

PyTorch draws masks from a generator's state. That state differs between devices, between one
candidate and a stack of them, and between chunk sizes. Here a mask is a hash of (key, which
dropout call of the forward pass, element), so it is the same everywhere. Only dropout is
taken over; a module that draws other random numbers cannot be batched and is told so.

This module imports torch; `urna.local` loads it only when it is needed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["KeyedDropout", "dropout_mask"]

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
