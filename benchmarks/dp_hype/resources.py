"""What the evaluation and one vote cost, and what the rest of it would: seconds, memory, bytes."""

import time
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from published import DELTA, VOTES
from recorded import same_training
from settings import BATCH, MODELS, Setting, all_settings

from urna import secagg
from urna.privacy import BallotShape, Budget
from urna.randomness import OsSecrets
from urna.tally import SecureSummation, plan_tally

__all__ = ["estimates", "training", "votes"]

Notes = Mapping[Setting, Mapping[str, Any]]
PARTS = ("local", "federated")
ROWS = {"adult": 32_561, "mnist": 60_000, "cifar10": 50_000}
"""Training rows of each data set."""


def training(notes: Notes) -> list[dict[str, Any]]:
    """Return seconds and memory of each setting's training."""
    rows = []
    for setting, meta in notes.items():
        row: dict[str, Any] = {"setting": setting.name, "seed": setting.seed}
        for part in (p for p in PARTS if _there(setting, meta, p)):
            note = meta[part]
            row[f"{part}_seconds"] = round(note["seconds"], 1)
            row[f"{part}_gigabytes"] = round((note["peak_bytes"] or 0) / 1e9, 1)
            row[f"{part}_preparing_seconds"] = note.get("preparing_seconds_of_data_set", 0.0)
            row |= {"machine": note["machine"], "date": note["date"], "torch": note["torch"]}
        rows.append(row)
    return rows


def estimates(notes: Notes) -> list[dict[str, Any]]:
    """Return the authors' settings of which a part is missing, and seconds it would take.

    A part takes as long as the slowest measured one of its data set: whatever the number of
    clients, the rows are the same. A data set without a measurement is estimated from the
    one with most multiplications measured, in proportion to them.
    """
    missing = []
    for setting in all_settings():
        meta = notes.get(setting, {})
        parts = [part for part in PARTS if not _there(setting, meta, part)]
        if parts:
            found = [_estimate(setting, part, notes) for part in parts]
            missing.append(
                {
                    "setting": setting.name,
                    "parts": parts,
                    "seconds": None if None in found else round(sum(f for f in found if f)),
                    "measured_on": setting.dataset
                    if all(_slowest(setting.dataset, part, notes) for part in parts)
                    else "mnist",
                }
            )
    return missing


def _there(setting: Setting, meta: Mapping[str, Any], part: str) -> bool:
    return part in meta and (part == "local" or same_training(setting, meta))


def _slowest(dataset: str, part: str, notes: Notes) -> float | None:
    """Return the most seconds per epoch over all rows that a part took, or None."""
    found = [
        meta[part]["seconds"] / _epochs(setting, part)
        for setting, meta in notes.items()
        if setting.dataset == dataset and _there(setting, meta, part)
    ]
    return max(found, default=None)


def _estimate(setting: Setting, part: str, notes: Notes) -> float | None:
    own = _slowest(setting.dataset, part, notes)
    if own is not None:
        return own * _epochs(setting, part)
    like = _slowest("mnist", part, notes)
    if like is None:
        return None
    ratio = _multiplications(setting.dataset) / _multiplications("mnist")
    return like * ratio * _epochs(setting, part)


def _epochs(setting: Setting, part: str) -> int:
    return setting.local_epochs * (setting.rounds if part == "federated" else 1)


def _multiplications(dataset: str) -> float:
    """Return multiplications of one pass over all rows, as torch counts them."""
    import torch  # noqa: PLC0415 - only estimates need it
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    shape = {"adult": (108,), "mnist": (784,), "cifar10": (3072,)}[dataset]
    module = MODELS[dataset]()
    with FlopCounterMode(display=False) as counter:
        module(torch.zeros(BATCH, *shape))
    return float(counter.get_total_flops()) / BATCH * ROWS[dataset]


def votes() -> list[dict[str, Any]]:
    """Return what one vote costs, for each number of clients."""
    return [_vote(clients) for clients in (50, 100, 250)]


def _vote(clients: int) -> dict[str, Any]:
    """Hold one vote by secure summation, all parties in this process, nobody lost."""
    tally = plan_tally(
        clients=clients,
        shape=BallotShape.top_k(VOTES, 100),
        budget=Budget(1.0, DELTA),
        dropout=Fraction(1, 5),
        colluding=Fraction(1, 10),
    )
    plan = SecureSummation().round_plan(tally)
    if plan.noise:
        plan.noise.draw(dict.fromkeys(range(plan.noise.shared + 1), bytes(32)), 1)  # build tables
    ballot = np.zeros(100, dtype=np.int64)
    ballot[:VOTES] = tally.scale
    start = time.perf_counter()
    outcome = secagg.run(dict.fromkeys(range(clients), ballot), plan, OsSecrets())
    return {
        "clients": clients,
        "client_milliseconds": round(1e3 * outcome.client_seconds / clients, 1),
        "server_seconds": round(outcome.server_seconds, 3),
        "wall_seconds": round(time.perf_counter() - start, 2),
        "kilobytes": round(outcome.bytes_per_client / 1e3, 1),
        "planned_kilobytes": round(plan.bytes_per_client / 1e3, 1),
    }
