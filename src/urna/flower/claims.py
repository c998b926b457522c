"""One right to answer: a node answers each stage of a round once, whatever comes twice.

Flower may run two messages of a node at the same time, each on the same old state, and a server
may send a message again. A row that only one of them can write lets only one answer out. Beside
them stand the exact results a node has taken part in: they are counted for good.
"""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from urna.errors import Refused

__all__ = ["KEPT_SECONDS", "LARGEST_SKEW", "check_run", "claim", "claimed", "count_run", "runs"]

LARGEST_SKEW = 86_400.0
"""Seconds by which a server's clock may differ from the node's."""

KEPT_SECONDS = 4 * LARGEST_SKEW
"""How long a claim is kept: an announcement that old is refused for its time alone, and what
nodes and helpers hold of a round is older than they use."""

_RUNS = b"exact results"
_FOR_GOOD = math.inf  # such a claim is never too old

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
    with _writing(file) as connection:
        connection.execute("DELETE FROM claim WHERE at < ?", (now - KEPT_SECONDS,))
        connection.execute("INSERT INTO claim VALUES (?, ?, ?)", (coin, stage, now))


def count_run(file: Path, run: bytes, most: int) -> None:
    """Count a run that opens an exact result, for good; the same run counts once.

    Args:
        file: The node's file of claims, made on first use.
        run: What names the run.
        most: How many runs may be counted in all.

    Raises:
        Refused: So many were counted before, or the run cannot be written down.
    """
    with _writing(file) as connection:
        counted = _runs(connection)
        if run.hex() in counted:
            return
        check_run(counted, run, most)
        connection.execute("INSERT INTO claim VALUES (?, ?, ?)", (_RUNS, run.hex(), _FOR_GOOD))


def runs(file: Path) -> frozenset[str]:
    """Return the names, in hexadecimal, of all runs that were counted.

    Raises:
        Refused: The claims cannot be read.
    """
    if not file.exists():
        return frozenset()
    try:
        with closing(sqlite3.connect(file, timeout=60.0, isolation_level=None)) as connection:
            return _runs(connection)
    except sqlite3.Error as error:
        raise Refused("this node cannot read what it has answered") from error


def check_run(counted: frozenset[str], run: bytes, most: int) -> None:
    """Refuse one run more than there may be.

    Raises:
        Refused: `most` runs were counted, and this one is none of them.
    """
    if run.hex() not in counted and len(counted) >= most:
        raise Refused(
            f"this node has taken part in {len(counted)} exact results; its policy grants {most}"
        )


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


def _runs(connection: sqlite3.Connection) -> frozenset[str]:
    found = connection.execute("SELECT stage FROM claim WHERE coin = ?", (_RUNS,))
    return frozenset(str(name) for (name,) in found)


@contextmanager
def _writing(file: Path) -> Iterator[sqlite3.Connection]:
    """Write in one transaction that is on the disk at its end; others wait for it."""
    try:
        with closing(sqlite3.connect(file, timeout=60.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            yield connection
            connection.execute("COMMIT")
    except sqlite3.IntegrityError as error:
        raise Refused("this node has answered this stage of the round before") from error
    except (sqlite3.Error, OSError) as error:
        raise Refused("this node cannot note that it answers") from error
