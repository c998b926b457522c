"""Keep what the evaluation needs of the files of `losses.py`, small enough to be committed.

    python benchmarks/dp_hype/compact.py local-data/dp_hype benchmarks/dp_hype/results/losses

Scores are kept in half precision: a validation set of some hundred rows has no finer
accuracies, and losses only feed Feathers and the votes by loss. Final accuracies keep single
precision. Date, machine and command stay in each file's `meta`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.dp_hype.settings import Setting

MOST_BYTES = 5_000_000


def compact(source: Path, target: Path) -> list[Path]:
    """Write a small copy of every file; return the copies."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(source.glob("*-n*-s*.npz")):
        with np.load(path) as arrays:
            held = {name: arrays[name] for name in arrays.files}
        meta = json.loads(str(held.pop("meta")))
        kept = {"meta": np.array(json.dumps(_described(meta), sort_keys=True))}
        with np.errstate(over="ignore"):  # a loss beyond half precision is as good as infinite
            kept |= {n: held[n].astype(np.float16) for n in ("losses", "accuracies") if n in held}
        kept |= {n: held[n] for n in ("rows", "federated", "federated_1") if n in held}
        waiting = target / f"{path.stem}.part"
        with waiting.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **kept)
        written.append(waiting.replace(target / path.name))
    return written


def _described(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the notes with the command that made the file."""
    setting = Setting(**meta["setting"])
    notes = [meta[part]["options"] for part in ("local", "federated") if part in meta]
    options = {name: value for note in notes for name, value in note.items()}
    words = ["python benchmarks/dp_hype/losses.py --data FOLDER --output FOLDER"]
    words += [f"--settings {setting.name}", f"--seeds {setting.seed}"]
    if "precision" in options:  # files from before the engine knew one way only
        words += [f"--precision {options['precision']}", *(["--compiled"] * options["compiled"])]
    elif shapes := [shape for note in notes for shape in note.get("compiled", ())]:
        words.append("--compiled " + ",".join(f"{lanes}x{rows}" for lanes, rows in shapes))
    if any(note.get("still_once") for note in notes):
        words.append("--still-once")
    if options.get("limit_rows"):
        words.append(f"--limit-rows {options['limit_rows']}")
    return {**meta, "command": " ".join(words)}


def main() -> None:
    """Copy, and refuse to keep more than may be committed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    written = compact(given.source, given.target)
    total = sum(path.stat().st_size for path in given.target.glob("*.npz"))
    print(f"{len(written)} files written; the folder holds {total / 1e6:.2f} MB")
    if total > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES / 1e6:g} MB: too much to commit")


if __name__ == "__main__":
    main()
