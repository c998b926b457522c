"""The seam between a vote and the machine learning behind it."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from urna.errors import CannotBatch
from urna.local.generators import own_generators
from urna.space import Space

__all__ = [
    "ChecksSpace",
    "Losses",
    "Objective",
    "Progress",
    "check_objective",
    "losses_of_each",
]

_log = logging.getLogger(__name__)

Losses = npt.NDArray[np.float64]
"""One loss per candidate, in the space's order; lower is better, NaN or inf is a failure."""

Progress = Callable[[int, int], None]
"""Called with (candidates finished, candidates in all) while losses are computed."""

DataT = TypeVar("DataT")
DataT_contra = TypeVar("DataT_contra", contravariant=True)


class Objective(Protocol[DataT_contra]):
    """Losses of all candidates on one client's data.

    An objective runs at a client, alone with its data. Nothing it computes is private and
    nothing of it leaves the client: only the ballot made from the losses does, under noise.
    """

    def losses(
        self, data: DataT_contra, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the loss of every candidate of `space` on `data`.

        Args:
            data: One client's data.
            space: The candidates, in order.
            seed: Public seed for initial weights, shuffles and the train/validation split.
                The same seed gives the same losses.
            progress: Called after each candidate.

        Returns:
            One loss per candidate. A candidate that failed or diverged has a loss that is
            not finite; it ranks last.
        """
        ...


@runtime_checkable
class ChecksSpace(Protocol):
    """An objective that can tell before it sees data whether it can judge a space at all."""

    def check(self, space: Space) -> None:
        """Refuse a space that this objective cannot judge, whatever the data.

        Looks at no data, computes nothing and touches no device, so whoever evaluates many
        clients calls it first: what is wrong here is wrong for everybody.

        Raises:
            ParameterError: An axis is unknown or has a value out of range.
        """
        ...


def check_objective(objective: object, space: Space) -> None:
    """Let an objective refuse a space before any data is looked at, if it can tell.

    Raises:
        ParameterError: The objective cannot judge the space.
    """
    if isinstance(objective, ChecksSpace):
        objective.check(space)


def losses_of_each(
    objective: Objective[DataT],
    clients: Sequence[DataT],
    space: Space,
    *,
    seeds: Sequence[int],
    progress: Progress,
) -> Iterator[Losses]:
    """Return every client's losses in order, each computed by itself.

    Guarantee:
        What a client's data make the objective raise stops no other client. That client's
        losses are all NaN, so it abstains, and the log of this process names the error's type:
        its text may hold data. Nor does it change another client's losses in any bit.

    Assumes:
        `losses` follows from the data, the space, the seed and global generators alone, which
        begin at the seed.

    Args:
        objective: What evaluates.
        clients: Each client's data.
        space: The candidates, in order.
        seeds: One public seed per client.
        progress: Counts candidates of all clients; each client's are finished before its losses
            come. Once it goes on raising, everything ends.

    Raises:
        ParameterError: The objective cannot judge the space. Nothing was computed.
        CannotBatch: A module cannot be batched, for any of the clients.
    """
    check_objective(objective, space)
    return _each(objective, clients, space, seeds, progress)


def _each(
    objective: Objective[DataT],
    clients: Sequence[DataT],
    space: Space,
    seeds: Sequence[int],
    progress: Progress,
) -> Iterator[Losses]:
    total = len(clients) * len(space)
    failed, unbatched = 0, 0
    for number, (data, seed) in enumerate(zip(clients, seeds, strict=True)):

        def advance(done: int, _: int, before: int = number * len(space)) -> None:
            progress(before + done, total)

        try:
            with own_generators(seed):
                losses = np.asarray(objective.losses(data, space, seed=seed, progress=advance))
        except Exception as error:  # likewise
            unbatched += isinstance(error, CannotBatch)
            if unbatched == len(clients):  # then it is the module, and no client's data
                raise
            note_failure(number, error)
            losses, failed = abstention(space), failed + 1
        progress((number + 1) * len(space), total)
        yield losses
    if failed and failed == len(clients):
        _log.error("no client could be evaluated; call `losses` on data of your own to see why")


def abstention(space: Space) -> Losses:
    """Return the losses of a client that could not be evaluated: with these it abstains."""
    return np.full(len(space), np.nan)


def note_failure(client: int, error: Exception) -> None:
    """Log why a client abstains, by the error's type: its text may hold data."""
    _log.warning("client %d abstains: its evaluation failed (%s)", client, type(error).__name__)
