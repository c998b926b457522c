"""Layers of many kinds: trained together, cut into pieces, refast: they match a plain loop."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from urna.data import Samples
from urna.local import BatchedObjective, Speed, TorchObjective
from urna.space import Space

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

rng = np.random.default_rng(0)
DATA = Samples(rng.normal(size=(60, 4, 6, 6)).astype(np.float32), rng.integers(0, 3, 60))
SPACE = Space(lr=[0.1, 0.03, 0.01, 0.003, 0.001])


def conv(**options: Any) -> Any:
    return nn.Conv2d(4, 4, 3, **options)


LAYERS: dict[str, Callable[[], list[Any]]] = {
    "layer norm": lambda: [nn.LayerNorm([4, 6, 6]), conv()],
    "group norm": lambda: [conv(), nn.GroupNorm(2, 4), nn.ReLU()],
    "instance norm": lambda: [conv(), nn.InstanceNorm2d(4, affine=True), nn.ReLU()],
    "batch norm": lambda: [conv(), nn.BatchNorm2d(4), nn.ReLU()],
    "local response norm": lambda: [conv(), nn.LocalResponseNorm(2)],
    "one dimension": lambda: [nn.Flatten(2), nn.Conv1d(4, 4, 3), nn.ReLU()],
    "three dimensions": lambda: [nn.Unflatten(1, (1, 4)), nn.Conv3d(1, 4, 3), nn.ReLU()],
    "transposed": lambda: [nn.ConvTranspose2d(4, 4, 3), nn.ReLU()],
    "reflected edges": lambda: [conv(padding=1, padding_mode="reflect"), nn.Tanh()],
    "strided and dilated": lambda: [conv(stride=2, dilation=2, padding=2), nn.LPPool2d(2, 2)],
    "depthwise": lambda: [conv(groups=4), nn.ReLU(), nn.Conv2d(4, 8, 1)],
    "weights by norm": lambda: [nn.utils.parametrizations.weight_norm(conv()), nn.ReLU()],
    "pixel shuffle": lambda: [conv(), nn.PixelShuffle(2)],
    "larger": lambda: [conv(), nn.Upsample(scale_factor=2, mode="bilinear")],
    "adaptive pool": lambda: [conv(), nn.AdaptiveAvgPool2d(3)],
    "own slope": lambda: [conv(), nn.PReLU(4)],
    "gated": lambda: [conv(), nn.GLU(1)],
    "in place": lambda: [conv(), nn.ReLU(inplace=True)],
    "smooth": lambda: [conv(), nn.Softplus(), nn.GELU()],
}
WORK: dict[str, Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]] = {
    "residual": lambda h, x: F.relu(x + h),
    "split and joined": lambda h, x: torch.cat(
        [a * b for a, b in zip(h.split(2, 1), x.split(2, 1), strict=True)], 1
    ),
    "standardised": lambda h, _: (h - h.mean((2, 3), True)) / (h.std((2, 3), keepdim=True) + 1),
    "sorted": lambda h, _: h.flatten(2).sort(2)[0],
    "the largest": lambda h, _: h.flatten(2).topk(3, 2)[0],
    "summed up": lambda h, _: h.cumsum(2) / 5,
    "products": lambda h, x: torch.einsum("bchw,bdhw->bcd", h, x) / 9,
    "patches": lambda h, _: F.unfold(h, 2),
    "chosen": lambda h, _: torch.where(h > 0, h, 0.1 * h).clamp(-1, 1),
    "indexed": lambda h, _: h[:, [2, 0, 1]] * torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1),
    "frequencies": lambda h, _: torch.fft.rfft2(h).real / 9,
}


class Worked(nn.Module):
    """One convolution, and something made of it."""

    def __init__(self, work: Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]) -> None:
        super().__init__()
        self.layer, self.work = conv(padding=1), work

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return self.work(self.layer(x), x)


def _classifier(name: str) -> "torch.nn.Module":
    body = nn.Sequential(*LAYERS[name]()) if name in LAYERS else Worked(WORK[name])
    whole = nn.Sequential(body, nn.Flatten(), nn.LazyLinear(3))
    whole(torch.zeros(2, 4, 6, 6))
    return whole


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", [*LAYERS, *WORK])
def test_a_layer_matches_a_plain_loop(name: str) -> None:
    def factory() -> "torch.nn.Module":
        return _classifier(name)

    fast = BatchedObjective(factory, epochs=3, batch_size=16, device="cpu")
    found = fast.losses(DATA, SPACE, seed=1)
    plain = TorchObjective(factory, epochs=3, batch_size=16, device="cpu")
    np.testing.assert_allclose(found, plain.losses(DATA, SPACE, seed=1), rtol=1e-4)
    pieces = replace(fast, most_lanes=2)
    np.testing.assert_array_equal(pieces.losses(DATA, SPACE, seed=1), found)
    eager = replace(fast, speed=replace(Speed(), recorded_steps=False))
    np.testing.assert_array_equal(eager.losses(DATA, SPACE, seed=1), found)
