"""Objectives that misbehave on some data, importable by a fresh process."""

import os
import signal
import sys
import time
from dataclasses import dataclass

import numpy as np

from urna.errors import ParameterError
from urna.local import Losses, Progress
from urna.space import Space


class OwnEnd(BaseException):
    """Not an Exception: most handlers let it through."""


def misbehave(how: str) -> None:
    """Do what a piece of data makes an objective do."""
    match how:
        case "raise":
            raise ValueError("a patient's name")
        case "refuse":
            raise ParameterError("a patient's name")
        case "end":
            raise OwnEnd("a patient's name")
        case "leave":
            sys.exit(0)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill the zygote":
            os.kill(os.getppid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)
        case "hang in a child":
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        case "eat memory":
            np.ones(2**34, dtype=np.uint8)


@dataclass(frozen=True)
class Troubled:
    """Judges candidates by the length of the data, after what the data say was done."""

    def losses(
        self, data: str, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        misbehave(data)
        if data == "too few":
            return np.zeros(1)
        return np.array([len(data) + seed + candidate["x"] for candidate in space])


@dataclass
class Remembers:
    """Leaves traces: on itself, in its module, in a global generator and in the environment."""

    seen: int = 0

    def losses(
        self, data: int, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        found = [self.seen, TRACES, np.random.get_state()[2], int(os.environ.get("TRACES", "0"))]
        self.seen += 1
        globals()["TRACES"] += 1
        np.random.rand(data)
        os.environ["TRACES"] = "1"
        return np.array([*found, float(os.getpid())])


TRACES = 0
