"""Claims for a CPU: searches against a plain loop, training of clients, shards in processes."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from benchmarks.local_search import measure
from sklearn.linear_model import SGDClassifier
from torch import nn

from urna.data import Samples, load, split
from urna.local import (
    BatchedObjective,
    EstimatorObjective,
    Recipe,
    Recordings,
    Speed,
    first_weights,
    losses_apart,
    train_clients,
)
from urna.local.engine.batches import epoch_batches
from urna.local.engine.model import as_tensors
from urna.local.models import adult_mlp
from urna.space import Axis, Space

Row = dict[str, Any]


def cpu_suite(folder: Path | None, model: str | None) -> list[Row]:
    """Measure the claims for a CPU on data of the right shape."""
    rows = []
    if model in (None, "adult"):
        rows.append(measure.compare("adult", adult_mlp, measure.adult_data(folder, 100)[0], "cpu"))
    if model in (None, "small-cnn"):
        digits = load("digits").train.take(np.arange(600))
        rows.append(measure.compare("small-cnn", measure.digits_cnn, digits, "cpu"))
    if folder is not None and model is None:
        mnist = measure.pictures("mnist", folder, 100)[0]
        rows.append(
            measure.compare(
                "small-cnn-mnist", measure.SMALL_CNN, mnist, "cpu", loop_candidates=2, repeats=1
            )
        )
    return rows


def parts_suite(rounds: int = 12) -> list[Row]:
    """Measure what each part of `Speed` is worth: CPU seconds without it, over those with all.

    Searches take turns, so that a machine whose speed changes treats all alike. The least of
    some rounds counts.
    """
    on_cpu = ("shared_lanes", "recorded_steps", "patches")
    speeds = {"all": Speed(), **{n: replace(Speed(), **{n: False}) for n in on_cpu}}
    speeds["plain"] = Speed.plain()
    digits = load("digits").train.take(np.arange(600))
    rows = []
    for name, factory, data in (
        ("adult", adult_mlp, measure.adult_data(None, 100)[0]),
        ("small-cnn", measure.digits_cnn, digits),
    ):
        searches = {
            label: BatchedObjective(factory, device="cpu", speed=speed)
            for label, speed in speeds.items()
        }
        taken = dict.fromkeys(speeds, float("inf"))
        for _ in range(rounds + 1):  # the first records
            for label, objective in searches.items():
                _, used, _ = measure.spent(
                    lambda o=objective, d=data: o.losses(d, measure.SPACE, seed=0), "cpu"
                )
                taken[label] = min(taken[label], used)
        rows.append(
            {
                "name": f"parts, {name}",
                "cpu_seconds": taken["all"],
                **{f"without {label}": taken[label] / taken["all"] for label in list(speeds)[1:]},
            }
        )
    return rows


def loop_over_clients(
    factory: Callable[[], nn.Module],
    weights: np.ndarray,
    clients: Sequence[Samples],
    recipe: Recipe,
    device: str,
) -> np.ndarray:
    """Train one client after the other, as one would write it, and return their weights."""
    rows = []
    for seed, client in enumerate(clients):
        module = factory()
        nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), module.parameters())
        module.to(device).train()
        inputs, targets = (tensor.to(device) for tensor in as_tensors(client))
        optimiser = torch.optim.SGD(module.parameters(), lr=recipe.lr, momentum=recipe.momentum)
        for epoch in range(recipe.epochs):
            for chosen in epoch_batches(len(targets), recipe.batch_size, seed=seed, epoch=epoch):
                picked = torch.from_numpy(chosen).to(device)
                loss = F.cross_entropy(module(inputs[picked]), targets[picked])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        rows.append(nn.utils.parameters_to_vector(module.parameters()).detach().cpu().numpy())
    return np.stack(rows)


def training_suite(device: str, count: int = 100) -> list[Row]:
    """Measure one federated round of many clients against a plain loop over them."""
    digits = load("digits").train
    uneven = np.random.default_rng(0).dirichlet(np.ones(count)) * (len(digits) - 8 * count)
    edges = np.cumsum([0, *(8 + uneven.astype(int))])
    sets: dict[str, tuple[Callable[..., nn.Module], list[Samples]]] = {
        "adult": (adult_mlp, measure.adult_data(None, count)),
        "small-cnn": (measure.digits_cnn, split(digits, clients=count, how="iid", seed=0)),
        "small-cnn, uneven": (
            measure.digits_cnn,
            [digits.take(np.arange(a, b)) for a, b in itertools.pairwise(edges)],
        ),
    }
    return [compare_training(name, *given, device) for name, given in sets.items()]


def compare_training(
    name: str, factory: Callable[..., nn.Module], clients: list[Samples], device: str
) -> Row:
    """Measure one round of one module."""
    recipe = Recipe(lr=0.1, momentum=0.9, epochs=1, batch_size=16)
    start, recordings = first_weights(factory, seed=0).parameters[0], Recordings()

    def ours() -> np.ndarray:
        seeds = range(len(clients))
        return train_clients(
            factory, start, clients, recipe, seeds=seeds, device=device, recordings=recordings
        ).parameters

    def loop() -> np.ndarray:
        return loop_over_clients(factory, start, clients, recipe, device)

    first, _ = measure.seconds(ours, device)
    together, _ = measure.seconds(ours, device, repeats=3)
    alone, _ = measure.seconds(loop, device, repeats=2)
    return {
        "name": f"training, {name}",
        "clients": len(clients),
        "ratio_training": alone / together,
        "loop_seconds": alone,
        "together_seconds": together,
        "together_first_seconds": first,
    }


def apart_suite(count: int = 100) -> list[Row]:
    """Measure shards in processes of their own, beside the same work in one process."""
    digits = load("digits").train
    shards = [digits.take(np.arange(i, len(digits), count)) for i in range(count)]
    objective = EstimatorObjective(SGDClassifier(loss="log_loss", max_iter=5, tol=None))
    space = Space(eta0=Axis.log([1e-4, 1e-3, 1e-2, 0.1, 1.0]), alpha=Axis.log([1e-4, 1e-2]))
    seeds = [0] * count
    begin = time.perf_counter()
    found = losses_apart(objective, shards, space, seeds=seeds, seconds=30.0)
    apart = time.perf_counter() - begin
    begin = time.perf_counter()
    here = [objective.losses(shard, space, seed=0) for shard in shards]
    together = time.perf_counter() - begin
    pairs = zip(found, here, strict=True)
    equal = all(a is not None and np.array_equal(a, b) for a, b in pairs)
    return [
        {
            "name": f"apart, {count} shards",
            "seconds": apart,
            "seconds_in_one_process": together,
            "equal": equal,
        }
    ]
