"""A vote in Flower's simulation beside Flower's own SecAgg+ workflow, in the same engine.

Claim:
    With 250 simulated clients a whole private vote (announcement, policies, ballots, secure
    sum with noise that is removed again, winner) takes at most a third of the wall time that
    Flower's SecAgg+ workflow takes to add up vectors of the same length.

    python benchmarks/flower_vote.py --format json
    python benchmarks/flower_vote.py --clients 50 100

Both run in one engine, in turn, after every worker has answered a message: the engine's start is
excluded for both. Ours plans for a fifth of the clients dropping out and a tenth colluding, and
counts the planning. Flower's runs with 2·⌈log₂ n⌉ + 1 shares, without noise, without tolerance for
an early dropout. The ratio is that of the medians over `--repeats`; CPU seconds, of all processes
of the engine, say how much of it other work on the machine has made. Bytes are those of whole
serialised Flower messages, both ways, for the client that has most; DP-Hype's authors report
259 KB at 250 clients.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}

import numpy as np
import numpy.typing as npt
from flower_peer import add_up, fit
from flwr.app import Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from flwr.serverapp import Grid

from urna.flower import Policy, Voter, poll
from urna.flower.gathering import Federation
from urna.flower.simulation import run_apps
from urna.privacy import Budget
from urna.space import Space
from urna.tally import Run

AUTHORS_BYTES = 259_000  # DP-Hype, 250 clients
THIRD = 1 / 3


class Ranks:
    """An objective without training: both sides are measured on the sum alone."""

    def losses(
        self, data: int, space: Space, *, seed: int, progress: object = None
    ) -> npt.NDArray[np.float64]:
        """Return losses that differ from client to client."""
        return np.roll(np.arange(float(len(space))), data)


def client_app(dimension: int) -> ClientApp:
    """Return an app that answers votes, Flower's SecAgg+, and a greeting."""
    app = ClientApp()
    Voter(
        Ranks(),
        lambda context: int(context.node_config["partition-id"]),
        policy=Policy(epsilon=1.0, delta=1e-5, forgets=True),
    ).mount(app)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    app.train(mods=[secaggplus_mod])(fit(dimension))
    return app


class Scale:
    """Keeps what passes a grid, to be weighed when the clock has stopped."""

    def __init__(self, grid: Grid) -> None:
        self._passed: list[tuple[int, Message]] = []
        push, pull = type(grid).push_messages, type(grid).pull_messages

        def push_and_keep(messages: Iterable[Message]) -> Iterable[str]:
            sent = list(messages)
            self._passed += [(message.metadata.dst_node_id, message) for message in sent]
            return push(grid, sent)

        def pull_and_keep(message_ids: Iterable[str]) -> Iterable[Message]:
            came = list(pull(grid, message_ids))
            self._passed += [(message.metadata.src_node_id, message) for message in came]
            return came

        # On the grid itself: what uses it must see the grid it knows.
        grid.push_messages, grid.pull_messages = push_and_keep, pull_and_keep  # type: ignore[method-assign]

    def bytes_per_client(self) -> int:
        """Return the serialised bytes of the client that has most."""
        weights: Counter[int] = Counter()
        for node, message in self._passed:
            weights[node] += message_to_proto(message).ByteSize()
        return max(weights.values())


def measure(clients: int, dimension: int, repeats: int) -> dict[str, Any]:
    """Run both in one engine; return wall times and bytes."""

    def main(grid: Grid, context: Context) -> dict[str, Any]:
        while len(nodes := list(grid.get_node_ids())) < clients:
            time.sleep(0.1)
        for _ in range(2):  # starts the workers; the second round is an empty round's own time
            start = time.perf_counter()
            hello = [Message(RecordDict(), node, "query.hello") for node in nodes]
            greeted = list(grid.send_and_receive(hello, timeout=600))
            empty = time.perf_counter() - start
        if len(greeted) != clients:
            raise SystemExit("not all simulated clients answer")
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(vote(grid, clients, dimension))
            theirs.append(secagg_plus(grid, nodes, dimension))
        return {
            "clients": clients,
            "dimension": dimension,
            "empty_round_seconds": empty,
            "ratio": _median(theirs, "wall_seconds") / _median(ours, "wall_seconds"),
            "cpu_ratio": _median(theirs, "cpu_seconds") / _median(ours, "cpu_seconds"),
            "vote": ours,
            "secagg_plus": theirs,
        }

    return run_apps(main, client_app(dimension), nodes=clients)


