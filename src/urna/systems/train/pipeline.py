"""How many chunks a vector is best sent in: stage times, a schedule, and the best of twenty.

After Hyades, section 6 and appendix F. The round's work on one chunk has five stages, each of which
keeps one resource busy: clients prepare (keys, shares, noise, masks), vectors go up, the server
adds up and unmasks, the model goes down, clients use it. While one chunk is on its way, clients
prepare the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from urna.errors import ParameterError

__all__ = ["ONE_WAY", "STAGES", "TWO_WAYS", "Observation", "Planner", "makespan", "stage_time"]

_MOST_CHUNKS = 20  # as in the paper

STAGES = ("prepare", "upload", "aggregate", "dispatch", "use")
"""What happens to a chunk, in order."""

ONE_WAY: tuple[str, ...] = ("client", "link", "server", "link", "client")
"""The resource of each stage in the paper: what goes up and what goes down share one link."""

TWO_WAYS: tuple[str, ...] = ("client", "up", "server", "down", "client")
"""The same where both directions of a link are there at the same time."""

_OFF = 0.2  # relative; a prediction that misses by more is made anew


def makespan(seconds: Sequence[float], resources: Sequence[str], chunks: int) -> float:
    """Return when the last stage of the last chunk ends, by the paper's recursion (18), (19).

    A stage of a chunk begins once the chunk's stage before has ended, the stage of the chunk
    before has ended, and, for the first chunk, the last earlier stage on the same resource has
    ended for all chunks: a resource finishes an earlier stage first.

    Args:
        seconds: How long each stage of one chunk takes.
        resources: What each stage keeps busy.
        chunks: How many chunks there are.

    Example:
        >>> makespan([1.0, 1.0, 1.0], ["a", "b", "c"], 3)  # three workers in a row
        5.0
    """
    ends: list[list[float]] = []
    for stage, length in enumerate(seconds):
        earlier = [q for q in range(stage) if resources[q] == resources[stage]]
        row: list[float] = []
        for chunk in range(chunks):
            ready = ends[stage - 1][chunk] if stage else 0.0
            before = ends[earlier[-1]][-1] if earlier else 0.0
            free = row[chunk - 1] if chunk else before
            row.append(max(ready, free) + length)
        ends.append(row)
    return ends[-1][-1]


def stage_time(dimension: int, chunks: int, seen: Sequence[tuple[int, float]]) -> float:
    """Predict the time of one stage of one chunk: β₁·d/m + β₂·m + β₃ (Hyades, equation 5).

    No coefficient is negative. With fewer than three different numbers of chunks, fewer
    coefficients are fitted.

    Args:
        dimension: Entries of the whole vector.
        chunks: The number of chunks m to predict for.
        seen: Numbers of chunks that were tried, and the time one chunk took.
    """
    different = len({m for m, _ in seen})
    if not different:
        raise ParameterError("a model is fitted to at least one round")
    used = [0] if different == 1 else [0, 2] if different == 2 else [0, 1, 2]

    def columns(m: int) -> list[float]:
        return [(dimension / m, float(m), 1.0)[c] for c in used]

    times = np.array([seconds for _, seconds in seen])
    # Relative errors count, so that short stages are fitted as well as long ones.
    weights = 1 / np.maximum(times, 1e-9)
    found, _ = nnls(np.array([columns(m) for m, _ in seen]) * weights[:, None], times * weights)
    return float(found @ np.array(columns(chunks)))


@dataclass(frozen=True, slots=True)
class Observation:
    """How long the stages of one chunk took in a round."""

    chunks: int
    seconds: Mapping[str, float]
    """By stage, of one chunk on average."""
    whole: float
    """From the first letter to the last, of the whole round."""


@dataclass(slots=True)
class Planner:
    """Chooses the number of chunks: tries some, fits, predicts, and checks the prediction.

    Args:
        dimension: Entries of the whole vector.
        resources: What each stage keeps busy.
        tries: Numbers of chunks of the first rounds.
        most: Largest number of chunks.
    """

    dimension: int
    resources: Sequence[str] = TWO_WAYS
    tries: tuple[int, ...] = (2, 5, 10)
    most: int = _MOST_CHUNKS
    seen: list[Observation] = field(default_factory=list)
    predictions: list[float | None] = field(default_factory=list)
    """What was predicted for each round that was seen, before it began."""
    _chosen: int | None = None

    def chunks(self) -> int:
        """Return how many chunks the next round is cut into."""
        if len(self.seen) < len(self.tries):
            return min(self.tries[len(self.seen)], self.most)
        if self._chosen is None:
            self._chosen = min(range(1, min(self.most, self.dimension) + 1), key=self.predict)
        return self._chosen

    def note(self, seen: Observation) -> None:
        """Note how long a round took; plan anew if the prediction was off."""
        predicted = self.predict(seen.chunks) if len(self.seen) >= len(self.tries) else None
        self.predictions.append(predicted)
        self.seen.append(seen)
        if predicted is not None and abs(predicted - seen.whole) > _OFF * seen.whole:
            self._chosen = None

    def predict(self, chunks: int) -> float:
        """Return how long a round in this number of chunks should take; the last rounds count."""
        recent = self.seen[-8:]
        seconds = [
            stage_time(self.dimension, chunks, [(o.chunks, o.seconds[stage]) for o in recent])
            for stage in STAGES
        ]
        return makespan(seconds, self.resources, chunks)
