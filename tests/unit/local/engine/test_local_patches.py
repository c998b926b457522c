"""Convolutions by patches give PyTorch's numbers, and a lane's never depend on its neighbours."""

import contextlib
import itertools
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
patches = pytest.importorskip("urna.local.engine.patches")
gradients = pytest.importorskip("urna.local.engine.gradients")
nn = torch.nn
F = torch.nn.functional

SHAPES = list(
    itertools.product((1, 2), (0, 1, 2), (1, 2), ((3, 3), (1, 1), (2, 3)))
)  # stride, padding, dilation, kernel


def _numbers(*shape: int) -> "torch.Tensor":
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture(params=[2**21, 4000], ids=["in one piece", "in many pieces"])
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "_BLOCK_BYTES", request.param)


Answer = tuple["torch.Tensor", tuple["torch.Tensor", ...]]


def _convolved(
    x: "torch.Tensor", weights: "torch.Tensor", *, ours: bool = True, **options: object
) -> Answer:
    """Return every lane's convolution, and the gradients of what is its own: weights, pictures.

    Pictures of four dimensions are shared by all lanes.
    """
    shared = x.dim() == 4

    def lane(x: "torch.Tensor", w: "torch.Tensor") -> Answer:
        if shared:
            out, back = torch.func.vjp(lambda w: F.conv2d(x, w, **options), w)
        else:
            out, back = torch.func.vjp(lambda w, x: F.conv2d(x, w, **options), w, x)
        return out, back(out.sin())

    with patches.by_patches(len(weights)) if ours else contextlib.nullcontext():
        return torch.vmap(lane, (None if shared else 0, 0))(x, weights)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize(("stride", "padding", "dilation", "kernel"), SHAPES)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shared", [False, True], ids=["own input", "shared input"])
