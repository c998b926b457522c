"""The GPU part of `local_search.py`: what a lent machine is asked in one call.

Each part is measured by itself and a part that fails is reported as failed, so that one
fault does not cost the whole call. Parts that would not fit into the time left are skipped.
"""

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import local_search as base
import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from urna.local.batched import BatchedObjective
from urna.local.lanes import group_plans, share_lanes
from urna.local.models import adult_mlp, cifar10_cnn, mnist_cnn
from urna.local.recipe import Recipe, plan_candidates
from urna.local.torch_sgd import TorchObjective
from urna.space import Space

Row = dict[str, Any]


class Suite:
    """Measurements in order of their worth, within a time limit."""

    def __init__(self, limit: float) -> None:
        self.rows: list[Row] = []
        self._end = time.perf_counter() + limit

    def part(self, name: str, work: Callable[[], Row | list[Row]], needs: float = 10.0) -> None:
        """Run one part if `needs` seconds are left, and keep what it returns."""
        left = self._end - time.perf_counter()
        start = time.perf_counter()
        if left < needs:
            rows: Row | list[Row] = {"name": name, "skipped": f"{left:.0f} s left"}
        else:
            try:
                rows = work()
            except Exception:
                rows = {"name": name, "error": traceback.format_exc(limit=-6)}
        self.rows += rows if isinstance(rows, list) else [rows]
        took = time.perf_counter() - start
        print(
            f"[{left:4.0f} s left] {name}: {took:.1f} s  {rows}"[:1500], file=sys.stderr, flush=True
        )


def same_answer(folder: Path | None, device: str) -> list[Row]:
    """Compare the plain loop, the batched run, chunks, stacked clients and the CPU."""
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
        stacked = here.losses_of_clients([data] * 3, space, seeds=[1, 1, 2])
        cpu = BatchedObjective(factory, epochs=2, device="cpu").losses(data, space, seed=1)
        rows.append(
            {
                "name": f"same answer, {name}",
                "plain_loop": float(np.abs(plain - found).max()),
                "chunks": float(np.abs(chunked.losses(data, space, seed=1) - found).max()),
                "stacked": float(np.abs(stacked[:2] - found).max()),
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


def kernels(name: str, factory: Callable[[], nn.Module], data: Any, **options: Any) -> Row:  # noqa: ANN401
    """Say which kernels one client's search spends its time in."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - GPU only

    objective = BatchedObjective(factory, epochs=2, device="cuda", graphs=False, **options)
    objective.losses(data, base.SPACE, seed=0)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        objective.losses(data, base.SPACE, seed=0)
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in events)
    top = {e.key[:90]: round(e.self_device_time_total / total, 3) for e in events[:12]}
    return {"name": f"kernels, {name}", "device_ms": total / 1e3, "shares": top}


def gpu_suite(folder: Path | None, limit: float) -> list[Row]:
    """Measure everything the issue asks of a GPU."""
    suite = Suite(limit)
    device = "cuda"
    adult = base.adult_data(folder, 100)
    suite.part("same answer", lambda: same_answer(folder, device))
    suite.part("adult", lambda: base.compare("adult", adult_mlp, adult[0], device, together=adult))
    suite.part("adult whole", lambda: _whole("adult", adult_mlp, adult, device, 5))
    if folder is None:
        return suite.rows
    mnist = base.pictures("mnist", folder, 100)
    suite.part(
        "small-cnn",
        lambda: base.compare(
            "small-cnn", base.SMALL_CNN, mnist[0], device, together=mnist[:10], repeats=2
        ),
    )
    suite.part("mnist-cnn", lambda: base.compare("mnist-cnn", mnist_cnn, mnist[0], device))
    suite.part("mnist whole", lambda: _whole("mnist", mnist_cnn, mnist, device, 5), 60)
    suite.part("ceilings", ceilings)
    suite.part(
        "mnist 5",
        lambda: base.whole_search("mnist-cnn, 5 clients", mnist_cnn, mnist[:5], device)[0],
    )
    cifar: list[Any] = []
    suite.part("cifar10 data", lambda: cifar.extend(base.pictures("cifar10", folder, 100)) or [])
    if cifar:
        suite.part("cifar10 5", lambda: _ten_epochs("cifar10, 5 clients", cifar[:5]), 30)
        suite.part(
            "cifar10 5 bfloat16",
            lambda: _ten_epochs("cifar10, 5 clients, bfloat16", cifar[:5], precision="bfloat16"),
            30,
        )
    suite.part("mnist kernels", lambda: kernels("mnist-cnn", mnist_cnn, mnist[0]))
    if cifar:
        suite.part("cifar10 kernels", lambda: kernels("cifar10", cifar10_cnn, cifar[0]))
    suite.part(
        "mnist-cnn bfloat16",
        lambda: base.compare(
            "mnist-cnn-bfloat16", mnist_cnn, mnist[0], device, precision="bfloat16"
        ),
    )
    suite.part(
        "mnist-cnn cudnn.benchmark",
        lambda: _searching_for_kernels("mnist-cnn", mnist_cnn, mnist, 5),
    )
    if cifar:
        suite.part(
            "cifar10 cudnn.benchmark",
            lambda: _searching_for_kernels("cifar10", cifar10_cnn, cifar, 10),
            40,
        )
    suite.part(
        "mnist-cnn compiled",
        lambda: base.compare("mnist-cnn-compiled", mnist_cnn, mnist[0], device, compiled=True),
        150,
    )
    if cifar:
        fives = [r["seconds"] for r in suite.rows if r.get("name") == "cifar10, 5 clients"]
        wanted = 22 * fives[0] if fives and fives[0] else 600.0
        suite.part("cifar10 whole", lambda: _ten_epochs("cifar10", cifar), wanted)
    return suite.rows


def _whole(
    name: str,
    factory: Callable[[], nn.Module],
    clients: list[Any],
    device: str,
    epochs: int,
) -> list[Row]:
    """Time the whole search of 100 clients, then races against it."""
    again = name == "adult"
    full = base.whole_search(name, factory, clients, device, epochs=epochs, again=again)
    full[0].update(needed(factory, clients[0].features.shape[1], len(clients[0]) * 4 // 5, epochs))
    return [full[0], *base.races(name, factory, clients, device, full, again=again, epochs=epochs)]


def _searching_for_kernels(
    name: str, factory: Callable[[], nn.Module], clients: list[Any], epochs: int
) -> Row:
    """Let cuDNN try its kernels first, to see whether it picks better ones."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        row, _ = base.whole_search(
            f"{name}, 5 clients, tried kernels", factory, clients[:5], "cuda", epochs=epochs
        )
        return row


def _ten_epochs(name: str, clients: list[Any], **options: Any) -> Row:  # noqa: ANN401
    row, losses = base.whole_search(name, cifar10_cnn, clients, "cuda", epochs=10, **options)
    row.update(needed(cifar10_cnn, 3072, len(clients[0]) * 4 // 5, 10))
    row["best_losses"] = np.sort(losses.min(axis=1))[:3].tolist()
    return row
