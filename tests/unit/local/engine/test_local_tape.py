"""Replayed steps are the module's own to the last bit, and what cannot be replayed is not."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from urna.data import Samples
from urna.local import BatchedObjective
from urna.local.engine.batches import seeded_module
from urna.local.recipe import Optimiser, Recipe
from urna.space import Space

torch = pytest.importorskip("torch")
epochs = pytest.importorskip("urna.local.engine.epochs")
gradients = pytest.importorskip("urna.local.engine.gradients")
stack = pytest.importorskip("urna.local.engine.stack")
tape = pytest.importorskip("urna.local.engine.tape")
nn = torch.nn

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 - torch may be missing

LANES, ROWS = 3, 16


def _numbers(*shape: int) -> "torch.Tensor":
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def cnn() -> "torch.nn.Module":
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.3), nn.Flatten(), nn.Linear(36, 3),
    )  # fmt: skip


class _Counts(nn.Module):
    """Scales its output by how often it was called: state that no tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(64, 3), 0

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        self.calls += 1
        return self.linear(x.flatten(1)) * self.calls


class _Draws(_Counts):
    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return self.linear(x.flatten(1)) * random.random()


class _Branches(_Counts):
    """Decides by the value of its input, which it gets at in one of many ways."""

    def __init__(self, look: Callable[["torch.Tensor"], float]) -> None:
        super().__init__()
        self.look = look

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return self.linear(x.flatten(1)) * (2.0 if self.look(x.sum()) > 0 else 3.0)


class _Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


class _Run:
    """Some lanes of a module, and steps with a batch of their own each."""

    def __init__(
        self, factory: Callable[[], "torch.nn.Module"], optimiser: Optimiser = Optimiser.SGD
    ) -> None:
        torch.manual_seed(1)
        module = factory()
        recipes = [
            Recipe(lr=0.05 * (i + 1), momentum=0.5, label_smoothing=0.1 * i, clip_norm=i + 1.0,
                   optimiser=optimiser)
            for i in range(LANES)
        ]  # fmt: skip
        self.features = stack.Features.of(recipes)
        self.batched = gradients.Batched(module, "cross_entropy", smoothing=True)
        self.lanes = stack.first_stack([module] * LANES, self.features, "cpu")
        self.settings = stack.SettingsTable(recipes, "cpu").at(torch.arange(LANES), 0)

    def go(self, step: Callable[..., None], sizes: tuple[int, ...] = (ROWS,) * 6) -> None:
        for i, rows in enumerate(sizes):
            x = torch.stack([_numbers(90 + i, 1, 8, 8)[:rows]])
            y = (torch.arange(rows)[None] + i) % 3
            key = torch.tensor([i * 77])
            step(self.batched, self.lanes, self.settings, self.features, x, y, key)

    def tensors(self) -> list["torch.Tensor"]:
        return [t for part in self.lanes.parts() for t in part.values()] + [self.lanes.steps]


def _both(factory: Callable[[], "torch.nn.Module"], *more: object) -> tuple[_Run, _Run]:
    played, plain = _Run(factory, *more), _Run(factory, *more)
    random.seed(3)
    plain.go(epochs.eager_step)
    random.seed(3)
    played.go(tape.RecordedSteps())
    return played, plain


@pytest.mark.parametrize("optimiser", list(Optimiser))
def test_replayed_steps_give_the_same_bits(optimiser: Optimiser) -> None:
    played, plain = _both(cnn, optimiser)
    assert all(torch.equal(a, b) for a, b in zip(played.tensors(), plain.tensors(), strict=True))


def test_a_shape_is_traced_twice_and_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, traced = [], gradients.Batched.gradients

    def counted(self: object, *args: object) -> object:
        calls.append(1)
        return traced(self, *args)

    monkeypatch.setattr(gradients.Batched, "gradients", counted)
    _Run(cnn).go(tape.RecordedSteps(), (16, 16, 16, 16, 5, 16, 5, 5))
    assert len(calls) == 4  # recorded and checked, for each of two sizes


def test_a_shape_that_comes_rarely_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "_OFTEN", 5)
    made: list[object] = []
    monkeypatch.setattr(tape, "record", lambda step, _: made.append(step()))
    take = tape.RecordedSteps()
    _Run(cnn).go(take, (16, 16, 16, 5, 5, 16))
    assert not made
    _Run(cnn).go(take, (5, 16, 16))
    assert len(made) == 1


def test_recordings_differ_by_kind_and_stride_but_not_by_where_a_single_row_lies() -> None:
    x = _numbers(1, 8, 3)
    few, all_of_few, second = x[:, :4], x[:, :4].clone(), x[:, ::2]
    same, others = tape._shapes([few]), ([second], [few.double()], [x])
    assert tape._shapes([all_of_few]) == same
    assert all(tape._shapes(other) != same for other in others)


def test_a_lane_that_diverges_is_replayed_like_any_other() -> None:
    played, plain = _Run(cnn), _Run(cnn)
    for run in (played, plain):
        run.settings.lr[1] = float("inf")
    plain.go(epochs.eager_step)
    played.go(tape.RecordedSteps())
    for a, b in zip(played.tensors()[:-1], plain.tensors()[:-1], strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[2], b[2])
        assert not bool(a[0].isnan().any())


def test_a_module_with_a_count_of_its_own_is_not_replayed() -> None:
    played, plain = _Run(_Counts), _Run(_Counts)
    plain.go(epochs.eager_step)
    played.go(tape.RecordedSteps())
    assert played.batched.module.calls == plain.batched.module.calls == 6
    assert all(torch.equal(a, b) for a, b in zip(played.tensors(), plain.tensors(), strict=True))


