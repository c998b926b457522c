from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.federated import federated_averaging
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import BatchedObjective
from urna.local.engine.batches import epoch_batches
from urna.space import Space

torch = pytest.importorskip("torch")
nn = torch.nn

features, targets = load_digits(return_X_y=True)
ALL = Samples((features / 16).astype(np.float32), targets)
CLIENTS = [ALL.take(np.arange(a, b)) for a, b in ((0, 90), (90, 180), (180, 230))]
TEST = ALL.take(np.arange(1000, 1300))


def mlp() -> "torch.nn.Module":
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def with_norm() -> "torch.nn.Module":
    return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def by_hand(
    factory: object, lr: float, decay: float, momentum: float, *, restart: bool = False
) -> tuple[float, float]:
    """FedAvg as McMahan et al. write it, one candidate."""
    torch.manual_seed(4)
    common = factory()
    total = sum(len(c) for c in CLIENTS)
    for number in range(2):
        states = []
        for place, client in enumerate(CLIENTS):
            module = factory()
            module.load_state_dict(common.state_dict())
            module.train()
            optimiser = torch.optim.SGD(module.parameters(), lr=lr, momentum=momentum)
            x, y = torch.tensor(client.features), torch.tensor(client.targets)
            for epoch in (2 * number, 2 * number + 1):
                optimiser.param_groups[0]["lr"] = lr * decay ** (epoch % 2 if restart else epoch)
                for rows in epoch_batches(len(y), 32, seed=5 + place, epoch=epoch):
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
                    optimiser.step()
            states.append((len(client) / total, module.state_dict()))
        mean = {n: sum(w * s[n].double() for w, s in states) for n in common.state_dict()}
        common.load_state_dict({n: t.to(common.state_dict()[n].dtype) for n, t in mean.items()})
    common.eval()
    with torch.no_grad():
        out, y = common(torch.tensor(TEST.features)), torch.tensor(TEST.targets)
        loss = nn.functional.cross_entropy(out, y).item()
        return loss, (out.argmax(1) == y).float().mean().item()


@pytest.mark.parametrize("restart", [False, True], ids=["decaying on", "decaying anew"])
@pytest.mark.parametrize("factory", [mlp, with_norm])
def test_every_candidate_is_averaged_as_by_hand(factory: object, restart: bool) -> None:
    space = Space(lr=[0.3, 0.05], decay=[0.0, 0.8], momentum=[0.0, 0.9])
    objective = BatchedObjective(factory, batch_size=32, device="cpu")
    seen: list[tuple[int, int]] = []
    scores = federated_averaging(
        objective, CLIENTS, space, TEST, rounds=2, local_epochs=2, seed=4, restart_decay=restart,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    expected = np.array([by_hand(factory, **c, restart=restart) for c in space])
    np.testing.assert_allclose(scores.losses, expected[:, 0], rtol=1e-4)
    np.testing.assert_allclose(scores.accuracies, expected[:, 1], atol=1e-6)
    assert scores.best == int(np.argmax(expected[:, 1]))
    assert seen[-1] == (8, 8)


def test_a_learning_rate_that_falls_to_zero_moves_again_in_each_round_that_restarts_it() -> None:
    objective = BatchedObjective(mlp, batch_size=32, device="cpu")
    space = Space(lr=[0.1], decay=[0.0], momentum=[0.9])

    def losses(rounds: int, *, restart: bool) -> float:
        found = federated_averaging(
            objective, CLIENTS, space, TEST, rounds=rounds, local_epochs=2, seed=4,
            restart_decay=restart,
        )  # fmt: skip
        return float(found.losses[0])

    once = losses(1, restart=True)
    assert losses(1, restart=False) == once
    assert losses(3, restart=False) == once
    assert losses(3, restart=True) < once - 0.02


def test_a_diverging_candidate_has_an_infinite_loss() -> None:
    objective = BatchedObjective(mlp, device="cpu")
    scores = federated_averaging(objective, CLIENTS, Space(lr=[0.1, 1e30]), TEST, rounds=2, seed=0)
    assert np.isfinite(scores.losses[0])
    assert scores.losses[1] == np.inf
    assert scores.best == 0


def test_what_cannot_be_averaged_is_refused() -> None:
    objective = BatchedObjective(mlp, device="cpu")
    with pytest.raises(ParameterError, match="rounds"):
        federated_averaging(objective, CLIENTS, Space(lr=[0.1]), TEST, rounds=0, seed=0)
    with pytest.raises(ParameterError, match="epochs"):
        federated_averaging(objective, CLIENTS, Space(epochs=[1, 2]), TEST, rounds=1, seed=0)


def test_a_run_goes_on_from_its_last_round(tmp_path: Path) -> None:
    objective = BatchedObjective(with_norm, batch_size=32, device="cpu")
    arguments = {"rounds": 3, "local_epochs": 2, "seed": 5, "restart_decay": True}
    space = Space(lr=[0.1, 0.01], momentum=[0.0, 0.9])
    whole = federated_averaging(objective, CLIENTS, space, TEST, **arguments)

    def stop(done: int, total: int) -> None:
        if done == 2 * total // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federated_averaging(
            objective, CLIENTS, space, TEST, checkpoints=tmp_path, progress=stop, **arguments
        )
    seen: list[int] = []
    again = federated_averaging(
        objective,
        CLIENTS,
        space,
        TEST,
        checkpoints=tmp_path,
        progress=lambda done, total: seen.append(done),
        **arguments,
    )
    assert len(seen) == 1  # the third round alone
    np.testing.assert_array_equal(again.losses, whole.losses)
