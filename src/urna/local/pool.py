"""Candidates judged in processes of their own, with limits, so that none can stop the rest.

Guarantee:
    A candidate that raises, exceeds its time or memory, or takes its process down (a crash
    in native code, a kill) has an infinite loss. All others are judged as if it were not
    there. Losses do not depend on the number of workers, as long as the function's result
    depends on its arguments alone; the seed is one of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from urna.data import Samples
from urna.local.callable import call_arguments, call_shape, one_loss, report_failures
from urna.local.objective import Losses, Progress
from urna.local.processes import Limits, in_processes
from urna.space import Candidate, Space

__all__ = ["PooledObjective", "judge_all"]

Judge = Callable[[Candidate], float]


@dataclass(frozen=True, slots=True)
class PooledObjective:
    """Judge each candidate by a function of your own, in a process of its own.

    The function is called as by `CallableObjective`. It may be any function, lambdas and
    functions of a notebook included; what it needs must be importable in a fresh process.

    Args:
        function: What judges a candidate.
        limits: Processes, time and memory.
        validation_fraction: Share of rows to validate on, for three-argument functions.
    """

    function: Callable[..., float]
    limits: Limits = field(default_factory=Limits)
    validation_fraction: float = 0.2

    def __post_init__(self) -> None:
        call_shape(self.function)

    def check(self, space: Space) -> None:
        """Accept any space: what a function can judge, only it can tell."""

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the function's value for every candidate, infinite where it failed."""
        arguments, keywords = call_arguments(
            self.function, data, fraction=self.validation_fraction, seed=seed
        )
        function = self.function

        def judge(candidate: Candidate) -> float:
            return one_loss(function, candidate, arguments, keywords)

        return judge_all(judge, space, self.limits, progress)


def judge_all(
    judge: Judge, candidates: Sequence[Candidate], limits: Limits, progress: Progress | None = None
) -> Losses:
    """Judge candidates in processes and return their losses, in order.

    Args:
        judge: What judges; travels to the processes by value.
        candidates: What is judged.
        limits: Processes, time and memory.
        progress: Called after each candidate.
    """
    losses = np.full(len(candidates), math.inf)
    errors: list[str] = []
    answers = in_processes(_Judging(judge), [dict(c) for c in candidates], limits)
    for done, answer in enumerate(answers, start=1):
        if answer.numbers is None:
            errors.append(answer.error)
        elif not math.isnan(answer.numbers.item()):
            losses[answer.place] = answer.numbers.item()
        if progress is not None:
            progress(done, len(candidates))
    report_failures(errors, len(candidates))
    return losses


@dataclass(frozen=True, slots=True)
class _Judging:
    """What a process does with one candidate."""

    judge: Judge

    def prepare(self) -> None:
        """Do nothing: unpickling has imported what is needed."""

    def __call__(self, item: Candidate) -> float:
        """Return the loss of one candidate."""
        return self.judge(item)
