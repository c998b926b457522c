"""Clients trained together reach what a plain loop over them reaches."""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import Recipe, Recordings, engine, first_weights, train_clients
from urna.local.engine.batches import count_steps, epoch_batches, step_key

torch = pytest.importorskip("torch")
gradients = pytest.importorskip("urna.local.engine.gradients")
pieces = pytest.importorskip("urna.local.engine.pieces")
graphs = pytest.importorskip("urna.local.engine.graphs")
runner = pytest.importorskip("urna.local.engine.runner")
stack = pytest.importorskip("urna.local.engine.stack")
training = pytest.importorskip("urna.local.engine.training")
nn = torch.nn

features, targets = load_digits(return_X_y=True)
ALL = Samples((features / 16).astype(np.float32), targets)
# Of sizes that share batches or not; 33 leaves a lone row out, 5 is less than a batch.
SIZES = (64, 48, 60, 33, 5, 64, 17, 40)
EDGES = np.cumsum([0, *SIZES])
CLIENTS = [ALL.take(np.arange(a, b)) for a, b in itertools.pairwise(EDGES)]
SEEDS = list(range(10, 10 + len(SIZES)))


def mlp() -> "torch.nn.Module":
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 10))


def cnn() -> "torch.nn.Module":
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 10),
    )  # fmt: skip


def with_norm() -> "torch.nn.Module":
    return nn.Sequential(
        nn.Linear(64, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10)
    )


def half_frozen() -> "torch.nn.Module":
    module = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))
    module[0].weight.requires_grad_(False)
    return module


def flat(tensors: Sequence["torch.Tensor"]) -> np.ndarray:
    return torch.cat([torch.zeros(0), *(t.detach().float().ravel() for t in tensors)]).numpy()


def load(module: "torch.nn.Module", weights: np.ndarray) -> None:
    trained = [p for p in module.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), trained)


