"""A round in chunks that overlap, beside the same round in one piece. Called by `hyades.py`.

Clients live in a process of their own and reach the server over links shaped in this process: 21
to 210 Mbit/s, as in the paper. Every round is a real one, secure sum, noise and all, and the
model travels back in it.
"""

import statistics
from typing import Any

import numpy as np
from hyades_links import mobile_links
from hyades_removal import removing

from urna.privacy import Budget
from urna.protocols.secagg import Removal, Stage
from urna.randomness import OsSecrets
from urna.systems.train import plan_training
from urna.systems.train.pipelined import PipelinedSummation
from urna.tally import to_grid

TURNS = 1
OVERHEAD_TURNS = 3


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
    chunks = last[-1][0].chunks
    plans = {"none": bare} | {
        str(r): removing(tally, r) for r in (Removal.PRECISE, Removal.APPROXIMATE)
    }
    held = {
        name: PipelinedSummation(chunks=chunks, links=links, dropouts={} if p is bare else lost)
        for name, p in plans.items()
    }
    for _ in range(OVERHEAD_TURNS):  # in turns, so that a busy machine meets all alike
        for name, p in plans.items():
            held[name].tally(vectors, p, secrets)
    seconds = {
        name: [seen.whole for seen in summation.planner.seen]
        for name, summation in held.items()
        if summation.planner is not None
    }
    best = {name: min(times) for name, times in seconds.items()}
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
        "overhead_turns": seconds,
        "xnoise_overhead": {name: best[name] / best["none"] - 1 for name in best if name != "none"},
        "speed_up": plain / fast,
    }
