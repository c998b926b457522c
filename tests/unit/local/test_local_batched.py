"""The batched engine gives the answer of a plain loop; nothing else may change it."""

import contextlib
import gc
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.errors import CannotBatch
from urna.local import BatchedObjective, Recipe, TorchObjective, hold_out
from urna.local.engine import Model, Recordings
from urna.local.engine.batches import epoch_batches, seeded_module, step_key
from urna.local.recipe import group_plans, plan_candidates
from urna.space import Space

torch = pytest.importorskip("torch")
epochs = pytest.importorskip("urna.local.engine.epochs")
pieces = pytest.importorskip("urna.local.engine.pieces")
gradients = pytest.importorskip("urna.local.engine.gradients")
graphs = pytest.importorskip("urna.local.engine.graphs")
runner = pytest.importorskip("urna.local.engine.runner")
search = pytest.importorskip("urna.local.engine.search")
stack = pytest.importorskip("urna.local.engine.stack")
nn = torch.nn

features, targets = load_digits(return_X_y=True)
DIGITS = Samples(features[:200].reshape(-1, 1, 8, 8) / 16, targets[:200])


def mlp(width: int = 16) -> "torch.nn.Module":
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 10)
    )


def cnn() -> "torch.nn.Module":
    # No bias before batch norm: its gradient is zero but for rounding, AdamW scales rounding
    # up to whole steps, and no two ways of computing would then agree.
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.Conv2d(6, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def patched_cnn() -> "torch.nn.Module":
    """Without batch norm: on a CPU its convolutions run by patches."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(72, 10),
    )


class Parted(nn.Module):
    """Groups in the first layer, a convolution with fixed weights, and weights cut in two."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 6, 2, groups=2)
        self.fixed = torch.linspace(-1, 1, 36).view(6, 6, 1, 1)
        self.both = nn.Parameter(0.2 * torch.randn(20, 54))

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        x = self.first(x.reshape(-1, 4, 4, 4)).relu()
        x = nn.functional.conv2d(x, self.fixed).flatten(1)
        left, right = self.both.chunk(2)
        return (x @ left.t()) * (x @ right.t()).sigmoid()


SGD = Space(
    lr=[0.3, 0.01], decay=[0.0, 0.5, 1.0], momentum=[0.0, 0.9], nesterov=[True, False],
    weight_decay=[0.0, 0.05],
)  # fmt: skip
ADAMW = Space(lr=[0.01, 0.001], optimiser=["adamw"], weight_decay=[0.0, 0.1], beta2=[0.9, 0.999])
LOSS = Space(lr=[0.1], label_smoothing=[0.0, 0.3], clip_norm=[0.05, 1.0, 1e9])
MIXED = Space(lr=[0.1, 0.02], optimiser=["sgd", "adamw"], decay=[0.0, 1.0])


@pytest.mark.parametrize(
    ("factory", "space"),
    [(mlp, SGD), (mlp, ADAMW), (mlp, LOSS), (cnn, MIXED), (patched_cnn, MIXED)],
    ids=["MLP by SGD", "MLP by AdamW", "smoothing and clipping", "CNN with batch norm", "CNN"],
)
def test_losses_agree_with_the_sequential_loop(factory: Callable[[], object], space: Space) -> None:
    plain = TorchObjective(factory, epochs=3, batch_size=32).losses(DIGITS, space, seed=3)
    batched = BatchedObjective(factory, epochs=3, batch_size=32, device="cpu")
    np.testing.assert_allclose(batched.losses(DIGITS, space, seed=3), plain, rtol=2e-5)
    assert len(set(plain.round(4))) > len(space) // 3  # the candidates do differ


class _HandDropout(nn.Module):
    """Dropout of a hand-written loop: masks by the published rule, one call after another."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.key, self.call = p, torch.tensor(0), 0

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        if not self.training:
            return x
        return x * gradients.dropout_mask(self.key, self.call, tuple(x.shape), self.p)


def test_losses_agree_with_a_loop_written_by_hand() -> None:
    parts = hold_out(DIGITS, seed=5)
    x = torch.tensor(parts.train.features, dtype=torch.float32)
    y = torch.tensor(parts.train.targets)
    torch.manual_seed(5)
    module = mlp()
    module[3] = dropout = _HandDropout(0.3)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
    step = 0
    for epoch in range(3):
        for rows in epoch_batches(len(y), 64, seed=5, epoch=epoch):
            dropout.key = torch.tensor(step_key(5, step))
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimiser.step()
            step += 1
        schedule.step()
    module.eval()
    with torch.no_grad():
        out = module(torch.tensor(parts.validation.features, dtype=torch.float32))
        expected = nn.functional.cross_entropy(out, torch.tensor(parts.validation.targets)).item()
    space = Space(lr=[0.2], momentum=[0.9], decay=[0.5, 1.0])
    found = BatchedObjective(mlp, epochs=3, device="cpu").losses(DIGITS, space, seed=5)
    assert found[0] == pytest.approx(expected, rel=1e-5)
    assert found[1] != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "most_lanes",
    [1, *(pytest.param(n, marks=pytest.mark.audit) for n in (2, 3, 5, 24)), 7, None],
)
def test_the_chunk_size_changes_nothing(most_lanes: int | None) -> None:
    few = Space(lr=[0.3, 0.1, 0.02])
    for factory, space in (
        (mlp, SGD), (cnn, MIXED), (cnn, few), (patched_cnn, MIXED), (Parted, SGD)
    ):  # fmt: skip
        whole = BatchedObjective(factory, epochs=2, device="cpu", most_lanes=100)
        cut = BatchedObjective(factory, epochs=2, device="cpu", most_lanes=most_lanes)
        a, b = (o.losses(DIGITS, space, seed=1) for o in (whole, cut))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("factory", [cnn, patched_cnn, Parted])
def test_the_number_of_threads_changes_nothing(factory: Callable[[], object], count: int) -> None:
    objective = BatchedObjective(factory, epochs=2, device="cpu")
    space = Space(lr=[0.3, 0.1, 0.03, 0.01], momentum=[0.0, 0.5, 0.9], decay=[0.5, 1.0])
    alone = objective.losses(DIGITS, space, seed=1)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        np.testing.assert_array_equal(objective.losses(DIGITS, space, seed=1), alone)
        assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)


def _threads(count: int) -> "pieces.Threads":
    return pieces.Threads(gradients.Batched(mlp(), "cross_entropy"), count)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_pieces_come_back_in_order_and_no_two_threads_share_a_module(count: int) -> None:
    using: dict[int, int] = {}

    def work(batched: Any, piece: slice) -> int:
        thread = threading.get_ident()
        time.sleep(0.02)
        assert using.setdefault(id(batched.module), thread) == thread
        return piece.start

    assert _threads(count).run(pieces.cut(20, 4), work) == [0, 4, 8, 12, 16]
    assert 2 <= len(using) <= min(count, 5)


@pytest.mark.parametrize("bad", [0, 1])
def test_after_an_error_nobody_goes_on(bad: int) -> None:
    done: list[int] = []

    def work(_: object, piece: slice) -> None:
        if piece.start == bad:
            raise MemoryError
        time.sleep(0.05)
        done.append(piece.start)

    with pytest.raises(MemoryError):
        _threads(2).run(pieces.cut(100, 1), work)
    assert len(done) <= 2


@pytest.mark.parametrize("factory", [mlp, patched_cnn])
def test_a_candidate_that_diverges_at_once_leaves_its_neighbours_untouched(
    factory: Callable[[], object],
) -> None:
    objective = BatchedObjective(factory, epochs=2, device="cpu")
    with_it = objective.losses(DIGITS, Space(lr=[0.1, 1e30, 0.01], momentum=[0.0, 0.9]), seed=0)
    without = objective.losses(DIGITS, Space(lr=[0.1, 0.01], momentum=[0.0, 0.9]), seed=0)
    assert np.isposinf(with_it[2:4]).all()
    np.testing.assert_array_equal(with_it[[0, 1, 4, 5]], without)


def test_shapes_and_batch_sizes_are_grouped_unnoticed() -> None:
    space = Space(width=[4, 16], batch_size=[16, 50], lr=[0.1, 0.3], epochs=[1, 2])
    plain = TorchObjective(mlp).losses(DIGITS, space, seed=0)
    seen: list[tuple[int, int]] = []
    found = BatchedObjective(mlp, device="cpu").losses(
        DIGITS, space, seed=0, progress=lambda done, total: seen.append((done, total))
    )
    np.testing.assert_allclose(found, plain, rtol=2e-5)
    assert seen[-1] == (16, 16)
    assert seen == sorted(seen)


def _run(
    make_trainer: Callable[..., object],
    factory: Callable[[], Any],
    width: int | None = None,
) -> np.ndarray:
    """Search on three clients with a given trainer."""
    space = Space(lr=[0.2, 0.02], decay=[0.0, 0.5, 1.0])
    (group,) = group_plans(plan_candidates(space, Recipe(epochs=3, batch_size=20), factory))
    used = stack.Features.of(group.recipes)
    rows = []
    for seed in range(3):
        part = hold_out(DIGITS.take(np.arange(60 * seed, 60 * seed + 60)), seed=seed)
        batched = gradients.Batched(factory().train(), "cross_entropy")
        with seeded_module(seed):
            module = factory()
        found = search.GroupSearch(
            group,
            epochs.searched_client(part, seed, "cpu"),
            pieces.Threads(batched),
            make_trainer(batched, used),
            pieces.Capacity(width or 100, fixed=width is not None),
        )
        found.run(stack.first_stack([module], used, "cpu"), lambda share: None)
        rows.append(found.scores()[:, 0])
    return np.array(rows)


def _eager(batched: object, used: object) -> object:
    return epochs.EagerTrainer(pieces.Threads(batched), used)


class _Repeat:
    """Records nothing: runs the step once, as recording does, and again at each replay."""

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        step()
        return step


def _recorded(batched: object, used: object) -> object:
    return graphs.GraphTrainer(batched, used, _Repeat())


@pytest.mark.parametrize("factory", [mlp, cnn])
def test_widths_and_recorded_steps_change_nothing(factory: Callable[[], object]) -> None:
    alone = _run(_eager, factory)
    assert np.isfinite(alone).all()
    for width in (None, 2, 4):
        np.testing.assert_array_equal(_run(_recorded, factory, width), alone)


def test_only_who_is_to_repeat_itself_asks_for_deterministic_kernels() -> None:
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    for repeatable, expected in ((False, before), (True, (True, False))):
        model = Model(mlp, device="cpu", repeatable=repeatable)
        with Recordings().runner(model, [Recipe()]):
            assert (cudnn.deterministic, cudnn.benchmark) == expected
        assert (cudnn.deterministic, cudnn.benchmark) == before


def test_a_gpu_keeps_one_width_only_where_asked_to_repeat_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A stand-in for a GPU: only what is planned for one is looked at.
    monkeypatch.setattr(pieces, "free_bytes", lambda device: 2**36)
    space = Space(lr=[0.3, 0.1, 0.03, 0.01], momentum=[0.0, 0.9], decay=[0.0, 0.5, 1.0])
    for factory in (mlp, cnn):
        planned = []
        for wanted in (False, True):
            objective = BatchedObjective(factory, device="cpu", repeatable=wanted)
            (group,) = objective.groups(space)
            here = runner.Runner(objective.model(group), stack.Features.of(group.recipes))
            here._device, here._on_gpu = "cuda", True
            planned.append(here._search_capacity(group, DIGITS, None))
        assert [(each.lanes, each.fixed) for each in planned] == [(24, False), (20, True)]


def test_a_step_that_cannot_be_recorded_runs_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    class Refuses:
        def record(self, step: Callable[[], None]) -> Callable[[], None]:
            step()
            raise RuntimeError("operation not permitted when stream is capturing")

    alone = _run(_eager, mlp)
    found = _run(lambda batched, used: graphs.GraphTrainer(batched, used, Refuses()), mlp)
    np.testing.assert_array_equal(found, alone)
    assert "could not be recorded" in caplog.text


def test_where_memory_runs_out_fewer_candidates_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = Space(lr=[0.1, 0.2, 0.05], momentum=[0.0, 0.9])
    objective = BatchedObjective(mlp, epochs=1, device="cpu")
    expected = objective.losses(DIGITS, space, seed=0)
    plain, tried = gradients.Batched.gradients, []

    def short_of_memory(
        self: object, parameters: dict[str, "torch.Tensor"], *rest: object
    ) -> object:
        count = len(next(iter(parameters.values())))
        tried.append(count)
        if count > 2:
            raise torch.OutOfMemoryError("no room for this many")
        return plain(self, parameters, *rest)

    monkeypatch.setattr(gradients.Batched, "gradients", short_of_memory)
    np.testing.assert_array_equal(objective.losses(DIGITS, space, seed=0), expected)
    assert max(tried) == 6


@pytest.mark.parametrize("kind", [BatchedObjective, TorchObjective])
def test_a_candidate_that_never_fits_fails_alone(kind: type) -> None:
    def hungry(width: int = 16) -> "torch.nn.Module":
        if width == 999:
            raise torch.OutOfMemoryError("a layer too wide")
        return mlp(width)

    losses = kind(hungry, epochs=1, device="cpu").losses(DIGITS, Space(width=[4, 999]), seed=0)
    assert math.isfinite(losses[0])
    assert losses[1] == math.inf


def test_a_module_that_cannot_be_batched_is_told_so() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return self.layer(x.flatten(1) + torch.randn(64))

    with pytest.raises(CannotBatch, match="TorchObjective"):
        BatchedObjective(Noisy, epochs=1, device="cpu").losses(DIGITS, Space(lr=[0.1]), seed=0)


def test_accuracies_are_those_of_the_trained_module_on_the_held_out_rows() -> None:
    def linear() -> "torch.nn.Module":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    space = Space(lr=[0.3, 0.01], momentum=[0.0, 0.9])
    objective = BatchedObjective(linear, epochs=2, batch_size=32, device="cpu")
    scores = objective.scores(DIGITS, space, seed=3)
    np.testing.assert_array_equal(scores[:, 0], objective.losses(DIGITS, space, seed=3))
    parts = hold_out(DIGITS, seed=3)
    x, y = torch.tensor(parts.train.features).float(), torch.tensor(parts.train.targets)
    held = torch.tensor(parts.validation.features).float()
    for candidate, accuracy in zip(space, scores[:, 1], strict=True):
        with seeded_module(3):
            module = linear()
        optimiser = torch.optim.SGD(
            module.parameters(), lr=candidate["lr"], momentum=candidate["momentum"]
        )
        for epoch in range(2):
            for rows in epoch_batches(len(y), 32, seed=3, epoch=epoch):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
                optimiser.step()
        found = module(held).argmax(1).numpy()
        assert accuracy == pytest.approx((found == parts.validation.targets).mean())


@pytest.mark.parametrize("enabled", [True, False])
def test_recording_keeps_the_collector_away_and_leaves_it_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with contextlib.suppress(RuntimeError), graphs._no_collection():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
