"""Recorded tables of the battery, one file for each space and split."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from urna.space import Space

__all__ = ["FOLDER", "Table", "read_tables"]

FOLDER = Path(__file__).resolve().parents[1] / "results" / "battery"
Array = npt.NDArray[np.float64]
_DIGITS = 5  # significant ones that are kept of a loss


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What the clients of one space measured, and what every candidate leads to."""

    name: str
    kind: str
    split: str
    space: Space
    losses: Array
    """Clients × candidates; infinite where a fit failed."""
    final: Array
    """Points from 0 to 100 of every candidate, on rows nobody trained on."""
    public: Array
    """The same on another data set of the kind: what a search without a vote would see."""
    data: str
    public_data: str

    @property
    def cell(self) -> str:
        """The table's name in lists."""
        return f"{self.name}/{self.split}"

    def write(self, folder: Path) -> Path:
        """Write the table; equal tables give equal files."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}-{self.split}.npz"
        meta = {
            "name": self.name,
            "kind": self.kind,
            "split": self.split,
            "data": self.data,
            "public_data": self.public_data,
            "space": self.space.as_mapping(),
        }
        np.savez_compressed(
            path,
            losses=_short(self.losses),
            final=self.final.astype(np.float32),
            public=self.public.astype(np.float32),
            meta=np.array(json.dumps(meta)),
        )
        return path

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Read what `write` wrote."""
        with np.load(path, allow_pickle=False) as held:
            meta = json.loads(str(held["meta"]))
            losses, final, public = (
                held[name].astype(np.float64) for name in ("losses", "final", "public")
            )
        space = Space.from_mapping(meta.pop("space"))
        return cls(space=space, losses=losses, final=final, public=public, **meta)


def read_tables(folder: Path = FOLDER, only: str = "") -> list[Table]:
    """Return the tables of a folder whose names hold a text, in the order of their names."""
    return [Table.read(path) for path in sorted(folder.glob("*.npz")) if only in path.stem]


def _short(losses: Array) -> npt.NDArray[np.float32]:
    """Round to few digits, which a file holds in half the room, and overflow to infinity."""
    with np.errstate(over="ignore"):
        rows = [[float(f"{loss:.{_DIGITS}g}") for loss in row] for row in losses]
        return np.array(rows).astype(np.float32)
