"""What one averaging will do, decided before anybody contributes: learner, settings, noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from urna.errors import ParameterError, UnknownName
from urna.noise import IntVector
from urna.privacy import Cover, Unit
from urna.privacy.distributions import LARGEST_STD
from urna.randomness import SEED_BYTES
from urna.systems.average.blind import Blind, Sizes
from urna.systems.average.certified import Loss, LossKind
from urna.systems.average.moments import Moments, moments_length
from urna.systems.average.schema import Schema, Vector
from urna.tally import Encoding, TallyPlan, Terms, plan_tally, to_grid

AverageLearner = Blind | Moments
"""What each client's vector is, how far a protected unit moves it, and how the sum becomes a model.

A learner is a public value: everything in it is announced before anybody computes.
"""

_MOST_MOMENTS = 2_000_000  # numbers per client beyond which moments are no longer offered unasked
_NOISE_NORM = 4.0  # norm that the noise of an averaged model should have, for rows of norm 1
_NOISE_SCORE = 0.16  # and the most of it in one score, which counts for small models
_LEAST, _MOST = 1e-5, 1e5  # Λ over c²: where noise is next to nothing, and where it is all
_QUIET = 3e-4  # Λ below which noise hardly counts
_ROOMY = 10  # records per entry of a row from which on a client can train alone
_CLIENT_LAMBDA = 0.01
_CLIENT_RADIUS = 1.0
_CLIENT_POINTS = 50  # how exact a model is where only its norm counts
_EXCESS = (0.002, 0.01, 0.05, 0.2)
"""Parts of the noise that rounding may cost; more only where noise is too large for less."""


class LearnerKind(StrEnum):
    """Learners by name."""

    AUTO = "auto"
    MOMENTS = "moments"
    SOFTMAX = "softmax"
    SVM = "svm"
    LOGISTIC = "logistic"


class LearnerSettings(TypedDict, total=False):
    """What may be said of a learner, by name; `Blind` and `Moments` explain each."""

    regularisation: float | None
    radius: float | None
    sizes: Sizes | None
    points: int | None
    weight: float
    ridge: float | None


_OF_MOMENTS = {"points", "weight", "ridge"}
_OF_MODELS = {"points", "regularisation", "radius", "sizes"}


@dataclass(frozen=True, slots=True)
class ChosenLearner:
    """A learner, and why it was taken."""

    learner: AverageLearner
    why: str
    """Empty where the user named it."""


def choose(
    kind: AverageLearner | LearnerKind | str,
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
        kind: Its name; `auto` chooses. A learner has everything in it already.
        schema: What the tables hold.
        terms: Who takes part, what it may cost.
        records: How many records each client has.
        group: Records of one client that are protected together.
        repeated: Whether a record may have several rows, by ids: `group` of them then count.
        settings: What is not left to the defaults.

    Raises:
        UnknownName: There is no such learner.
        ParameterError: The settings cannot be, or something is said beside a learner.
    """
    if not isinstance(kind, str):
        if kind.schema != schema or settings or group not in (1, kind.group):
            raise ParameterError(
                "a learner has its own schema, group and settings: name them there"
            )
        return ChosenLearner(kind, "")
    if kind not in list(LearnerKind):
        raise UnknownName("learner", str(kind), LearnerKind)
    why = ""
    if kind == LearnerKind.AUTO:
        kind, why = _auto(schema, terms, records)
    moments = kind == LearnerKind.MOMENTS
    named = {name: value for name, value in settings.items() if value is not None}
    if wrong := sorted(named.keys() - (_OF_MOMENTS if moments else _OF_MODELS)):
        raise ParameterError(
            f"{'moments' if moments else 'models'} have no {', '.join(wrong)}: leave it out, or "
            "name another learner"
        )
    if moments:
        counted = [count * (group if repeated else 1) for count in records]
        most = 1 if terms.adjacency.unit is Unit.CLIENT else max(max(counted, default=1), 1)
        given: dict[str, Any] = {"points": most, **named}
        return ChosenLearner(Moments(schema, terms.adjacency.unit, group=group, **given), why)
    return ChosenLearner(_blind(LossKind(kind), schema, terms, records, group, named), why)


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
        f"at this size ({terms.clients} clients of {fewest:,} records or more, {schema.width} "
        f"entries of a row) and epsilon {terms.budget.epsilon:g}, ridge regression on privately "
        "aggregated second moments (XᵀX, XᵀY) needs no regularisation parameter and is unaffected "
        "by how rows are distributed over clients"
    )


