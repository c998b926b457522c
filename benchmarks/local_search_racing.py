"""The races of `local_search.py`: how much faster than the full search, and the same ballots.

    python benchmarks/local_search.py --suite racing --data FOLDER
    python benchmarks/local_search.py --suite racing --data FOLDER --device cpu

Full search and race run on the same clients in the same process. On a GPU two more full
searches tell what the race cannot be blamed for: one repeats the first, one has another most
of candidates at once. Each part is measured by itself, within the time given.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import local_search as base
import numpy as np
import torch
from local_search_gpu import Suite

from urna.data import Samples
from urna.local import chunks, runner
from urna.local.batched import BatchedObjective
from urna.local.lanes import group_plans
from urna.local.models import adult_mlp, mnist_cnn
from urna.local.racing import OptimisticStop, Race, SuccessiveHalving, ballot_agreement
from urna.local.recipe import plan_candidates

Row = dict[str, Any]
Factory = Callable[..., Any]

RACES: dict[str, Race] = {"halving": SuccessiveHalving(), "optimistic": OptimisticStop()}
MANY_RANKS: dict[str, Race] = {
    "halving, 24 finalists": SuccessiveHalving(finalists=24),
    "halving, 30 finalists": SuccessiveHalving(finalists=30),
}


class _Notes(logging.Handler):
    """Keeps what the engine says about its recordings."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.lines.append(record.getMessage()[:300])


class _Study:
    """Full search and races of one data set."""

    def __init__(
        self, name: str, factory: Factory, clients: Sequence[Samples], device: str, repeats: int
    ) -> None:
        self.name, self.factory, self.clients = name, factory, clients
        self.device, self.repeats = device, repeats
        self.full: np.ndarray | None = None
        self.seconds = self.seconds_again = float("nan")

    def search(self, count: int | None = None, **options: Any) -> tuple[Row, np.ndarray]:  # noqa: ANN401
        """Time a search with everything that belongs to it, and again with all recorded."""
        clients = self.clients[:count]
        objective = BatchedObjective(self.factory, device=self.device, **options)

        def work() -> np.ndarray:
            return objective.losses_of_clients(clients, base.SPACE, seeds=range(len(clients)))

        first, losses = base.seconds(work, self.device)
        row: Row = {"clients": len(clients), "seconds": first}
        if self.repeats:
            cpu = time.process_time()
            row["seconds_again"], _ = base.seconds(work, self.device, self.repeats)
            row["host_cpu_seconds_again"] = (time.process_time() - cpu) / self.repeats
        return row, losses

    def whole(self) -> Row:
        """Search without a race."""
        room = _room(self.factory, self.clients, self.device)
        row, self.full = self.search()
        self.seconds, self.seconds_again = row["seconds"], row.get("seconds_again", float("nan"))
        ranked = np.sort(self.full, axis=1)
        row["median_gap_of_first_to_second"] = float(np.median(ranked[:, 1] - ranked[:, 0]))
        row["clients_whose_first_two_tie"] = int((ranked[:, 1] == ranked[:, 0]).sum())
        return {"name": self.name, **row, "room": str(room)}

    def race(self, label: str, race: Race) -> Row:
        """Race on all clients and compare with the full search."""
        if self.full is None:
            return {"name": f"{self.name} {label}", "skipped": "there is no full search"}
        row, losses = self.search(race=race)
        row["speedup"] = self.seconds / row["seconds"]
        if "seconds_again" in row:
            row["speedup_again"] = self.seconds_again / row["seconds_again"]
        kept = np.isfinite(losses)
        both = kept & np.isfinite(self.full)
        row["mean_finalists"] = float(kept.sum(axis=1).mean())
        row["finalists_with_equal_losses"] = float((losses[both] == self.full[both]).mean())
        row["largest_difference"] = float(np.abs(losses[both] - self.full[both]).max())
        row["top1_unchanged"] = ballot_agreement(self.full, losses, 1).same_first
        for votes in (5, 20):
            agreement = ballot_agreement(self.full, losses, votes)
            row[f"ballot_of_{votes}_unchanged"] = agreement.same_ballot
            row[f"ballot_of_{votes}_overlap"] = agreement.overlap
        return {"name": f"{self.name} {label}", **row}

    def again(self, label: str, count: int, **options: Any) -> Row:  # noqa: ANN401
        """Search some clients in full once more: what changes without any race?"""
        if self.full is None:
            return {"name": f"{self.name}, {label}", "skipped": "there is no full search"}
        row, losses = self.search(count, **options)
        full = self.full[:count]
        row["equal_losses"] = float((losses == full).mean())
        row["largest_difference"] = float(np.nan_to_num(np.abs(losses - full), posinf=0.0).max())
        row["top1_unchanged"] = ballot_agreement(full, losses, 1).same_first
        return {"name": f"{self.name}, {label}", **row}


