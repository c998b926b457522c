"""Integer noise from a secret seed, bit-exact on every platform."""

from urna.noise.families import DISCRETE_GAUSSIAN, FAMILIES, SKELLAM, Noise
from urna.noise.table import IntVector, Table

__all__ = ["DISCRETE_GAUSSIAN", "FAMILIES", "SKELLAM", "IntVector", "Noise", "Table"]
