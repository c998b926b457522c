"""Attention and recurrent layers written out in operations that vmap has rules for.

torch.func cannot batch PyTorch's recurrent layers at all, takes one lane after the other through
its attention, and sees neither's dropout. Here they are the sums and products of their definitions,
and dropout in them is `F.dropout`, which others can take over. This module imports torch.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["WrittenOut"]

State = tuple[Tensor, ...]
Cell = Callable[..., State]
"""Takes the input's share of the gates, the last output's, and the last state; returns the next."""


class WrittenOut(TorchFunctionMode):
    """Write out attention and recurrent layers inside a `with` block around one forward pass.

    PyTorch's shortcuts for evaluation, which vmap has no rules for, are not taken inside it.

    Args:
        only_dropout: Whether to leave to PyTorch what drops nothing: it is faster for one lane.
    """

    def __init__(self, *, only_dropout: bool = False) -> None:
        super().__init__()
        self._only_dropout = only_dropout

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Replace attention and recurrent layers, and pass everything else on."""
        kwargs = kwargs or {}
        if func is torch._nested_tensor_from_mask_left_aligned:
            return False  # asked before a shortcut of evaluation
        if func is F.multi_head_attention_forward:
            with self:
                return _ATTENTION_LAYER(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            drops = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0) > 0
            if drops or not self._only_dropout:
                return _attention(*args, **kwargs)
        if func in _CELLS and isinstance(args[3], bool):  # else rows of several lengths
            drops = args[6] and args[5] > 0 and args[4] > 1
            if drops or not self._only_dropout:
                return _recurrent(_CELLS[func], *args)
        if func in _SINGLE and not self._only_dropout:
            return _single(_SINGLE[func], *args)
        return func(*args, **kwargs)


_LAYER: Any = F.multi_head_attention_forward
_ATTENTION_LAYER = FunctionType(
    _LAYER.__code__,
    {**_LAYER.__globals__, "has_torch_function": lambda _: False},
    _LAYER.__name__,
    _LAYER.__defaults__,
)
"""PyTorch's function, but for the line that offers it to a mode as a whole: one sees its parts."""


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return what `F.scaled_dot_product_attention` does; the names are PyTorch's."""
    if enable_gqa:
        heads = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(heads, -3) for tensor in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError("attention takes attn_mask or is_causal, not both")
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is None:
        weights = scores.softmax(-1)
    else:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        else:
            scores = scores + attn_mask
        blind = (scores == -math.inf).all(-1, keepdim=True)  # sees nothing: weighs nothing
        weights = scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)
    return (F.dropout(weights, dropout_p) if dropout_p > 0 else weights) @ value


def _recurrent(
    cell: Cell,
    input: Tensor,  # noqa: A002 - PyTorch's own names
    hx: Tensor | State,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Return what `torch.lstm`, `torch.gru` and their like do: the outputs, and the last state."""
    first = (hx,) if isinstance(hx, Tensor) else hx
    x = input.transpose(0, 1) if batch_first else input
    ways = 2 if bidirectional else 1
    each = len(params) // (num_layers * ways)
    last: list[State] = []
    for layer in range(num_layers):
        outputs = []
        for way in range(ways):
            number = len(last)
            found, state = _one_way(
                cell,
                x.flip(0) if way else x,
                tuple(part[number] for part in first),
                params[number * each : (number + 1) * each],
                has_biases,
            )
            outputs.append(found.flip(0) if way else found)
            last.append(state)
        x = torch.cat(outputs, -1)
        if train and dropout > 0 and layer < num_layers - 1:
            x = F.dropout(x, dropout)
    states = [torch.stack(part) for part in zip(*last, strict=True)]
    return x.transpose(0, 1) if batch_first else x, *states


def _single(
    cell: Cell,
    input: Tensor,  # noqa: A002 - PyTorch's own names
    hx: Tensor | State,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor | State:
    """Return what `torch.lstm_cell` and its like do: the next state."""
    state = (hx,) if isinstance(hx, Tensor) else hx
    following = cell(F.linear(input, w_ih, b_ih), F.linear(state[0], w_hh, b_hh), *state)
    return following[0] if isinstance(hx, Tensor) else following


def _one_way(
    cell: Cell, x: Tensor, state: State, weights: Sequence[Tensor], has_biases: bool
) -> tuple[Tensor, State]:
    to_gates, back, *rest = weights
    bias, bias_back = (rest.pop(0), rest.pop(0)) if has_biases else (None, None)
    outputs = []
    for now in F.linear(x, to_gates, bias).unbind(0):
        state = cell(now, F.linear(state[0], back, bias_back), *state)
        if rest:  # an LSTM's projection
            state = F.linear(state[0], rest[0]), *state[1:]
        outputs.append(state[0])
    return torch.stack(outputs), state


def _lstm(now: Tensor, past: Tensor, _: Tensor, cell: Tensor) -> State:
    entry, forget, news, exit_ = (now + past).chunk(4, -1)
    cell = _sigmoid(forget) * cell + _sigmoid(entry) * news.tanh()
    return _sigmoid(exit_) * cell.tanh(), cell


def _gru(now: Tensor, past: Tensor, output: Tensor) -> State:
    (reset, update, news), (reset_past, update_past, news_past) = (
        now.chunk(3, -1),
        past.chunk(3, -1),
    )
    news = (news + _sigmoid(reset + reset_past) * news_past).tanh()
    return (news + _sigmoid(update + update_past) * (output - news),)


def _sigmoid(x: Tensor) -> Tensor:
    """Return what PyTorch's does, with the same bits in every place of a tensor."""
    return (x / 2).tanh() / 2 + 0.5


def _tanh(now: Tensor, past: Tensor, _: Tensor) -> State:
    return ((now + past).tanh(),)


def _relu(now: Tensor, past: Tensor, _: Tensor) -> State:
    return ((now + past).relu(),)


_CELLS: Mapping[Callable[..., Any], Cell] = {
    torch.lstm: _lstm,
    torch.gru: _gru,
    torch.rnn_tanh: _tanh,
    torch.rnn_relu: _relu,
}
_SINGLE: Mapping[Callable[..., Any], Cell] = {
    torch.lstm_cell: _lstm,
    torch.gru_cell: _gru,
    torch.rnn_tanh_cell: _tanh,
    torch.rnn_relu_cell: _relu,
}
