"""Compiled steps of the evaluation, against those of the engine."""

import importlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="the evaluation's kernels need triton, which is not here")

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from urna.data import Samples
from urna.local import Recipe
from urna.local.engine import Weights, graphs, model, stack, training
from urna.local.engine.gradients import Batched

HOUSE = Path(__file__).resolve().parents[2]
RECIPES = [
    Recipe(lr=lr, momentum=m, epochs=3, batch_size=8) for lr in (0.2, 0.02) for m in (0, 0.9)
]
FEATURES = stack.Features.of(RECIPES)
ROWS = np.random.default_rng(5).standard_normal((20, 6)).astype(np.float32)
CLIENT = Samples(ROWS, (ROWS[:, 0] > 0).astype(np.int64))


class Repeat:
    """Records nothing: runs the step once, as recording does, and again at each replay."""

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        step()
        return step


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the evaluation's module."""
    monkeypatch.syspath_prepend(str(HOUSE))
    return importlib.import_module("benchmarks.dp_hype.compiled")


def module() -> nn.Module:
    """Return a network with statistics that move by themselves, and masks."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.25), nn.Linear(5, 2)
    )


def trained(
    trainer: Callable[[Batched], graphs.GraphTrainer], decay: float
) -> dict[str, torch.Tensor]:
    """Train every recipe on the client; return all weights and statistics."""
    first = Weights(*stack.weights_of(module())).each(
        lambda t: t.detach()[None].repeat_interleave(4, 0)
    )
    recipes = [replace(recipe, decay=decay) for recipe in RECIPES]
    group = training.GroupTraining(recipes, first, [CLIENT], [3], 0, FEATURES, "cpu")
    batched = Batched(module(), model.TorchLoss.CROSS_ENTROPY)
    found = group.run(training.Piece((0,), (0,), 1, slice(0, 4)), trainer(batched))
    return {**found.parameters, **found.buffers}


def plain(batched: Batched) -> graphs.GraphTrainer:
    """Return the engine's trainer."""
    return graphs.GraphTrainer(batched, FEATURES, Repeat())


def check(compiled: ModuleType, decay: float) -> None:
    """Hold compiled steps of full batches, and of the last ones, to the engine's."""
    expected = trained(plain, decay)
    for shapes in ({(4, 8)}, {(4, 8), (4, 4)}):
        found = trained(
            lambda b, s=shapes: compiled.CompiledTrainer(b, FEATURES, Repeat(), shapes=s), decay
        )
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_traced_steps_are_the_engines_but_for_rounding(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, decay: float
) -> None:
    monkeypatch.setattr(torch, "compile", lambda graph, dynamic: graph)
    check(compiled, decay)


def test_epochs_in_which_nothing_learns_are_forward_passes(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    gradients = Batched.gradients
    monkeypatch.setattr(Batched, "gradients", lambda *a: asked.append(1) or gradients(*a))
    trained(lambda b: compiled.CompiledTrainer(b, FEATURES, Repeat(), shapes=()), 0.0)
    steps = len(asked)
    asked.clear()
    trained(plain, 0.0)
    # One epoch of three steps against three, and a few where steps are recorded.
    assert 3 <= steps <= 5
    assert len(asked) >= 9


@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are built for a GPU here"
)
def test_traced_convolutions_are_pytorchs(compiled: ModuleType) -> None:
    maker = torch.Generator().manual_seed(0)
    images = torch.randn((2, 3, 6, 6), generator=maker)
    weights = torch.randn((2, 8, 3, 3, 3), generator=maker), torch.randn((2, 8), generator=maker)

    def lane(w: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(F.conv2d(x, w, b, padding=1), 2).square().sum()

    every = vmap(grad(lane, argnums=(0, 1, 2)), in_dims=(0, 0, None))

    def ours(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with compiled.TracedKernels():
            return every(*tensors)

    traced = make_fx(ours)(*weights, images)
    used = {str(node.target) for node in traced.graph.nodes}
    assert {"urna.convolve.default", "urna.weight_gradient.default"} <= used
    for mine, theirs in zip(traced(*weights, images), every(*weights, images), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # its own
def test_compiled_steps_are_the_engines_but_for_rounding(compiled: ModuleType) -> None:
    check(compiled, 0.5)
