"""Data sets, and how to split them over clients."""

from urna.data.dataset import Dataset, Samples
from urna.data.load import CatalogueEntry, catalogue, load
from urna.data.shards import PUBLIC_SHARD_KEY, Records, Shard, count_records, split_records
from urna.data.split import MIN_SAMPLES, Split, split, split_rows
from urna.data.tables import Columns, Tables, read_tables

__all__ = [
    "MIN_SAMPLES",
    "PUBLIC_SHARD_KEY",
    "CatalogueEntry",
    "Columns",
    "Dataset",
    "Records",
    "Samples",
    "Shard",
    "Split",
    "Tables",
    "catalogue",
    "count_records",
    "load",
    "read_tables",
    "split",
    "split_records",
    "split_rows",
]
