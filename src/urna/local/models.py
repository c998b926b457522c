"""The networks and the space of DP-Hype's evaluation, for studies and benchmarks.

Each function builds a fresh torch module and may be a `factory` of a torch objective; its
arguments may be axes of a space. Rows may come flat or as pictures. Torch is imported when a
module is built, not before.
"""

from typing import TYPE_CHECKING

from urna.space import Axis, Space

if TYPE_CHECKING:
    from torch import nn

__all__ = ["adult_mlp", "authors_space", "cifar10_cnn", "mnist_cnn"]


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
    from torch import nn  # noqa: PLC0415 - the core runs without torch

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
    from torch import nn  # noqa: PLC0415 - the core runs without torch

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
    from torch import nn  # noqa: PLC0415 - the core runs without torch

    return nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, 2),
    )
