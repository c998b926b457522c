"""Choose a learner and its settings from public facts: clients, records, dimension, budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from urna.errors import ParameterError, UnknownName
from urna.privacy import Cover, Unit
from urna.systems.average.blind import Blind, LocalTraining, Sizes
from urna.systems.average.learners import AverageLearner
from urna.systems.average.losses import Loss, LossKind
from urna.systems.average.moments import moments_length
from urna.systems.average.pooled import Moments
from urna.systems.average.schema import Schema
from urna.tally import Terms

__all__ = ["ChosenLearner", "LearnerKind", "LearnerSettings", "choose", "default_regularisation"]

_MOST_MOMENTS = 2_000_000  # numbers per client beyond which moments are no longer offered unasked
_NOISE_NORM = 4.0  # norm that the noise of an averaged model should have, for rows of norm 1
_NOISE_SCORE = 0.16  # and the most of it in one score, which counts for small models
_LEAST, _MOST = 1e-5, 1e5  # Λ over c²: where noise is next to nothing, and where it is all
_QUIET = 3e-4  # Λ below which noise hardly counts
_SKEWED = {LossKind.SVM: 0.15, LossKind.LOGISTIC: 0.3, LossKind.SOFTMAX: 0.1}
"""Least Λ over c² where classes are skewed: hinge losses of rows inside the margin are linear, and
means of minimisers are then minimisers of the mean (Theorem 14); the others bend little."""
_ROOMY = 10  # records per entry of a row from which on a client can train alone
_CLIENT_LAMBDA = 0.01
_CLIENT_RADIUS = 1.0
_CLIENT_POINTS = 50  # how exact a model is where only its norm counts


class LearnerKind(StrEnum):
    """Learners by name."""

    AUTO = "auto"
    MOMENTS = "moments"
    SOFTMAX = "softmax"
    SVM = "svm"
    LOGISTIC = "logistic"


class LearnerSettings(TypedDict, total=False):
    """What may be said of a learner, by name; `Blind` and `Moments` explain each.

    `skewed` says that clients may hold few classes each: Λ is then large enough that models of
    single classes average well, at a point or two where labels are even. Moments need no such.
    """

    regularisation: float | None
    radius: float | None
    skewed: bool
    trainer: LocalTraining
    sizes: Sizes | None
    points: int | None
    epochs: int
    batch_size: int
    weight: float
    ridge: float | None


@dataclass(frozen=True, slots=True)
class ChosenLearner:
    """A learner, and why it was taken."""

    learner: AverageLearner
    why: str
    """Empty where the user named it."""


def choose(
    kind: LearnerKind | str,
    schema: Schema,
    terms: Terms,
    records: Sequence[int],
    *,
    group: int = 1,
    repeated: bool = False,
    **settings: Unpack[LearnerSettings],
) -> ChosenLearner:
    """Return the learner that was asked for, its settings filled in from public facts.

    Guarantee:
        Where records are protected, numbers of records are used, which neighbours have in
        common. Where clients are protected they are not looked at.

    Args:
        kind: Its name; `auto` chooses.
        schema: What the tables hold.
        terms: Who takes part, what it may cost.
        records: How many records each client has.
        group: Records of one client that are protected together.
        repeated: Whether a record may have several rows, by ids: `group` of them then count.
        settings: What is not left to the defaults.

    Raises:
        UnknownName: There is no such learner.
        ParameterError: The settings cannot be.
    """
    if kind not in list(LearnerKind):
        raise UnknownName("learner", str(kind), LearnerKind)
    why = ""
    if kind == LearnerKind.AUTO:
        kind, why = _auto(schema, terms, records)
    if kind == LearnerKind.MOMENTS:
        wrong = sorted(settings.keys() - {"weight", "ridge", "points", "skewed"})
        _refuse(wrong, "moments have no", settings)
        counted = [count * (group if repeated else 1) for count in records]
        return ChosenLearner(_moments(schema, terms.adjacency.unit, counted, group, settings), why)
    wrong = sorted(settings.keys() & {"weight", "ridge"})
    _refuse(wrong, "models have no", settings)
    return ChosenLearner(_blind(LossKind(kind), schema, terms, records, group, settings), why)


def default_regularisation(
    loss: Loss, schema: Schema, terms: Terms, *, points: int, group: int = 1
) -> float:
    """Return the Λ at which the noise of the averaged model has about a fixed norm.

    Small Λ fits better and needs more noise, in proportion to 1/Λ. With rows of norm c the
    noise is let to have norm 4/c, or .16/c in each score where that is less. What is best on
    scikit-learn's small sets, on Adult, MNIST and CIFAR-10's features is within a factor of
    three or four of it.
    """
    clip = schema.rows.clip
    entries = schema.width * schema.outputs
    spread = math.sqrt(terms.clients / terms.honest) / Cover(terms.budget).mu
    moved = 2 * group * loss.lipschitz(clip, schema.outputs) / points  # times 1/Λ
    allowed = min(_NOISE_NORM, _NOISE_SCORE * math.sqrt(entries))
    found = moved * spread * math.sqrt(entries) / terms.clients * clip / allowed
    return min(max(found, _LEAST * clip**2), _MOST * clip**2)


def _auto(schema: Schema, terms: Terms, records: Sequence[int]) -> tuple[LearnerKind, str]:
    if schema.classes is None:
        return LearnerKind.MOMENTS, "moments alone fit a regression"
    numbers = moments_length(schema.width, schema.outputs)
    if numbers > _MOST_MOMENTS:
        return LearnerKind.SOFTMAX, (
            f"moments of {schema.width:,} entries would be {numbers:,} numbers per client; a model "
            f"is {schema.width * schema.outputs:,}"
        )
    if terms.adjacency.unit is Unit.CLIENT:
        return LearnerKind.SOFTMAX, (
            "whole clients are protected: models are scaled to the norm that noise is made for, "
            "while a client's moments are mostly much shorter than the noise must assume"
        )
    fewest = max(min(records, default=1), 1)
    loss = Loss(LossKind.SOFTMAX)
    reg = default_regularisation(loss, schema, terms, points=fewest) / schema.rows.clip**2
    if reg < _QUIET and fewest >= _ROOMY * schema.width:
        return LearnerKind.SOFTMAX, (
            f"each of {terms.clients} clients has {fewest:,} records or more for {schema.width} "
            f"entries of a row, and epsilon {terms.budget.epsilon:g} allows Λ = {reg:.1g}: "
            "models that are trained apart are then nearly the pooled one, and softmax fits better "
            "than least squares"
        )
    return LearnerKind.MOMENTS, (
        f"with {terms.clients} clients of {fewest:,} records or more, {schema.width} entries of a "
        f"row and epsilon {terms.budget.epsilon:g}, moments of all data lose nothing by averaging "
        "and need no Λ"
    )


def _moments(
    schema: Schema, unit: Unit, rows: Sequence[int], group: int, settings: LearnerSettings
) -> Moments:
    named = settings.get("points")
    most = 1 if unit is Unit.CLIENT else max(max(rows, default=1), 1)
    given: dict[str, Any] = {
        name: settings[name] for name in ("weight", "ridge") if name in settings
    }
    return Moments(schema, unit, most if named is None else named, group=group, **given)


def _blind(
    loss: LossKind,
    schema: Schema,
    terms: Terms,
    records: Sequence[int],
    group: int,
    settings: LearnerSettings,
) -> Blind:
    unit, clip = terms.adjacency.unit, schema.rows.clip
    radius, reg = settings.get("radius"), settings.get("regularisation")
    given: dict[str, Any] = {
        name: settings[name] for name in ("trainer", "epochs", "batch_size") if name in settings
    }
    if unit is Unit.CLIENT:
        if settings.get("sizes") is Sizes.WEIGHTED:
            raise ParameterError("where whole clients are protected all weigh the same")
        least = _SKEWED[loss] if settings.get("skewed") else _CLIENT_LAMBDA
        reg = reg if reg is not None else least * clip**2
        points = settings.get("points")
        return Blind(
            schema,
            unit,
            _CLIENT_POINTS if points is None else points,
            reg,
            loss,
            radius=_CLIENT_RADIUS / clip if radius is None else radius,
            group=group,
            **given,
        )
    sizes = settings.get("sizes")
    if sizes is None:
        sizes = Sizes.SMALLEST if len(set(records)) <= 1 else Sizes.WEIGHTED
    named, heaviest = settings.get("points"), 1.0
    if sizes is Sizes.WEIGHTED:
        mean = max(1, round(sum(records) / max(len(records), 1)))
        points = mean if named is None else named
        heaviest = max(max(records, default=1) / max(points, 1), 1e-9)
    else:
        points = min(records, default=0) if named is None else named
    if points > 0 and reg is None:
        made = Loss(loss)
        reg = default_regularisation(made, schema, terms, points=points, group=group)
        if settings.get("skewed"):
            reg = max(reg, _SKEWED[loss] * clip**2)
    return Blind(
        schema,
        unit,
        points,
        1.0 if reg is None else reg,
        loss,
        radius=radius,
        group=group,
        sizes=sizes,
        heaviest=heaviest,
        **given,
    )


def _refuse(wrong: Sequence[str], what: str, settings: LearnerSettings) -> None:
    named = [name for name in wrong if settings.get(name) is not None]
    if named:
        raise ParameterError(f"{what} {', '.join(named)}: leave it out, or name another learner")