def test_a_module_that_draws_past_pytorch_is_not_replayed() -> None:
    played, _ = _both(_Draws)
    before = [t.clone() for t in played.tensors()]
    again = _Run(_Draws)
    random.seed(3)
    again.go(epochs.eager_step)
    assert all(torch.equal(a, b) for a, b in zip(before, again.tensors(), strict=True))


@pytest.mark.parametrize("look", [float, torch.Tensor.tolist], ids=["as a number", "as a list"])
def test_a_module_that_branches_on_its_input_is_not_recorded(
    look: Callable[["torch.Tensor"], float],
) -> None:
    recordings: list[object] = []
    record = tape.record

    def noted(step: Callable[[], None], inputs: object) -> object:
        recordings.append(record(step, inputs))
        return recordings[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tape, "record", noted)
        played, plain = _both(lambda: _Branches(look))
    assert recordings == [None]
    assert all(torch.equal(a, b) for a, b in zip(played.tensors(), plain.tensors(), strict=True))


@pytest.mark.parametrize(
    "look",
    [
        lambda x: float(x.sum()),
        lambda x: sum(x.tolist()),
        lambda x: float(x.numpy().sum()),
        lambda x: float(np.asarray(x).sum()),
        lambda x: float(np.from_dlpack(x).sum()),
    ],
    ids=["a number", "a list", "an array", "an array made by NumPy", "an array by DLPack"],
)
def test_a_step_that_looks_at_numbers_is_not_recorded(
    look: Callable[["torch.Tensor"], float],
) -> None:
    x = torch.ones(3)
    assert tape.record(lambda: x.add_(look(x)), [x]) is None
    assert x.tolist() == [4, 4, 4]


def test_a_step_that_writes_elsewhere_is_not_recorded() -> None:
    x, elsewhere = torch.ones(3), torch.zeros(3)
    assert tape.record(lambda: elsewhere.add_(x), [x]) is None
    assert tape.record(lambda: elsewhere[1:].view(2).add_(x[1:]), [x]) is None
    assert tape.record(lambda: x.add_(elsewhere.view(3)), [x]) is not None


def test_operations_without_effect_are_left_out() -> None:
    x = torch.zeros(4)

    def step() -> None:
        (x + 1).exp()
        x.view(2, 2).view(4).view(2, 2)[1].add_(1)

    recorded = tape.record(step, [x])
    assert recorded is not None
    other = torch.zeros(10)[3:7]
    with _Counted() as counted:
        recorded([other])
    assert other.tolist() == x.tolist() == [0, 0, 1, 1]
    assert counted.calls == 2  # one view and the addition


def test_a_view_of_another_kind_is_replayed() -> None:
    x, y = _numbers(6), torch.zeros(6, dtype=torch.int32)
    recorded = tape.record(lambda: y.add_(x.view(torch.int32)), [x, y])
    assert recorded is not None
    again = torch.zeros(6, dtype=torch.int32)
    recorded([x, again])
    assert torch.equal(again, y)


def test_parts_of_what_is_given_are_found_wherever_it_lies() -> None:
    x, y = _numbers(8), torch.zeros(4)

    def step(x: "torch.Tensor", y: "torch.Tensor") -> None:
        left, right = x.chunk(2)
        y.add_((left * right.view(2, 2).t().reshape(4)).relu())

    recorded = tape.record(lambda: step(x, y), [x, y])
    assert recorded is not None
    far, expected, again = _numbers(30)[11:19], torch.zeros(4), torch.zeros(9)[2:6]
    step(far, expected)
    recorded([far, again])
    assert torch.equal(again, expected)


def test_assertions_are_replayed() -> None:
    x = torch.ones(3)

    def step() -> None:
        torch._assert_async((x > 0).all())
        x.add_(1)

    recorded = tape.record(step, [x])
    assert recorded is not None
    with pytest.raises(RuntimeError, match="Expected Tensor"):
        recorded([-torch.ones(3)])


def test_threads_build_modules_one_after_the_other() -> None:
    def drawn(seed: int) -> float:
        with seeded_module(seed):
            time.sleep(0.01)
            return float(torch.rand(()))

    expected = [drawn(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(drawn, range(6))) == expected


def test_threads_may_share_an_objective() -> None:
    data = [Samples(_numbers(40 + i, 1, 8, 8).numpy(), np.arange(40 + i) % 3) for i in range(4)]
    space = Space(lr=[0.1, 0.01, 0.003])

    def search(objective: BatchedObjective, i: int) -> list[float]:
        return list(objective.losses(data[i], space, seed=i))

    made = BatchedObjective(cnn, epochs=3, batch_size=16, device="cpu")
    expected = [search(made, i) for i in range(4)]
    shared = replace(made)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda i: search(shared, i), range(4))) == expected


def test_hooks_see_every_step() -> None:
    seen: list[int] = []
    backward = cnn()
    backward.register_full_backward_pre_hook(lambda *_: seen.append(1))
    assert tape.has_hooks(backward)

    def watched() -> "torch.nn.Module":
        module = cnn()
        module.register_forward_hook(lambda *_: seen.append(1))
        return module

    assert tape.has_hooks(watched())
    assert not tape.has_hooks(cnn())
    data = Samples(_numbers(40, 1, 8, 8).numpy(), torch.arange(40).numpy() % 3)
    objective = BatchedObjective(watched, epochs=4, batch_size=16, device="cpu")
    objective.losses(data, Space(lr=[0.1, 0.01]), seed=0)
    assert len(seen) > 4 * 2