def test_convolutions_and_their_gradients_are_pytorchs(
    stride: int, padding: int, dilation: int, kernel: tuple[int, int], groups: int, shared: bool
) -> None:
    x = _numbers(3, 8, 7, 9) if shared else _numbers(5, 3, 8, 7, 9)
    weights = _numbers(5, 6, 8 // groups, *kernel)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    found, slopes = _convolved(x, weights, **options)
    expected, plain = _convolved(x, weights, ours=False, **options)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(slopes, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shared", [False, True], ids=["own input", "shared input"])
@pytest.mark.parametrize(("groups", "stride"), [(1, 1), (3, 1), (1, 2)])
def test_convolutions_of_lanes_are_ours_without_groups_and_stride(
    shared: bool, groups: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    for name in ("_convolve", "_to_weights", "_to_input"):
        work = getattr(patches, name)
        monkeypatch.setattr(
            patches, name, lambda *a, name=name, work=work: (taken.append(name), work(*a))[1]
        )
    x = _numbers(3, 6, 5, 5) if shared else _numbers(4, 3, 6, 5, 5)
    _convolved(x, _numbers(4, 3, 6 // groups, 3, 3), groups=groups, stride=stride)
    names = ["_convolve", "_to_weights"] if shared else ["_convolve", "_to_input", "_to_weights"]
    # A shared input is convolved group by group.
    times = (groups if shared else int(groups == 1)) if stride == 1 else 0
    assert sorted(taken) == sorted(names * times)


# Pieces of one row of pixels, of a few, and of all; and one lane, two or more in a piece.
@pytest.mark.parametrize("bytes_", [2000, 4000, 6000, 8000, 12000, 16000, 2**21])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("rows", [4, 7, 10])
@pytest.mark.parametrize("shared", [False, True], ids=["own input", "shared input"])
def test_a_lane_gets_the_same_bits_in_any_stack_and_beside_nan(
    bytes_: int, groups: int, rows: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "_BLOCK_BYTES", bytes_)
    x = _numbers(rows, 6, 5, 5) if shared else _numbers(12, rows, 6, 5, 5)
    weights = _numbers(12, 6, 6 // groups, 3, 3)
    spoilt = weights.clone()
    spoilt[1:] = float("nan")

    def lane(number: int, lanes: slice, weights: "torch.Tensor") -> list["torch.Tensor"]:
        found, slopes = _convolved(x if shared else x[lanes], weights[lanes], groups=groups)
        return [found[number], *(s[number] for s in slopes)]

    def same(one: list["torch.Tensor"], other: list["torch.Tensor"]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    alone = lane(0, slice(2), weights)
    for lanes in (3, 4, 6, 12):
        for company in (weights, spoilt):
            assert same(alone, lane(0, slice(lanes), company))
    for start in (1, 2, 5):  # the eighth, in another place
        assert same(lane(7, slice(12), weights), lane(7 - start, slice(start, 12), weights))


@pytest.mark.parametrize("turned", list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("rows", [8, 7])
def test_products_are_pytorchs_and_lie_as_their_factors_do(
    turned: tuple[bool, bool], rows: int
) -> None:
    a, b = _numbers(3, rows, 4), _numbers(3, 4, 6)
    x, y = (t.mT.contiguous().mT if turn else t for t, turn in zip((a, b), turned, strict=True))
    with patches.by_patches(3):
        found = torch.bmm(x, y)
    torch.testing.assert_close(found, torch.bmm(a, b))
    # A product of 42 numbers would begin anywhere, and its bits depend on where.
    assert (found.stride(1) == 1) == (all(turned) and rows == 8)


def _pooled(pool: "torch.nn.Module") -> "torch.nn.Module":
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), pool, nn.Conv2d(4, 6, 3, stride=2),
        nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 1, 1),
        nn.AvgPool2d(2),
        nn.AdaptiveMaxPool2d(5),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(3, 1, 1)),
    ],
    ids=str,
)
def test_gradients_of_a_stack_are_those_without_patches(pool: "torch.nn.Module") -> None:
    found, expected = _gradients(_pooled(pool))
    torch.testing.assert_close(found, expected)


class _TwoPools(nn.Module):
    """Pools the same pictures twice, to the same size."""

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return F.max_pool2d(x, 2) - F.max_pool2d(x, 3, 2, 1).sin() + F.max_pool2d(x[:, :, :10], 2)


def test_pools_of_the_same_pictures_are_kept_apart() -> None:
    found, expected = _gradients(_pooled(_TwoPools()))
    torch.testing.assert_close(found, expected)


def _gradients(module: "torch.nn.Module") -> list[dict[str, "torch.Tensor"]]:
    """Return a stack's gradients with patches and without."""
    x = _numbers(1, 8, 1, 10, 10)
    module(x[0])
    # In float64 no rounding can make another of a window's numbers the largest.
    stacked = {n: _numbers(3, *p.shape).double() for n, p in module.named_parameters()}
    rest = x.double(), torch.arange(8)[None] % 3, torch.zeros(1, dtype=torch.int64), torch.zeros(3)
    return [
        gradients.Batched(module, "cross_entropy", kernels=how).gradients(stacked, {}, *rest)[0]
        for how in (patches.by_patches, contextlib.nullcontext)
    ]


def _fixed(x: "torch.Tensor", w: "torch.Tensor") -> "torch.Tensor":
    """Convolve with weights that all lanes share, after something that they do not."""
    return F.conv2d(x * w.mean(), torch.arange(144.0).view(4, 4, 3, 3).sin())


@pytest.mark.parametrize(
    "work",
    [
        F.conv_transpose2d,
        lambda x, w: F.conv1d(x.flatten(2), w.flatten(2)),
        lambda x, w: F.conv2d(x.bfloat16(), w.bfloat16()).float(),
        lambda x, w: F.max_pool2d(x * w.mean(), 2, return_indices=True)[1].double(),
        _fixed,
    ],
    ids=["transposed", "one dimension", "half precision", "indices of a pool", "fixed weights"],
)
@pytest.mark.parametrize("lanes", [2, 4])
def test_what_is_not_ours_goes_on_to_pytorch(
    work: Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"], lanes: int
) -> None:
    x, weights = _numbers(2, 4, 6, 6), _numbers(lanes, 4, 4, 3, 3)

    def lane(w: "torch.Tensor") -> tuple["torch.Tensor", "torch.Tensor"]:
        out, back = torch.func.vjp(lambda w: work(x, w), w)
        return out, back(out)[0]

    expected = torch.vmap(lane)(weights)
    with patches.by_patches(lanes):
        found = torch.vmap(lane)(weights)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(("channels", "outputs", "groups"), [(3, 4, 1), (4, 6, 3), (6, 4, 3)])
def test_what_is_wrong_is_said_by_pytorch(channels: int, outputs: int, groups: int) -> None:
    given = _numbers(3, channels, 6, 6), _numbers(2, outputs, 4, 3, 3)
    with pytest.raises(RuntimeError) as plain:
        _convolved(*given, ours=False, groups=groups)
    with pytest.raises(RuntimeError) as ours:
        _convolved(*given, groups=groups)
    assert str(ours.value) == str(plain.value)
