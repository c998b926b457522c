"""The interface between a model and its private training: weights in, clients' weights out."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.local.engine.batches import step_key
from urna.local.generators import own_generators

__all__ = ["Draw", "FunctionLearner", "Learner", "Matrix", "RecordLearner", "Vector"]

Vector = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.floating[Any]]

Draw = Callable[[int], npt.NDArray[np.bool_]]
"""Which of so many records are in a client's secret sample."""

DataT = TypeVar("DataT")
DataT_contra = TypeVar("DataT_contra", contravariant=True)


class Learner(Protocol[DataT_contra]):
    """A model as one flat vector, and how clients train it; nothing here is private yet."""

    @property
    def description(self) -> str:
        """What is trained, in a few words; it must not come from the data."""
        ...

    def first_weights(self, *, seed: int) -> Vector:
        """Return the weights that training starts from."""
        ...

    def train(
        self, weights: Vector, clients: Sequence[DataT_contra], *, number: int, seeds: Sequence[int]
    ) -> Sequence[npt.NDArray[np.floating[Any]]] | Matrix:
        """Return every client's new weights in the round of this number, one row for each.

        A row with an entry that is not finite, or of another length, counts as no update.

        Guarantee:
            A client's row follows from the weights, its own data, the round's number and its
            public seed, to the last bit. It does not depend on other clients' data, nor on which
            other clients there are. Privacy rests on it.
        """
        ...

    def judge(
        self, weights: Vector, clients: Sequence[DataT_contra]
    ) -> npt.NDArray[np.floating[Any]]:
        """Return loss and accuracy on each client's own rows, from these alone; NaN without any."""
        ...


class RecordLearner(Protocol[DataT_contra]):
    """A learner that also clips single records."""

    def record_sums(
        self,
        weights: Vector,
        clients: Sequence[DataT_contra],
        *,
        record_clip: float,
        draws: Sequence[Draw] | None = None,
    ) -> Matrix:
        """Return for every client the sum of its records' steps, each clipped.

        Guarantee:
            Leaving one record of a client out, or putting one in, moves its row by at most
            `record_clip` in L2; replacing one moves it by at most twice that.

        A record is all rows of one id, or a row where there are no ids. Each client's sample is
        drawn once; without `draws` all records are in it.
        """
        ...


@dataclass(frozen=True, slots=True)
class FunctionLearner(Generic[DataT]):
    """A learner of two functions, for models that are not torch's.

    Global generators begin at a number from the client's public seed and the round for each call.

    Args:
        start: The first weights, or a function of the seed that returns them.
        step: A function (weights, data, seed) -> new weights; a client for which it raises
            contributes nothing.
        score: A function (weights, data) -> (loss, accuracy); optional.
        name: What is trained, in a few words.

    Example:
        >>> learner = FunctionLearner(np.zeros(2), lambda w, data, seed: w + 0.1 * (data - w))
        >>> learner.train(learner.first_weights(seed=0), [np.ones(2)], number=1, seeds=[0])
        [array([0.1, 0.1])]
    """

    start: npt.ArrayLike | Callable[[int], npt.ArrayLike]
    step: Callable[[Vector, DataT, int], npt.ArrayLike]
    score: Callable[[Vector, DataT], tuple[float, float]] | None = None
    name: str = "a function"

    @property
    def description(self) -> str:
        """What is trained."""
        return self.name

    def first_weights(self, *, seed: int) -> Vector:
        """Return the first weights as one row."""
        start = self.start(seed) if callable(self.start) else self.start
        weights = np.asarray(start, dtype=np.float32).ravel()
        if not np.isfinite(weights).all():
            raise ParameterError("the first weights must be finite")
        return weights

    def train(
        self, weights: Vector, clients: Sequence[DataT], *, number: int, seeds: Sequence[int]
    ) -> Sequence[npt.NDArray[np.floating[Any]]]:
        """Call the function for every client."""
        found = []
        for data, seed in zip(clients, seeds, strict=True):
            row: npt.NDArray[np.floating[Any]] = np.full(len(weights), np.nan)
            # Whatever a stranger's function raises on its client's data.
            with suppress(Exception), own_generators(step_key(seed, number)):
                row = np.asarray(self.step(weights, data, seed), dtype=np.float64)
            found.append(row)
        return found

    def judge(self, weights: Vector, clients: Sequence[DataT]) -> npt.NDArray[np.floating[Any]]:
        """Call the scoring function for every client."""
        if self.score is None:
            raise ParameterError("this learner cannot validate: give it a `score`")
        found = np.full((len(clients), 2), np.nan)
        for place, data in enumerate(clients):
            with suppress(Exception), own_generators(0):  # as above
                found[place] = self.score(weights, data)
        return found
