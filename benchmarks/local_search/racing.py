"""Races: how much faster than the full search, and the same ballots.

Full search and race run on the same clients in the same process, and CPU time is given beside
wall time. Two more full searches tell what the race cannot be blamed for: one repeats the first,
one has another most of candidates at once. Each part is measured by itself within the time given,
and a part that fails is reported as failed, so that one fault does not cost the whole call.
"""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.local_search import measure as base
from benchmarks.papers.agreement import ballot_agreement

from urna.data import Samples
from urna.local import BatchedObjective, SuccessiveHalving
from urna.local.models import adult_mlp

Row = dict[str, Any]
Factory = Callable[..., Any]

RACES: dict[str, SuccessiveHalving] = {"halving": SuccessiveHalving()}
MANY_RANKS: dict[str, SuccessiveHalving] = {
    "halving, 20 finalists": SuccessiveHalving(finalists=20),
    "halving, 30 finalists": SuccessiveHalving(finalists=30),
}


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


class Study:
    """Full search and races of one data set."""

    def __init__(
        self,
        name: str,
        factory: Factory,
        clients: Sequence[Samples],
        device: str,
        *,
        repeats: int = 0,
        repeatable: bool = False,
    ) -> None:
        self.name, self.factory, self.clients = name, factory, clients
        self.device, self.repeats, self.repeatable = device, repeats, repeatable
        self.full: np.ndarray | None = None
        self.seconds = self.seconds_again = self.cpu_seconds = float("nan")

    def search(self, count: int | None = None, **options: Any) -> tuple[Row, np.ndarray]:  # noqa: ANN401
        """Time a search with everything that belongs to it, and again with all recorded."""
        clients = self.clients[:count]
        objective = BatchedObjective(
            self.factory,
            device=self.device,
            repeatable=self.repeatable,
            **options,
        )

        def work() -> np.ndarray:
            seeds = range(len(clients))
            return base.scores_of_clients(objective, clients, base.SPACE, seeds=seeds)[..., 0]

        first, cpu, losses = base.spent(work, self.device)
        row: Row = {"clients": len(clients), "seconds": first, "cpu_seconds": cpu}
        if self.repeats:
            again = base.spent(work, self.device, self.repeats)
            row["seconds_again"], row["cpu_seconds_again"], _ = again
        return row, losses

    def whole(self) -> Row:
        """Search without a race."""
        row, self.full = self.search()
        self.seconds, self.cpu_seconds = row["seconds"], row["cpu_seconds"]
        self.seconds_again = row.get("seconds_again", float("nan"))
        ranked = np.sort(self.full, axis=1)
        row["median_gap_of_first_to_second"] = float(np.median(ranked[:, 1] - ranked[:, 0]))
        row["clients_whose_first_two_tie"] = int((ranked[:, 1] == ranked[:, 0]).sum())
        return {"name": self.name, **row}

    def race(self, label: str, race: SuccessiveHalving) -> Row:
        """Race on all clients and compare with the full search."""
        if self.full is None:
            return {"name": f"{self.name} {label}", "skipped": "there is no full search"}
        row, losses = self.search(race=race)
        row["speedup"] = self.seconds / row["seconds"]
        row["cpu_speedup"] = self.cpu_seconds / row["cpu_seconds"]
        if "seconds_again" in row:
            row["speedup_again"] = self.seconds_again / row["seconds_again"]
        kept = np.isfinite(losses)
        both = kept & np.isfinite(self.full)
        # Finalists, and those whose learning rate was zero after the first epoch.
        row["mean_finite"] = float(kept.sum(axis=1).mean())
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


def racing_suite(
    folder: Path | None, limit: float, pictures: int, model: str | None = None
) -> list[Row]:
    """Measure races on Adult and MNIST on a CPU, most telling parts first.

    Args:
        folder: Where the data lies.
        limit: Seconds after which no part begins.
        pictures: Clients of MNIST, where each takes a minute and a half.
        model: "adult" or "small-cnn" for one of the two only.
    """
    suite = Suite(limit)
    if model != "small-cnn":
        adult = Study("adult", adult_mlp, base.adult_data(folder, 100)[:20], "cpu", repeats=2)
        suite.part("adult warm-up", lambda: {"name": "adult warm-up", **adult.search(1)[0]})
        suite.part("adult", adult.whole)
        for label, race in {**RACES, **MANY_RANKS}.items():
            suite.part(f"adult {label}", lambda label=label, race=race: adult.race(label, race))
        suite.part("adult, repeated", lambda: adult.again("repeated", 30))
        suite.part("adult, other most", lambda: adult.again("most 50", 30, most_lanes=50))
    if folder is not None and model != "adult":
        some = base.pictures("mnist", folder, 100)[:pictures]
        small = Study("mnist, small CNN", base.SMALL_CNN, some, "cpu")
        suite.part("mnist", small.whole)
        suite.part("mnist halving", lambda: small.race("halving", RACES["halving"]), 0)
    return suite.rows
