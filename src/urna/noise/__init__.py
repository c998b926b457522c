"""Integer noise from a secret seed, bit-exact on every platform."""

from urna.noise.table import DISCRETE_GAUSSIAN, FAMILIES, SKELLAM, IntVector, Noise, Table

__all__ = ["DISCRETE_GAUSSIAN", "FAMILIES", "SKELLAM", "IntVector", "Noise", "Table"]
