"""The seam between a vote and the machine learning behind it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from urna.space import Space

__all__ = ["Losses", "Objective", "Progress"]

Losses = npt.NDArray[np.float64]
"""One loss per candidate, in the space's order; lower is better, NaN or inf is a failure."""

Progress = Callable[[int, int], None]
"""Called with (candidates finished, candidates in all) while losses are computed."""

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
