"""A federated task made of nothing but numbers: what noise does to a vote and to a training.

Clients hold a few rows of Gaussian clusters, each client its own variant of the same truth, and
train a linear classifier. It stands in for data that nobody may look at when a budget is divided.
All of it is public and repeatable.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["DryRun"]

_CLASSES, _FEATURES, _ROWS, _JUDGED = 6, 16, 24, 400
_STEPS = 4  # of a client in one round
_SPREAD = 1.6  # of rows around their cluster's middle
_MOST = 128  # clients; more behave alike

Reals = npt.NDArray[np.float64]


@dataclass(slots=True)
class DryRun:
    """One made-up federation.

    Args:
        clients: How many clients there are.
        seed: Public seed.
    """

    clients: int
    seed: int = 0
    _rows: Reals = field(init=False, repr=False)
    _targets: Reals = field(init=False, repr=False)
    _test: Reals = field(init=False, repr=False)
    _answers: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([0x445259, self.seed])
        middles = rng.normal(size=(_CLASSES, _FEATURES))
        clients = min(self.clients, _MOST)
        labels = rng.integers(_CLASSES, size=(clients, _ROWS))
        moved = middles + 0.3 * rng.normal(size=(clients, _CLASSES, _FEATURES))
        rows = np.take_along_axis(moved, labels[:, :, None], axis=1)
        self._rows = rows + _SPREAD * rng.normal(size=rows.shape)
        self._targets = np.eye(_CLASSES)[labels]
        self._answers = rng.integers(_CLASSES, size=_JUDGED)
        self._test = middles[self._answers] + _SPREAD * rng.normal(size=(_JUDGED, _FEATURES))

    def local_losses(self, rates: Reals) -> Reals:
        """Return every client's loss on half of its rows after training on the other half.

        Shape (clients, rates).
        """
        half = _ROWS // 2
        found = []
        for rate in rates.tolist():
            weights = self._trained(
                np.zeros((_FEATURES, _CLASSES)), rate, 5 * _STEPS, slice(0, half)
            )
            rows, targets = self._rows[:, half:], self._targets[:, half:]
            chances = _softmax(rows @ weights)
            found.append(-np.log((chances * targets).sum(axis=2) + 1e-9).mean(axis=1))
        return np.stack(found, axis=1)

    def accuracy(self, rate: float, noise_to_signal: float, rounds: int, seed: int) -> float:
        """Return the share of right answers after federated training under noise.

        Args:
            rate: The clients' step size.
            noise_to_signal: Length of all noise over the longest way, as a plan says it.
            rounds: Rounds of training.
            seed: Public seed of the noise.
        """
        rng = np.random.default_rng([0x4E4F49, self.seed, seed])
        weights, velocity = np.zeros((_FEATURES, _CLASSES)), 0.0
        clip = 0.5
        deviation = clip * noise_to_signal * np.sqrt(rounds / weights.size)
        total = np.zeros_like(weights)
        for number in range(rounds):
            moved = self._trained(weights, rate, _STEPS, slice(None)) - weights
            norms = np.linalg.norm(moved, axis=(1, 2), keepdims=True)
            mean = (moved * np.minimum(1.0, clip / np.maximum(norms, 1e-12))).mean(axis=0)
            velocity = 0.9 * velocity + mean + deviation * rng.normal(size=weights.shape)
            weights = weights + 0.5 * velocity
            total += weights * (number >= rounds * 2 // 3)
        return float((np.argmax(self._test @ total, axis=1) == self._answers).mean())

    def _trained(self, weights: Reals, rate: float, steps: int, some: slice) -> Reals:
        rows, targets = self._rows[:, some], self._targets[:, some]
        each = np.broadcast_to(weights, (len(rows), *weights.shape[-2:])).copy()
        for _ in range(steps):
            slope = np.swapaxes(rows, 1, 2) @ (_softmax(rows @ each) - targets)
            each -= rate * slope / rows.shape[1]
        return each


def _softmax(logits: Reals) -> Reals:
    shifted = np.exp(np.clip(logits - logits.max(axis=-1, keepdims=True), -50, 0))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
