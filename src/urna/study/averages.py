"""What averaging knows of a study: its schema, what classes are called, and its learner."""

from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.study.prepare import Prepared
from urna.study.schema import AveragePart
from urna.study.sources import ClientData
from urna.systems.average import LearnerSettings, RowRule, Schema

__all__ = ["named_clients", "named_targets", "said_of_learner", "schema_of"]


def schema_of(prepared: Prepared) -> Schema:
    """Return what everybody knows of everybody's tables.

    Raises:
        ParameterError: Numbers are to be predicted, and nobody said from where to where.
    """
    client_data, said = prepared.client_data, prepared.study.average
    rows = RowRule(
        clip=said.clip,
        unit=said.unit_rows,
        intercept=said.intercept,
        projected=said.projected or None,
        seed=prepared.study.seed,
    )
    width = int(np.prod(client_data.clients[0].features.shape[1:]))
    if client_data.labels is None and client_data.span is None:
        raise ParameterError("name the span of the targets, smallest and largest")
    return Schema(width, client_data.labels, client_data.span, rows)


def named_clients(prepared: Prepared) -> list[Samples]:
    """Return each client's rows with their classes by name."""
    client_data = prepared.client_data
    return [
        Samples(each.features, named_targets(client_data, each), each.ids)
        for each in client_data.clients
    ]


def named_targets(client_data: ClientData, samples: Samples) -> npt.NDArray[Any]:
    """Return targets as a model knows them: classes by name, or numbers; None is no class."""
    if client_data.labels is None:
        return np.asarray(samples.targets, dtype=np.float64)
    names = np.array([*client_data.labels, None], dtype=object)  # of which -1 is the last
    return names[np.asarray(samples.targets)]


def said_of_learner(said: AveragePart) -> LearnerSettings:
    """Return what a study says of the learner; what it does not say, the learner decides."""
    return {"regularisation": said.regularisation}
