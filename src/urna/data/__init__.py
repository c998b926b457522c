"""Data sets, and how to split them over clients."""

from urna.data.coding import Coding
from urna.data.dataset import Dataset, Samples
from urna.data.load import CatalogueEntry, catalogue, load
from urna.data.pictures import holds_pictures, read_pictures
from urna.data.shards import PUBLIC_SHARD_KEY, Records, Shard, count_records, split_records
from urna.data.split import MIN_SAMPLES, Split, split, split_rows
from urna.data.tables import Columns, Tables, read_columns, read_tables, table_files

__all__ = [
    "MIN_SAMPLES",
    "PUBLIC_SHARD_KEY",
    "CatalogueEntry",
    "Coding",
    "Columns",
    "Dataset",
    "Records",
    "Samples",
    "Shard",
    "Split",
    "Tables",
    "catalogue",
    "count_records",
    "holds_pictures",
    "load",
    "read_columns",
    "read_pictures",
    "read_tables",
    "split",
    "split_records",
    "split_rows",
    "table_files",
]
