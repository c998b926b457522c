"""What a node puts into votes and statistics."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from flwr.app import Context, Message

from urna.errors import ParameterError, Refused
from urna.flower.helper import Helper
from urna.flower.participant import Call, Participant
from urna.flower.policy import Policy
from urna.flower.site import simulated
from urna.flower.subjects import Statistic
from urna.flower.vote_subject import KINDS, is_verified, vote_of
from urna.local import Losses, Objective, Progress, check_objective, losses_apart
from urna.noise import IntVector
from urna.privacy import Unit
from urna.space import Space
from urna.systems.vote.fill import as_data, as_objective, as_space, check_records, shard_ballots

_log = logging.getLogger(__name__)

DataT = TypeVar("DataT")


class Votes(Generic[DataT]):
    """Fills ballots: the contributor to votes.

    Assumes:
        Where single records are protected: how many records the loader returns does not depend
        on what they hold, and it does not fail because of what one of them holds, since that
        would silence every shard. Elsewhere nothing is assumed: data are loaded and evaluated
        in a process of their own, and what fails there abstains.

    Args:
        objective: How this node evaluates candidates on its data.
        data: Returns the node's data, a pair of features and targets as well; called with
            Flower's context, once per vote.
        space: The one space this node votes on; any space within the policy by default.
        kind: What votes it answers, as a policy grants them: `vote`, of which counts are
            revealed; `winner`; or `verified`, the same of ballots that are handed in with a proof.
    """

    def __init__(
        self,
        objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
        data: Callable[[Context], DataT],
        space: Space | Mapping[str, Any] | None = None,
        kind: str = "vote",
    ) -> None:
        self.kind = kind
        self._objective, self._data = as_objective(objective), data
        self.space = None if space is None else as_space(space)

    def check(self, call: Call) -> None:
        """Refuse a vote that no data of this node could be asked for.

        Raises:
            Refused: It is on another space, the objective cannot judge it, or records are too
                few, which neighbours under the record-level relation have in common; or only its
                winner is revealed, and this node has no reason to trust the helper.
        """
        subject, terms = vote_of(call.announcement), call.announcement.terms
        if self.space is not None and self.space.fingerprint != subject.space.fingerprint:
            raise Refused("the space announced is not the one this node votes on")
        try:
            check_objective(self._objective, subject.space)
        except ParameterError as error:
            _log.error("%s", error)
            raise Refused("this node's objective cannot judge the space announced") from error
        if not simulated():
            self._check_travels(subject.space)
        if terms.adjacency.unit is Unit.RECORD:
            self._check_records(call)
        if subject.reveal.winner:
            self._check_helper(call)

    def _check_helper(self, call: Call) -> None:
        """Refuse a helper that nobody proves or names, and too few ballots beside its mask."""
        announcement, policy = call.announcement, call.policy
        if announcement.terms.fewest - 1 < policy.fewest_clients:
            raise Refused(
                f"the sum may be opened with {announcement.terms.fewest - 1} ballots in it; this "
                f"node asks for {policy.fewest_clients} or more"
            )
        if simulated() and not is_verified(announcement):
            return  # one person owns all nodes, the helper included
        grant = policy.grants.get(self.kind)
        if grant is None or grant.names is None:
            raise Refused("this node's policy does not name the helpers it trusts")
        if not announcement.signed:
            raise Refused("the sum is not signed, so nothing proves who the helper is")

    def _check_travels(self, space: Space) -> None:
        """Refuse with what could never be evaluated, rather than abstain from every vote."""
        try:
            losses_apart(_Loading(self._objective, self._data), [], space, seeds=[], seconds=1.0)
        except Exception as error:
            _log.error(
                "the objective and what loads the data must be such that pickle can hand them to "
                "another process: %s",
                type(error).__name__,
            )
            raise Refused("this node's objective cannot run in a process of its own") from error

    def _check_records(self, call: Call) -> None:
        smallest, shards = call.policy.smallest_shard, call.announcement.terms.shards
        if smallest is None:
            raise Refused("this node's policy names no smallest shard")
        try:
            data = as_data(self._data(call.context))
        except Exception as error:
            # Not because of what a record holds (see the class): `contribute` finds out again.
            _log.warning("the node's data could not be loaded: %s", type(error).__name__)
            return
        try:
            check_records(data, shards, smallest)
        except ParameterError as error:
            _log.error("%s", error)  # the node's own log may name its number of records
            raise Refused(
                f"this node's data does not fill {shards} shards of {smallest} records"
            ) from error

    def contribute(self, call: Call) -> IntVector:
        """Return the node's ballot, or the sum of its shards' ballots."""
        subject, terms = vote_of(call.announcement), call.announcement.terms
        vote, space, seed = subject.vote(terms), subject.space, subject.seed
        told: dict[int, str] = {}
        if terms.adjacency.unit is Unit.RECORD:
            ballots = shard_ballots(
                self._objective,
                as_data(self._data(call.context)),
                space,
                vote,
                key=call.key,
                seed=seed,
                shard_key=call.policy.key_of_shards(),
                smallest=call.policy.smallest_shard or 0,
                seconds=call.seconds / terms.shards,
                failed=told.__setitem__,
            )
            if told and not np.any(ballots):
                raise ValueError(f"no shard has a ballot; {_first(told)}")
            if told:
                _log.error("%d of %d shards abstain; %s", len(told), terms.shards, _first(told))
            return np.asarray(np.sum(ballots, axis=0))
        return vote.fill(self.losses(call.context, space, seed, call.seconds), call.key)

    def losses(self, context: Context, space: Space, seed: int, seconds: float) -> Losses:
        """Return candidates' losses on this node's data, as a vote computes them.

        Raises:
            Exception: What the loader or the objective raises, or no loss is finite.
        """
        here, told = _Loading(self._objective, self._data), dict[int, str]()
        if simulated():  # many nodes share a worker, and one person owns all of them
            found: Losses | None = np.asarray(here.losses(context, space, seed=seed))
        else:
            (found,) = losses_apart(
                here, [context], space, seeds=[seed], seconds=seconds, failed=told.__setitem__
            )
        if found is None:
            raise RuntimeError(_first(told))
        if found.shape != (len(space),):
            raise ValueError("an objective returns one loss per candidate")
        if not np.isfinite(found).any():
            raise ValueError("no candidate has a finite loss on this node's data")
        return found


def _first(told: Mapping[int, str]) -> str:
    return f"the first to fail says: {next(iter(told.values()))}"


@dataclass(frozen=True, slots=True)
class _Loading(Generic[DataT]):
    """An objective that loads the data itself: whatever data do, they do in its process."""

    objective: Objective[DataT]
    data: Callable[[Context], DataT]

    def losses(
        self, data: Context, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the losses on the data that this node has."""
        rows = as_data(self.data(data))
        return self.objective.losses(rows, space, seed=seed, progress=progress)


