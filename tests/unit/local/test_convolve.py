"""Our convolutions of many lanes, in Triton's interpreter, against PyTorch's own."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="kernels for a GPU need triton, which this system lacks")

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from urna.local.convolve import LaneConvolutions

Loss = Callable[..., Tensor]


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
    with LaneConvolutions():
        ours = every(*stacked, x)
    for mine, theirs in zip(ours, every(*stacked, x), strict=True):
        assert close(mine, theirs)


def test_gradients_are_pytorchs_when_clients_are_stacked_as_well() -> None:
    x = torch.randn((2, 2, 1, 9, 9), generator=torch.Generator().manual_seed(1))
    stacked = [w.unflatten(0, (2, 2)) for w in weights(4, 1, (3, 3))]
    lane = vmap(grad(two_layers((1, 1)), argnums=(0, 1, 2)), in_dims=(0, 0, 0, None))
    every = vmap(lane)
    with LaneConvolutions():
        ours = every(*stacked, x)
    for mine, theirs in zip(ours, every(*stacked, x), strict=True):
        assert close(mine, theirs)


def test_more_pixels_than_one_span_are_all_added() -> None:
    x = torch.randn((5, 2, 31, 31), generator=torch.Generator().manual_seed(1))
    stacked = torch.randn((2, 3, 2, 3, 3), generator=torch.Generator().manual_seed(2))
    every = vmap(grad(lambda w, x: F.conv2d(x, w).square().sum()), in_dims=(0, None))
    with LaneConvolutions():
        ours = every(stacked, x)
    assert close(ours, every(stacked, x))


def test_a_lane_has_the_same_bits_wherever_it_stands() -> None:
    x = torch.randn((2, 1, 9, 9), generator=torch.Generator().manual_seed(1))
    every = vmap(grad(two_layers((0, 0)), argnums=(0, 1, 2)), in_dims=(0, 0, 0, None))
    stacked = weights(5, 1, (3, 3))
    with LaneConvolutions():
        all_five = every(*stacked, x)
        two = every(*[w[[4, 1]] for w in stacked], x)
    for part in (0, 2):  # sums for the bias are PyTorch's
        assert torch.equal(all_five[part][[4, 1]], two[part])


@pytest.mark.parametrize("options", [{"stride": 2}, {"dilation": 2}])
def test_other_convolutions_are_left_to_pytorch(options: dict[str, int]) -> None:
    x, w = torch.randn(1, 2, 9, 9), torch.randn(4, 2, 3, 3)
    with LaneConvolutions():
        ours = F.conv2d(x, w, **options)
    assert torch.equal(ours, F.conv2d(x, w, **options))


def test_a_traced_step_names_our_operations() -> None:
    x, w = torch.randn(2, 1, 6, 6), torch.randn(3, 4, 1, 3, 3)
    every = vmap(grad(lambda w, x: F.conv2d(x, w).square().sum()), in_dims=(0, None))

    def step(w: Tensor, x: Tensor) -> Tensor:
        with LaneConvolutions():
            return every(w, x)

    traced = make_fx(step)(w, x)
    names = {str(node.target) for node in traced.graph.nodes}
    assert {"urna.convolve.default", "urna.convolution_slopes.default"} <= names
    assert not any("aten.convolution" in name for name in names)
    assert close(traced(w, x), every(w, x))
