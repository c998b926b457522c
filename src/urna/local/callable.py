"""Any Python function as an objective."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.data import Samples
from urna.errors import ParameterError
from urna.local.generators import own_generators
from urna.local.holdout import hold_out
from urna.local.objective import Losses, Progress
from urna.local.processes import ItemReply, Limits, in_processes
from urna.space import Candidate, Space

__all__ = ["CallableObjective", "judge_each"]

Judge = Callable[[Candidate], float]


@dataclass(frozen=True, slots=True)
class CallableObjective:
    """Judge each candidate by a function of your own.

    The function is called as `function(candidate, data)`, or, when it takes three positional
    arguments, as `function(candidate, train, validation)` after a seeded local split. If it
    has a keyword `seed`, the public seed is passed as well. It returns a loss, lower is better: a
    number, or an array without dimensions of any library (NumPy, JAX, PyTorch).

    A function that raises for one candidate fails for that candidate only: its loss is
    infinite and it ranks last. If it raises for all of them, the first error is raised: the
    mistake is rarely a candidate's. The text of an error is not logged: it may hold data.

    Global generators (`random`, `numpy.random`, PyTorch's) begin at the public seed for each
    candidate, and are put back after it: what the function draws there is the same for all
    candidates and depends on nobody else's data. None of it is secret.

    With `limits` each candidate is judged in a process of its own: one that hangs, crashes or
    takes too much memory fails alone. What the function needs must be importable there.

    Args:
        function: What judges a candidate.
        validation_fraction: Share of rows to validate on, for three-argument functions.
        limits: How many processes, and what each may use; None judges in this process. Losses
            are the same if the function's result depends on its arguments and global generators
            alone.

    Example:
        >>> space = Space(x=[0.0, 1.0, 2.0])
        >>> nobody = Samples(np.zeros((2, 1)), np.zeros(2))
        >>> objective = CallableObjective(lambda candidate, data: (candidate["x"] - 1) ** 2)
        >>> objective.losses(nobody, space, seed=0).tolist()
        [1.0, 0.0, 1.0]
    """

    function: Callable[..., float]
    validation_fraction: float = 0.2
    limits: Limits | None = None

    def __post_init__(self) -> None:
        call_shape(self.function)

    def check(self, space: Space) -> None:
        """Accept any space: what a function can judge, only it can tell."""

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the function's value for every candidate, infinite where it raised."""
        arguments, keywords = call_arguments(
            self.function, data, fraction=self.validation_fraction, seed=seed
        )
        function = self.function

        def judge(candidate: Candidate) -> float:
            loss: Any = function(dict(candidate), *arguments, **keywords)
            # PyTorch warns of a number that is taken out of a graph.
            return float(loss.detach() if hasattr(loss, "detach") else loss)

        return judge_each(judge, space, self.limits, progress, seed=seed)


def judge_each(
    judge: Judge,
    candidates: Sequence[Candidate],
    limits: Limits | None = None,
    progress: Progress | None = None,
    *,
    seed: int,
) -> Losses:
    """Judge all candidates; a loss is infinite where one failed or is no number.

    With `limits` each is judged in a process of its own, to which `judge` travels by value.

    Raises:
        Exception: The first error, where all candidates failed.
    """
    judging = _Judging(judge, seed)
    losses = np.full(len(candidates), math.inf)
    failed, first = 0, None
    answers = (
        in_processes(judging, candidates, limits)
        if limits is not None
        else (_judged(judging, place, candidate) for place, candidate in enumerate(candidates))
    )
    for done, answer in enumerate(answers, start=1):
        if answer.numbers is None:
            failed, first = failed + 1, first or answer
        elif not np.isnan(answer.numbers):
            losses[answer.place] = answer.numbers.item()
        if progress is not None:
            progress(done, len(candidates))
    if first is not None and failed == len(candidates):
        raise first.raised or RuntimeError(f"all candidates failed: {first.trace or first.error}")
    return losses


def _judged(judge: "_Judging", place: int, candidate: Candidate) -> ItemReply:
    try:
        return ItemReply(place, np.array(judge(candidate), dtype=np.float64))
    except Exception as error:
        # Whatever a stranger's function raises is its own verdict on this candidate.
        return ItemReply(place, None, type(error).__name__, raised=error)


@dataclass(frozen=True, slots=True)
class _Judging:
    """What is done with one candidate, in this process or another."""

    judge: Judge
    seed: int

    def prepare(self) -> None:
        """Do nothing: unpickling has imported what is needed."""

    def __call__(self, item: Candidate) -> float:
        """Return the loss of one candidate."""
        with own_generators(self.seed):
            return self.judge(item)


def call_shape(function: Callable[..., float]) -> tuple[int, bool]:
    """Return how many positional arguments a function takes, and whether it takes a seed.

    Raises:
        ParameterError: It takes neither (candidate, data) nor (candidate, train, validation).
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2, False  # a built-in without a signature: the simplest call
    takes_seed = any(
        p.name == "seed" and p.kind is not inspect.Parameter.POSITIONAL_ONLY for p in parameters
    )
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "seed"
    ]
    required = sum(p.default is p.empty for p in positional)
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for count in (3, 2):
        if required == count or (count == 2 and required < 2 <= len(positional) + 2 * star):
            return count, takes_seed
    raise ParameterError(
        "an objective function takes (candidate, data) or (candidate, train, validation), and "
        f"may take a keyword `seed`; this one requires {required} positional arguments"
    )


def call_arguments(
    function: Callable[..., float], data: Samples, *, fraction: float, seed: int
) -> tuple[tuple[Samples, ...], dict[str, int]]:
    """Return what to pass to the function after the candidate."""
    count, takes_seed = call_shape(function)
    keywords = {"seed": seed} if takes_seed else {}
    if count == 2:
        return (data,), keywords
    parts = hold_out(data, fraction=fraction, seed=seed)
    return (parts.train, parts.validation), keywords
