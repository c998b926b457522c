"""Data sets, and how to split them over clients."""

from urna.data.dataset import Dataset, Samples
from urna.data.load import CatalogueEntry, catalogue, load
from urna.data.split import MIN_SAMPLES, Split, split, split_rows

__all__ = [
    "MIN_SAMPLES",
    "CatalogueEntry",
    "Dataset",
    "Samples",
    "Split",
    "catalogue",
    "load",
    "split",
    "split_rows",
]
