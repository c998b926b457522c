"""The nodes' part of a study: their own data, read as the study says, and their own policy."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from urna.data import Samples
from urna.errors import ParameterError
from urna.flower import Helper, Participant, Updates, Votes
from urna.flower.learning import LearnerTraining
from urna.flower.messages import Letter, Reply
from urna.flower.site import Mounted
from urna.flower.vote_subject import kind_of
from urna.flower.votes import HELPER_KEY
from urna.privacy import Unit
from urna.study.file import Study, read_study
from urna.study.prepare import Prepared, learner_of, prepare_with, reveal_of
from urna.study.schema import Follow
from urna.study.sources import blank_data, gather, gather_one, is_known
from urna.systems.train import TorchLearner

__all__ = ["DATA_KEY", "NodeData", "blank", "node_of", "participant_of"]

DATA_KEY = "urna-data"
"""Key of a node's configuration that names its own file of rows."""


def participant_of(
    prepared: Prepared,
    data: Callable[[Any], Samples],
    *,
    policy: Path | str | None = None,
    script: str | None = None,
) -> Mounted:
    """Return a node's part in a study: it votes and, where that follows, trains.

    A node whose own configuration says `urna-helper=true`, as `urna helper` does, has no data: it
    helps to open the winner, where the study opens nothing else.

    Args:
        prepared: The study.
        data: Returns the node's data; called with Flower's context.
        policy: The node's policy file; simulated nodes need none.
        script: Label of scripted randomness. NOT PRIVATE.
    """
    if prepared.chosen is None:
        raise ParameterError("settings of an average are not voted on over Flower")
    reveal = reveal_of(prepared.study)
    contributors: list[Any] = [Votes(prepared.chosen.objective, data, kind=kind_of(reveal))]
    if prepared.study.follow is Follow.TRAIN:
        contributors.append(Updates(LearnerTraining(_LearnerOf(prepared), data)))
    part = Participant(contributors, policy=policy, script=script)
    if not reveal.winner:
        return part
    helper = Helper(policy=policy)

    def answer(letter: Letter, context: Any) -> Reply:  # noqa: ANN401 - Flower's
        helps = context.node_config.get(HELPER_KEY) is True
        return (helper if helps else part).answer(letter, context)

    return Mounted(answer)


def node_of(path: Path, *, policy: str = "policy.toml") -> Mounted:
    """Return a deployed node's part in the study of a file: what a ClientApp mounts."""
    study = read_study(path)
    return participant_of(blank(study), NodeData(path), policy=policy)


def blank(study: Study, *, own: Path | None = None) -> Prepared:
    """Return a study without anybody's rows: what a server, or a node before it reads, knows.

    Args:
        study: The study.
        own: Where a file of one's own stands that the objective names; beside the study by default.

    Raises:
        ParameterError: The study does not say how wide rows are.
    """
    with study.blaming("data.source"):
        client_data = blank_data(study.data, study.engine.nodes, base=study.base)
    return prepare_with(study, client_data, own=own)


@dataclass(frozen=True, slots=True)
class NodeData:
    """Loads a deployed node's own rows, in whatever process it runs.

    The file or folder that the node's own configuration names (`urna-data`), read by what the
    study says of columns. For a known set: the node's partition of it, for trying out.
    """

    study: Path

    def __call__(self, context: Any) -> Samples:  # noqa: ANN401 - Flower's
        """Return the rows of the node."""
        config = context.node_config
        return _rows(
            self.study,
            str(config.get(DATA_KEY, "")),
            int(config.get("partition-id", 0)),
            int(config.get("num-partitions", 0)),
        )


@functools.lru_cache(maxsize=1)
def _rows(path: Path, source: str, place: int, parts: int) -> Samples:
    study = read_study(path)
    by_record = study.privacy.relation.unit is Unit.RECORD
    if source:
        return gather_one(study.data, Path(source), by_record=by_record)
    if not is_known(study.data.source) or parts < 2:
        raise ParameterError(f"this node's configuration names no `{DATA_KEY}`")
    part = replace(study.data, clients=parts)
    return gather(part, seed=study.seed, base=study.base).clients[place]


@dataclass(frozen=True, slots=True)
class _LearnerOf:
    """Makes the learner on a node."""

    prepared: Prepared

    def __call__(self) -> TorchLearner:
        return learner_of(self.prepared)
