"""Encrypted combinations inside a Flower app: every node is a party with its own part of the keys.

What is opened is exact, and no privacy budget covers that. A node holds every letter against its
whole policy, as it does for private sums, and takes part only if whoever runs it granted what is
to be opened by name, and as often as was granted: once by default. Simulated nodes without a
policy take part in everything.

Assumes:
    A server that follows the protocol, as `urna.systems.combine` does for all encrypted
    combinations. With a directory, parties sign their letters and compute keys and results again;
    what this stops is said in `urna.systems.combine.party`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid

from urna.errors import ParameterError, ProtocolError, Refused, RoundAborted, RoundUnfinished
from urna.flower.exact import ExactAnnouncement
from urna.flower.gathering import Federation, Gathering, Reach
from urna.flower.identities import DirectoryFile, NodeKey
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.policy import Grant, Policy
from urna.flower.site import Mounted, Site, forget, seed_of, store, stored
from urna.flower.transport import Deadlines, Progress
from urna.local.generators import own_generators
from urna.protocols.secagg import Directory, Identity
from urna.randomness import SEED_BYTES, OsSecrets
from urna.systems.combine import (
    Combination,
    Frame,
    LocalSearch,
    PartySession,
    RunName,
    Seat,
    Strategy,
    agreed_on,
    conduct,
    freeze,
    opened,
    strategy_named,
    task_for,
    thaw,
)
from urna.systems.combine.party import Given, Joined, KeyedParty, State

ENCRYPTED_ACTION = "urna_encrypted"
"""Messages of encrypted combinations have the type `query.urna_encrypted`."""

_PLACE = "urna-encrypted"
_ATTEMPTS = 2

_log = logging.getLogger(__name__)


class EncryptedParty(Mounted):
    """A node's part in encrypted combinations. Mount it on the node's ClientApp.

    Between two letters its part of the keys waits in the context that Flower keeps on the node.
    It is wiped when the run ends.

    Guarantee:
        Every letter is held against the node's policy before anything is computed. A run is
        counted for good before the first ciphertext leaves, and the node takes part in no more
        runs than its policy grants, through restarts and whatever runs at the same time. Each
        stage of a run is answered once.

    Args:
        search: Returns the node's search; called with Flower's context.
        policy: The node's limits, or the file that holds them; see `Participant`.
        recomputes: Whether it takes only keys, and opens only results, that it has computed
            again. It always does so where letters are signed.
    """

    def __init__(
        self,
        search: Callable[[Context], LocalSearch],
        *,
        policy: Policy | Path | str | None = None,
        recomputes: bool = False,
    ) -> None:
        super().__init__(self._stage, ENCRYPTED_ACTION)
        self._site = Site(policy)
        self._search, self._recomputes = search, recomputes

    def _stage(self, letter: Letter, context: Context) -> Reply:
        if letter.kind not in (Kind.ANNOUNCE, Kind.STAGE):
            raise ProtocolError("this node does not know this kind of letter")
        policy = self._site.policy_of(context)
        policy.check_source(letter.announcement, letter.signature, letter.body)
        announcement = ExactAnnouncement.read(letter.announcement)
        try:
            grant = policy.check_exact(announcement, announcement.digest)
        except ParameterError as error:
            raise Refused("what is announced cannot be planned") from error
        if letter.kind is Kind.ANNOUNCE:
            return self._site.present(announcement, policy, context)
        name = self._site.name_in(announcement, policy, context)
        if name not in announcement.names:
            raise Refused("this node is not among those who take part")
        party = announcement.names.index(name)
        known = self._site.identity(announcement, party, policy)
        signer = None if known is None else _Signer(known[1], known[0])
        with own_generators(seed_of(context)):  # the same search at every stage
            search = self._search(context)
        run = RunName(announcement.task, announcement.digest)
        seat = Seat(run, party, search, self._recomputes or announcement.signed, signer)
        session = PartySession(seat, OsSecrets(), _recall(context, seat))
        before = session.state
        answer = session.handle(letter.body)
        _claim(policy, grant, announcement.digest, before, session.state)
        if frozen := freeze(seat, session.state):
            store(context, _PLACE, {"state": frozen})
        else:
            forget(context, _PLACE)
        return Reply(answer)


@dataclass(frozen=True, slots=True)
class _Verifier:
    """Checks letters against a directory."""

    directory: Directory

    def verify(self, party: int, signature: bytes, message: bytes) -> None:
        """Refuse a message that this party did not sign."""
        self.directory.verify(party, signature, message, "the letter")


@dataclass(frozen=True, slots=True)
class _Signer(_Verifier):
    """Signs with a node's key, and checks against its directory."""

    identity: Identity

    def sign(self, message: bytes) -> bytes:
        """Return the node's signature."""
        return self.identity.sign(message)


def _claim(
    policy: Policy, grant: Grant, run: bytes, before: State | None, after: State | None
) -> None:
    """Take the one right to answer a stage; count the run before its first ciphertexts leave.

    The same result may be opened again with other helpers; another one of the same step may not.
    """
    account = policy.account
    if after is before:  # it refuses: nothing of what the node holds leaves it
        return
    match after:
        case Joined():
            account.claims.claim(run, "keys")
        case KeyedParty():
            account.claims.claim(run, "rest of the keys")
        case Given() if isinstance(before, Given) and after.keyed is before.keyed:
            stage = f"open {after.keyed.number}"
            if not before.opened:
                account.claims.claim(run, stage)
        case Given():
            account.claims.count_run(run, grant.most_runs)
            account.claims.claim(run, f"give {after.keyed.number}")
        case _:
            return


