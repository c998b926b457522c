"""Our convolutions of many lanes, in Triton's interpreter, against PyTorch's own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="kernels for a GPU need triton, which this system lacks")

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from urna.local import Speed, TorchLoss
from urna.local.engine import convolve, runner
from urna.local.engine.batches import seeded_module
from urna.local.engine.convolve import LaneKernels
from urna.local.engine.gradients import Batched
from urna.local.models import mnist_cnn

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are built for a GPU here"
)
Loss = Callable[..., Tensor]


class Noting(TorchDispatchMode):
    """Keeps the names of operations that reach PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def two_layers(padding: tuple[int, int]) -> Loss:
    def loss(first: Tensor, bias: Tensor, second: Tensor, x: Tensor) -> Tensor:
        hidden = F.relu(F.conv2d(x, first, bias, padding=padding))
        return F.max_pool2d(F.conv2d(hidden, second, padding=padding), 2).square().sum()

    return loss


def weights(lanes: int, channels: int, kernel: tuple[int, int]) -> list[Tensor]:
    maker = torch.Generator().manual_seed(0)
    shapes = [(lanes, 8, channels, *kernel), (lanes, 8), (lanes, 20, 8, *kernel)]
    return [torch.randn(shape, generator=maker) for shape in shapes]


def close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).norm() < 1e-5 * theirs.norm())


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize(("channels", "kernel"), [(1, (3, 3)), (3, (3, 2))])
def test_gradients_of_all_lanes_are_pytorchs(
    padding: tuple[int, int], channels: int, kernel: tuple[int, int]
) -> None:
    x = torch.randn((2, channels, 9, 11), generator=torch.Generator().manual_seed(1))
    every = vmap(grad(two_layers(padding), argnums=(0, 1, 2)), in_dims=(0, 0, 0, None))
    stacked = weights(3, channels, kernel)
    with LaneKernels():
        ours = every(*stacked, x)
    for mine, theirs in zip(ours, every(*stacked, x), strict=True):
        assert close(mine, theirs)


def test_gradients_are_pytorchs_when_clients_are_stacked_as_well() -> None:
    x = torch.randn((2, 2, 1, 9, 9), generator=torch.Generator().manual_seed(1))
    stacked = [w.unflatten(0, (2, 2)) for w in weights(4, 1, (3, 3))]
    lane = vmap(grad(two_layers((1, 1)), argnums=(0, 1, 2)), in_dims=(0, 0, 0, None))
    every = vmap(lane)
    with LaneKernels():
        ours = every(*stacked, x)
    for mine, theirs in zip(ours, every(*stacked, x), strict=True):
        assert close(mine, theirs)


@pytest.mark.audit
def test_more_pixels_than_one_span_are_all_added() -> None:
    x = torch.randn((5, 2, 31, 31), generator=torch.Generator().manual_seed(1))
    stacked = torch.randn((2, 4, 2, 3, 3), generator=torch.Generator().manual_seed(2))
    every = vmap(grad(lambda w, x: F.conv2d(x, w).square().sum()), in_dims=(0, None))
    with Noting() as noting, LaneKernels():
        ours = every(stacked, x)
    assert not any("convolution" in name for name in noting.names)
    assert close(ours, every(stacked, x))


def in_one_order(a: Any, b: Any, dtype: Any) -> Any:
    """Multiply matrices as a GPU does: rounding has nothing to do with where a column stands."""
    return (a[:, :, None].astype(dtype) * b[None]).sum(axis=1)