def _blind(
    loss: LossKind,
    schema: Schema,
    terms: Terms,
    records: Sequence[int],
    group: int,
    named: Mapping[str, Any],
) -> Blind:
    unit, clip = terms.adjacency.unit, schema.rows.clip
    if unit is Unit.CLIENT:
        usual = {
            "points": _CLIENT_POINTS,
            "regularisation": _CLIENT_LAMBDA * clip**2,
            "radius": _CLIENT_RADIUS / clip,
        }
        return Blind(schema, unit, loss=loss, group=group, **{**usual, **named})
    alike = len(set(records)) <= 1
    sizes, heaviest = named.get("sizes", Sizes.SMALLEST if alike else Sizes.WEIGHTED), 1.0
    if sizes is Sizes.WEIGHTED:
        points = named.get("points", max(1, round(sum(records) / max(len(records), 1))))
        heaviest = max(max(records, default=1) / max(points, 1), 1e-9)
    else:
        points = named.get("points", min(records, default=0))
    reg = named.get("regularisation")
    if reg is None and points > 0:
        reg = default_regularisation(Loss(loss), schema, terms, points=points, group=group)
    return Blind(
        schema,
        unit,
        points,
        1.0 if reg is None else reg,
        loss,
        radius=named.get("radius"),
        group=group,
        sizes=sizes,
        heaviest=heaviest,
    )


@dataclass(frozen=True, slots=True)
class AveragePlan:
    """A learner under terms: its encoding, its noise, its ring."""

    learner: AverageLearner
    encoding: Encoding
    tally: TallyPlan

    @property
    def terms(self) -> Terms:
        """Who takes part, what it may cost, what may go wrong."""
        return self.tally.terms

    @property
    def noise_std(self) -> float:
        """Largest standard deviation of an entry of the decoded sum."""
        return self.encoding.error(self.tally.clients, self.tally.most_noise)

    def contribution(self, vector: Vector, key: bytes) -> IntVector:
        """Return a client's vector in grid steps, rounded by coins from a secret key.

        Guarantee:
            What the plan's accounting assumes, whatever the vector is.
        """
        return to_grid(self.encoding.encode(vector, _Coins(key)), self.tally)

    @property
    def caveats(self) -> str:
        """What is protected where it is not one record or one client, in a sentence."""
        if self.learner.group == 1:
            return ""
        return (
            f"What is protected are {self.learner.group} records of one client together: epsilon "
            f"is for all of them replaced at once (rows of one id are one record, and the first "
            f"{self.learner.group} of them count). "
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        return {
            **self.tally.as_mapping(),
            "bytes_per_client": self.tally.bytes_per_client,
            "learner": self.learner.as_mapping(),
            "encoding": self.encoding.as_mapping(),
            "noise_std": self.noise_std,
            "removes_excess": self.tally.removes_excess,
        }


def plan_average(
    terms: Terms, learner: AverageLearner, *, removes_excess: bool = True
) -> AveragePlan:
    """Choose the grid, size the noise and the ring; refuse terms that protect another unit.

    Args:
        terms: Who takes part, what it may cost, and what may go wrong.
        learner: What each client computes.
        removes_excess: Whether the summation removes noise that turns out not to be needed.
    """
    if learner.unit is not terms.adjacency.unit:
        raise ParameterError(
            f"the learner is planned for a {learner.unit}, the terms protect a "
            f"{terms.adjacency.unit}: name one of them alike"
        )
    if terms.shards > 1:
        raise ParameterError("shards are for votes; a model is made of all of a client's records")
    limit = Cover(terms.budget).mu
    for excess in _EXCESS:
        encoding = learner.encoding(excess)
        moved = encoding.contribution.sensitivity(terms.adjacency).l2
        if moved / limit < 0.9 * LARGEST_STD:
            break
    tally = plan_tally(terms, encoding.contribution, finest=1, removes_excess=removes_excess)
    return AveragePlan(learner, encoding, tally)


def read_learner(mapping: Mapping[str, Any]) -> AverageLearner:
    """Read what a learner's `as_mapping` wrote."""
    kind = str(mapping.get("kind"))
    readers: Mapping[str, type[AverageLearner]] = {"blind": Blind, "moments": Moments}
    if kind not in readers:
        raise UnknownName("learner", kind, readers)
    return readers[kind].read(mapping)


class _Coins:
    """One key, handed out once: rounding under a proven move draws its coins once."""

    private = True

    def __init__(self, key: bytes) -> None:
        if len(key) != SEED_BYTES:
            raise ParameterError(f"a key of coins has {SEED_BYTES} bytes, got {len(key)}")
        self._key = key

    def take(self, count: int) -> bytes:
        if count != len(self._key):
            raise ParameterError("coins are drawn once, from one key")
        key, self._key = self._key, b""
        return key
