"""Any torch module as a learner: together as alone, and record by record."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="these models are torch's")

import torch
from torch import nn

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import Recipe
from urna.privacy import Adjacency, Budget
from urna.randomness import ScriptedSecrets
from urna.report import page
from urna.systems.train import FedAvg, Settings, TorchLearner, TrainResult, Validation, fit
from urna.systems.train.result import model_card
from urna.tally import Run

RNG = np.random.default_rng(0)
CLIENTS = [
    Samples(RNG.normal(size=(rows, 6)).astype(np.float32), RNG.integers(3, size=rows))
    for rows in (12, 12, 9, 20)
]


def linear() -> nn.Module:
    return nn.Linear(6, 3)


def test_clients_train_together_as_each_would_alone() -> None:
    learner = TorchLearner(linear, Recipe(lr=0.1, epochs=2, batch_size=4), device="cpu")
    weights = learner.first_weights(seed=0)
    together = learner.train(weights, CLIENTS, number=3, seeds=range(4))
    for place, client in enumerate(CLIENTS):
        (alone,) = learner.train(weights, [client], number=3, seeds=[place])
        assert np.allclose(together[place], alone, atol=1e-6)


def test_modules_that_gather_statistics_are_refused() -> None:
    with pytest.raises(ParameterError, match="keeps running statistics"):
        TorchLearner(lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))


@pytest.mark.parametrize("clip", [0.05, 0.5, 50.0])
def test_one_record_moves_a_clients_sum_by_twice_the_clip_at_most(clip: float) -> None:
    learner = TorchLearner(linear, device="cpu")
    weights = learner.first_weights(seed=0)
    client = CLIENTS[0]
    (whole,) = learner.record_sums(weights, [client], record_clip=clip)
    for row in range(len(client)):
        features = client.features.copy()
        features[row] = 1e3 * RNG.normal(size=6)
        other = Samples(features, client.targets)
        (moved,) = learner.record_sums(weights, [other], record_clip=clip)
        assert np.linalg.norm(moved - whole) <= 2 * clip
    # Nothing is clipped at 50, and it is what autograd says.
    if clip == 50.0:
        module = learner.module(weights)
        loss = nn.functional.cross_entropy(
            module(torch.tensor(client.features)), torch.tensor(client.targets), reduction="sum"
        )
        loss.backward()  # type: ignore[no-untyped-call]
        exact = torch.cat([p.grad.ravel() for p in module.parameters() if p.grad is not None])
        assert np.allclose(whole, -exact.numpy(), atol=1e-4)


@pytest.mark.parametrize("target", [3, -1, np.nan, 0.5], ids=["above", "below", "NaN", "between"])
def test_a_record_without_a_class_adds_nothing_and_costs_no_other(target: float) -> None:
    learner, clip = TorchLearner(linear, device="cpu"), 0.05
    weights, client = learner.first_weights(seed=0), CLIENTS[0]
    (whole,) = learner.record_sums(weights, [client], record_clip=clip)
    targets = client.targets.astype(np.int64 if isinstance(target, int) else np.float64)
    targets[5] = target
    (found,) = learner.record_sums(weights, [Samples(client.features, targets)], record_clip=clip)
    rest = client.take(np.delete(np.arange(len(client)), 5))
    (without,) = learner.record_sums(weights, [rest], record_clip=clip)
    assert np.allclose(found, without, atol=1e-7)
    assert 0 < np.linalg.norm(found - whole) <= clip


@pytest.mark.parametrize("rows", [12, 700])  # within one batch of rows, and over several
def test_all_rows_of_one_id_are_one_record(rows: int) -> None:
    learner = TorchLearner(linear, device="cpu")
    weights = learner.first_weights(seed=0)
    features = RNG.normal(size=(rows, 6)).astype(np.float32)
    targets = RNG.integers(0, 3, rows)
    ids = np.where(np.arange(rows) % 2, 7, np.arange(rows) + 100)  # every second row is of one
    sums = []
    for sign in (1, -1):
        moved = features.copy()
        moved[ids == 7] = sign * 100 * features[1]
        client = Samples(moved, np.where(ids == 7, 0, targets), ids)
        sums.append(learner.record_sums(weights, [client], record_clip=0.1)[0])
    assert 0.01 < np.linalg.norm(sums[0] - sums[1]) <= 0.2
    loose = [
        learner.record_sums(weights, [Samples(features, targets, which)], record_clip=1e6)[0]
        for which in (ids, None)
    ]
    assert np.allclose(loose[0], loose[1], atol=1e-3)  # nothing is lost where nothing is clipped


def test_records_are_protected_where_each_gradient_is_clipped() -> None:
    result = fit(
        TorchLearner(linear, device="cpu"),
        CLIENTS,
        budget=Budget(6.0, 1e-3),
        rounds=2,
        settings=Settings(optimiser=FedAvg(lr=0.1), clip=5.0, record_clip=1.0),
        adjacency=Adjacency.REPLACE_ONE_RECORD,
        run=Run(force=True),
    )
    assert result.privacy.adjacency is Adjacency.REPLACE_ONE_RECORD
    assert result.privacy.epsilon <= 6.0


def test_a_page_and_a_card_show_the_curve_and_the_privacy_block() -> None:
    result = fit(
        TorchLearner(linear, validation=0.25, device="cpu"),
        CLIENTS * 5,
        budget=Budget(6.0, 1e-3),
        rounds=4,
        settings=Settings(validation=Validation()),
        score=lambda weights: (1.0, 0.5),
        run=Run(secrets=ScriptedSecrets(b"page"), force=True),
    )
    shown = page(result, title="A <model>")
    assert "A &lt;model&gt;" in shown
    assert "How it learned" in shown
    assert "NOT PRIVATE" in shown
    card = model_card(result, title="A model", data="made-up rows")
    assert "| epsilon | infinite: NOT PRIVATE |" in card
    assert "| amplification by sampling | none |" in card
    assert "made-up rows" in card
    again = TrainResult.read(result.as_mapping())  # without the weights, but with their digest
    assert model_card(again, title="A model", data="made-up rows") == card


def chosen(*records: int) -> Callable[[int], npt.NDArray[np.bool_]]:
    """Draw these records, whatever secret numbers say."""
    return lambda count: np.isin(np.arange(count), records)


def test_rows_of_one_id_are_drawn_together() -> None:
    learner = TorchLearner(linear, device="cpu")
    weights, rows = learner.first_weights(seed=0), CLIENTS[0]
    ids = np.array([5, 7, 5, 9, 7, 5, 9, 9, 7, 5, 7, 9])
    client = Samples(rows.features, rows.targets, ids)
    for record, name in enumerate((5, 7, 9)):
        (drawn,) = learner.record_sums(weights, [client], record_clip=0.1, draws=[chosen(record)])
        (alone,) = learner.record_sums(weights, [client.take(ids == name)], record_clip=0.1)
        assert np.allclose(drawn, alone, rtol=1e-12, atol=1e-15)
        assert np.linalg.norm(drawn) == pytest.approx(0.1)
    (nothing,) = learner.record_sums(weights, [client], record_clip=0.1, draws=[chosen()])
    assert not nothing.any()


def test_records_that_are_not_drawn_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, rows, sizes = TorchLearner(linear, device="cpu"), 3_000, []
    weights, add = learner.first_weights(seed=0), torch.Tensor.index_add_

    def noting(self: torch.Tensor, *given: object) -> torch.Tensor:
        sizes.append(len(self))
        return add(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.Tensor, "index_add_", noting)
    client = Samples(np.ones((rows, 6), np.float32), np.zeros(rows, np.int64), np.arange(rows))
    draws = [chosen(0, 1, rows - 1)]
    (found,) = learner.record_sums(weights, [client], record_clip=0.1, draws=draws)
    assert sizes == [3]
    (single,) = learner.record_sums(weights, [client], record_clip=0.1, draws=[chosen(5)])
    assert np.allclose(found, 3 * single)


def test_a_record_that_is_drawn_moves_the_sum_by_one_clip_at_most_and_no_other() -> None:
    learner = TorchLearner(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), device="cpu"
    )
    weights, client, clip = learner.first_weights(seed=0), CLIENTS[3], 0.05
    (whole,) = learner.record_sums(weights, [client], record_clip=clip)
    for record in range(len(client)):
        rest = chosen(*(set(range(len(client))) - {record}))
        (without,) = learner.record_sums(weights, [client], record_clip=clip, draws=[rest])
        (alone,) = learner.record_sums(weights, [client], record_clip=clip, draws=[chosen(record)])
        # In float64, so that what stands beside a row changes it by next to nothing.
        assert np.linalg.norm(whole - without - alone) < 1e-12 * clip
        assert np.linalg.norm(alone) <= clip


class Recurrent(nn.Module):
    """What cannot be computed for many rows at once."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        _, last = self.gru(rows.reshape(len(rows), 3, 2))
        found: torch.Tensor = self.head(last[-1])
        return found