def loop(
    factory: Callable[[], "torch.nn.Module"],
    weights: np.ndarray,
    recipe: Recipe,
    clients: Sequence[Samples] = CLIENTS,
    seeds: Sequence[int] = SEEDS,
    first_epoch: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Train one client after the other, as one would write it."""
    rows = []
    for client, seed in zip(clients, seeds, strict=True):
        torch.manual_seed(0)
        module = factory()
        load(module, weights)
        first = [p.detach().clone() for p in module.parameters()]
        x, y = torch.tensor(client.features), torch.tensor(client.targets)
        adamw = recipe.optimiser == "adamw"
        own = {} if adamw else {"momentum": recipe.momentum}
        kind = torch.optim.AdamW if adamw else torch.optim.SGD
        optimiser = kind(
            [p for p in module.parameters() if p.requires_grad],
            lr=recipe.lr, weight_decay=recipe.weight_decay, **own,
        )  # fmt: skip
        for number, rate in enumerate(recipe.learning_rates()):
            optimiser.param_groups[0]["lr"] = rate
            epoch = first_epoch + number
            batches = epoch_batches(len(y), recipe.batch_size, seed=seed, epoch=epoch)
            for place, chosen in enumerate(batches):
                key = torch.tensor(step_key(seed, epoch * len(batches) + place))
                with gradients.KeyedDropout(key):
                    out = module(x[chosen])
                loss = nn.functional.cross_entropy(out, y[chosen])
                pairs = zip(module.parameters(), first, strict=True)
                loss = loss + recipe.proximal / 2 * sum(((p - a) ** 2).sum() for p, a in pairs)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        state = [*module.buffers(), *(p for p in module.parameters() if not p.requires_grad)]
        parameters = [p for p in module.parameters() if p.requires_grad]
        rows.append((flat(parameters), flat(state)))
    parameters, buffers = zip(*rows, strict=True)
    return np.stack(parameters), np.stack(buffers)


RECIPES = {
    "sgd": Recipe(lr=0.2, epochs=2, batch_size=16),
    "momentum": Recipe(lr=0.1, momentum=0.9, decay=0.5, weight_decay=0.01, epochs=3, batch_size=16),
    "proximal": Recipe(lr=0.2, momentum=0.5, proximal=2.0, epochs=2, batch_size=16),
    "adamw": Recipe(lr=0.01, optimiser="adamw", weight_decay=0.1, epochs=2, batch_size=16),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("factory", [mlp, cnn, with_norm, half_frozen])
def test_every_client_reaches_what_a_plain_loop_reaches(
    factory: Callable[[], "torch.nn.Module"], recipe: Recipe
) -> None:
    start = first_weights(factory, seed=3)
    found = train_clients(
        factory, start.parameters[0], CLIENTS, recipe, seeds=SEEDS, device="cpu",
        buffers=None if factory is not half_frozen else _frozen_of_seed_0(),
    )  # fmt: skip
    parameters, buffers = loop(factory, start.parameters[0], recipe)
    np.testing.assert_allclose(found.parameters, parameters, atol=2e-5)
    np.testing.assert_allclose(found.buffers, buffers, atol=2e-5)
    assert np.ptp(found.parameters, axis=0).max() > 0.01  # they did see different rows


def _frozen_of_seed_0() -> np.ndarray:
    torch.manual_seed(0)
    return half_frozen()[0].weight.detach().numpy()


def test_the_proximal_term_holds_clients_back() -> None:
    start = first_weights(mlp, seed=3).parameters[0]

    def moved(proximal: float) -> float:
        recipe = Recipe(lr=0.1, proximal=proximal, epochs=3, batch_size=16)
        found = train_clients(mlp, start, CLIENTS, recipe, seeds=SEEDS, device="cpu")
        return float(np.abs(found.parameters - start).max())

    assert moved(5.0) < 0.7 * moved(0.0)


def _stacks(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return what fills with the places of clients that train in one stack."""
    seen: list[list[int]] = []
    run = training.GroupTraining.run

    def noted(self: object, piece: Any, trainer: object) -> object:
        seen.append(list(piece.places))
        return run(self, piece, trainer)

    monkeypatch.setattr(training.GroupTraining, "run", noted)
    return seen


def test_clients_that_take_equally_many_steps_train_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = _stacks(monkeypatch)
    recipe = Recipe(batch_size=16, epochs=1)
    for factory in (mlp, with_norm):
        weights = first_weights(factory, seed=0).parameters
        train_clients(factory, weights, CLIENTS, recipe, seeds=SEEDS, device="cpu")
    by_steps, by_size = seen[:4], seen[4:]
    assert by_steps == [[0, 2, 5], [1, 7], [3], [4, 6]]
    assert by_size == [[0, 5], [2], [1], [7], [3], [6], [4]]


def test_a_client_whose_slot_is_taken_trains_in_a_stack_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = _stacks(monkeypatch)
    recipe = Recipe(batch_size=16, epochs=1)
    weights = first_weights(mlp, seed=0).parameters
    clients, seeds = [CLIENTS[0]] * 4, [5, 5, 21, 6]
    found = train_clients(mlp, weights, clients, recipe, seeds=seeds, device="cpu").parameters
    assert seen == [[0, 3], [1], [2]]
    np.testing.assert_array_equal(found[0], found[1])  # the same rows, seed and slot
    assert not np.array_equal(found[0], found[2])


def test_on_a_gpu_clients_train_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in for a GPU: only what is planned for one is looked at.
    monkeypatch.setattr(pieces, "free_bytes", lambda device: 2**36)
    recipe = Recipe(batch_size=16, epochs=1)
    steps = [count_steps(size, 16) for size in SIZES]
    here = runner.Runner(engine.Model(mlp, device="cpu"), stack.Features.of([recipe]))
    here._device, here._on_gpu = "cuda", True
    planned = list(here._pieces(CLIENTS, SEEDS, steps, 16, 1))
    assert {len(piece.stack) for _, pieces in planned for piece in pieces} == {1}
    assert {how.threads for how, _ in planned} == {1}


class _Repeat:
    """Records nothing: runs the step once, as recording does, and again at each replay."""

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        step()
        return step


@pytest.mark.parametrize("factory", [mlp, with_norm])
def test_steps_recorded_as_on_a_gpu_reach_the_same(
    factory: Callable[[], "torch.nn.Module"], monkeypatch: pytest.MonkeyPatch
) -> None:
    def record_like_a_gpu(self: Any) -> object:
        return graphs.GraphTrainer(self._batched, self._features, _Repeat())

    recipe, recordings = RECIPES["proximal"], Recordings()
    start = first_weights(factory, seed=3).parameters[0]
    expected, _ = loop(factory, start, recipe)
    monkeypatch.setattr(runner.Runner, "_make_graphs", record_like_a_gpu)
    for _ in range(2):
        found = train_clients(
            factory, start, CLIENTS, recipe, seeds=SEEDS, device="cpu", recordings=recordings
        )
        np.testing.assert_allclose(found.parameters, expected, atol=2e-5)


def test_threads_take_clients_of_their_own() -> None:
    recipe = Recipe(lr=0.1, momentum=0.9, batch_size=16, epochs=2)
    start = first_weights(cnn, seed=0).parameters
    before = torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            done = train_clients(cnn, start, CLIENTS, recipe, seeds=SEEDS, device="cpu")
            found.append(done.parameters)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


def test_rounds_go_on_where_the_last_one_ended_and_share_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, recordings = first_weights(mlp, seed=0).parameters[0], Recordings()
    calls, traced = [], gradients.Batched.gradients

    def counted(self: object, *args: object) -> object:
        calls.append(1)
        return traced(self, *args)

    monkeypatch.setattr(gradients.Batched, "gradients", counted)
    after = []
    for number, rate in enumerate((0.1, 0.05)):
        recipe = Recipe(lr=rate, batch_size=16, epochs=1)
        found = train_clients(
            mlp, start, CLIENTS, recipe, seeds=SEEDS, device="cpu", first_epoch=number,
            recordings=recordings,
        )  # fmt: skip
        expected, _ = loop(mlp, start, recipe, first_epoch=number)
        np.testing.assert_allclose(found.parameters, expected, atol=2e-5)
        after.append(len(calls))
    assert after[1] == after[0]


def test_a_client_without_rows_keeps_the_weights() -> None:
    start = first_weights(with_norm, seed=0)
    clients = [CLIENTS[0], ALL.take(np.arange(0))]
    recipe = Recipe(batch_size=16, epochs=1)
    found = train_clients(with_norm, start.parameters, clients, recipe, seeds=[0, 1], device="cpu")
    np.testing.assert_array_equal(found.parameters[1], start.parameters[0])
    np.testing.assert_array_equal(found.buffers[1], start.buffers[0])
    assert not np.array_equal(found.parameters[0], start.parameters[0])


def test_a_client_whose_rows_cannot_be_trained_on_is_lost_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = first_weights(mlp, seed=0).parameters
    bad = [
        Samples(CLIENTS[0].features, CLIENTS[0].targets + 1),
        Samples(CLIENTS[0].features[:, :5], CLIENTS[0].targets),
    ]
    recipe = Recipe(batch_size=16, epochs=1)
    with caplog.at_level(logging.WARNING, logger="urna.local"):
        found = train_clients(mlp, start, [CLIENTS[0], *bad], recipe, seeds=[1, 2, 3], device="cpu")
    alone = train_clients(mlp, start, CLIENTS[:1], recipe, seeds=[1], device="cpu")
    assert np.isnan(found.parameters[1:]).all()
    np.testing.assert_array_equal(found.parameters[0], alone.parameters[0])
    assert "client 1 abstains: its evaluation failed (ParameterError)" in caplog.text


def test_what_breaks_a_stack_is_found_client_by_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = training.GroupTraining.run

    def breaks(self: Any, piece: Any, trainer: object) -> object:
        if any(len(self.clients[place]) == 48 for place in piece.places):
            raise RuntimeError("a patient's name")
        return run(self, piece, trainer)

    monkeypatch.setattr(training.GroupTraining, "run", breaks)
    start = first_weights(mlp, seed=0).parameters
    recipe = Recipe(batch_size=16, epochs=1)
    found = train_clients(mlp, start, CLIENTS, recipe, seeds=SEEDS, device="cpu")
    lost = np.isnan(found.parameters).all(axis=1)
    assert lost.tolist() == [size == 48 for size in SIZES]
    assert "client 1 abstains: its evaluation failed (RuntimeError)" in caplog.text
    assert "patient" not in caplog.text


def test_where_memory_runs_out_clients_train_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    start = first_weights(mlp, seed=0).parameters
    recipe = Recipe(batch_size=16, epochs=1)

    def trained() -> np.ndarray:
        return train_clients(mlp, start, CLIENTS, recipe, seeds=SEEDS, device="cpu").parameters

    expected, plain = trained(), gradients.Batched.gradients

    def short_of_memory(
        self: object, parameters: dict[str, "torch.Tensor"], *rest: object
    ) -> object:
        if len(next(iter(parameters.values()))) > 1:
            raise torch.OutOfMemoryError("no room for two")
        return plain(self, parameters, *rest)

    monkeypatch.setattr(gradients.Batched, "gradients", short_of_memory)
    np.testing.assert_allclose(trained(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "apart"),
    [
        ([nn.Linear(6, 4), nn.Dropout(0.5)], True),
        ([nn.LayerNorm(6), nn.Linear(6, 4)], True),
        ([nn.Linear(6, 4), nn.BatchNorm1d(4)], False),
        ([nn.Softmax(dim=0)], False),
    ],
    ids=["dropout", "layer norm", "batch norm", "softmax over rows"],
)
def test_whether_rows_mix_is_seen_by_trying(layers: list["torch.nn.Module"], apart: bool) -> None:
    module = nn.Sequential(*layers)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    assert pieces.rows_apart(module, torch.zeros(7, 6)) == apart
    assert all(torch.equal(b, before[name]) for name, b in module.named_buffers())


def test_what_does_not_fit_is_refused() -> None:
    start = first_weights(mlp, seed=0).parameters[0]
    recipe = Recipe()
    with pytest.raises(ParameterError, match="1,210 parameters, got 1,209"):
        train_clients(mlp, start[1:], CLIENTS, recipe, seeds=SEEDS)
    with pytest.raises(ParameterError, match="numbers in buffers"):
        train_clients(mlp, start, CLIENTS, recipe, seeds=SEEDS, buffers=[1.0])
    with pytest.raises(ParameterError, match="seeds"):
        train_clients(mlp, start, CLIENTS, recipe, seeds=[1])
    smooth = Recipe(label_smoothing=0.1)
    with pytest.raises(ParameterError, match="label_smoothing"):
        train_clients(mlp, start, CLIENTS, smooth, seeds=SEEDS, loss="squared_error")


class Remembering(nn.Module):
    """Recurrent, with statistics of the rows that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.norm = nn.GRU(8, 4, batch_first=True), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        _, last = self.gru(rows.reshape(len(rows), 8, 8))
        found: torch.Tensor = self.head(self.norm(last[-1]))
        return found


def test_clients_of_a_module_that_cannot_be_stacked_train_in_a_plain_loop() -> None:
    start = first_weights(Remembering, seed=0)
    given = start.parameters, CLIENTS[:2], Recipe(lr=0.1, batch_size=16)
    found = train_clients(
        Remembering, *given, seeds=[1, 2], buffers=start.buffers + 1.0, device="cpu"
    )
    alone = train_clients(
        Remembering, start.parameters, CLIENTS[1:2], given[2], seeds=[2],
        buffers=start.buffers + 1.0, device="cpu",
    )  # fmt: skip
    assert np.isfinite(found.parameters).all()
    assert np.linalg.norm(found.parameters[1] - start.parameters[0]) > 0.01
    assert alone.parameters[0].tobytes() == found.parameters[1].tobytes()
    assert alone.buffers[0].tobytes() == found.buffers[1].tobytes()
    plain = train_clients(Remembering, *given, seeds=[1, 2], device="cpu")
    assert not np.array_equal(plain.buffers, found.buffers)


def test_numbers_as_targets_are_trained_by_squared_error() -> None:
    clients = [Samples(c.features, c.targets / 9) for c in CLIENTS[:3]]
    start = first_weights(lambda: nn.Linear(64, 1), seed=0).parameters
    recipe = Recipe(lr=0.05, batch_size=16, epochs=5)
    found = train_clients(
        lambda: nn.Linear(64, 1), start, clients, recipe, seeds=[1, 2, 3], device="cpu",
        loss="squared_error",
    )  # fmt: skip
    for client, row in zip(clients, found.parameters, strict=True):

        def error(weights: np.ndarray, client: Samples = client) -> float:
            out = client.features @ weights[:-1] + weights[-1]
            return float(np.mean((out - client.targets) ** 2))

        assert error(row) < 0.5 * error(start[0])
