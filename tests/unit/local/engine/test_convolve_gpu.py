"""Our convolutions as only a GPU can run them: in TF32."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="kernels for a GPU need triton, which this system lacks")

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor

from urna.local.engine.convolve import LaneKernels, works_on

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def images_and_weights(lanes: int) -> tuple[Tensor, Tensor]:
    maker = torch.Generator().manual_seed(0)
    x = torch.randn((64, 32 * lanes, 26, 26), generator=maker).cuda()
    w = torch.randn((64 * lanes, 32, 3, 3), generator=maker).cuda()
    return x, w


def test_a_gpu_convolves_as_in_float64() -> None:
    assert works_on("cuda")
    x, w = (part.requires_grad_() for part in images_and_weights(3))
    exact = F.conv2d(x.double(), w.double(), groups=3)
    expected = torch.autograd.grad(exact.square().sum(), (x, w))
    with LaneKernels():
        ours = F.conv2d(x, w, groups=3)
        found = torch.autograd.grad(ours.double().square().sum(), (x, w))
    for mine, theirs in zip((ours, *found), (exact, *expected), strict=True):
        assert (mine.double() - theirs.double()).norm() < 0.01 * theirs.double().norm()


def test_a_lane_has_the_same_bits_in_any_company() -> None:
    x, w = images_and_weights(20)

    def results(lanes: slice) -> list[Tensor]:
        mine = x.unflatten(1, (20, 32))[:, lanes].flatten(1, 2).requires_grad_()
        own = w.unflatten(0, (20, 64))[lanes].flatten(0, 1).requires_grad_()
        with LaneKernels():
            out = F.conv2d(mine, own, groups=len(own) // 64)
            gradients = torch.autograd.grad(out.square().sum(), (mine, own))
        return [out[:, -64:], gradients[0][:, -32:], gradients[1][-64:]]

    for alone, among in zip(results(slice(4, 5)), results(slice(0, 5)), strict=True):
        assert torch.equal(alone, among)
    for few, many in zip(results(slice(17, 20)), results(slice(0, 20)), strict=True):
        assert torch.equal(few, many)


def test_lanes_that_see_the_same_images_have_the_same_bits_in_any_company() -> None:
    maker = torch.Generator().manual_seed(0)
    x = torch.randn((64, 1, 28, 28), generator=maker).cuda()
    w = torch.randn((20, 8, 1, 3, 3), generator=maker).cuda()

    def results(lanes: int) -> list[Tensor]:
        own = w[:lanes].flatten(0, 1).requires_grad_()
        with LaneKernels():
            out = F.conv2d(x, own)
            (gradient,) = torch.autograd.grad(out.square().sum(), own)
        return [out[:, :8], gradient[:8]]

    expected = results(20)
    for lanes in (2, 4, 5, 9):
        for mine, theirs in zip(results(lanes), expected, strict=True):
            assert torch.equal(mine, theirs), lanes


def test_gradients_through_max_pooling_are_pytorchs_to_the_last_bit() -> None:
    images = torch.randn((64, 96, 25, 26), generator=torch.Generator().manual_seed(0)).cuda()
    images[0] = 1.0  # ties
    leaf = images.requires_grad_()
    (expected,) = torch.autograd.grad(F.max_pool2d(leaf, 2).square().sum(), leaf)
    with LaneKernels():
        (found,) = torch.autograd.grad(F.max_pool2d(leaf, 2).square().sum(), leaf)
    assert torch.equal(found, expected)