def test_a_lane_has_the_same_bits_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    # Triton's interpreter multiplies with a BLAS, which rounds the columns beside its tiles apart.
    monkeypatch.setattr(np, "matmul", in_one_order)
    x = torch.randn((2, 1, 9, 9), generator=torch.Generator().manual_seed(1))
    every = vmap(grad(two_layers((0, 0)), argnums=(0, 1, 2)), in_dims=(0, 0, 0, None))
    stacked = weights(5, 1, (3, 3))
    with LaneKernels():
        all_five = every(*stacked, x)
        two = every(*[w[[4, 1]] for w in stacked], x)
    for part in (0, 2):  # sums for the bias are PyTorch's
        assert torch.equal(all_five[part][[4, 1]], two[part])


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 70, 9, 9), (3, 130, 1, 2)])
def test_a_copy_with_its_channels_side_by_side_holds_the_same_numbers(
    shape: tuple[int, ...],
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    copied = convolve._channels_last(x)
    assert torch.equal(copied, x)
    assert copied.stride() == x.contiguous(memory_format=torch.channels_last).stride()


def names_of_pooling(pictures: Tensor, **options: int) -> set[str]:
    def slopes(x: Tensor) -> Tensor:
        return grad(lambda x: (F.max_pool2d(x, **options).square() + 1).log().sum())(x)

    with Noting() as noting, LaneKernels():
        ours = vmap(slopes)(pictures)
    assert torch.equal(ours.nan_to_num(7), vmap(slopes)(pictures).nan_to_num(7))
    return noting.names


def test_slopes_through_max_pooling_are_pytorchs_to_the_last_bit() -> None:
    pictures = torch.randn((2, 3, 4, 7, 9), generator=torch.Generator().manual_seed(1))
    pictures[0, 0] = 1.0  # ties
    pictures[0, 1, 0, 2, 2] = float("nan")
    pictures[1, 2, 3] = -float("inf")
    assert "aten.max_unpool2d.default" in names_of_pooling(pictures, kernel_size=2)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "stride": 2},
        {"kernel_size": 2, "padding": 1},
        {"kernel_size": 2, "dilation": 2},
        {"kernel_size": 2, "ceil_mode": True},
    ],
)
def test_pooling_over_other_windows_is_left_to_pytorch(options: dict[str, int]) -> None:
    pictures = torch.randn((2, 3, 4, 7, 9), generator=torch.Generator().manual_seed(1))
    assert "aten.max_unpool2d.default" not in names_of_pooling(pictures, **options)


def test_pooling_of_channels_side_by_side_is_left_to_pytorch() -> None:
    pictures = torch.randn((3, 4, 6, 6)).contiguous(memory_format=torch.channels_last)
    with Noting() as noting, LaneKernels():
        grad(lambda x: F.max_pool2d(x, 2).sum())(pictures)
    assert "aten.max_pool2d_with_indices_backward.default" in noting.names


def test_pooling_is_pytorchs_where_only_proven_operations_are_allowed() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        names = names_of_pooling(torch.randn((2, 3, 4, 6, 6)), kernel_size=2)
    finally:
        torch.use_deterministic_algorithms(before)
    assert "aten.max_unpool2d.default" not in names


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (4, 1)])
def test_the_inputs_gradient_is_pytorchs(padding: tuple[int, int]) -> None:
    x = torch.randn((2, 6, 7, 5), generator=torch.Generator().manual_seed(1))
    w = torch.randn((16, 3, 3, 2), generator=torch.Generator().manual_seed(2))

    def slope(x: Tensor) -> Tensor:
        return grad(lambda x: F.conv2d(x, w, padding=padding, groups=2).square().sum())(x)

    with LaneKernels():
        ours = slope(x)
    assert close(ours, slope(x))


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"stride": 2}, (8, 2, 3, 3)),
        ({"dilation": 2}, (8, 2, 3, 3)),
        ({"groups": 2}, (8, 1, 3, 3)),  # four outputs of a group: tiles would be nearly empty
    ],
)
def test_other_convolutions_are_left_to_pytorch(
    options: dict[str, int], shape: tuple[int, ...]
) -> None:
    pictures, w = torch.randn(1, 2, 9, 9), torch.ones(shape)
    with Noting() as noting, LaneKernels():
        F.conv2d(pictures, w, **options)
    assert "aten.convolution.default" in noting.names


