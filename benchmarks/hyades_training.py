"""The clients of a round trained together, beside a plain loop over them. Called by `hyades.py`.

`together` is how a private training trains them: each client's weights are those it would get
alone. Both get the same weights, the same rows in the same batches' sizes, and the same steps; the
loop is what people write: a module per client, `torch.optim.SGD`, data on the device before the
clock starts.
Rows are made up: only shapes matter here. Needs torch, numpy and nothing from a network.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from urna.data import Samples
from urna.local import Recipe
from urna.systems.train import TorchLearner

CLIENTS, TURNS = 100, 3


def training(device: str) -> dict[str, Any]:
    """Measure a round of each model, in turns, and take medians."""

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))

    def cnn() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, 10),
        )

    rng = np.random.default_rng(0)
    recipe = Recipe(lr=0.1, epochs=1, batch_size=10)  # as FedAvg was published with
    # As many rows as a writer of MNIST has.
    clients = [
        Samples(rng.normal(size=(110, 784)).astype(np.float32), rng.integers(10, size=110))
        for _ in range(CLIENTS)
    ]
    found: dict[str, Any] = {
        "device": device,
        "name": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "clients": CLIENTS,
        "rows": 110,
        "steps": 110 // 10,
    }
    for name, factory in (("mlp", mlp), ("cnn", cnn)):
        learner = TorchLearner(factory, recipe, device=device)
        weights = learner.first_weights(seed=0)
        place = torch.device(device)
        rows = [
            (torch.tensor(c.features, device=place), torch.tensor(c.targets, device=place))
            for c in clients
        ]

        def together(
            learner: TorchLearner = learner, weights: npt.NDArray[np.float32] = weights
        ) -> npt.NDArray[Any]:
            return np.asarray(learner.train(weights, clients, number=1, seeds=range(CLIENTS)))

        def loop(
            learner: TorchLearner = learner,
            weights: npt.NDArray[np.float32] = weights,
            rows: list[Any] = rows,
            place: torch.device = place,
        ) -> npt.NDArray[Any]:
            ended = []
            for features, targets in rows:
                module = learner.module(weights).to(place)
                optimiser = torch.optim.SGD(module.parameters(), lr=recipe.lr)
                order = torch.randperm(len(targets), device=place)
                for start in range(0, len(targets), recipe.batch_size):
                    batch = order[start : start + recipe.batch_size]
                    optimiser.zero_grad(set_to_none=True)
                    loss = nn.functional.cross_entropy(module(features[batch]), targets[batch])
                    loss.backward()
                    optimiser.step()
                ended.append(nn.utils.parameters_to_vector(module.parameters()).detach().cpu())
            return torch.stack(ended).numpy()

        ways: dict[str, Callable[[], npt.NDArray[Any]]] = {
            "together": together,
            "loop": loop,
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        cpu: dict[str, list[float]] = {way: [] for way in ways}
        moved = {}
        for turn in range(TURNS + 1):
            for way, call in ways.items():
                start, used = time.perf_counter(), time.process_time()
                moved[way] = float(np.linalg.norm(call() - weights, axis=1).mean())
                if turn:  # the first records steps and warms up
                    seconds[way].append(time.perf_counter() - start)
                    cpu[way].append(time.process_time() - used)
        middle = {way: statistics.median(times) for way, times in seconds.items()}
        spent = {way: statistics.median(times) for way, times in cpu.items()}
        if abs(moved["together"] / moved["loop"] - 1) > 0.05:  # other batches, the same training
            raise SystemExit(f"the two do not train alike: {moved}")
        found[name] = {
            "parameters": len(weights),
            "together_s": middle["together"],
            "loop_s": middle["loop"],
            "speed_up_cpu": spent["loop"] / spent["together"],
            "speed_up": middle["loop"] / middle["together"],
        }
    return found
