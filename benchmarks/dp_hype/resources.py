"""What the evaluation and one vote cost: seconds, memory, bytes."""

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from published import DELTA, VOTES
from recorded import Recorded

from urna import secagg
from urna.privacy import BallotShape, Budget
from urna.randomness import OsSecrets
from urna.tally import SecureSummation, plan_tally

__all__ = ["resources"]


def resources(every: Sequence[Recorded]) -> list[dict[str, Any]]:
    """Return one row for each setting's training, and one for a vote of each size."""
    rows = [_training(recorded) for recorded in every]
    return rows + [_vote(clients) for clients in (50, 100, 250)]


def _training(recorded: Recorded) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": "training", "setting": recorded.setting.name}
    row["seed"] = recorded.setting.seed
    for part in ("local", "federated"):
        note = recorded.meta[part]
        row[f"{part}_seconds"] = round(note["seconds"], 1)
        row[f"{part}_gigabytes"] = round((note["peak_bytes"] or 0) / 1e9, 2)
        row["machine"], row["date"] = note["machine"], note["date"]
    return row


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
        "kind": "vote",
        "clients": clients,
        "client_milliseconds": round(1e3 * outcome.client_seconds / clients, 1),
        "server_seconds": round(outcome.server_seconds, 3),
        "wall_seconds": round(time.perf_counter() - start, 2),
        "kilobytes": round(outcome.bytes_per_client / 1e3, 1),
        "planned_kilobytes": round(plan.bytes_per_client / 1e3, 1),
    }
