"""Integer noise from a secret seed, bit-exact on every platform."""

from urna.noise.families import (
    DISCRETE_GAUSSIAN,
    SKELLAM,
    DiscreteGaussian,
    Noise,
    Skellam,
)
from urna.noise.table import IntVector, Table

__all__ = [
    "DISCRETE_GAUSSIAN",
    "SKELLAM",
    "DiscreteGaussian",
    "IntVector",
    "Noise",
    "Skellam",
    "Table",
]
