"""Agree on hyperparameters by secret ballot, under one privacy budget."""

__version__ = "0.1.0"
