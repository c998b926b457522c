"""The server's side: one call inside an app's own `@app.main()` runs a whole vote."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from flwr.serverapp import Grid

from urna.errors import (
    ParameterError,
    PollAborted,
    PollUnfinished,
    RoundAborted,
    RoundUnfinished,
)
from urna.flower.announcement import Announcement, check_name
from urna.flower.identities import DirectoryFile, NodeKey, verify
from urna.flower.mail import Kind, Letter, Reply
from urna.flower.policy import label_of, release_of, server_statement
from urna.flower.post import Deadlines, GridTransport, Post, Progress
from urna.flower.voter import presence
from urna.privacy import Adjacency, Budget, Ledger, PrivacyStatement
from urna.privacy.distributions import SKELLAM
from urna.randomness import SEED_BYTES, OsSecrets
from urna.secagg import Outcome, ServerModel, conduct
from urna.space import Space
from urna.tally import tallied
from urna.vote import (
    BallotKind,
    Decoder,
    PosteriorDecoder,
    Result,
    choose_ballot,
    read_result,
    relative_noise,
)

__all__ = ["poll"]

_PAUSE = 0.2  # seconds between two looks at who is connected


def poll(
    grid: Grid,
    space: Space,
    *,
    budget: Budget,
    ballot: BallotKind | str | None = None,
    votes: int | None = None,
    dropout: float = 0.0,
    colluding: float = 0.0,
    adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
    shards: int = 1,
    family: str = SKELLAM.name,
    server: ServerModel | str = ServerModel.HONEST_BUT_CURIOUS,
    directory: DirectoryFile | Path | None = None,
    server_key: NodeKey | Path | None = None,
    least_clients: int = 2,
    wait_for: int | None = None,
    deadlines: Deadlines | None = None,
    decoder: Decoder | None = None,
    ledger: Ledger | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Let the connected nodes agree on hyperparameters by secret ballot.

    Announces the space and the plan, gathers the nodes whose own policies allow it, runs the
    secure summation over the grid and reads the winner. A node that refuses, fails, hangs or
    is late is left out and named in `result.lost`, by its Flower id.

    Guarantee:
        The tally, and so the result, is (epsilon, delta)-DP under `adjacency` towards
        everybody who learns no more than the protocol reveals; `result.privacy` says in words
        what the server was trusted with. Each node counts the release in its own ledger
        before its masked ballot leaves it.

    Assumes:
        Without a directory the server passes on keys honestly (honest-but-curious). The
        server draws the public nonce that decides who is whose neighbour; it does not choose
        it by who colludes.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        space: The candidates, in order.
        budget: What the vote may cost each node.
        ballot: How a node spreads its vote; by scores unless `votes` are given.
        votes: How many candidates each node names in a top-k ballot.
        dropout: Largest fraction of those who take part that may drop out on the way.
        colluding: Largest fraction that may tell the server their noise.
        adjacency: Between which electorates the guarantee holds.
        shards: With `Adjacency.REPLACE_ONE_RECORD`, into how many shards each node splits its
            records. Nodes whose policy does not allow this by name refuse.
        family: Name of the noise's family.
        server: Which server the round protects against; `dishonest` needs a directory.
        directory: Identity keys of those invited. With it the vote is signed: nodes check
            each other's keys against their *own* copies.
        server_key: Signs the announcement, for nodes whose policy names the server's key.
        least_clients: With fewer nodes ready, the vote is not begun.
        wait_for: Wait until this many nodes are connected; `least_clients` by default.
        deadlines: How long to wait for what.
        decoder: How the winner is read from the tally; `PosteriorDecoder` by default.
        ledger: A ledger of the server's own, counted before the release happens.
        seed: Public seed of the nodes' local training.
        progress: Called with the stage, how many have answered and the time left.

    Raises:
        ParameterError: The parameters cannot be.
        BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
        PollAborted: Too few nodes took part or stayed; it says who was missing and why.
            Nothing was revealed.
        PollUnfinished: Too few nodes stayed to open the sum after others had begun to reveal.
            It counts as released.
    """
    waits = deadlines or Deadlines()
    post = Post(grid, progress)
    keys = DirectoryFile.read(directory) if isinstance(directory, Path) else directory
    signer = NodeKey.read(server_key) if isinstance(server_key, Path) else server_key
    if least_clients < 2:
        raise ParameterError(f"a vote needs at least two clients, got {least_clients}")
    nodes = _connected(grid, wait_for or least_clients, waits.gather)
    if len(nodes) < least_clients:
        raise PollAborted(
            f"{len(nodes)} nodes are connected; the vote needs {least_clients}. "
            "Nothing was announced.",
            {},
        )
    noise = relative_noise(budget, len(nodes) * shards)
    announced = Announcement(
        nonce=OsSecrets().take(SEED_BYTES),
        number=time.time_ns() // 1_000_000,
        space=space,
        budget=budget,
        ballot=choose_ballot(ballot, candidates=len(space), noise=noise, votes=votes),
        dropout=dropout,
        colluding=colluding,
        adjacency=adjacency,
        shards=shards,
        family=family,
        server=ServerModel(server),
        signed=keys is not None,
        seed=seed,
        clients=len(nodes),
    )
    announced.round_plan  # noqa: B018 - what cannot be planned is wrong use: say so before asking
    if ledger is not None:
        ledger.check_relation(adjacency)
        ledger.check(release_of(announced, private=True))
    gathering = _Gathering(announced, keys)
    letter = _announce(Kind.ANNOUNCE, announced, signer)
    for node, reply in post.ask(
        dict.fromkeys(nodes, letter), stage="gathering", seconds=waits.gather
    ):
        gathering.take(node, reply)
    gathering.close(nodes)
    if len(gathering.ready) < least_clients:
        raise PollAborted(
            f"{len(gathering.ready)} of {len(nodes)} nodes take part; the vote needs "
            f"{least_clients}. Nothing was begun.",
            gathering.missing,
        )
    final = announced.with_names(tuple(gathering.ready))
    entered = ledger and ledger.enter(
        release_of(final, private=gathering.private),
        label=label_of(final),
    )
    members = dict(enumerate(gathering.ready.values()))
    begin = _announce(Kind.BEGIN, final, signer)
    transport = GridTransport(post, members, final.round_plan, begin, waits)
    try:
        outcome = conduct(
            final.round_plan,
            transport,
            number=final.number,
            coin=final.coin,
            directory=keys.for_round(final.names) if keys else None,
        )
    except (RoundAborted, RoundUnfinished) as ended:
        post.tell(members.values(), Letter(Kind.END), seconds=waits.stage)
        missing = gathering.missing | {
            members[client]: f"{final.names[client]}: {why}"
            for client, why in transport.lost().items()
        }
        if isinstance(ended, RoundUnfinished):
            raise PollUnfinished(str(ended), missing) from ended
        if ledger is not None and entered:
            ledger.withdraw(entered, reason="the round was aborted before anything was opened")
        raise PollAborted(str(ended), missing) from ended
    except BaseException:  # Ctrl-C, a grid that fails: nodes must not keep their secrets
        post.tell(members.values(), Letter(Kind.END), seconds=waits.stage)
        raise
    post.tell((members[c] for c in sorted(outcome.lost)), Letter(Kind.END), seconds=waits.stage)
    return _result(final, outcome, gathering, decoder or PosteriorDecoder())


