"""Interim: replaced when the rebuilt room is merged."""

from collections.abc import Sequence
from typing import Any

from urna.local.objective import Losses, Objective, Progress
from urna.space import Space

__all__ = ["losses_apart"]


def losses_apart(
    objective: Objective[Any],
    pieces: Sequence[Any],
    space: Space,
    *,
    seed: int,
    seconds: float,
    progress: Progress | None = None,
) -> list[Losses | None]:
    """Return each piece's losses; None where its evaluation failed."""
    found: list[Losses | None] = []
    for number, piece in enumerate(pieces):
        try:
            found.append(objective.losses(piece, space, seed=seed))
        except Exception:
            found.append(None)
        if progress is not None:
            progress(number + 1, len(pieces))
    return found
