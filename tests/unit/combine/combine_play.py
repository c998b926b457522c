"""Searches for tests, and agreements over them."""

import itertools
from collections.abc import Mapping

import numpy as np

from urna.randomness import SEED_BYTES, ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.combine import (
    Averaging,
    Clustering,
    Frame,
    LocalSearch,
    PartySession,
    RunName,
    Searches,
    Seat,
    Task,
    conduct,
)
from urna.systems.combine.memory import MemoryParties
from urna.systems.combine.server import EncryptedOutcome

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
MOMENTA = (0.0, 0.3, 0.6, 0.9)
SPACE = Space(lr=Axis.log(RATES), momentum=Axis.linear(MOMENTA))
FRAME = Frame.of(SPACE, log=True)
GRID = np.array(list(itertools.product(RATES, MOMENTA)))


def random_searches(clients: int, seed: int = 0) -> Searches:
    """Return clients with scores at random."""
    rng = np.random.default_rng(seed)
    rows = rng.random((clients, len(GRID))).round(3)
    return Searches(FRAME, tuple(LocalSearch(GRID, row) for row in rows))


def peaked(*peaks: tuple[float, float], score: float = 0.9) -> Searches:
    """Return clients that each found one good setting, and nothing good elsewhere."""
    clients = []
    for peak in peaks:
        scores = np.where((np.isclose(GRID, peak)).all(axis=1), score, 0.1)
        clients.append(LocalSearch(GRID, scores))
    return Searches(FRAME, tuple(clients))


def averaging(share: float | None = None, most: int = 10) -> Averaging:
    return Averaging(FRAME, share, most)


def clustering(min_points: int = 2, **more: float) -> Clustering:
    return Clustering(FRAME, min_points=min_points, **more)  # type: ignore[arg-type]


class Vanishing(MemoryParties):
    """Parties of which some fall silent after so many letters."""

    def __init__(
        self, parties: Mapping[int, PartySession], vanish: Mapping[int, int] | None = None
    ) -> None:
        super().__init__(parties)
        self._left = dict(vanish or {})

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        there = {p: data for p, data in letters.items() if self._left.get(p, 1) > 0}
        self._left = {p: left - (p in there) for p, left in self._left.items()}
        return super().exchange(stage, there)


def vanishing(
    task: Task, searches: Searches, label: bytes, vanish: Mapping[int, int]
) -> EncryptedOutcome:
    """Play a task from which some parties vanish, after how many letters."""
    secrets = ScriptedSecrets(label)
    run = RunName(task, secrets.take(SEED_BYTES))
    parties = {p: PartySession(Seat(run, p, s), secrets) for p, s in enumerate(searches.clients)}
    return conduct(run, Vanishing(parties, vanish))
