"""Convolutions by patches give PyTorch's numbers, and a lane's never depend on its neighbours."""

import itertools
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
patches = pytest.importorskip("urna.local.patches")
gradients = pytest.importorskip("urna.local.gradients")
nn = torch.nn
F = torch.nn.functional
backward = torch.ops.aten.convolution_backward.default

SHAPES = list(
    itertools.product((1, 2), (0, 1, 2), (1, 2), ((3, 3), (1, 1), (2, 3)))
)  # stride, padding, dilation, kernel


def _numbers(*shape: int) -> "torch.Tensor":
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture(params=[2**21, 4000], ids=["in one piece", "in many pieces"])
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "_BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize(("stride", "padding", "dilation", "kernel"), SHAPES)
@pytest.mark.parametrize("shared", [False, True], ids=["own input", "shared input"])
def test_convolutions_and_their_gradients_are_pytorchs(
    stride: int, padding: int, dilation: int, kernel: tuple[int, int], shared: bool
) -> None:
    lanes, groups = 5, 1 if shared else 5
    x, weights = _numbers(3, 4 * groups, 7, 9), _numbers(lanes * 6, 4, *kernel)
    expected = F.conv2d(x, weights, None, stride, padding, dilation, groups)
    slopes = _numbers(*expected.shape)
    both = [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups
    wanted = [not shared, True, False]
    with patches.by_patches(lanes):
        found = F.conv2d(x, weights, None, stride, padding, dilation, groups)
        ours = backward(slopes, x, weights, None, *both, wanted)
    assert found.stride(0) == 1  # rows of data lie innermost: PyTorch did not do it
    torch.testing.assert_close(found, expected)
    theirs = backward(slopes, x, weights, None, *both, wanted)
    for mine, plain in zip(ours, theirs, strict=True):
        if plain is not None:
            torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("_pieces")
def test_a_lane_gets_the_same_bits_in_any_stack_and_beside_nan() -> None:
    x, weights = _numbers(4, 7 * 3, 6, 6), _numbers(7 * 5, 3, 3, 3)
    slopes = _numbers(4, 7 * 5, 4, 4)
    spoilt = weights.clone()
    spoilt[5:] = float("nan")

    def first_lane(lanes: int, weights: "torch.Tensor") -> list["torch.Tensor"]:
        mine, w, g = x[:, : lanes * 3], weights[: lanes * 5], slopes[:, : lanes * 5]
        with patches.by_patches(lanes):
            out = F.conv2d(mine, w, groups=lanes)
            to_x, to_w, _ = backward(
                g, mine, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], lanes, [True, True, False]
            )
        return [out[:, :5], to_x[:, :3], to_w[:5]]

    alone = first_lane(2, weights)
    for company in (first_lane(3, weights), first_lane(7, weights), first_lane(7, spoilt)):
        assert all(torch.equal(a, b) for a, b in zip(alone, company, strict=True))


def _pooled(pool: "torch.nn.Module") -> "torch.nn.Module":
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), pool, nn.Conv2d(4, 6, 3, stride=2),
        nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip


@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(5)],
    ids=str,
)
def test_gradients_of_a_stack_are_those_without_patches(pool: "torch.nn.Module") -> None:
    module = _pooled(pool)
    x = _numbers(1, 8, 1, 10, 10)
    module(x[0])
    # In float64 no rounding can make another of a window's numbers the largest.
    stacked = {n: _numbers(3, *p.shape).double() for n, p in module.named_parameters()}
    rest = x.double(), torch.arange(8)[None] % 3, torch.zeros(1, dtype=torch.int64), torch.zeros(3)
    plain = gradients.Batched(module, "cross_entropy")
    ours = gradients.Batched(module, "cross_entropy", takeover=patches.by_patches)
    expected, _ = plain.gradients(stacked, {}, *rest)
    found, _ = ours.gradients(stacked, {}, *rest)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)


@pytest.mark.parametrize(
    "work",
    [
        lambda: F.conv_transpose2d(_numbers(2, 4, 5, 5), _numbers(4, 2, 3, 3), groups=2),
        lambda: F.conv1d(_numbers(2, 4, 9), _numbers(4, 2, 3), groups=2),
        lambda: F.conv2d(_numbers(2, 6, 5, 5), _numbers(6, 2, 3, 3), groups=3),
        lambda: F.conv2d(
            _numbers(2, 4, 5, 5).bfloat16(), _numbers(4, 2, 3, 3).bfloat16(), groups=2
        ),
        lambda: F.max_pool2d(_numbers(2, 4, 6, 6), 2, return_indices=True)[1],
    ],
    ids=[
        "transposed",
        "one dimension",
        "groups across lanes",
        "half precision",
        "indices of a pool",
    ],
)
def test_what_is_not_ours_goes_on_to_pytorch(work: Callable[[], "torch.Tensor"]) -> None:
    expected = work()
    with patches.by_patches(2):
        assert torch.equal(work(), expected)