HELPER_KEY = "urna-helper"
"""Key of the node's configuration that makes a node a helper, which has no ballot."""


class Statistics:
    """Computes vectors by name: the contributor to statistics.

    Args:
        functions: For each statistic by name, a function of Flower's context that returns the
            node's vector of integers, within the norm that was announced.

    Assumes:
        A function may raise, and does not end its process because of the data it meets. Where
        single records are protected, no single record makes it raise.
    """

    kind = "statistic"

    def __init__(self, functions: Mapping[str, Callable[[Context], IntVector]]) -> None:
        self._functions = dict(functions)

    def check(self, call: Call) -> None:
        """Refuse a statistic that this node does not know.

        Raises:
            Refused: There is no function of this name.
        """
        if call.subject(Statistic, "statistic").name not in self._functions:
            raise Refused("this node does not compute the statistic announced")

    def contribute(self, call: Call) -> IntVector:
        """Return the node's vector."""
        return np.asarray(self._functions[call.subject(Statistic, "statistic").name](call.context))


class Voter(Participant, Generic[DataT]):
    """A node's part in private votes: a participant that fills ballots.

    A node whose own configuration says `urna-helper=true` fills none: it helps to open winners.

    Args:
        objective: How this node evaluates candidates on its data; a function of (candidate,
            data) or a scikit-learn estimator will do.
        data: Returns the node's data: `Samples`, a pair of features and targets (arrays or
            frames), or whatever the objective takes; called with Flower's context, once per vote.
        policy: The node's limits, or the file that holds them; see `Participant`.
        space: The one space this node votes on; any space within the policy by default.
        name: The node's name where it has no identity key; its partition by default.
        script: Label of scripted randomness, for tests and comparisons. NOT PRIVATE.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> policy = Policy(epsilon=1.0, delta=1e-5, forgets=True)
        >>> def loss(candidate, data):
        ...     return (candidate["lr"] - data) ** 2
        >>> Voter(loss, data=lambda context: 0.1, policy=policy).mount(app)
    """

    def __init__(
        self,
        objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
        data: Callable[[Context], DataT],
        *,
        policy: Policy | Path | str | None = None,
        space: Space | Mapping[str, Any] | None = None,
        name: Callable[[Context], str] | None = None,
        script: str | None = None,
    ) -> None:
        votes = [Votes(objective, data, space, kind) for kind in KINDS]
        super().__init__(votes, policy=policy, name=name, script=script)
        self._helper = Helper(policy=policy, name=name, script=script)

    def handle(self, message: Message, context: Context) -> Message:
        """Answer one message of a server; as a helper, where the node's configuration says so."""
        if context.node_config.get(HELPER_KEY) is True:
            return self._helper.handle(message, context)
        return super().handle(message, context)
