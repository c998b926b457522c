"""Recorded losses of one setting, as `losses.py` writes them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from settings import DATASETS, SPLITS, Setting

__all__ = ["Recorded", "read_all", "read_recorded"]


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What the clients of one setting measured, and what every candidate leads to."""

    setting: Setting
    losses: npt.NDArray[np.float64]
    """Clients × candidates: validation losses."""
    accuracies: npt.NDArray[np.float64]
    """Likewise: validation accuracies; NaN where training diverged."""
    federated: npt.NDArray[np.float64]
    """Test accuracy of each candidate trained by all clients together."""
    rows: npt.NDArray[np.int32]
    meta: dict[str, Any]

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.losses)

    @property
    def candidates(self) -> int:
        """How many candidates there are."""
        return self.losses.shape[1]


def read_recorded(path: Path) -> Recorded | None:
    """Read one setting's file; None where a part of it has not been computed yet."""
    with np.load(path) as arrays:
        if not {"losses", "federated"} <= set(arrays.files):
            return None
        meta = json.loads(str(arrays["meta"]))
        return Recorded(
            Setting(**meta["setting"]),
            arrays["losses"].astype(np.float64),
            arrays["accuracies"].astype(np.float64),
            arrays["federated"].astype(np.float64),
            arrays["rows"],
            meta,
        )


def read_all(folder: Path) -> Iterator[Recorded]:
    """Yield every complete setting in a folder, in the evaluation's order."""
    found = [read_recorded(path) for path in sorted(folder.glob("*-n*-s*.npz"))]
    yield from sorted((r for r in found if r is not None), key=lambda r: _place(r.setting))


def _place(setting: Setting) -> tuple[int, int, int, int]:
    split = SPLITS.index("0.5" if setting.split == "2" else setting.split)
    return DATASETS.index(setting.dataset), setting.clients, split, setting.seed
