import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.errors import ParameterError, UnknownName
from urna.local import BatchedObjective, Recipe, TorchObjective, hold_out
from urna.local.engine.batches import epoch_batches, step_key
from urna.space import Space

torch = pytest.importorskip("torch")
gradients = pytest.importorskip("urna.local.engine.gradients")
nn = torch.nn

features, targets = load_digits(return_X_y=True)
DIGITS = Samples(features[:300] / 16, targets[:300])


def mlp(width: int = 16, dropout: float = 0.0) -> "torch.nn.Module":
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 10))


def plain_loop(epochs: int, seed: int, **settings: float) -> float:
    """The loop one would write by hand, with the objective's batches and first weights."""
    parts = hold_out(DIGITS, seed=seed)
    inputs = torch.tensor(parts.train.features, dtype=torch.float32)
    labels = torch.tensor(parts.train.targets)
    torch.manual_seed(seed)
    module = mlp()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, **settings)
    for epoch in range(epochs):
        for rows in epoch_batches(len(labels), 32, seed=seed, epoch=epoch):
            loss = nn.functional.cross_entropy(module(inputs[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        out = module(torch.tensor(parts.validation.features, dtype=torch.float32))
        return nn.functional.cross_entropy(out, torch.tensor(parts.validation.targets)).item()


def test_losses_are_those_of_a_loop_written_by_hand() -> None:
    objective = TorchObjective(mlp, epochs=3, batch_size=32)
    losses = objective.losses(DIGITS, Space(lr=[0.1], momentum=[0.0, 0.9]), seed=4)
    assert losses[0] == plain_loop(3, 4)
    assert losses[1] == plain_loop(3, 4, momentum=0.9)


def test_every_name_of_the_recipe_changes_the_loss() -> None:
    objective = TorchObjective(mlp, defaults=Recipe(lr=0.05, momentum=0.5), epochs=2)
    plain = objective.losses(DIGITS, Space(lr=[0.05]), seed=0)[0]
    axes = {
        "lr": 0.1, "decay": 0.5, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1,
        "label_smoothing": 0.3, "optimiser": "adamw", "clip_norm": 0.01, "batch_size": 16,
        "proximal": 0.5, "epochs": 3, "width": 8, "dropout": 0.5,
    }  # fmt: skip
    for name, value in axes.items():
        assert objective.losses(DIGITS, Space(**{name: [value]}), seed=0)[0] != plain, name


def test_a_decay_of_zero_stops_after_the_first_epoch() -> None:
    space = Space(decay=[0.0])
    long, short = (TorchObjective(mlp, epochs=e).losses(DIGITS, space, seed=0) for e in (4, 1))
    assert long == short


def test_a_candidate_that_diverges_has_an_infinite_loss() -> None:
    losses = TorchObjective(mlp).losses(DIGITS, Space(lr=[0.1, 1e30]), seed=0)
    assert math.isfinite(losses[0])
    assert losses[1] == math.inf


def test_the_seed_decides_everything_and_the_global_generator_nothing() -> None:
    objective = TorchObjective(lambda: mlp(dropout=0.5), epochs=1)
    space = Space(lr=[0.1])
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = objective.losses(DIGITS, space, seed=0)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert objective.losses(DIGITS, space, seed=0) == first
    assert objective.losses(DIGITS, space, seed=1) != first


def test_random_numbers_that_a_module_draws_follow_the_seed() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.last = nn.GRU(8, 8, 2, dropout=0.5, batch_first=True), nn.Linear(8, 10)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            noise = torch.randn(8) if self.training else 0.0
            return self.last(self.rnn(x.view(-1, 8, 8))[0][:, -1] + noise)

    objective, space = TorchObjective(Noisy, epochs=1), Space(lr=[0.1, 0.01])
    found = []
    for seed, before in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(before)
        found.append(objective.losses(DIGITS, space, seed=seed).tolist())
    assert found[0] == found[1] != found[2]


def test_the_proximal_term_is_part_of_the_loss() -> None:
    parts = hold_out(DIGITS, seed=4)
    inputs = torch.tensor(parts.train.features, dtype=torch.float32)
    labels = torch.tensor(parts.train.targets)
    torch.manual_seed(4)
    module = mlp()
    first = [p.detach().clone() for p in module.parameters()]
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for rows in epoch_batches(len(labels), 32, seed=4, epoch=0):
        loss = nn.functional.cross_entropy(module(inputs[rows]), labels[rows])
        pairs = zip(module.parameters(), first, strict=True)
        loss = loss + 1.5 * sum(((p - start) ** 2).sum() for p, start in pairs)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        out = module(torch.tensor(parts.validation.features, dtype=torch.float32))
    expected = nn.functional.cross_entropy(out, torch.tensor(parts.validation.targets)).item()
    space = Space(lr=[0.1], proximal=[3.0, 0.0])
    for kind in (TorchObjective, BatchedObjective):
        found = kind(mlp, epochs=1, batch_size=32, device="cpu").losses(DIGITS, space, seed=4)
        assert found[0] == pytest.approx(expected, rel=1e-5)
        assert found[1] != pytest.approx(expected, rel=1e-3)


def test_numbers_as_targets_are_trained_by_squared_error() -> None:
    data = Samples(features[:200] / 16, targets[:200] / 9.0)
    objective = TorchObjective(lambda: nn.Linear(64, 1), loss="squared_error", epochs=20)
    losses = objective.losses(data, Space(lr=[1e-9, 0.05]), seed=0)
    assert losses[1] < 0.5 * losses[0]


@pytest.mark.parametrize("kind", [TorchObjective, BatchedObjective])
def test_whole_numbers_are_numbers_to_a_regression(kind: Any) -> None:
    """Ages and counts come as integers, and frames as features."""
    pandas = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).normal(size=(60, 3))
    counts = np.rint(rows @ [1.0, 2.0, 3.0]).astype(int)
    objective = kind(lambda: nn.Linear(3, 1), loss="squared_error", epochs=20)
    space = Space(lr=[1e-4, 0.1])
    named = pandas.DataFrame(rows, columns=["a", "b", "c"])
    bad, good = objective.losses(Samples(named, counts), space, seed=0)
    assert good < 0.5 < bad
    plain = objective.losses(Samples(rows, counts.astype(float)), space, seed=0)
    np.testing.assert_array_equal(plain, [bad, good])


def test_numbers_under_cross_entropy_are_answered_with_the_loss_to_name() -> None:
    data = Samples(np.zeros((10, 3)), np.linspace(0, 1, 10))
    with pytest.raises(ParameterError, match="for regression say loss='squared_error'"):
        TorchObjective(lambda: nn.Linear(3, 1)).losses(data, Space(lr=[0.1]), seed=0)


def test_a_loss_function_of_ones_own_is_used() -> None:
    objective = TorchObjective(mlp, loss=lambda outputs, labels: outputs.square().mean())
    assert objective.losses(DIGITS, Space(lr=[0.5]), seed=0)[0] < 0.01


def test_an_unknown_hyperparameter_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="optimiser"):
        TorchObjective(mlp).losses(DIGITS, Space(optimizer=["sgd"]), seed=0)


def test_label_smoothing_needs_labels() -> None:
    objective = TorchObjective(mlp, loss=lambda outputs, labels: outputs.mean())
    with pytest.raises(ParameterError, match="label_smoothing"):
        objective.losses(DIGITS, Space(label_smoothing=[0.1]), seed=0)


@pytest.mark.parametrize(
    "field",
    [{"lr": -1.0}, {"lr": math.nan}, {"momentum": "high"}, {"epochs": 0}, {"batch_size": 2.0},
     {"nesterov": 1}, {"label_smoothing": 1.0}, {"clip_norm": 0.0}, {"optimiser": "adam"}],
    ids=lambda field: next(iter(field)),
)  # fmt: skip
def test_a_recipe_refuses(field: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        Recipe(**field)  # type: ignore[arg-type]


def test_an_epoch_visits_every_row_once_and_never_a_lone_last_row() -> None:
    batches = epoch_batches(65, 32, seed=0, epoch=0)
    assert [len(b) for b in batches] == [32, 32]
    batches = epoch_batches(66, 32, seed=0, epoch=0)
    assert [len(b) for b in batches] == [32, 32, 2]
    assert sorted(np.concatenate(batches).tolist()) == list(range(66))
    assert not np.array_equal(batches[0], epoch_batches(66, 32, seed=0, epoch=1)[0])


def test_dropout_masks_have_the_right_rate_and_differ_between_steps_and_calls() -> None:
    def mask(step: int, call: int) -> "torch.Tensor":
        return gradients.dropout_mask(torch.tensor(step_key(7, step)), call, (500, 400), 0.25)

    first = mask(0, 0)
    kept = (first > 0).double().mean().item()
    # Six standard errors of a rate over 200,000 draws: false alarm 2e-9.
    assert abs(kept - 0.75) < 6 * math.sqrt(0.25 * 0.75 / 200_000)
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    for other in (mask(1, 0), mask(0, 1)):
        both = ((first > 0) & (other > 0)).double().mean().item()
        assert abs(both - 0.75**2) < 0.01


def test_many_dropout_layers_have_masks_of_their_own() -> None:
    key = torch.tensor(step_key(1, 0))
    drawn = [gradients.dropout_mask(key, call, (64,), 0.5) for call in range(40)]
    assert len({tuple(mask.tolist()) for mask in drawn}) == 40


def test_the_package_imports_without_torch() -> None:
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch': raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from urna.local import TorchObjective\n"
        "from urna.space import Space\n"
        "try: TorchObjective(lambda: None).losses(None, Space(lr=[1.0]), seed=0)\n"
        "except Exception as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "urna[torch]" in run.stdout
