"""Links of limited speed, on one machine: letters arrive as late as they would over a network."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from urna.errors import ParameterError

__all__ = ["LimitedLinks", "mobile_links"]

_SMALL = 1 << 16  # bytes of letters that pass by longer ones, as packets of other flows do


@dataclass(frozen=True, slots=True)
class LimitedLinks:
    """Every client's way to the server; both directions are there at the same time.

    Args:
        bits_per_second: Of each client, in either direction.
        latency: Seconds every letter takes beside its length.
    """

    bits_per_second: tuple[float, ...]
    latency: float = 0.01

    def __post_init__(self) -> None:
        if not self.bits_per_second or min(self.bits_per_second) <= 0 or self.latency < 0:
            raise ParameterError("links have positive speeds")

    def seconds(self, client: int, size: int) -> float:
        """Return how long this number of bytes takes over a free link."""
        return 8 * size / self.bits_per_second[client]

    def begin(self, until: ExitStack) -> Callable[[str, int, int, Callable[[], None]], None]:
        """Return what sends: (direction, client, bytes, what is called on arrival)."""
        clock = _Clock(self)
        until.callback(clock.end)
        return clock.send


def mobile_links(
    clients: int, *, slowest: float = 21e6, fastest: float = 210e6, seed: int = 0
) -> LimitedLinks:
    """Return links like those of phones, evenly spread over the logarithm of their speeds.

    The paper's clients have 21 to 210 Mbit/s.
    """
    speeds = np.geomspace(slowest, fastest, clients)
    order = np.random.default_rng([0x4C494E4B, seed]).permutation(clients)
    return LimitedLinks(tuple(speeds[order].tolist()))


class _Clock:
    """Calls functions when their time has come, and knows when each link is free again."""

    def __init__(self, links: LimitedLinks) -> None:
        self._links = links
        self._free: dict[tuple[str, int], float] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._wake = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End; what was still due is not called."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join()

    def send(self, direction: str, client: int, size: int, arrived: Callable[[], None]) -> None:
        """Let something of so many bytes travel, and call a function when it has arrived.

        Args:
            direction: "up" or "down".
            client: Whose link.
            size: Bytes.
            arrived: Called in the clock's thread.
        """
        links, now = self._links, time.monotonic()
        length = links.seconds(client, size)
        with self._wake:
            due = now + length
            if size > _SMALL:
                place = (direction, client)
                due = max(now, self._free.get(place, 0.0)) + length
                self._free[place] = due
            heapq.heappush(self._due, (due + links.latency, next(self._count), arrived))
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._ended and not (self._due and self._due[0][0] <= time.monotonic()):
                    wait = self._due[0][0] - time.monotonic() if self._due else None
                    self._wake.wait(wait)
                if self._ended:
                    return
                _, _, arrived = heapq.heappop(self._due)
            arrived()
