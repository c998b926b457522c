"""What people hand to a search, made into what it works with, or refused in one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import CallableObjective, EstimatorObjective, Objective
from urna.privacy import Budget
from urna.space import Space

__all__ = ["as_budget", "as_clients", "as_data", "as_objective", "as_space"]


def as_space(space: Space | Mapping[str, Any]) -> Space:
    """Return a space; a mapping from names to values is one.

    Raises:
        ParameterError: It is neither.
    """
    if isinstance(space, Space):
        return space
    for tool, named in (("optuna", "from_optuna"), ("ConfigSpace", "from_configspace")):
        inner = space.values() if isinstance(space, Mapping) else ()
        if any(type(each).__module__.partition(".")[0] == tool for each in (space, *inner)):
            raise ParameterError(
                f"ranges need a number of points: hand in urna.conversion.{named}(space, points=5)"
            )
    if isinstance(space, Mapping):
        return Space(**space)
    raise ParameterError(
        "a space is a Space, or a dict of names and values such as {'lr': [0.1, 0.01]}; got "
        f"{type(space).__name__}"
    )


def as_objective(objective: Any) -> Objective[Any]:  # noqa: ANN401 - whatever people hand in
    """Return an objective; a function of (candidate, data) or an estimator is one.

    Raises:
        ParameterError: It is none of them.
    """
    if isinstance(objective, type):
        raise ParameterError(
            f"a class was handed in; hand in an object of it, as in {objective.__name__}()"
        )
    if hasattr(objective, "losses"):
        found: Objective[Any] = objective
        return found
    if hasattr(objective, "fit") and hasattr(objective, "get_params"):
        return EstimatorObjective(objective)
    if hasattr(objective, "parameters") and hasattr(objective, "forward"):
        raise ParameterError(
            "a torch module was handed in; an objective trains a fresh one for every candidate: "
            "hand in BatchedObjective(factory) with a function that makes the module"
        )
    if callable(objective):
        return CallableObjective(objective)
    raise ParameterError(
        "an objective has a method `losses`, or is a function of (candidate, data) or a "
        f"scikit-learn estimator; got {type(objective).__name__}"
    )


def as_clients(clients: Sequence[Any]) -> list[Any]:
    """Return each client's data; a pair of features and targets is made into `Samples`.

    Raises:
        ParameterError: This is no sequence of clients.
    """
    if isinstance(clients, str | bytes | Mapping | Samples) or not hasattr(clients, "__len__"):
        raise ParameterError(
            "clients are a list with each client's data, such as `split` returns; got "
            f"{type(clients).__name__}"
        )
    return [as_data(data) for data in clients]


def as_data(data: Any) -> Any:  # noqa: ANN401 - whatever people hand in
    """Return one client's data: a pair of features and targets is made into `Samples`.

    Raises:
        ParameterError: Features and targets have not equally many rows.
    """
    return Samples(*data) if isinstance(data, tuple) and len(data) in (2, 3) else data


def as_budget(budget: Any) -> Budget:  # noqa: ANN401 - whatever people hand in
    """Return a budget.

    Raises:
        ParameterError: It is none. A lone epsilon is not enough: delta is a choice.
    """
    if isinstance(budget, Budget):
        return budget
    raise ParameterError(
        f"a budget names epsilon and delta, as in Budget(epsilon=1, delta=1e-5); got {budget!r:.60}"
    )
