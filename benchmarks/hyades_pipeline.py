"""A round in chunks that overlap, beside the same round in one piece. Called by `hyades.py`.

Clients live in a process of their own and reach the server over links shaped in this process: 21
to 210 Mbit/s, as in the paper. Every round is a real one, secure sum, noise and all, and the
model travels back in it.
"""

import statistics
from typing import Any

import numpy as np

from urna.privacy import Budget
from urna.randomness import OsSecrets
from urna.secagg import Stage
from urna.tally import to_grid
from urna.train import plan_training
from urna.train.links import mobile_links
from urna.train.pipelined import PipelinedSummation

TURNS = 1


def pipeline(clients: int, dimension: int, dropout: float) -> dict[str, Any]:
    """Measure rounds in one piece, then let the planner find out how many chunks are best."""
    planned = plan_training(
        clients, dimension, budget=Budget(6.0, 1e-3), rounds=50, dropout=dropout
    )
    tally, layout, secrets = planned.tally, planned.layout, OsSecrets()
    update = np.random.default_rng(0).normal(size=dimension).astype(np.float32)
    vectors = {c: to_grid(layout.encode(update, 1.0, {}, secrets), tally) for c in range(clients)}
    lost = dict.fromkeys(range(int(clients * dropout) // 2), Stage.MASK)
    links = mobile_links(clients)
    whole = PipelinedSummation(chunks=1, links=links, dropouts=lost)
    for _ in range(TURNS):
        whole.tally(vectors, tally, secrets)
    chunked = PipelinedSummation(links=links, dropouts=lost)
    for _ in range(3 + TURNS):
        chunked.tally(vectors, tally, secrets)
    assert whole.planner is not None
    assert chunked.planner is not None
    plain = statistics.median(seen.whole for seen in whole.planner.seen)
    last = list(zip(chunked.planner.seen, chunked.planner.predictions, strict=True))[3:]
    fast = statistics.median(seen.whole for seen, _ in last)
    # The same without removable parts: every client adds its share of the target, nobody is lost.
    bare = plan_training(clients, dimension, budget=Budget(6.0, 1e-3), rounds=50).tally
    without = PipelinedSummation(chunks=last[-1][0].chunks, links=links)
    again = PipelinedSummation(chunks=last[-1][0].chunks, links=links, dropouts=lost)
    for _ in range(2):
        without.tally(vectors, bare, secrets)
        again.tally(vectors, tally, secrets)
    assert without.planner is not None
    assert again.planner is not None
    best = min(seen.whole for seen in without.planner.seen)
    overhead = min(seen.whole for seen in again.planner.seen) / best - 1
    return {
        "clients": clients,
        "dimension": dimension,
        "plain_s": plain,
        "plain_stages": dict(whole.planner.seen[-1].seconds),
        "chunks": [seen.chunks for seen, _ in last],
        "pipelined_s": fast,
        "tried": [(seen.chunks, seen.whole) for seen in chunked.planner.seen],
        "prediction_off": [p / seen.whole - 1 for seen, p in last if p is not None],
        "xnoise": str(planned.terms.removal),
        "xnoise_overhead": overhead,
        "speed_up": plain / fast,
    }
