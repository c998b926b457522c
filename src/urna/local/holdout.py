"""A client's own split into training and validation rows.

The split never leaves the client. It is seeded, so that a client which computes its losses
again (after a dropout, under another budget) gets the same ones.
"""

from dataclasses import dataclass

import numpy as np

from urna.data import Samples
from urna.errors import ParameterError

__all__ = ["Holdout", "hold_out"]

_PURPOSE = 0x484F4C44  # keeps this stream apart from others that start from the same seed


@dataclass(frozen=True, slots=True, eq=False)
class Holdout:
    """One client's rows, some to train on and some to judge by."""

    train: Samples
    validation: Samples


def hold_out(data: Samples, *, fraction: float = 0.2, seed: int) -> Holdout:
    """Split one client's samples, class by class where targets are classes.

    Every class gives its share of the validation rows, rounded up or down. For regression
    the same is done along the sorted targets, so that both parts span the whole range.

    Args:
        data: One client's samples.
        fraction: Share of the rows to validate on. The authors of DP-Hype take 0.2.
        seed: Public seed; the same seed gives the same split.

    Raises:
        ParameterError: The fraction is not strictly between 0 and 1, or there are fewer
            than two samples.
    """
    if not 0 < fraction < 1:
        raise ParameterError(
            f"the validation fraction must lie strictly between 0 and 1, got {fraction}"
        )
    rows = len(data)
    if rows < 2:
        raise ParameterError(
            f"a client needs at least 2 samples, one to train on and one to validate on; this one "
            f"has {rows}. Use fewer clients, or leave this client out."
        )
    rng = np.random.default_rng([_PURPOSE, seed])
    shuffled = rng.permutation(rows)
    sorted_rows = shuffled[np.argsort(np.asarray(data.targets)[shuffled], kind="stable")]
    held = min(max(round(rows * fraction), 1), rows - 1)
    # Evenly spaced places along the sorted targets: each class is hit in proportion.
    places = np.floor((np.arange(held) + rng.random()) * rows / held).astype(np.intp)
    is_held = np.zeros(rows, dtype=bool)
    is_held[places] = True
    order = rng.permutation(rows)  # forget the order by class again
    chosen = is_held[order]
    return Holdout(
        train=data.take(sorted_rows[order[~chosen]]),
        validation=data.take(sorted_rows[order[chosen]]),
    )
