"""The networks and the space of DP-Hype's evaluation, and ready-made objectives for a first look.

Each network's function builds a fresh torch module and may be a `factory` of a torch objective; its
arguments may be axes of a space. Rows may come flat or as pictures. Torch is imported when a
module is built, not before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from urna.data import Dataset, Samples
from urna.errors import ParameterError, UnknownName
from urna.local.functions import EstimatorObjective
from urna.local.objective import Objective
from urna.local.torch_modules import BatchedObjective
from urna.space import Axis, Space

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PRESETS", "Preset", "adult_mlp", "authors_space", "cifar10_cnn", "mnist_cnn", "preset"]


def authors_space() -> Space:
    """Return the 100 candidates of DP-Hype's evaluation, in their order.

    Ten learning rates, five decays of it per epoch, momentum or none.

    Example:
        >>> len(authors_space()), authors_space()[0]
        (100, {'lr': 0.5, 'decay': 0.0, 'momentum': 0.0})
    """
    return Space(
        lr=Axis.log([0.5, 0.1, 0.05, 5e-4, 1e-4, 1e-6, 5e-7, 1e-7, 5e-8, 1e-8]),
        decay=Axis.ordinal([0.0, 0.1, 0.25, 0.99, 1.0]),
        momentum=Axis.ordinal([0.0, 0.9]),
    )


def mnist_cnn(
    first: int = 32, second: int = 64, hidden: int = 128, dropout: float = 0.25
) -> "nn.Module":
    """Build the authors' network for MNIST: two 3×3 convolutions, pooling, two linear layers.

    Args:
        first: Channels of the first convolution; the small network of the benchmarks has 8.
        second: Channels of the second; the small network has 16.
        hidden: Width of the hidden linear layer.
        dropout: Before it; twice as much after it.
    """
    from torch import nn

    return nn.Sequential(
        nn.Flatten(),
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        # The largest of four is found before the ReLU: the same result on a quarter of it.
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(second * 144, hidden),
        nn.ReLU(),
        nn.Dropout(2 * dropout),
        nn.Linear(hidden, 10),
    )


def cifar10_cnn(dropout: float = 0.25) -> "nn.Module":
    """Build the authors' network for CIFAR-10: four 3×3 convolutions with batch norm."""
    from torch import nn

    def block(before: int, middle: int, after: int) -> list[nn.Module]:
        return [
            nn.Conv2d(before, middle, 3, padding=1),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, after, 3, padding=1),
            nn.BatchNorm2d(after),
            # Before the ReLU, as above.
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Dropout(dropout),
        ]

    return nn.Sequential(
        nn.Flatten(),
        nn.Unflatten(1, (3, 32, 32)),
        *block(3, 32, 32),
        *block(32, 64, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def adult_mlp(features: int = 108, width: int = 64, dropout: float = 0.2) -> "nn.Module":
    """Build the authors' network for Adult: two hidden layers.

    Args:
        features: Columns of a row; 108 as `urna.data` loads the set.
        width: Of both hidden layers.
        dropout: After each of them.
    """
    from torch import nn

    return nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, 2),
    )


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


def _network(dataset: Dataset) -> Preset:
    networks: dict[str, tuple[Callable[..., Any], int]] = {
        "adult": (adult_mlp, 5),
        "mnist": (mnist_cnn, 5),
        "mnist-5k": (mnist_cnn, 5),
        "cifar10": (cifar10_cnn, 10),
    }
    if dataset.name not in networks:
        raise ParameterError(
            f"there is no network for {dataset.name!r}; there is one for {', '.join(networks)}"
        )
    factory, epochs = networks[dataset.name]
    return Preset(
        "the network of DP-Hype's evaluation, step size × decay × momentum",
        BatchedObjective(factory, epochs=epochs),
        authors_space(),
    )


PRESETS: dict[str, Callable[[Dataset], Preset]] = {"linear": _linear, "network": _network}
