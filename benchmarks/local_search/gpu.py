"""Claims for a GPU, each suite in one call."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.local_search import measure as base
from benchmarks.local_search.racing import Study, Suite
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from urna.data import Samples
from urna.local import BatchedObjective, Recipe, SuccessiveHalving, TorchObjective
from urna.local.models import adult_mlp, cifar10_cnn, mnist_cnn
from urna.local.recipe import group_plans, plan_candidates, share_lanes
from urna.space import Space

Row = dict[str, Any]


def same_answer(folder: Path | None, device: str) -> list[Row]:
    """Compare the plain loop, the batched run, chunks and the CPU."""
    space = Space(lr=[0.1, 0.01], decay=[0.0, 1.0], momentum=[0.0, 0.9])
    rows = []
    sets: list[tuple[str, Any, Any]] = [("adult", adult_mlp, base.adult_data(folder, 100)[0])]
    if folder is not None:
        mnist = base.pictures("mnist", folder, 100)[0]
        sets += [("small-cnn", base.SMALL_CNN, mnist)]
    for name, factory, data in sets:
        plain = TorchObjective(factory, epochs=2, device=device).losses(data, space, seed=1)
        here = BatchedObjective(factory, epochs=2, device=device)
        found = here.losses(data, space, seed=1)
        chunked = BatchedObjective(factory, epochs=2, device=device, most_lanes=3)
        cpu = BatchedObjective(factory, epochs=2, device="cpu").losses(data, space, seed=1)
        rows.append(
            {
                "name": f"same answer, {name}",
                "plain_loop": float(np.abs(plain - found).max()),
                "chunks": float(np.abs(chunked.losses(data, space, seed=1) - found).max()),
                "cpu": float(np.abs(cpu - found).max()),
            }
        )
    return rows


def ceilings() -> Row:
    """Measure the card's copy bandwidth and matrix rates, for the limits below."""
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    matrix = torch.randn(8192, 8192, device="cuda")

    def rate(work: Callable[[], Any], amount: float) -> float:
        work()
        took, _ = base.seconds(work, "cuda", repeats=5)
        return amount / took / 1e12

    before = torch.backends.cuda.matmul.allow_tf32
    row: Row = {"name": "ceilings", "copy_TB_per_s": rate(lambda: target.copy_(source), 2 * 2**32)}
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        key = "tf32_TFLOP_per_s" if tf32 else "float32_TFLOP_per_s"
        row[key] = rate(lambda: matrix @ matrix, 2 * 8192**3)
    torch.backends.cuda.matmul.allow_tf32 = before
    return row


def needed(factory: Callable[[], nn.Module], columns: int, rows: int, epochs: int) -> Row:
    """Count the operations of one client's whole search, with and without shared lanes."""
    module = factory()
    batch = torch.randn(64, columns)
    with FlopCounterMode(display=False) as counter:
        module(batch).sum().backward()
    per_row = counter.get_total_flops() / 64
    (group,) = group_plans(plan_candidates(base.SPACE, Recipe(epochs=epochs), factory))
    has_buffers = any(True for _ in module.buffers())
    shared = 0
    for epoch in range(epochs):
        rates = [recipe.learning_rates() for recipe in group.recipes]
        alive = tuple(m for m in range(len(group)) if has_buffers or any(rates[m][epoch:]))
        shared += len(share_lanes(group.recipes, alive, epoch).leaders)
    return {
        "TFLOP_per_client": per_row * rows * epochs * len(group) / 1e12,
        "TFLOP_per_client_shared": per_row * rows * shared / 1e12,
        "lane_epochs": shared,
    }


def h200_suite(folder: Path, limit: float) -> list[Row]:
    """Measure the claims for a GPU: Adult, MNIST, a small CNN, and races.

    Every whole search is timed from nothing, recordings and transfers included, and once more
    with everything recorded.
    """
    suite = Suite(limit)
    device = "cuda"
    adult, mnist = base.adult_data(folder, 100), base.pictures("mnist", folder, 100)
    one = mnist[0]
    studies = [
        Study("mnist", mnist_cnn, mnist, device, repeats=1),
        Study("adult", adult_mlp, adult, device, repeats=3),
    ]
    for study in studies:
        first = study.clients[0]
        work = needed(study.factory, first.features.shape[1], len(first) * 4 // 5, 5)
        suite.part(study.name, lambda study=study, work=work: {**study.whole(), **work}, 60)
        suite.part("race", lambda study=study: study.race("halving", SuccessiveHalving()), 30)
        suite.part("chunks", lambda study=study: study.again("most 50", 10, most_lanes=50))
    suite.part("same answer", lambda: same_answer(folder, device))

    def ratio(name: str, factory: Any, data: Samples, needs: float = 10, **options: Any) -> None:  # noqa: ANN401
        suite.part(name, lambda: base.compare(name, factory, data, device, **options), needs)

    ratio("adult", adult_mlp, adult[0])
    ratio("mnist-cnn", mnist_cnn, one)
    ratio("small-cnn", base.SMALL_CNN, one, repeats=2)
    steady = Study("mnist, repeatable", mnist_cnn, mnist[:10], device, repeats=1, repeatable=True)
    suite.part(steady.name, steady.whole)
    suite.part("race", lambda: steady.race("halving", SuccessiveHalving()))
    suite.part("again", lambda: steady.again("repeated", 4))
    return suite.rows


def cifar10_suite(folder: Path, limit: float) -> list[Row]:
    """Search as many clients of CIFAR-10 as the time allows; and the card's limits."""
    end = time.perf_counter() + limit
    suite = Suite(limit)
    clients = base.pictures("cifar10", folder, 100)
    objective = BatchedObjective(cifar10_cnn, epochs=10, device="cuda")

    def search(count: int) -> Row:
        took, losses = base.seconds(
            lambda: base.scores_of_clients(
                objective, clients[:count], base.SPACE, seeds=range(count)
            ),
            "cuda",
        )
        row = {"name": f"cifar10, {count} clients", "clients": count, "seconds": took}
        row.update(needed(cifar10_cnn, 3072, len(clients[0]) * 4 // 5, 10))
        return {**row, "median_best_loss": float(np.median(losses[..., 0].min(axis=1)))}

    suite.part("ceilings", ceilings)
    suite.part("cifar10, first", lambda: search(1), 60)
    suite.part("cifar10, 2 clients", lambda: search(2), 10)
    each = suite.rows[-1].get("seconds", limit) / 2
    fitting = min(100, int((end - time.perf_counter() - 10) / each))
    suite.part("cifar10 whole", lambda: search(fitting), 2 * each)
    return suite.rows
