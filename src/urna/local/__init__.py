"""A client alone with its data."""

from urna.local.objective import Losses, Objective, Progress

__all__ = ["Losses", "Objective", "Progress"]