@pytest.mark.parametrize(
    ("picture", "weights", "options"),
    [
        ((1, 3, 9, 9), (8, 2, 3, 3), {}),
        ((1, 2, 2, 2), (8, 2, 3, 3), {}),
        ((1, 4, 9, 9), (17, 2, 3, 3), {"groups": 2}),
        ((1, 2, 9, 9), (8, 2, 3, 3), {"bias": torch.zeros(1)}),
        ((1, 2, 9, 9), (8, 2, 3, 3), {"padding": -1}),
    ],
)
def test_convolutions_that_cannot_be_are_refused_by_pytorch(
    picture: tuple[int, ...], weights: tuple[int, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(RuntimeError) as theirs:
        F.conv2d(torch.randn(picture), torch.randn(weights), **options)
    with LaneKernels(), pytest.raises(RuntimeError) as ours:
        F.conv2d(torch.randn(picture), torch.randn(weights), **options)
    assert str(ours.value) == str(theirs.value)


def test_an_empty_batch_is_left_to_pytorch() -> None:
    with LaneKernels():
        assert F.conv2d(torch.randn(0, 2, 9, 9), torch.randn(8, 2, 3, 3)).shape == (0, 8, 7, 7)


@pytest.mark.audit
@pytest.mark.parametrize("clients", [1, 2])
def test_a_network_has_pytorchs_gradients_and_losses(clients: int) -> None:
    with seeded_module(0):
        module = mnist_cnn(first=8, second=16, hidden=16)
    plain = Batched(module, TorchLoss.CROSS_ENTROPY)
    ours = replace(plain, kernels=lambda _: LaneKernels())
    lanes = 2 * clients
    stacked = {n: torch.stack([p.detach()] * lanes) for n, p in module.named_parameters()}
    maker = torch.Generator().manual_seed(0)
    x, y = torch.rand((clients, 2, 784), generator=maker), torch.ones((clients, 2)).long()
    keys, smoothing = torch.arange(clients), torch.zeros(lanes)
    expected, _ = plain.gradients(stacked, {}, x, y, keys, smoothing)
    found, _ = ours.gradients(stacked, {}, x, y, keys, smoothing)
    for name, slope in found.items():
        assert close(slope, expected[name]), name
    torch.testing.assert_close(
        ours.validation(stacked, {}, x, y), plain.validation(stacked, {}, x, y)
    )


@pytest.mark.parametrize(
    ("device", "there", "works", "ours"),
    [
        ("cuda", True, True, True),
        ("cuda", True, False, False),
        ("cuda", False, True, False),
        ("cpu", True, True, False),
    ],
)
def test_our_kernels_serve_on_a_gpu_that_can_run_them(
    monkeypatch: pytest.MonkeyPatch, device: str, there: bool, works: bool, ours: bool
) -> None:
    monkeypatch.setattr(runner, "find_spec", lambda name: object() if there else None)
    monkeypatch.setattr(convolve, "works_on", lambda device: works)
    found = runner.kernel_context(nn.Linear(1, 1), device, Speed())
    assert (found is not contextlib.nullcontext) == ours
    assert isinstance(found(100), LaneKernels) == ours
    off = replace(Speed(), kernels=False)
    assert runner.kernel_context(nn.Linear(1, 1), device, off) is contextlib.nullcontext


@pytest.mark.parametrize("newer", [False, True])
def test_float32_is_left_to_pytorch_where_it_may_not_be_rounded(
    monkeypatch: pytest.MonkeyPatch, newer: bool
) -> None:
    monkeypatch.setattr(convolve, "works_on", lambda device: True)
    monkeypatch.setattr(runner, "find_spec", lambda name: object())
    cudnn = torch.backends.cudnn
    if newer:
        # A stand-in: once the newer switch is used, PyTorch refuses to read the older one.
        monkeypatch.setattr(cudnn, "conv", SimpleNamespace(fp32_precision="ieee"))
    else:
        monkeypatch.setattr(cudnn, "allow_tf32", False)
    assert runner.kernel_context(nn.Linear(1, 1), "cuda", Speed()) is contextlib.nullcontext


def test_kernels_do_not_pass_for_working_where_they_are_interpreted() -> None:
    assert not convolve.works_on("cuda")


@pytest.mark.audit
def test_kernels_can_be_built_for_gpus(tmp_path: Path) -> None:
    """The compiler needs no GPU."""
    environment = {n: v for n, v in os.environ.items() if n != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "build_kernels.py"],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["80", "90"]
