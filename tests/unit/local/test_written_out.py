"""Attention and recurrent layers written out are PyTorch's, batched, and with masks by key."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.errors import ParameterError
from urna.local.batched import BatchedObjective
from urna.local.torch_sgd import TorchObjective
from urna.space import Space

torch = pytest.importorskip("torch")
masks = pytest.importorskip("urna.local.masks")
written_out = pytest.importorskip("urna.local.written_out")
nn = torch.nn
F = torch.nn.functional

features, targets = load_digits(return_X_y=True)
DIGITS = Samples(features[:120].reshape(-1, 8, 8) / 16, targets[:120])


def _numbers(*shape: int) -> "torch.Tensor":
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _flat(found: Any) -> list["torch.Tensor"]:
    return (
        [found] if isinstance(found, torch.Tensor) else [t for part in found for t in _flat(part)]
    )


Answers = list["torch.Tensor"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def _both(call: Callable[[], Any], *leaves: "torch.Tensor") -> tuple[Answers, Answers]:
    """Return results and gradients as written out, and PyTorch's own."""

    def answers(mode: contextlib.AbstractContextManager[object]) -> Answers:
        with mode:
            found = _flat(call())
        return [*found, *torch.autograd.grad(sum(t.sin().sum() for t in found), leaves)]

    return answers(written_out.WrittenOut()), answers(contextlib.nullcontext())


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    ("layers", "both_ways", "batch_first", "bias"),
    list(itertools.product((1, 2), *[(False, True)] * 3)),
)
@pytest.mark.parametrize(
    "kind",
    [nn.LSTM, nn.GRU, nn.RNN, lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
     lambda *a, **k: nn.LSTM(*a, proj_size=2, **k)],
    ids=["lstm", "gru", "tanh", "relu", "projected"],
)  # fmt: skip
def test_recurrent_layers_are_pytorchs(
    kind: Callable[..., Any], layers: int, both_ways: bool, batch_first: bool, bias: bool
) -> None:
    layer = kind(3, 4, layers, bidirectional=both_ways, batch_first=batch_first, bias=bias)
    x = _numbers(5, 6, 3).requires_grad_()
    found, expected = _both(lambda: layer(x), x, *layer.parameters())
    torch.testing.assert_close(found, expected, **CLOSE)
    _, state = layer(x)  # a state to begin with
    start = torch.utils._pytree.tree_map(lambda t: t.detach() + 0.1, state)
    found, expected = _both(lambda: layer(x, start), x, *layer.parameters())
    torch.testing.assert_close(found, expected, **CLOSE)


def test_all_but_the_last_layer_drop() -> None:
    layer, x = nn.LSTM(3, 4, 3, dropout=1.0), _numbers(5, 6, 3)
    found, expected = _both(lambda: layer(x), *layer.parameters())
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells_are_pytorchs(kind: type) -> None:
    cell, x = kind(3, 4), _numbers(5, 3)
    found, expected = _both(lambda: cell(x, cell(x)), *cell.parameters())
    torch.testing.assert_close(found, expected, **CLOSE)


def test_sequences_of_several_lengths_are_left_to_pytorch() -> None:
    layer = nn.GRU(3, 4)
    packed = nn.utils.rnn.pack_sequence([_numbers(5, 3), _numbers(2, 3)])
    found, expected = _both(lambda: layer(packed)[1], *layer.parameters())
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": _numbers(5, 7)},
        {"attn_mask": torch.arange(35).view(5, 7) % 3 > 0},
        {"attn_mask": torch.arange(35).view(5, 7) > 9},  # the first row sees nothing
    ],
    ids=["plain", "causal", "scaled", "added", "masked", "blind"],
)
def test_attention_is_pytorchs(options: dict[str, Any]) -> None:
    query, key, value = (_numbers(2, 4, n, 6).requires_grad_() for n in (5, 7, 7))
    found, expected = _both(
        lambda: F.scaled_dot_product_attention(query, key, value, **options), query, key, value
    )
    torch.testing.assert_close(found, expected, **CLOSE)


def test_attention_of_fewer_keys_than_heads_is_pytorchs() -> None:
    query, key, value = (_numbers(2, n, 5, 6).requires_grad_() for n in (4, 2, 2))
    found, expected = _both(
        lambda: F.scaled_dot_product_attention(query, key, value, enable_gqa=True),
        query, key, value,
    )  # fmt: skip
    torch.testing.assert_close(found, expected, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_layers_drop_by_key(need_weights: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(4, 2, dropout=0.5), _numbers(5, 3, 4)

    def found(key: int) -> "torch.Tensor":
        with masks.KeyedDropout(torch.tensor(key)), written_out.WrittenOut(only_dropout=True):
            return layer(x, x, x, need_weights=need_weights)[0]

    assert torch.equal(found(1), found(1))
    assert not torch.equal(found(1), found(2))
    many = torch.stack([found(key) for key in range(400)])
    layer.eval()
    # Weights and keys are fixed, and so is the answer: it cannot fail by chance.
    allowed = 5 * many.std(0) / 400**0.5
    assert bool(((many.mean(0) - layer(x, x, x)[0]).abs() < allowed).all())


class Recurrent(nn.Module):
    """Reads a picture line by line."""

    def __init__(self, kind: type = nn.LSTM) -> None:
        super().__init__()
        self.layer = kind(8, 10, 2, dropout=0.3, batch_first=True)
        self.last = nn.Linear(10, 10)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return self.last(self.layer(x)[0][:, -1])


class Transformer(nn.Module):
    """Attends to a picture's lines."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(8, 10)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return self.last(self.layers(x).mean(1))


class Padded(Transformer):
    """Takes dark lines for padding; a picture may be dark all over."""

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        dark = x.mean(2) < 0.3
        found = self.layers(x, src_key_padding_mask=dark)
        return self.last(found.masked_fill(dark[..., None], 0).mean(1))


@pytest.mark.parametrize(
    "factory",
    [Recurrent, lambda: Recurrent(nn.GRU), Transformer, Padded],
    ids=["lstm", "gru", "attention", "padding"],
)
def test_candidates_trained_together_match_a_plain_loop(factory: Callable[[], Any]) -> None:
    space = Space(lr=[0.2, 0.05, 0.01], momentum=[0.0, 0.9])
    plain = TorchObjective(factory, epochs=2, device="cpu").losses(DIGITS, space, seed=3)
    found = BatchedObjective(factory, epochs=2, device="cpu").losses(DIGITS, space, seed=3)
    np.testing.assert_allclose(found, plain, rtol=1e-4)
    cut = BatchedObjective(factory, epochs=2, device="cpu", most_lanes=2)
    np.testing.assert_array_equal(cut.losses(DIGITS, space, seed=3), found)


def test_a_mask_and_causality_exclude_each_other_as_in_pytorch() -> None:
    x = _numbers(2, 5, 6)
    for mode in (contextlib.nullcontext(), written_out.WrittenOut()):
        with mode, pytest.raises(RuntimeError, match="attn_mask"):
            F.scaled_dot_product_attention(x, x, x, attn_mask=_numbers(5, 5), is_causal=True)


def test_what_no_rule_exists_for_is_said() -> None:
    def factory() -> "torch.nn.Module":
        layer = nn.utils.parametrizations.spectral_norm(nn.Linear(64, 10))
        return nn.Sequential(nn.Flatten(), layer)

    with pytest.raises(ParameterError, match="no rule for"):
        BatchedObjective(factory, device="cpu").losses(DIGITS, Space(lr=[0.1]), seed=0)
