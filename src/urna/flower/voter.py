"""What a node puts into votes and statistics."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic

import numpy as np
from flwr.app import Context, Message

from urna.errors import Refused
from urna.flower.contributor import Call
from urna.flower.helper import Helper
from urna.flower.participant import Participant
from urna.flower.policy import Policy
from urna.flower.subjects import Statistic
from urna.flower.vote_subject import KINDS
from urna.flower.votes import DataT, Votes
from urna.local import Objective
from urna.noise import IntVector
from urna.space import Space

__all__ = ["HELPER_KEY", "Statistics", "Voter"]

HELPER_KEY = "urna-helper"
"""Key of the node's configuration that makes a node a helper, which has no ballot."""

_log = logging.getLogger(__name__)


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
        if _statistic(call).name not in self._functions:
            raise Refused("this node does not compute the statistic announced")

    def contribute(self, call: Call) -> IntVector:
        """Return the node's vector."""
        return np.asarray(self._functions[_statistic(call).name](call.context))


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


def _statistic(call: Call) -> Statistic:
    subject = call.announcement.subject
    if not isinstance(subject, Statistic):
        raise Refused("this is no statistic")
    return subject
