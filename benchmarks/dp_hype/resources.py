"""What the evaluation and one vote cost, and what the rest of it would: seconds, memory, bytes."""

import time
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from benchmarks.dp_hype.published import DELTA, VOTES
from benchmarks.dp_hype.recorded import same_training
from benchmarks.dp_hype.settings import Setting, all_settings

from urna.privacy import Budget
from urna.protocols import secagg
from urna.protocols.secagg.masks import zeros
from urna.randomness import OsSecrets
from urna.systems.vote import BallotShape, VoteSettings, plan_vote
from urna.tally import Terms

__all__ = ["estimates", "training", "votes"]

Notes = Mapping[Setting, Mapping[str, Any]]
PARTS = ("local", "federated")


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
            row["precision"] = note["options"].get("precision", "float32")
        rows.append(row)
    return rows


def estimates(notes: Notes) -> list[dict[str, Any]]:
    """Return the authors' settings of which a part is missing, and seconds it would take.

    A part takes as long as the slowest measured one of its data set: whatever the number of
    clients, the rows are the same.
    """
    missing = []
    for setting in all_settings():
        meta = notes.get(setting, {})
        parts = [part for part in PARTS if not _there(setting, meta, part)]
        if parts:
            found = [_estimate(setting, part, notes) for part in parts]
            seconds = None if None in found else round(sum(f for f in found if f))
            missing.append({"setting": setting.name, "parts": parts, "seconds": seconds})
    return missing


def _there(setting: Setting, meta: Mapping[str, Any], part: str) -> bool:
    return part in meta and (part == "local" or same_training(setting, meta))


def _estimate(setting: Setting, part: str, notes: Notes) -> float | None:
    found = [
        meta[part]["seconds"] / _epochs(other, part)
        for other, meta in notes.items()
        if other.dataset == setting.dataset and _there(other, meta, part)
    ]
    return max(found) * _epochs(setting, part) if found else None


def _epochs(setting: Setting, part: str) -> int:
    return setting.local_epochs * (setting.rounds if part == "federated" else 1)


def votes() -> list[dict[str, Any]]:
    """Return what one vote costs, for each number of clients."""
    return [_vote(clients) for clients in (50, 100, 250)]


def _vote(clients: int) -> dict[str, Any]:
    """Hold one vote by secure aggregation, all parties in this process, nobody lost."""
    terms = Terms(clients, Budget(1.0, DELTA), dropout=Fraction(1, 5), colluding=Fraction(1, 10))
    tally = plan_vote(terms, 100, VoteSettings(ballot=BallotShape.top_k(VOTES, 100))).tally
    plan = tally.round_plan
    if plan.noise:
        seeds = dict.fromkeys(range(plan.noise.shared + 1), bytes(32))
        plan.noise.add_to(zeros(1, 32), [seeds])  # build tables
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
