"""How well settings of blind averaging would do, judged by one client alone: what it votes by."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import Losses, Progress, hold_out
from urna.privacy import Cover, Unit
from urna.space import Axis, AxisKind, Space
from urna.systems.average.blind import Blind, Sizes
from urna.systems.average.schema import PreparedRows, Vector
from urna.tally import Terms

SETTINGS = ("regularisation", "radius_part", "clip")
"""What can be voted on: Λ; R as a part of L/Λ, the longest a minimiser can be; and c."""

_DRAWS = 8  # of noise, for each candidate
_HELD = 0.2


def candidate_learner(base: Blind, candidate: Mapping[str, Any]) -> Blind:
    """Return the learner with a candidate's settings."""
    if unknown := sorted(candidate.keys() - set(SETTINGS)):
        raise ParameterError(
            f"blind averaging has no setting {', '.join(unknown)}; known are {', '.join(SETTINGS)}"
        )
    schema = base.schema
    if "clip" in candidate:
        schema = replace(schema, rows=replace(schema.rows, clip=_number(candidate, "clip")))
    reg = base.regularisation
    if "regularisation" in candidate:
        reg = _number(candidate, "regularisation")
    made = replace(base, schema=schema, regularisation=reg)
    if "radius_part" in candidate:
        made = replace(made, radius=_number(candidate, "radius_part") * made.unbounded)
    return made


def _number(candidate: Mapping[str, Any], name: str) -> float:
    value = candidate[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError(f"{name} is a number, got {value!r}")
    return float(value)


def default_space(base: Blind) -> Space:
    """Return candidates around a learner's own settings.

    Λ over two decades, R, and c where rows are clipped.

    Where rows all have norm c, c and Λ say the same thing, so c stays. Where clients are
    protected noise is made for R, which is far below L/Λ: its own R and a third of it then.
    """
    parts = (0.05, 1.0)
    if base.unit is Unit.CLIENT:
        own = (base.radius or base.unbounded) / base.unbounded
        parts = (_round(own / 3), _round(own))
    axes: dict[str, Axis] = {
        "regularisation": Axis(
            AxisKind.LOG, tuple(_round(base.regularisation * 3.0**k) for k in range(-2, 4))
        ),
        "radius_part": Axis(AxisKind.LOG, parts),
    }
    if not base.schema.rows.unit:
        clip = base.schema.rows.clip
        axes["clip"] = Axis(AxisKind.LOG, (clip / 2, clip, 2 * clip))
    return Space(**axes)


@dataclass(frozen=True, slots=True)
class BlindObjective:
    """Losses of settings: errors of the client's own model under the noise of the average.

    A client holds some of its rows out, trains on the rest with each candidate's settings,
    adds noise as the averaged model will have it, and counts wrong predictions. The noise is
    drawn from a public seed: it is a forecast and hides nothing. Nothing of this leaves the
    client.
    """

    base: Blind
    """What is averaged, but for the settings that are voted on."""
    terms: Terms
    """The terms of the averaging, from which its noise follows."""

    def check(self, space: Space) -> None:
        """Refuse a space of settings that cannot be."""
        for candidate in space:
            candidate_learner(self.base, candidate)

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the loss of every candidate on one client's data.

        A client with fewer than two rows has no loss that is finite: it abstains.
        """
        found = np.full(len(space), np.nan)
        if len(data) < 2:
            return found
        split = hold_out(data, fraction=_HELD, seed=seed)
        for number, candidate in enumerate(space):
            learner = candidate_learner(self.base, candidate)
            judge = learner.schema.prepare(split.validation)
            # A part of a client's rows may be fewer than `points`; here nobody abstains for it.
            alone = replace(learner, points=1, sizes=Sizes.SMALLEST, heaviest=1.0)
            rng = np.random.default_rng([seed, number])
            for _, vector in alone.vectors([split.train]):
                found[number] = _error(learner, vector, judge, self._noise(learner), rng)
            if progress is not None:
                progress(number + 1, len(space))
        return found

    def _noise(self, learner: Blind) -> float:
        """Return the noise that an entry of the averaged model will have."""
        terms = self.terms
        moved = learner.encoding(0.01).contribution.sensitivity(terms.adjacency).l2
        steps = learner.encoding(0.01).steps
        spread = math.sqrt(terms.clients / terms.honest) / Cover(terms.budget).mu
        return moved / steps * spread / terms.clients


def _error(
    learner: Blind, vector: Vector, held: PreparedRows, std: float, rng: np.random.Generator
) -> float:
    """Return the part of held-out rows that a model gets wrong under noise."""
    schema = learner.schema
    size = schema.width * schema.outputs
    wrong = 0.0
    for _ in range(_DRAWS):
        noisy = (vector + std * rng.normal(size=size)).reshape(schema.outputs, -1)
        wrong += float((np.argmax(held.rows @ noisy.T, axis=1) != held.targets).mean())
    return wrong / _DRAWS


def _round(value: float) -> float:
    return float(f"{value:.3g}")
