"""The seam between a vote and the machine learning behind it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from urna.space import Space

__all__ = ["Losses", "ManyClients", "Objective", "Progress", "losses_of_each"]

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
class ManyClients(Protocol[DataT_contra]):
    """An objective that is faster with many simulated clients at once.

    Each client's losses are those `Objective.losses` would give it alone. On a GPU,
    convolutions of stacked clients may round otherwise.
    """

    def losses_of_clients(
        self,
        clients: Sequence[DataT_contra],
        space: Space,
        *,
        seeds: Sequence[int],
        progress: Progress | None = None,
    ) -> Losses:
        """Return the losses of all clients, shape (clients, candidates).

        Args:
            clients: Each client's data.
            space: The candidates, in order.
            seeds: One public seed per client.
            progress: Called with the work done, in candidates of all clients.
        """
        ...


def losses_of_each(
    objective: Objective[DataT],
    clients: Sequence[DataT],
    space: Space,
    *,
    seeds: Sequence[int],
    progress: Progress,
) -> Iterator[Losses]:
    """Yield every client's losses in order: computed together where the objective can.

    `progress` counts candidates of all clients, and each client's are finished before its
    losses come.
    """
    total = len(clients) * len(space)
    if isinstance(objective, ManyClients):
        together = objective.losses_of_clients(clients, space, seeds=seeds, progress=progress)
        yield from np.asarray(together)
        return
    for client, (data, seed) in enumerate(zip(clients, seeds, strict=True)):

        def advance(done: int, _: int, before: int = client * len(space)) -> None:
            progress(before + done, total)

        losses = np.asarray(objective.losses(data, space, seed=seed, progress=advance))
        progress((client + 1) * len(space), total)
        yield losses
