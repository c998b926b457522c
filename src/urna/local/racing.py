"""Which candidates may stop early, and what that does to ballots.

Guarantee:
    What is voted on are losses at equal effort. A candidate that a race stops has an
    infinite loss, whatever its loss was when it stopped, so it is never compared with one
    that was trained longer; it enters a ballot only after all that were trained to the end.
    At least `finalists` candidates are trained to the end, besides those whose training ends
    early by itself (a learning rate that decays to zero): their losses are final and kept.

Assumes:
    A ballot names no more candidates than there are finalists. Choose `finalists` at least as
    large as the number of votes or ranks of a ballot, better a quarter of the candidates: the
    default of 24 left the first choices of 160 clients of Adult as they were, 20 those of 96 %
    (docs/guide/local-search.md has the figures).

Candidates that tie cannot be told apart and go on or stop together. Those that still share a
lane tie exactly: with four decays of a learning rate, the first epoch keeps multiples of four.
To wait for the second epoch would tell them apart, but trains them all for that epoch.

Finalists go on from the weights they had. Their losses are the full search's, bit for bit on a
CPU, and up to the rounding of other kernels on a GPU.

A race is a client's own matter and costs no privacy. It may change whom a client votes for;
`benchmarks/papers/agreement.py` measures how often.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from urna.errors import ParameterError
from urna.local.objective import Losses

__all__ = ["SuccessiveHalving"]


@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """After each epoch keep the best share (Jamieson and Talwalkar 2016).

    Args:
        factor: One in this many goes on; 2 halves.
        finalists: Fewest candidates trained to the end.
        first_epoch: Epochs before anybody is stopped.
    """

    factor: float = 4.0
    finalists: int = 24
    first_epoch: int = 1

    def __post_init__(self) -> None:
        if self.finalists < 1:
            raise ParameterError(f"finalists must be at least 1, got {self.finalists}")
        if not self.factor > 1 or self.first_epoch < 1:
            raise ParameterError(
                f"halving needs a factor > 1 and a first epoch >= 1, got {self.factor} and "
                f"{self.first_epoch}"
            )

    def survivors(self, *, losses: Losses, racing: Sequence[int], epoch: int) -> list[int]:
        """Return those of `racing` that go on: the best share; ties at the border go together.

        Args:
            losses: Validation losses after this epoch, by place in the group.
            racing: Places of the candidates still in the race.
            epoch: The epoch just trained, from 0.
        """
        if epoch + 1 < self.first_epoch:
            return list(racing)
        count = max(int(np.ceil(len(racing) / self.factor)), self.finalists)
        return _best(losses, racing, count)


def _best(losses: Losses, places: Sequence[int], count: int) -> list[int]:
    """Return the best `count` of `places` and whoever ties with the last of them.

    Candidates without a finite loss have diverged and are not kept.
    """
    values = np.nan_to_num(losses[list(places)], nan=np.inf, posinf=np.inf)
    if not len(values):
        return []
    border = np.sort(values)[min(count, len(values)) - 1]
    return [m for m, v in zip(places, values, strict=True) if v <= border and np.isfinite(v)]