@dataclass(slots=True)
class _Gathering:
    """Who takes part, by name, and who does not and why, by node."""

    announced: Announcement
    keys: DirectoryFile | None
    ready: dict[str, int] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    private: bool = True

    def take(self, node: int, reply: Reply) -> None:
        """Note one node's answer to the announcement."""
        if reply.refused:
            self.missing[node] = f"refused: {reply.refused}"
            return
        try:
            name = check_name(reply.name)
        except ParameterError:
            self.missing[node] = "gave no proper name"
            return
        if self.keys is not None and not verify(
            self.keys.keys.get(name, b""), reply.proof, presence(self.announced, node)
        ):
            self.missing[node] = f"{name}: not proven to be the one in the directory"
        elif name in self.ready:
            self.missing[node] = f"{name}: another node already has this name"
        else:
            self.ready[name] = node
            self.private = self.private and reply.private

    def close(self, nodes: Iterable[int]) -> None:
        """Note the silent ones, and put those who take part in the order of their names."""
        there = set(self.ready.values()) | self.missing.keys()
        self.missing |= {n: "did not answer the announcement" for n in nodes if n not in there}
        self.ready = dict(sorted(self.ready.items(), key=lambda entry: _order(entry[0])))


def _order(name: str) -> tuple[int, int, str]:
    """Order numbers as numbers, before other names."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def _connected(grid: Grid, enough: int, seconds: float) -> list[int]:
    """Return the nodes connected once there are enough, or when time is over."""
    start = time.monotonic()
    while True:
        nodes = sorted(grid.get_node_ids())
        if len(nodes) >= enough or time.monotonic() - start > seconds:
            return nodes
        time.sleep(_PAUSE)


def _announce(kind: Kind, announcement: Announcement, signer: NodeKey | None) -> Letter:
    signature = signer.sign(server_statement(announcement)) if signer is not None else b""
    return Letter(kind, announcement=announcement.as_bytes(), signature=signature)


def _result(
    final: Announcement, outcome: Outcome, gathering: _Gathering, decoder: Decoder
) -> Result:
    vote, nodes = final.plan, list(gathering.ready.values())
    scripted = () if gathering.private else ("The randomness was scripted, so nothing is private",)
    statement = PrivacyStatement(
        epsilon=vote.tally.calibration.epsilon if gathering.private else math.inf,
        delta=vote.tally.budget.delta,
        adjacency=final.adjacency,
        accountant=vote.tally.calibration.accountant,
        caveats=(*scripted, *vote.tally.unit_caveats, _described(final)),
    )
    counted = tallied(outcome, vote.tally)
    named = {nodes[c]: f"{final.names[c]}: {why}" for c, why in counted.lost.items()}
    read = read_result(final.space, vote, counted, decoder, statement)
    return replace(read, lost=gathering.missing | named)


def _described(final: Announcement) -> str:
    """Return who saw what and who was trusted, for every output."""
    saw = (
        "Ballots were added up by secure summation (SecAgg+) over Flower: the server saw masked "
        "vectors, the noisy sum and who took part"
    )
    if not final.signed:
        return (
            f"{saw}. No directory of identity keys was used: the server was trusted to pass on "
            "keys, so this holds for an honest-but-curious server only"
        )
    return f"{saw}. Nodes checked keys against their own directories; server: {final.server}"
