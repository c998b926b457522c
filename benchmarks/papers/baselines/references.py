"""The two ends of the scale: the best candidate, and one drawn blindly."""

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError

__all__ = ["opt", "rand_guess"]


def opt(federated: npt.NDArray[np.floating]) -> float:
    """Return Opt: the final accuracy of the best candidate. Not private.

    Example:
        >>> opt(np.array([0.1, 0.9, 0.5]))
        0.9
    """
    return float(np.nanmax(_known(federated)))


def rand_guess(federated: npt.NDArray[np.floating]) -> float:
    """Return RandGuess: the mean over all candidates, which costs no privacy.

    Example:
        >>> rand_guess(np.array([0.1, 0.9, 0.5]))
        0.5
    """
    return float(np.nanmean(_known(federated)))


def _known(federated: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    if federated.ndim != 1 or not np.isfinite(federated).any():
        raise ParameterError(
            "final accuracies must be one number for each candidate, at least one of them finite; "
            f"got shape {federated.shape}"
        )
    return federated
