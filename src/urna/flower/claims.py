"""One right to answer: a node answers each stage of a round once, whatever comes twice.

Flower may run two messages of a node at the same time, each on the same old state, and a server
may send a message again. A row that only one of them can write lets only one answer out.
"""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from urna.errors import Refused

__all__ = ["KEPT_SECONDS", "LARGEST_SKEW", "claim", "claimed"]

LARGEST_SKEW = 86_400.0
"""Seconds by which a server's clock may differ from the node's."""

KEPT_SECONDS = 4 * LARGEST_SKEW
"""How long a claim is kept: an announcement that old is refused for its time alone, and what
nodes and helpers hold of a round is older than they use."""

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS claim (coin BLOB NOT NULL, stage TEXT NOT NULL, at REAL NOT NULL, "
    "PRIMARY KEY (coin, stage))"
)


def claim(file: Path, coin: bytes, stage: str) -> None:
    """Take the one right to answer a stage of a round, before the answer leaves the node.

    Args:
        file: The node's file of claims, made on first use.
        coin: The round's coin.
        stage: What is about to be answered.

    Raises:
        Refused: It was answered before, or the claim cannot be written.
    """
    now = time.time()
    try:
        with closing(sqlite3.connect(file, timeout=60.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.execute("DELETE FROM claim WHERE at < ?", (now - KEPT_SECONDS,))
            connection.execute("INSERT INTO claim VALUES (?, ?, ?)", (coin, stage, now))
            connection.execute("COMMIT")
    except sqlite3.IntegrityError as error:
        raise Refused("this node has answered this stage of the round before") from error
    except (sqlite3.Error, OSError) as error:
        raise Refused("this node cannot note that it answers") from error


def claimed(file: Path, coin: bytes, stage: str) -> bool:
    """Say whether a stage was answered.

    Raises:
        Refused: The claims cannot be read.
    """
    if not file.exists():
        return False
    try:
        with closing(sqlite3.connect(file, timeout=60.0, isolation_level=None)) as connection:
            found = connection.execute(
                "SELECT 1 FROM claim WHERE coin = ? AND stage = ?", (coin, stage)
            )
            return found.fetchone() is not None
    except sqlite3.Error as error:
        raise Refused("this node cannot read what it has answered") from error
