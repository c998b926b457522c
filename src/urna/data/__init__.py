"""Data sets, and how to split them over clients."""

from urna.data.dataset import Dataset, Samples
from urna.data.load import CatalogueEntry, catalogue, load
from urna.data.shards import PUBLIC_SHARD_KEY, Records, Shard, count_records, split_records
from urna.data.split import MIN_SAMPLES, Split, split, split_rows

__all__ = [
    "MIN_SAMPLES",
    "PUBLIC_SHARD_KEY",
    "CatalogueEntry",
    "Dataset",
    "Records",
    "Samples",
    "Shard",
    "Split",
    "catalogue",
    "count_records",
    "load",
    "split",
    "split_records",
    "split_rows",
]
