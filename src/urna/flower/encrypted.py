"""Encrypted combinations inside a Flower app: every node is a party with its own part of the keys.

What is opened is exact, and no privacy budget covers that. A node takes part only if whoever runs
it said so: its policy has to grant `exact-settings` by name. Simulated nodes without a policy do.

Assumes:
    A server that follows the protocol, as `urna.combine` does for all encrypted combinations.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from flwr.app import ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from urna.combine import (
    Combination,
    DbscanTask,
    Frame,
    LocalSearch,
    MeanTask,
    Strategy,
    agreed_on,
    conduct,
    strategy_named,
)
from urna.combine.combining import opened, task_for
from urna.combine.memory import kept, thaw
from urna.combine.party import Invited, PartySession, State
from urna.combine.tasks import read_task
from urna.errors import ParameterError, ProtocolError, Refused, RoundAborted, RoundUnfinished
from urna.flower.mail import Kind, Letter, Reply
from urna.flower.participant import Participant
from urna.flower.policy import Policy
from urna.flower.post import Deadlines, Post, Progress
from urna.randomness import OsSecrets

__all__ = ["ENCRYPTED_ACTION", "GRANT", "EncryptedParty", "combine_encrypted"]

ENCRYPTED_ACTION = "urna_encrypted"
"""Messages of encrypted combinations have the type `query.urna_encrypted`."""
GRANT = "exact-settings"
"""What a node's policy calls them: `[grant.exact-settings]`."""

_PLACE = "urna-encrypted"
_OLDEST = 86_400.0  # seconds
_PAUSE = 0.2  # seconds between two looks at who is connected
_LONGEST_TASK = 100_000  # bytes

_log = logging.getLogger(__name__)


class EncryptedParty(Participant):
    """A node's part in encrypted combinations. Mount it on the node's ClientApp.

    Between two letters its part of the keys waits in the context that Flower keeps on the node.
    It is wiped when the run ends.

    Args:
        search: Returns the node's search; called with Flower's context.
        policy: The node's limits, or the file that holds them; see `Participant`.
        fewest: With fewer parties, or fewer who must help to open, it does not take part.
        recomputes: Whether it opens only what it has computed again from all ciphertexts.
    """

    def __init__(
        self,
        search: Callable[[Context], LocalSearch],
        *,
        policy: Policy | Path | str | None = None,
        fewest: int = 2,
        recomputes: bool = False,
    ) -> None:
        super().__init__([], policy=policy)
        self._search, self._fewest, self._recomputes = search, fewest, recomputes

    def mount(self, app: ClientApp) -> None:
        """Let a ClientApp take part. What it does already is left alone."""
        app.query(ENCRYPTED_ACTION)(self.handle)

    def _answer(self, letter: Letter, context: Context) -> Reply:
        task = self._agreed_task(letter, context)
        invited = Invited(task, self._search(context), self._fewest, self._recomputes)
        session = PartySession(invited, OsSecrets(), _recall(context, invited))
        answer = session.handle(letter.body)
        _keep(context, kept(session.state))
        return Reply.letter(answer)

    def _agreed_task(self, letter: Letter, context: Context) -> MeanTask | DbscanTask:
        """Return the task, if this node's owner allows such a thing."""
        if letter.kind is not Kind.STAGE or len(letter.announcement) > _LONGEST_TASK:
            raise ProtocolError("this node does not know this kind of letter")
        policy = self._policy_of(context)
        grant = policy.grants.get(GRANT)
        if grant is None:
            raise Refused(
                "what is opened would be exact, and this node's policy does not grant that: it "
                f"has no [grant.{GRANT}]"
            )
        try:
            task = read_task(json.loads(letter.announcement))
            widest = max(step.parameters.width for step in task.steps)
        except (ParameterError, ValueError, RecursionError) as error:
            raise ProtocolError("the task announced cannot be read") from error
        if task.threshold < self._fewest:
            raise Refused(
                f"{task.threshold} parties could open single vectors; this node asks for "
                f"{self._fewest} or more"
            )
        if widest > grant.most_entries:
            raise Refused(
                f"{widest:,} entries are announced; this node allows {grant.most_entries:,}"
            )
        return task