def _median(rows: list[dict[str, Any]], what: str) -> float:
    return float(statistics.median(row[what] for row in rows))


def cpu_seconds() -> float:
    """Return the CPU time so far of this process and of all that it has started."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # a process that has ended meanwhile
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                spent[int(entry.name)] = int(fields[11]) + int(fields[12])
    ours, found = set[int](), {os.getpid()}
    while found:
        ours |= found
        found = {child for child, parent in parents.items() if parent in ours} - ours
    return sum(spent[process] for process in ours) / os.sysconf("SC_CLK_TCK")


def vote(grid: Grid, clients: int, dimension: int) -> dict[str, Any]:
    """Hold one vote."""
    scale, space = Scale(grid), Space(candidate=list(range(dimension)))
    start, spent = time.perf_counter(), cpu_seconds()
    result = poll(
        grid,
        space,
        budget=Budget(1.0, 1e-5),
        dropout=0.2,
        colluding=0.1,
        federation=Federation(wait_for=clients),
        run=Run(progress=lambda step: None),
    )
    wall, spent = time.perf_counter() - start, cpu_seconds() - spent
    if result.took_part != clients:
        raise SystemExit(f"the vote lost clients: {result.lost}")
    return {
        "wall_seconds": wall,
        "cpu_seconds": spent,
        "bytes_per_client": scale.bytes_per_client(),
    }


def secagg_plus(grid: Grid, nodes: list[int], dimension: int) -> dict[str, Any]:
    """Run Flower's workflow for one round."""
    scale, spent = Scale(grid), cpu_seconds()
    found = add_up(grid, nodes, dimension)
    return {
        "wall_seconds": found["wall_seconds"],
        "cpu_seconds": cpu_seconds() - spent,
        "bytes_per_client": scale.bytes_per_client(),
        "shares": found["shares"],
    }


def main() -> int:
    """Measure and print; the exit code says whether the claim holds where it was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 100, 250])
    parser.add_argument("--dimension", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=1, help="turns that each side takes")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    chosen = parser.parse_args()
    load = os.getloadavg()
    rows = [measure(n, chosen.dimension, chosen.repeats) for n in chosen.clients]
    largest = max(rows, key=lambda row: row["clients"])
    holds = largest["clients"] < 250 or largest["ratio"] >= 1 / THIRD
    if chosen.format == "json":
        print(json.dumps({"rows": rows, "load_before": load, "holds": holds}, indent=2))
        return 0 if holds else 1
    for row in rows:
        ours, theirs = row["vote"], row["secagg_plus"]
        print(
            f"{row['clients']:4} clients: vote {_median(ours, 'wall_seconds'):6.1f} s, SecAgg+ "
            f"{_median(theirs, 'wall_seconds'):6.1f} s, ratio {row['ratio']:.2f} (of CPU time: "
            f"{_median(ours, 'cpu_seconds'):.1f} s, {_median(theirs, 'cpu_seconds'):.1f} s, "
            f"{row['cpu_ratio']:.2f}); bytes per client {ours[0]['bytes_per_client']:,} and "
            f"{theirs[0]['bytes_per_client']:,}; an empty round {row['empty_round_seconds']:.1f} s"
        )
    print(f"authors' bytes per client at 250: {AUTHORS_BYTES:,}; load before: {load[0]:.1f}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