class Halves(nn.Module):
    """Decides by looking at its numbers, which no stack allows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.one(rows) if float(rows.sum()) > 0 else self.other(rows)
        return found


class Looks(nn.Module):
    """Changes nothing, but no stack allows what it does."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if rows.sum().item() > 0 else 1.0 * rows


class Embedded(nn.Module):
    """Raises for a row whose number is none of its five."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(3, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.table(rows[:, 0].long()))
        return found


@pytest.mark.parametrize("stacks", [True, False])
@pytest.mark.parametrize("count", [10, 600])
@pytest.mark.parametrize("of_ids", [True, False])
def test_a_record_that_makes_the_module_raise_moves_a_sum_by_its_clip_at_most(
    stacks: bool, count: int, of_ids: bool
) -> None:
    def factory() -> nn.Module:
        return Embedded() if stacks else nn.Sequential(Looks(), Embedded())

    learner = TorchLearner(factory, device="cpu")
    weights = learner.first_weights(seed=0)
    places = np.arange(count)
    features, ids = (places[:, None] % 5).astype(np.float32), places // 3 if of_ids else None
    client = Samples(features, places % 2, ids)
    changed = features.copy()
    changed[4] = 7.0
    (before,) = learner.record_sums(weights, [client], record_clip=0.5)
    (after,) = learner.record_sums(
        weights, [Samples(changed, client.targets, ids)], record_clip=0.5
    )
    assert 0 < np.linalg.norm(after - before) <= 0.5
    record = (places // 3 == 1) if of_ids else (places == 4)
    (without,) = learner.record_sums(weights, [client.take(places[~record])], record_clip=0.5)
    assert np.allclose(after, without, rtol=0, atol=1e-10)


def attentive() -> nn.Module:
    layer = nn.TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.3, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 6)), layer, nn.Flatten(), nn.Linear(6, 3))


@pytest.mark.parametrize("factory", [Recurrent, attentive])
def test_clients_of_a_module_that_cannot_be_stacked_train_one_by_one(
    factory: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    recipe = Recipe(lr=0.1, momentum=0.5, proximal=0.1, epochs=2, batch_size=5)
    learner = TorchLearner(factory, recipe, device="cpu")
    weights = learner.first_weights(seed=0)
    broken = Samples(CLIENTS[0].features, np.full(12, 3))  # none of the classes
    empty = CLIENTS[0].take(np.zeros(0, dtype=np.intp))
    clients = [*CLIENTS, broken, empty]
    learner.train(weights, clients, number=1, seeds=range(6))
    together = learner.train(weights, clients, number=2, seeds=range(6))
    assert caplog.text.count("clients train one by one") == 1
    assert np.isfinite(together[:4]).all()
    assert np.isnan(together[4]).all()
    assert np.array_equal(together[5], weights)
    assert all(np.linalg.norm(row - weights) > 0.01 for row in together[:4])
    for place, client in enumerate(CLIENTS):
        fresh = TorchLearner(factory, recipe, device="cpu")
        for _ in range(2):  # and again, whatever was drawn before
            (alone,) = fresh.train(weights, [client], number=2, seeds=[place])
            assert np.array_equal(alone, together[place])
    (later,) = learner.train(weights, CLIENTS[:1], number=3, seeds=[0])
    assert not np.array_equal(later, together[0])  # other batches


def test_a_plain_loop_trains_as_a_stack_does() -> None:
    recipe = Recipe(lr=0.1, momentum=0.5, proximal=0.1, epochs=2, batch_size=5)

    def dropping() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    learner = TorchLearner(dropping, recipe, device="cpu")
    plain = TorchLearner(lambda: nn.Sequential(*dropping(), Looks()), recipe, device="cpu")
    weights = learner.first_weights(seed=0)
    rows = [one.train(weights, CLIENTS, number=3, seeds=range(4)) for one in (learner, plain)]
    assert np.allclose(rows[0], rows[1], atol=1e-5)


def test_only_what_is_not_frozen_is_trained() -> None:
    def frozen() -> nn.Module:
        base, head = nn.Linear(6, 5), nn.Linear(5, 3)
        base.requires_grad_(False)
        return nn.Sequential(base, nn.Tanh(), head)

    recipe = Recipe(lr=0.1, epochs=1, batch_size=4)
    for factory in (lambda: nn.Sequential(*frozen(), Looks()), frozen):
        learner = TorchLearner(factory, recipe, device="cpu")
        weights = learner.first_weights(seed=0)
        assert len(weights) == 5 * 3 + 3
        rows = learner.train(weights, CLIENTS, number=1, seeds=range(4))
        assert rows.shape == (4, 18)
        assert np.isfinite(rows).all()
    (moved,) = learner.record_sums(weights, CLIENTS[:1], record_clip=0.1)
    assert moved.shape == (18,)


@pytest.mark.parametrize("module", [Recurrent, Halves])
def test_modules_that_cannot_be_stacked_are_worked_on_row_by_row(
    module: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    learner = TorchLearner(module, device="cpu")
    weights, client = learner.first_weights(seed=0), CLIENTS[0]
    (found,) = learner.record_sums(weights, [client], record_clip=0.05)
    made = learner.module(weights).double()
    expected = np.zeros(len(weights))
    for row, target in zip(client.features, client.targets, strict=True):
        made.zero_grad()
        outputs = made(torch.tensor(row[None]).double())
        nn.functional.cross_entropy(outputs, torch.tensor([target])).backward()  # type: ignore[no-untyped-call]
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in made.parameters()]
        one = torch.cat([part.ravel() for part in parts]).numpy()
        expected -= one * min(1.0, 0.05 / np.linalg.norm(one))
    assert np.allclose(found, expected, atol=1e-8)
    assert "row by row" in caplog.text
