"""Data sets, and how to split them over clients."""

from urna.data.dataset import Dataset, Samples

__all__ = ["Dataset", "Samples"]