def combine_encrypted(
    grid: Grid,
    axes: Frame,
    strategy: Strategy | str = "dbscan",
    *,
    threshold: int | None = None,
    recomputes: bool = False,
    wait_for: int = 2,
    tried: int = 100,
    deadlines: Deadlines | None = None,
    progress: Progress | None = None,
) -> Combination:
    """Combine the connected nodes' own searches under threshold encryption.

    A node that vanishes before anything is opened is left out, and the run begins anew with
    fresh keys among the others; where fewer than all must help, one that vanishes later is
    not missed.

    Guarantee:
        Nobody learns more than what `Combination.opened` holds and who took part, as
        `urna.he` promises. The result is exact, and is no differential privacy.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        axes: The hyperparameters and their ranges.
        strategy: `mean`, `top-mean`, `dbscan`, or one of these as a value.
        threshold: How many must help to open; all by default.
        recomputes: Whether nodes are shown all ciphertexts, to compute results again.
        wait_for: Wait until this many nodes are connected; all that are then take part.
        tried: How many settings a node tried at most.
        deadlines: How long to wait for what.
        progress: Called with the stage, how many have answered and the time left.

    Raises:
        ParameterError: The strategy is not made of sums, or nothing is left to combine.
        RoundAborted: Too few nodes are there or stayed. Nothing was opened.
        RoundUnfinished: Too few stayed after something was opened.
    """
    chosen = strategy_named(strategy) if isinstance(strategy, str) else strategy
    agreed = agreed_on(axes, chosen, tried)
    waits = deadlines or Deadlines()
    nodes = _connected(grid, wait_for, waits.gather)
    if len(nodes) < max(2, wait_for):
        raise RoundAborted(
            f"{len(nodes)} nodes are connected; {max(2, wait_for)} are needed. Nothing was begun."
        )
    helpers = len(nodes) if threshold is None else threshold
    task = task_for(agreed, len(nodes), helpers)
    transport = _GridParties(Post(grid, progress, action=ENCRYPTED_ACTION), nodes, task, waits)
    # Where all must help, whoever is there when it begins anew must.
    fewest = 2 if threshold is None else threshold
    try:
        outcome = conduct(task, transport, OsSecrets(), fewest=fewest, witnesses=recomputes)
    except RoundAborted as failed:
        raise RoundAborted(failed.reason, transport.by_node(failed.lost)) from failed
    except RoundUnfinished as failed:
        raise RoundUnfinished(failed.reason, transport.by_node(failed.lost)) from failed
    result = opened(len(nodes), agreed, outcome, private=True)
    return replace(result, lost=transport.by_node(outcome.lost))


class _GridParties:
    """The transport of an encrypted run over Flower."""

    def __init__(
        self,
        post: Post,
        nodes: list[int],
        task: MeanTask | DbscanTask,
        deadlines: Deadlines,
    ) -> None:
        self._post, self._nodes, self._deadlines = post, nodes, deadlines
        self._places = {node: place for place, node in enumerate(nodes)}
        self._task = json.dumps(task.as_mapping(), allow_nan=False).encode()
        self._refused: dict[int, str] = {}

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        """Deliver letters to their nodes and return the replies that come in time."""
        asked = {
            self._nodes[place]: Letter(Kind.STAGE, body, announcement=self._task)
            for place, body in letters.items()
        }
        replies = {}
        for node, reply in self._post.ask(asked, stage=stage, seconds=self._deadlines.stage):
            place = self._places[node]
            if reply.body:
                replies[place] = reply.body
            else:
                self._refused[place] = f"refused: {reply.refused}"
        return replies

    def by_node(self, lost: Mapping[int, str]) -> dict[int, str]:
        """Return who was lost by Flower's node id, with what nodes said that refused."""
        return {self._nodes[place]: self._refused.get(place, why) for place, why in lost.items()}


def _connected(grid: Grid, wait_for: int, seconds: float) -> list[int]:
    start = time.monotonic()
    while True:
        nodes = sorted(grid.get_node_ids())
        if len(nodes) >= wait_for or time.monotonic() - start > seconds:
            return nodes
        time.sleep(_PAUSE)


def _recall(context: Context, invited: Invited) -> State | None:
    """Return the state of the run this node is in; none if it is in no such run."""
    if _PLACE not in context.state:
        return None
    record = cast(Mapping[str, Any], context.state[_PLACE])
    try:
        if time.time() - record["since"] <= _OLDEST:
            return thaw(record["state"], invited)
    except ProtocolError:  # of another task: that run is over
        _log.info("what this node kept of another run is given up")
    del context.state[_PLACE]
    return None


def _keep(context: Context, state: bytes) -> None:
    if state:
        context.state[_PLACE] = ConfigRecord({"state": state, "since": time.time()})
    elif _PLACE in context.state:
        del context.state[_PLACE]
