"""Ready-made objectives with a space to search, for a first look from the command line."""

from collections.abc import Callable
from dataclasses import dataclass

from urna.data import Dataset, Samples
from urna.errors import UnknownName
from urna.local.estimator import EstimatorObjective
from urna.local.objective import Objective
from urna.space import Axis, Space

__all__ = ["PRESETS", "Preset", "preset"]


@dataclass(frozen=True, slots=True)
class Preset:
    """An objective, the space it is searched over, and both in words."""

    description: str
    objective: Objective[Samples]
    space: Space


def preset(name: str, dataset: Dataset) -> Preset:
    """Return the named preset for this data set.

    Raises:
        UnknownName: There is no preset of this name.
    """
    if name not in PRESETS:
        raise UnknownName("model", name, PRESETS)
    return PRESETS[name](dataset)


def _linear(dataset: Dataset) -> Preset:
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    space = Space(
        eta0=Axis.log([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0]),
        alpha=Axis.log([1e-5, 1e-4, 1e-3, 1e-2, 0.1]),
    )
    settings = {"learning_rate": "constant", "max_iter": 5, "tol": None}
    if dataset.classes is None:
        return Preset(
            "linear regression by SGD, step size × weight decay",
            EstimatorObjective(SGDRegressor(**settings)),
            space,
        )
    return Preset(
        "logistic regression by SGD, step size × weight decay",
        EstimatorObjective(SGDClassifier(loss="log_loss", **settings)),
        space,
    )


PRESETS: dict[str, Callable[[Dataset], Preset]] = {"linear": _linear}