def racing_suite(folder: Path | None, device: str, limit: float) -> list[Row]:
    """Measure races on Adult and MNIST, most telling parts first."""
    notes = _Notes()
    logger = logging.getLogger("urna.local")
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    suite = Suite(limit)
    on_gpu = device == "cuda"
    count = 100 if on_gpu else 20
    repeats = 3 if on_gpu else 0
    adult = _Study("adult", adult_mlp, base.adult_data(folder, 100)[:count], device, repeats)
    suite.part("adult", adult.whole)
    for label, race in {**RACES, **MANY_RANKS}.items():
        suite.part(f"adult {label}", lambda label=label, race=race: adult.race(label, race))
    suite.part("adult, repeated", lambda: adult.again("repeated", 30))
    suite.part("adult, other most", lambda: adult.again("most 50", 30, most_lanes=50))
    if on_gpu:
        for label, race in {"full": None, "halving": SuccessiveHalving()}.items():
            suite.part(
                f"adult device time, {label}",
                lambda label=label, race=race: _device_time(f"adult {label}", adult, race),
            )
    if on_gpu and folder is not None:
        _mnist_parts(suite, folder)
    suite.rows.append({"name": "notes of the engine", "lines": notes.lines})
    return suite.rows


def _mnist_parts(suite: Suite, folder: Path) -> None:
    clients: list[Samples] = []
    suite.part("mnist data", lambda: clients.extend(base.pictures("mnist", folder, 100)) or [])
    if not clients:
        return
    mnist = _Study("mnist", mnist_cnn, clients[:60], "cuda", 0)
    suite.part("mnist warm-up", lambda: {"name": "mnist warm-up", **mnist.search(1)[0]})
    suite.part("mnist", mnist.whole, 45)
    suite.part("mnist halving", lambda: mnist.race("halving", RACES["halving"]), 20)
    suite.part("mnist, repeated", lambda: mnist.again("repeated", 8))
    suite.part("mnist, other most", lambda: mnist.again("most 50", 8, most_lanes=50))
    for width in (20, 10, 40, 80):
        suite.part(f"mnist, width {width}", lambda width=width: _width(mnist, width))
    suite.part("mnist ratio", lambda: base.compare("mnist-cnn", mnist_cnn, clients[0], "cuda"))
    suite.part(
        "small-cnn ratio",
        lambda: base.compare(
            "small-cnn", base.SMALL_CNN, clients[0], "cuda", together=clients[:10], repeats=1
        ),
        15,
    )
    suite.part("mnist optimistic", lambda: mnist.race("optimistic", RACES["optimistic"]), 30)


def _width(study: _Study, width: int) -> Row:
    """Time some clients with pieces of another width than the one that is planned."""
    planned = runner.fixed_width
    runner.fixed_width = lambda lane, lanes, most: min(width, most)
    try:
        objective = BatchedObjective(study.factory, device=study.device)

        def work() -> np.ndarray:
            return objective.losses_of_clients(study.clients[:2], base.SPACE, seeds=range(2))

        work()
        took, _ = base.seconds(work, study.device)
    finally:
        runner.fixed_width = planned
    return {"name": f"{study.name}, width {width}", "seconds_per_client": took / 2}


def _room(factory: Factory, clients: Sequence[Samples], device: str) -> chunks.Room:
    objective = BatchedObjective(factory, device=device)
    group = group_plans(plan_candidates(base.SPACE, objective.recipe(), factory))[0]
    return runner.measure_room(objective, group, clients[0].take(np.arange(64)), len(clients))


def _device_time(name: str, study: _Study, race: Race | None) -> Row:
    """Say how long the device itself is busy, with everything recorded."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - GPU only

    objective = BatchedObjective(study.factory, device="cuda", race=race)
    seeds = range(len(study.clients))
    objective.losses_of_clients(study.clients, base.SPACE, seeds=seeds)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        objective.losses_of_clients(study.clients, base.SPACE, seeds=seeds)
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in events)
    top = {e.key[:80]: round(e.self_device_time_total / 1e3, 2) for e in events[:8]}
    return {"name": f"device time, {name}", "device_seconds": total / 1e6, "milliseconds": top}