def combine_encrypted(
    grid: Grid,
    axes: Frame,
    strategy: Strategy | str = "dbscan",
    *,
    threshold: int | None = None,
    recomputes: bool = False,
    directory: DirectoryFile | Path | None = None,
    server_key: NodeKey | Path | None = None,
    wait_for: int = 2,
    tried: int = 100,
    deadlines: Deadlines | None = None,
    progress: Progress | None = None,
) -> Combination:
    """Combine the connected nodes' own searches under threshold encryption.

    A node that vanishes before anything is opened is left out, and a new run is announced to
    the others; where fewer than all must help, one that vanishes later is not missed. Nodes
    count a run once they have given their ciphertexts: those whose owners granted one run take
    part in no second one.

    Guarantee:
        Nobody learns more than what `Combination.opened` holds and who took part, as
        `urna.protocols.he` promises. The result is exact, and is no differential privacy.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        axes: The hyperparameters and their ranges.
        strategy: `mean`, `top-mean`, `dbscan`, or one of these as a value.
        threshold: How many must help to open; all by default.
        recomputes: Whether nodes are shown each other's letters, to compute keys and results
            again; they always are with a directory.
        directory: Identity keys of those invited. With it nodes sign their letters, and check
            each other's against their *own* copies. A letter that the network altered costs its
            sender its place, and nobody else. Without it a channel that alters nothing (TLS) is
            assumed.
        server_key: Signs announcements and every letter, for nodes whose policy names the
            server's key.
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
    federation = Federation(
        directory=directory,
        server_key=server_key,
        least_clients=max(2, wait_for),
        deadlines=deadlines or Deadlines(),
    )
    reach = Reach(grid, federation, progress, action=ENCRYPTED_ACTION)
    nodes = reach.connected()
    if len(nodes) < federation.least_clients:
        raise RoundAborted(
            f"{len(nodes)} nodes are connected; {federation.least_clients} are needed. "
            "Nothing was begun."
        )
    task = task_for(agreed, len(nodes), len(nodes) if threshold is None else threshold)
    # Where all must help, whoever is there when it begins anew must.
    fewest = 2 if threshold is None else threshold
    lost: dict[int, str] = {}
    for attempt in range(1, _ATTEMPTS + 1):
        nonce, signed = OsSecrets().take(SEED_BYTES), reach.keys is not None
        announced = ExactAnnouncement(nonce, int(time.time()), task, signed)
        gathering = reach.gather(announced, [node for node in nodes if node not in lost], lost)
        lost |= gathering.missing
        if len(gathering.ready) < fewest:
            raise RoundAborted(
                f"{len(gathering.ready)} of {len(nodes)} nodes take part; {fewest} are needed. "
                "Nothing was opened.",
                lost,
            )
        parties, final = _GridParties(reach, gathering), gathering.final
        verifier = None if reach.keys is None else _Verifier(reach.keys.for_round(final.names))
        try:
            outcome = conduct(
                RunName(final.task, final.digest),
                parties,
                witnesses=recomputes or signed,
                verifier=verifier,
            )
        except RoundAborted as failed:
            lost |= parties.by_node(failed.lost)
            if attempt == _ATTEMPTS or not failed.lost:
                raise RoundAborted(failed.reason, lost) from failed
            continue
        except RoundUnfinished as failed:
            raise RoundUnfinished(failed.reason, lost | parties.by_node(failed.lost)) from failed
        result = opened(len(nodes), outcome, private=True)
        return replace(result, lost=lost | parties.by_node(outcome.lost))
    raise RoundAborted("no attempt was made", lost)


class _GridParties:
    """The transport of an encrypted run over Flower."""

    def __init__(self, reach: Reach, gathering: Gathering[ExactAnnouncement]) -> None:
        self._reach, self._announced = reach, gathering.final
        self._nodes = list(gathering.ready.values())
        self._refused: dict[int, str] = {}

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        """Deliver letters to their nodes and return the replies that come in time."""
        asked = {
            self._nodes[place]: self._reach.letter(Kind.STAGE, self._announced, body)
            for place, body in letters.items()
        }
        replies, seconds = dict[int, bytes](), self._reach.deadlines.stage
        for node, reply in self._reach.post.ask(asked, stage=stage, seconds=seconds):
            place = self._nodes.index(node)
            if reply.body:
                replies[place] = reply.body
            else:
                self._refused[place] = f"refused: {reply.refused}"
        return replies

    def by_node(self, lost: Mapping[int, str]) -> dict[int, str]:
        """Return who was lost by Flower's node id, with what nodes said that refused."""
        return {self._nodes[place]: self._refused.get(place, why) for place, why in lost.items()}


def _recall(context: Context, seat: Seat) -> State | None:
    """Return the state of the run this node is in; none if it is in no such run."""
    if _PLACE not in context.state:
        return None
    try:
        return thaw(stored(context, _PLACE)["state"], seat)
    except ProtocolError:  # too old, or of another task: that run is over
        _log.info("what this node kept of another run is given up")
    forget(context, _PLACE)
    return None
