"""Turn a client's losses into its ballot."""

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import BallotShape
from urna.randomness import expand_words

__all__ = ["fill_ballot"]


def fill_ballot(losses: npt.NDArray[np.float64], shape: BallotShape, key: bytes) -> IntVector:
    """Put the shape's weights on the candidates of lowest loss.

    Ties are broken by a random order under the client's own secret key: an order by index
    would favour the first corner of the grid, and a common order the same candidates at
    every client. Losses that are not finite (diverged, failed) rank last. A client with
    no finite loss abstains: its ballot is empty.

    Args:
        losses: One loss per candidate; lower is better.
        shape: The weights, largest first.
        key: 32 secret bytes.

    Example:
        >>> shape = BallotShape.top_k(2, candidates=4)
        >>> fill_ballot(np.array([0.3, np.nan, 0.1, 0.2]), shape, bytes(32))
        array([0, 0, 1, 1])
    """
    if losses.shape != (shape.candidates,):
        raise ParameterError(
            f"a ballot over {shape.candidates} candidates needs as many losses, got shape "
            f"{losses.shape}"
        )
    ballot = np.zeros(shape.candidates, dtype=np.int64)
    finite = np.isfinite(losses)
    if finite.any():
        order = np.lexsort(
            (expand_words(key, shape.candidates, 64), np.where(finite, losses, np.inf))
        )
        ballot[order[: len(shape.weights)]] = shape.weights
    return ballot
