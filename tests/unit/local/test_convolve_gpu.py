"""Our convolutions in bfloat16, which only a GPU can run."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="kernels for a GPU need triton, which this system lacks")

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it

from urna.local.convolve import LaneKernels, works_on

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def test_a_gpu_convolves_in_bfloat16_as_in_float64() -> None:
    assert works_on("cuda", torch.bfloat16)
    maker = torch.Generator().manual_seed(0)
    x = torch.randn((64, 96, 26, 26), generator=maker).cuda().requires_grad_()
    w = torch.randn((192, 32, 3, 3), generator=maker).cuda().requires_grad_()
    exact = F.conv2d(x.double(), w.double(), groups=3)
    expected = torch.autograd.grad(exact.square().sum(), (x, w))
    with LaneKernels():
        ours = F.conv2d(x.bfloat16(), w.bfloat16(), groups=3)
        found = torch.autograd.grad(ours.double().square().sum(), (x, w))
    for mine, theirs in zip((ours, *found), (exact, *expected), strict=True):
        assert (mine.double() - theirs.double()).norm() < 0.01 * theirs.double().norm()
