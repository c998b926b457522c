"""The same search in Flower's simulation engine: many virtual nodes on one machine."""

import functools
import logging
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from ray import cloudpickle

from urna.errors import ParameterError
from urna.flower.announcement import check_name
from urna.flower.gathering import Federation
from urna.flower.helper import Helper
from urna.flower.messages import ACTION
from urna.flower.policy import Grant, Policy
from urna.flower.poll import poll
from urna.flower.site import Mounted
from urna.flower.transport import Deadlines
from urna.flower.votes import Voter
from urna.local import Objective
from urna.privacy import Budget, Unit
from urna.space import Space
from urna.systems.vote import VoteResult, VoteSettings
from urna.systems.vote.fill import as_budget, as_clients, as_objective, as_space, try_objective
from urna.tally import Options, Run, Terms

DataT = TypeVar("DataT")


def simulate(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[DataT],
    *,
    budget: Budget,
    settings: VoteSettings | None = None,
    script: str | None = None,
    seed: int = 0,
    deadlines: Deadlines | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> VoteResult:
    """Run `vote.search` in Flower's simulation engine, one virtual node per client.

    With the same script counts are the in-memory search's, bit for bit. Where only the winner is
    revealed one virtual node more is the helper.

    Args:
        space: The candidates, in order.
        objective: How a client evaluates them; it travels to worker processes.
        clients: Each client's data.
        budget: What the search may cost.
        settings: What is revealed, how ballots are filled and how the winner is read. A winner
            alone takes no script: noise comes from the coins of the server and the helper, which
            are never scripted.
        script: Label of scripted randomness; NOT PRIVATE.
        seed: Public seed of the clients' local training.
        deadlines: How long to wait for what.
        run: Where it is counted, kept and shown.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        RoundAborted: Too many clients dropped out. Nothing was revealed.
    """
    space, objective, clients = as_space(space), as_objective(objective), as_clients(clients)
    how = settings or VoteSettings()
    reveal = how.reveal
    helper, everybody = reveal.helper, len(clients) + reveal.winner
    check_helper(helper, len(clients), scripted=script is not None)
    options = {"colluding": 0, **options}
    terms = Terms.of(len(clients), as_budget(budget), **options)
    try_objective(objective, space, clients, seed)
    policy = Policy(
        epsilon=budget.epsilon,
        delta=budget.delta,
        relation=terms.adjacency,
        forgets=True,
        grants=dict.fromkeys(("vote", "winner"), Grant(most_entries=max(len(space), 1))),
        fewest_clients=2,
        most_clients=max(everybody, 2),
        largest_dropout=terms.dropout,
        least_colluding=0,
        smallest_shard=how.smallest_shard if terms.adjacency.unit is Unit.RECORD else None,
    )

    def vote(grid: Grid, _: Context) -> VoteResult:
        return poll(
            grid,
            space,
            budget=budget,
            settings=how,
            seed=seed,
            # The engine answers once its workers have started, which takes a while.
            federation=Federation(
                wait_for=everybody, deadlines=deadlines or Deadlines(gather=600.0)
            ),
            run=run,
            **options,
        )

    def voter(partition: Callable[[Context], DataT]) -> Voter[DataT]:
        return Voter(objective, partition, policy=policy, script=script)

    helps = None if helper is None else simulated_helper(helper, policy)
    return run_among(vote, voter, clients, helper=helps)


def simulated_helper(name: str, policy: Policy | None = None) -> Helper:
    """Return the part of a virtual node that helps under this name."""
    return Helper(policy=policy, name=lambda _: name)


def check_helper(helper: str | None, clients: int, *, scripted: bool) -> None:
    """Refuse a helper that a simulation cannot have."""
    if helper is None:
        return
    check_name(helper)
    if scripted:
        raise ParameterError(
            "the noise around a winner comes from the coins of server and helper, which over "
            "Flower are never scripted: leave scripted secrets out, or open the winner in memory"
        )
    if helper.isdecimal() and int(helper) < clients:
        raise ParameterError(
            f"simulated clients are called 0 to {clients - 1}: give the helper a name of its own, "
            f"got {helper!r}"
        )


ResultT = TypeVar("ResultT")


def run_among(
    main: Callable[[Grid, Context], ResultT],
    participant: Callable[[Callable[[Context], DataT]], Mounted],
    clients: Sequence[DataT],
    *,
    helper: Helper | None = None,
) -> ResultT:
    """Run a server's main function among virtual nodes, one for each client's data.

    Args:
        main: The server's part.
        participant: Makes the nodes' part, from what loads a node's data.
        clients: Each client's data.
        helper: The part of one node more, which has no data, where winners are opened.
    """
    with _partitions(clients) as partition:
        app, voter = ClientApp(), participant(partition)
        if helper is None:
            voter.mount(app)
            return run_apps(main, app, nodes=len(clients))
        helps, last = helper, len(clients)

        @app.query(ACTION)
        def answer(message: Message, context: Context) -> Message:
            """Let the last virtual node be the helper, and all others be voters."""
            mounted = helps if int(context.node_config["partition-id"]) == last else voter
            return mounted.handle(message, context)

        return run_apps(main, app, nodes=len(clients) + 1)


def run_apps(main: Callable[[Grid, Context], ResultT], app: ClientApp, *, nodes: int) -> ResultT:
    """Run a server's main function and a ClientApp in the simulation; return what main returns.

    One core per virtual node at a time. An error that main raises is raised here. Virtual
    nodes in one worker share the app: it must not keep anything between two messages.
    """
    returned: list[ResultT] = []
    server = ServerApp()

    @server.main()
    def keep_result(grid: Grid, context: Context) -> None:
        returned.append(main(grid, context))

    backend: dict[str, Any] = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": len(os.sched_getaffinity(0)), "log_to_driver": False},
    }
    with _quiet(), tempfile.TemporaryDirectory(prefix="urna-") as folder:
        file = Path(folder) / "app"
        file.write_bytes(cloudpickle.dumps(app))  # type: ignore[no-untyped-call]
        run_simulation(server, _AppOnFile(file), num_supernodes=nodes, backend_config=backend)
    return returned[0]


class _AppOnFile(ClientApp):
    """A ClientApp that travels as the name of a file.

    The engine sends the whole app with every message, and writing its functions out takes most
    of the time of a small message. A worker reads the file once.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def __call__(self, message: Message, context: Context) -> Message:
        """Let the app itself answer."""
        return _app(self._file)(message, context)

    def __reduce__(self) -> tuple[type["_AppOnFile"], tuple[Path]]:
        """Send the name alone."""
        return _AppOnFile, (self._file,)


@functools.lru_cache(maxsize=1)
def _app(file: Path) -> ClientApp:
    app: ClientApp = pickle.loads(file.read_bytes())  # noqa: S301 - written by `run_apps`
    return app


@contextmanager
def _partitions(clients: Sequence[DataT]) -> Iterator[Callable[[Context], DataT]]:
    """Lay every client's data where its virtual node finds it, and yield what loads them."""
    with tempfile.TemporaryDirectory(prefix="urna-") as folder:
        for number, data in enumerate(clients):
            (Path(folder) / str(number)).write_bytes(pickle.dumps(data))

        def load(context: Context) -> DataT:
            file = Path(folder) / str(context.node_config["partition-id"])
            data: DataT = pickle.loads(file.read_bytes())  # noqa: S301 - written just above
            return data

        yield load


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Flower's engine from logging its own progress; errors still show.

    `run_simulation` is the only way into the engine from Python. Flower would rather have
    people use `flwr run` and says so on every call; apps that are files do.
    """
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
