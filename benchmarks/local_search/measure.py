"""What the suites share: clocks, the plain loop they are compared with, and clients' data."""

import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from urna.data import Dataset, Samples, load, split
from urna.local import BatchedObjective, hold_out
from urna.local.engine.batches import epoch_batches, seeded_module
from urna.local.engine.model import as_tensors
from urna.local.models import authors_space, mnist_cnn
from urna.local.objective import Progress
from urna.space import Space

SPACE = authors_space()
SMALL_CNN = functools.partial(mnist_cnn, first=8, second=16, hidden=64)
ROWS_OF_A_CLIENT = 326  # Adult over 100 clients


def digits_cnn(first: int = 8, second: int = 16) -> nn.Module:
    """Build a CNN of 8 and 16 channels for the 8×8 digits that scikit-learn carries."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * 4, 10),
    )


def synchronise(device: str) -> None:
    """Wait until the device has done all it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], device: str, repeats: int = 1) -> tuple[float, Any]:
    """Return the least wall time of some repetitions, and the last result."""
    wall, _, result = spent(work, device, repeats)
    return wall, result


def spent(work: Callable[[], Any], device: str, repeats: int = 1) -> tuple[float, float, Any]:
    """Return the least wall time, the least CPU time, and the last result.

    CPU time is that of all threads and of processes that have ended.
    """
    wall = cpu = float("inf")
    result = None
    for _ in range(repeats):
        synchronise(device)
        start, used = time.perf_counter(), sum(os.times()[:4])
        result = work()
        synchronise(device)
        wall, cpu = min(wall, time.perf_counter() - start), min(cpu, sum(os.times()[:4]) - used)
    return wall, cpu, result


def plain_loop(
    factory: Callable[[], nn.Module], data: Samples, places: Sequence[int], epochs: int, device: str
) -> list[float]:
    """Train candidates one after the other, as one would write it, and return their losses."""
    parts = hold_out(data, seed=0)
    inputs, targets = (tensor.to(device) for tensor in as_tensors(parts.train))
    held_inputs, held_targets = (tensor.to(device) for tensor in as_tensors(parts.validation))
    losses = []
    for place in places:
        candidate = SPACE[place]
        with seeded_module(0):
            module = factory()
        module.to(device).train()
        optimiser = torch.optim.SGD(
            module.parameters(), lr=candidate["lr"], momentum=candidate["momentum"]
        )
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, gamma=candidate["decay"])
        for epoch in range(epochs):
            batches = epoch_batches(len(targets), 64, seed=0, epoch=epoch)
            order = torch.from_numpy(np.concatenate(batches)).to(device)
            for chosen in order.split(64):
                loss = F.cross_entropy(module(inputs[chosen]), targets[chosen])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            schedule.step()
        module.eval()
        with torch.no_grad():
            losses.append(F.cross_entropy(module(held_inputs), held_targets).item())
    return losses


def scores_of_clients(
    objective: BatchedObjective,
    clients: Sequence[Samples],
    space: Space,
    *,
    seeds: Sequence[int],
    progress: Progress = lambda done, total: None,
) -> np.ndarray:
    """Return every client's losses and accuracies, shape (clients, candidates, 2).

    The largest come first: what is recorded for them serves all others.
    """
    scores = np.full((len(clients), len(space), 2), np.nan)
    order = sorted(range(len(clients)), key=lambda place: -len(clients[place]))
    for done, place in enumerate(order, start=1):
        scores[place] = objective.scores(clients[place], space, seed=seeds[place])
        progress(done * len(space), len(clients) * len(space))
    return scores


def compare(
    name: str,
    factory: Callable[[], nn.Module],
    data: Samples,
    device: str,
    *,
    epochs: int = 5,
    loop_candidates: int = 10,
    repeats: int = 3,
    **options: Any,  # noqa: ANN401 - passed on
) -> dict[str, Any]:
    """Measure one client's search against the plain loop."""
    step = len(SPACE) // loop_candidates
    places = list(range(step // 2, len(SPACE), step))
    objective = BatchedObjective(factory, epochs=epochs, device=device, **options)
    plain_loop(factory, data, places[:1], 1, device)
    first, losses = seconds(lambda: objective.losses(data, SPACE, seed=0), device)
    ours, our_cpu, _ = spent(lambda: objective.losses(data, SPACE, seed=0), device, repeats)
    loop, loop_cpu, expected = spent(
        lambda: plain_loop(factory, data, places, epochs, device), device, repeats
    )
    loop, loop_cpu = (taken * len(SPACE) / len(places) for taken in (loop, loop_cpu))
    return {
        "name": name,
        "ratio": loop / ours,
        "cpu_time_ratio": loop_cpu / our_cpu,
        "loop_seconds": loop,
        "batched_seconds": ours,
        "batched_first_seconds": first,
        "loop_candidates_timed": len(places),
        "example_losses": [float(losses[places[0]]), expected[0]],
    }


def adult_data(folder: Path | None, clients: int) -> list[Samples]:
    """Return Adult clients: from a prepared file, from urna.data, or rows of Adult's shape."""
    if folder is not None and (folder / "adult_rows.npz").exists():
        rows = np.load(folder / "adult_rows.npz")
        train = Samples(rows["features"].astype(np.float32), rows["targets"].astype(np.int64))
        return split(train, clients=clients, how="iid", seed=0)
    if folder is not None:
        return split(load("adult", folder=folder), clients=clients, how="iid", seed=0)
    rng = np.random.default_rng(0)  # timing does not depend on values: Adult's shape is enough
    features = rng.standard_normal((ROWS_OF_A_CLIENT * clients, 108)).astype(np.float32)
    targets = (features[:, :4].sum(axis=1) + rng.standard_normal(len(features)) > 0).astype(
        np.int64
    )
    return split(Samples(features, targets), clients=max(clients, 2), how="iid", seed=0)[:clients]


def pictures(name: str, folder: Path, clients: int) -> list[Samples]:
    """Return iid clients of MNIST or CIFAR-10."""
    dataset: Dataset = load(name, folder=folder)
    return split(dataset, clients=clients, how="iid", seed=0)


def prepare(folder: Path) -> None:
    """Write Adult's rows as a plain file, for a machine that cannot read parquet."""
    train = load("adult", folder=folder).train
    np.savez_compressed(
        folder / "adult_rows.npz",
        features=train.features.astype(np.float16),
        targets=train.targets.astype(np.uint8),
    )
