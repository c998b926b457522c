"""An objective evaluated on each piece of data in a process of its own.

A piece is a shard of one client's records, or a whole client. Where a guarantee holds for single
records, nothing of one piece may touch the losses of another, and nothing that a piece's data
cause may show in more than its own ballot: not a crash, not a hang, not an error.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from urna.errors import ParameterError
from urna.local.generators import own_generators
from urna.local.objective import Losses, Objective, Progress, check_objective
from urna.local.processes import Limits, in_processes
from urna.space import Space

__all__ = ["losses_apart"]

_log = logging.getLogger(__name__)

DataT = TypeVar("DataT")


def losses_apart(
    objective: Objective[DataT],
    pieces: Sequence[DataT],
    space: Space,
    *,
    seeds: Sequence[int],
    seconds: float,
    workers: int | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
    failed: Callable[[int, str], None] | None = None,
) -> list[Losses | None]:
    """Return the losses of every piece, or None where its evaluation failed.

    Guarantee:
        Each piece is evaluated in a fresh process that has seen no other. Its losses depend on
        its data, its seed, the objective and the space alone. Anything raised, a crash, a kill,
        lack of memory and `seconds` passed cost that piece only; why is written to this
        process's own log, as the type of the error and nothing else. All is over after
        pieces x seconds / workers, and the time it takes to start.

    Assumes:
        The objective computes from what it is given, not from files or services that other
        pieces write to. On a machine busy enough, a piece may miss `seconds` because of others:
        leave room.

    Args:
        objective: What evaluates; travels by value, so it and the data can be pickled.
        pieces: The data. Pass the pieces of all clients at once: the start is paid once.
        space: The candidates, in order.
        seeds: One public seed per piece.
        seconds: Wall time one piece may take.
        workers: Pieces at once; None for one per core.
        memory: Bytes of address space one piece may take; None for no limit.
        progress: Called with candidates of all pieces, piece by piece.
        failed: Called with a failed piece's place and traceback, whose text may hold data.

    Raises:
        ParameterError: The objective cannot judge the space. Nothing was computed.
    """
    if len(seeds) != len(pieces):
        raise ParameterError(
            f"every piece needs a seed, got {len(seeds)} seeds for {len(pieces)} pieces"
        )
    check_objective(objective, space)
    losses: list[Losses | None] = [None] * len(pieces)
    total = len(pieces) * len(space)
    answers = in_processes(
        _Evaluation(objective, space),
        list(zip(pieces, seeds, strict=True)),
        Limits(workers=workers, seconds=seconds, memory=memory),
    )
    for done, answer in enumerate(answers, start=1):
        losses[answer.place] = answer.numbers
        if answer.numbers is None:
            _log.warning(
                "piece %d abstains: its evaluation failed (%s)", answer.place, answer.error
            )
            if failed is not None:
                failed(answer.place, answer.trace or answer.error)
        if progress is not None:
            progress(done * len(space), total)
    return losses


@dataclass(frozen=True, slots=True)
class _Evaluation(Generic[DataT]):
    """What a process does with one piece."""

    objective: Objective[DataT]
    space: Space

    def prepare(self) -> None:
        """Import what the objective needs."""
        check_objective(self.objective, self.space)

    def __call__(self, item: tuple[DataT, int]) -> Losses:
        """Return the losses of one piece."""
        data, seed = item
        with own_generators(seed):
            found = self.objective.losses(data, self.space, seed=seed)
        losses = np.asarray(found, dtype=np.float64)
        if losses.shape != (len(self.space),):
            raise ValueError("an objective returns one loss per candidate")
        return losses
