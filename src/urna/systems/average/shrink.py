"""From noisy moments to a model: everything here is computed from the release and public facts.

The noisy second moments are the true ones plus a symmetric matrix of independent noise of known
size. Three things are known to help against it, and cost nothing:

- Large eigenvalues stand out of the noise, are too large by a known amount, and their vectors are
  off by a known angle (a spiked Wigner matrix; Benaych-Georges & Nadakuditi 2011). They are kept,
  shrunk by what minimises the error in Frobenius norm.
- The rest is nearly diagonal where features are nearly uncorrelated, as principal components of
  public data are on private ones. Off-diagonal entries are shrunk by the ratio of their own
  variance to that and the noise's; how large the former is, is read from all of them together
  (empirical Bayes). The diagonal is drawn towards its mean alike (James & Stein).
- A ridge of the size of the noise's own spectrum is added.
"""

import math
from dataclasses import dataclass

import numpy as np

from urna.errors import ParameterError
from urna.systems.average.schema import Matrix

RIDGE = 0.7
"""Ridge over sd·√width. This, the edge and the blocks' weight were chosen on MNIST (projected),
Adult and digits; no model of the benchmark's features was looked at for them."""

_EDGE = 1.1  # an eigenvalue counts as signal this far beyond where noise alone ends
_FLOOR = 0.02  # least diagonal entry, as a part of their mean
_TAUS = np.logspace(-6, 0, 61)  # variances of off-diagonal entries tried, relative


@dataclass(frozen=True, slots=True)
class Denoised:
    """Second moments with what could be told from noise kept."""

    square: Matrix
    spikes: int
    """Directions that stand out of the noise."""
    kept: float
    """Part of an average off-diagonal entry of the rest that was kept."""


def solve(square: Matrix, cross: Matrix, *, std: float, ridge: float | None = None) -> Matrix:
    """Return the weights (width, outputs) of the ridge regression behind noisy moments.

    Args:
        square: Noisy XᵀX.
        cross: Noisy XᵀY.
        std: Standard deviation of the noise in a diagonal entry; off-diagonal ones have
            1/√2 of it.
        ridge: What is added to the diagonal; from the noise by default.
    """
    if ridge is None:
        ridge = RIDGE * std * math.sqrt(len(square))
        square = denoise(square, std).square
    if not (math.isfinite(ridge) and ridge >= 0):
        raise ParameterError(f"a ridge is finite and at least 0, got {ridge}")
    values, vectors = np.linalg.eigh(square)
    # Directions that no row has, or that noise made negative, are left to the ridge; without
    # one they are left out.
    least = 1e-10 * max(float(values[-1]), 1e-300)
    curved = np.maximum(values, 0.0) + ridge
    inverse = np.where(curved > least, 1 / np.maximum(curved, least), 0.0)
    return np.asarray((vectors * inverse) @ (vectors.T @ cross))


def denoise(square: Matrix, std: float) -> Denoised:
    """Return second moments with known noise shrunk away.

    Args:
        square: Noisy XᵀX.
        std: Standard deviation of the noise in a diagonal entry.
    """
    width = len(square)
    if std <= 0 or width < 2:
        return Denoised(square, width, 1.0)
    spiked, spikes = _spikes(square, std)
    rest = square - spiked
    diagonal = _towards_mean(np.diag(rest), std)
    scales = np.outer(diagonal, diagonal)
    tau = _likeliest(rest, scales, std)
    kept = tau * scales / (tau * scales + std**2 / 2)
    shrunk = rest * kept
    np.fill_diagonal(shrunk, diagonal)
    return Denoised(shrunk + spiked, spikes, float(kept[np.triu_indices(width, 1)].mean()))


def _spikes(square: Matrix, std: float) -> tuple[Matrix, int]:
    """Return the part of the matrix that stands out of the noise, and its rank.

    Noise of variance σ² per off-diagonal entry has eigenvalues up to 2σ√p. A true eigenvalue
    θ > σ√p shows at λ = θ + σ²p/θ, and its vector with squared cosine 1 − σ²p/θ².
    """
    values, vectors = np.linalg.eigh(square)
    spread = std**2 / 2 * len(square)
    beyond = values > _EDGE * 2 * math.sqrt(spread)
    true = (values[beyond] + np.sqrt(values[beyond] ** 2 - 4 * spread)) / 2
    shrunk = true * (1 - spread / true**2)
    return np.asarray((vectors[:, beyond] * shrunk) @ vectors[:, beyond].T), int(beyond.sum())


def _towards_mean(diagonal: Matrix, std: float) -> Matrix:
    mean, variance = float(diagonal.mean()), float(diagonal.var())
    if mean <= 0:  # nothing but noise
        return np.full(len(diagonal), std)
    trust = max(0.0, 1 - std**2 / max(variance, 1e-300))
    return np.maximum(mean + trust * (diagonal - mean), _FLOOR * mean)


def _likeliest(rest: Matrix, scales: Matrix, std: float) -> float:
    """Return the τ² under which entries of variance τ²·dᵢdⱼ + noise are most probable."""
    upper = np.triu_indices(len(rest), 1)
    squares, products, noise = rest[upper] ** 2, scales[upper], std**2 / 2
    fits = [
        float(np.sum(np.log(tau * products + noise) + squares / (tau * products + noise)))
        for tau in _TAUS
    ]
    return float(_TAUS[int(np.argmin(fits))])
