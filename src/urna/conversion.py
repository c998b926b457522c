"""Spaces from and to other tools' search spaces: Optuna's distributions, ConfigSpace.

Others draw from ranges; a vote needs a finite list. So a range becomes so many points of it, and
an axis that has a scale becomes the range of its values: the points between them are lost.
Neither package is needed for anything else.
"""

from collections.abc import Mapping
from typing import Any

from urna.display import package
from urna.errors import ParameterError
from urna.space import Axis, AxisKind, Space

__all__ = ["from_configspace", "from_optuna", "to_configspace", "to_optuna"]


def from_optuna(distributions: Mapping[str, Any], *, points: int = 5) -> Space:
    """Return the space of Optuna's distributions, in their order.

    Args:
        distributions: Optuna's distributions by name, such as `trial.distributions`.
        points: Values of each range; a range of fewer whole steps has all of them.

    Raises:
        ParameterError: Something is none of Optuna's distributions.

    Example:
        >>> from optuna.distributions import FloatDistribution, IntDistribution
        >>> found = from_optuna(
        ...     {"lr": FloatDistribution(1e-4, 1, log=True), "depth": IntDistribution(1, 3)}
        ... )
        >>> [axis.values for axis in found.axes.values()]
        [(0.0001, 0.001, 0.01, 0.1, 1.0), (1, 2, 3)]
    """
    axes = {}
    for name, found in distributions.items():
        kind = type(found).__name__
        if kind == "CategoricalDistribution":
            axes[name] = Axis.categorical(list(found.choices))
        elif kind in ("FloatDistribution", "IntDistribution"):
            whole = kind == "IntDistribution"
            axes[name] = _points(found.low, found.high, found.log, found.step, whole, points)
        else:
            raise ParameterError(
                f"{name!r}: Optuna's distributions are float, int and categorical, got {kind}"
            )
    return Space(**axes)


def to_optuna(space: Space) -> dict[str, Any]:
    """Return Optuna's distributions of a space's axes.

    Log and linear axes become ranges from the smallest to the largest value; Optuna draws between
    the values as well. Other axes become categories, in order.

    Raises:
        ParameterError: The space is a part of its product, which distributions cannot say.
        DataMissing: Optuna is not installed.
    """
    _check_product(space)
    made = package("optuna.distributions", "a space for Optuna")
    found = {}
    for name, axis in space.axes.items():
        if axis.kind in (AxisKind.LOG, AxisKind.LINEAR):
            low, high = min(axis.values), max(axis.values)
            whole = all(type(value) is int for value in axis.values)
            kind = made.IntDistribution if whole else made.FloatDistribution
            found[name] = kind(low, high, log=axis.kind is AxisKind.LOG)
        else:
            found[name] = made.CategoricalDistribution(axis.values)
    return found


def from_configspace(other: Any, *, points: int = 5) -> Space:  # noqa: ANN401 - ConfigSpace's
    """Return the space of a `ConfigSpace.ConfigurationSpace`, in its order.

    What its forbidden clauses forbid is left out.

    Args:
        other: The configuration space.
        points: Values of each range; a range of fewer whole numbers has all of them.

    Raises:
        ParameterError: It has conditions, or a parameter that is no range and no list.
        DataMissing: ConfigSpace is not installed.
    """
    made = package("ConfigSpace", "a space from ConfigSpace")
    if other.conditions:
        raise ParameterError(
            "a vote's candidates have a value on every axis; this configuration space has "
            "conditions: make a space for each case"
        )
    axes = {}
    for name, found in dict(other).items():
        kind = type(found).__name__
        if kind == "CategoricalHyperparameter":
            axes[name] = Axis.categorical(list(found.choices))
        elif kind == "OrdinalHyperparameter":
            axes[name] = Axis.ordinal(list(found.sequence))
        elif kind == "Constant":
            axes[name] = Axis.of([found.value])
        elif kind in ("UniformFloatHyperparameter", "UniformIntegerHyperparameter"):
            whole = kind == "UniformIntegerHyperparameter"
            axes[name] = _points(
                found.lower, found.upper, found.log, 1 if whole else None, whole, points
            )
        else:
            raise ParameterError(
                f"{name!r}: a vote knows uniform ranges, lists and constants, got {kind}"
            )
    space = Space(**axes)
    if not other.forbidden_clauses:
        return space
    forbidden = made.exceptions.ForbiddenValueError
    allowed = []
    for place, candidate in enumerate(space):
        try:
            made.Configuration(other, values=candidate)
        except forbidden:
            continue
        allowed.append(place)
    return space.only(allowed)


def to_configspace(space: Space) -> Any:  # noqa: ANN401 - ConfigSpace's
    """Return the `ConfigSpace.ConfigurationSpace` of a space's axes; see `to_optuna`.

    Ordinal axes stay ordinal.

    Raises:
        ParameterError: The space is a part of its product.
        DataMissing: ConfigSpace is not installed.
    """
    _check_product(space)
    made = package("ConfigSpace", "a space for ConfigSpace")
    found = made.ConfigurationSpace()
    for name, axis in space.axes.items():
        if len(axis.values) == 1:
            found.add(made.Constant(name, axis.values[0]))
        elif axis.kind in (AxisKind.LOG, AxisKind.LINEAR):
            ends = (min(axis.values), max(axis.values))
            whole = all(type(value) is int for value in axis.values)
            kind = made.Integer if whole else made.Float
            found.add(kind(name, ends, log=axis.kind is AxisKind.LOG))
        else:
            found.add(made.Categorical(name, axis.values, ordered=axis.kind is AxisKind.ORDINAL))
    return found


def _check_product(space: Space) -> None:
    if space.chosen is not None:
        raise ParameterError("the space is a part of its product; other tools take whole products")


def _points(
    low: float, high: float, log: bool, step: float | None, whole: bool, points: int
) -> Axis:
    """Return so many values of a range, evenly on its scale; all of them where they are fewer."""
    if type(points) is not int or points < 2:
        raise ParameterError(f"points must be a whole number of at least 2, got {points!r}")
    make = Axis.log if log else Axis.linear
    if low == high:
        return make([low])
    spread = (Axis.log_range if log else Axis.linear_range)(low, high, points)
    if step is None:
        return spread
    steps = round((high - low) / step)
    if steps < points:
        places = list(range(steps + 1))
    else:
        places = sorted({round((float(value) - low) / step) for value in spread.values})
    values = [low + place * step for place in places]
    return make([int(v) for v in values] if whole else [float(f"{v:.12g}") for v in values])
