"""All parties and the server of an encrypted combination, in memory or in processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from urna.errors import ParameterError
from urna.randomness import SecretSource
from urna.systems.combine.party import InvitedParty, PartySession
from urna.systems.combine.processes import Loader, ProcessTransport, loaded
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.server import EncryptedOutcome, Place, conduct
from urna.systems.combine.tasks import Task

__all__ = ["MemoryParties", "PlayedRun", "play"]


class MemoryParties:
    """Parties in this process.

    Args:
        parties: By place.
        vanish: Places, and after how many letters each falls silent.
    """

    def __init__(
        self, parties: Mapping[Place, PartySession], vanish: Mapping[Place, int] | None = None
    ) -> None:
        self._parties, self._vanish = dict(parties), dict(vanish or {})
        self._answered = dict.fromkeys(parties, 0)
        self.seconds = 0.0
        """CPU time of all parties together."""

    def exchange(self, stage: str, letters: Mapping[Place, bytes]) -> dict[Place, bytes]:
        """Deliver letters and return the replies."""
        del stage
        replies = {}
        for place, data in letters.items():
            if self._answered[place] >= self._vanish.get(place, 1 << 30):
                continue
            start = time.process_time()
            replies[place] = self._parties[place].handle(data)
            self.seconds += time.process_time() - start
            self._answered[place] += 1
        return replies


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run and what the parties' part of it took."""

    outcome: EncryptedOutcome
    party_seconds: float
    """CPU time of all parties together."""


def play(
    task: Task,
    searches: Sequence[LocalSearch | Loader],
    secrets: SecretSource,
    *,
    fewest: int | None = None,
    vanish: Mapping[Place, int] | None = None,
    recomputes: bool = False,
    processes: bool = False,
) -> PlayedRun:
    """Play all parties and the server of a task.

    Args:
        task: What is computed.
        searches: Each party's search; for parties in processes, what loads it there will do.
        secrets: Where everybody's randomness comes from.
        fewest: With fewer parties nothing is begun; the task's threshold by default.
        vanish: Parties that fall silent, and after how many letters; for trying out what happens.
        recomputes: Whether parties compute results again before they help to open them.
        processes: Whether every party is a process of its own, with secrets of its own.

    Raises:
        ParameterError: There is not one search for each party, or processes have a script.
        RoundAborted: Too few parties stayed; nothing was opened.
        RoundUnfinished: Too few stayed to go on after something was opened.
    """
    if len(searches) != task.parties:
        raise ParameterError(f"the task is for {task.parties} parties, got {len(searches)}")
    least, gone = fewest or task.threshold, vanish or {}

    def played(transport: MemoryParties | ProcessTransport) -> PlayedRun:
        outcome = conduct(task, transport, secrets, fewest=fewest, witnesses=recomputes)
        return PlayedRun(outcome, transport.seconds)

    if processes:
        if not secrets.private:
            raise ParameterError("parties in processes draw their own secrets: no script")
        with ProcessTransport(task, searches, least, recomputes, gone) as transport:
            return played(transport)
    sessions = {
        place: PartySession(InvitedParty(task, loaded(search), least, recomputes), secrets)
        for place, search in enumerate(searches)
    }
    return played(MemoryParties(sessions, gone))
