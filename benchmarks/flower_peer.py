"""Flower's own SecAgg+ as a peer: the installed workflow and client mod, set up for one round.

With 2·⌈log₂ n⌉ + 1 shares, the smallest neighbourhood that is safe; without noise, and with nobody
lost, because one early dropout aborts its round.
"""

import logging
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerConfig
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["ClientsHere", "add_up", "fit"]


def fit(dimension: int) -> Callable[[Message, Context], Message]:
    """Return a client's training function that trains nothing: only the sum is measured."""

    def answer(message: Message, context: Context) -> Message:
        result = FitRes(Status(Code.OK, ""), _vector(dimension), 1000, {})
        return Message(compat.fitres_to_recorddict(result, keep_input=True), reply_to=message)

    return answer


def add_up(grid: "Grid | ClientsHere", nodes: Sequence[int], dimension: int) -> dict[str, Any]:
    """Add up one vector per node by Flower's workflow; return what it took."""
    strategy = _Strategy(nodes, _vector(dimension))
    context = LegacyContext(
        context=Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=1),
        strategy=strategy,  # type: ignore[arg-type]
        client_manager=_Everyone(nodes),  # type: ignore[arg-type]
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        _vector(dimension), keep_input=True
    )
    shares = 2 * math.ceil(math.log2(len(nodes))) + 1
    threshold = shares // 2 + 1
    workflow = SecAggPlusWorkflow(shares, threshold)
    wall, spent = time.perf_counter(), time.process_time()
    workflow(grid, context)  # type: ignore[arg-type]
    wall, spent = time.perf_counter() - wall, time.process_time() - spent
    if len(strategy.results) != len(nodes):
        raise SystemExit("Flower's round did not finish")
    return {
        "shares": shares,
        "threshold": threshold,
        "wall_seconds": wall,
        "own_cpu_seconds": spent,
    }


class ClientsHere:
    """A grid whose clients all run in this process, so that its CPU time is everybody's."""

    def __init__(self, clients: int, dimension: int) -> None:
        logging.getLogger("flwr").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        self._fit = fit(dimension)
        self._contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            for node in range(1, clients + 1)
        }

    @property
    def nodes(self) -> list[int]:
        """The clients' numbers."""
        return list(self._contexts)

    def send_and_receive(self, messages: list[Message], *, timeout: float | None) -> list[Message]:
        """Answer every message at once."""
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Message:
        # The mod takes entries out of what it is given: every client gets its own.
        own = RecordDict(dict(message.content))
        for name, record in message.content.config_records.items():
            own[name] = ConfigRecord(dict(record))
        message.content = own
        return secaggplus_mod(message, self._contexts[message.metadata.dst_node_id], self._fit)


class _Proxy:
    def __init__(self, node_id: int) -> None:
        self.node_id, self.cid = node_id, str(node_id)


class _Everyone:
    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes

    def num_available(self) -> int:
        return len(self._nodes)


class _Strategy:
    """Asks every node once and keeps the results."""

    def __init__(self, nodes: Sequence[int], vector: Parameters) -> None:
        self._nodes, self._vector = nodes, vector
        self.results: list[Any] = []

    def configure_fit(self, *_: object) -> list[tuple[_Proxy, FitIns]]:
        return [(_Proxy(node), FitIns(self._vector, {})) for node in self._nodes]

    def aggregate_fit(self, _: int, results: list[Any], __: object) -> tuple[Any, dict[str, Any]]:
        self.results = results
        return results[0][1].parameters, {}


def _vector(dimension: int) -> Parameters:
    return ndarrays_to_parameters([np.zeros(dimension, dtype=np.float32)])
