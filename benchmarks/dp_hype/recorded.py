"""Recorded scores of one setting, as `losses.py` writes them and `compact.py` keeps them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.dp_hype.settings import DATASETS, SPLITS, Setting

__all__ = ["Recorded", "read_all", "read_notes", "same_training"]


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
    federated_once: npt.NDArray[np.float64] | None
    """The same with one epoch in each federated round, where that was computed too."""
    rows: npt.NDArray[np.int32]
    meta: dict[str, Any]

    @property
    def final(self) -> npt.NDArray[np.float64]:
        """Accuracies to which winners lead; what diverged is as bad as the worst that did not."""
        return np.nan_to_num(self.federated, nan=float(np.nanmin(self.federated)))

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.losses)


def same_training(setting: Setting, meta: Mapping[str, Any]) -> bool:
    """Return whether the federated part trains as many epochs in a round as the search does."""
    return bool(meta.get("federated", {}).get("epochs", 1) == setting.local_epochs)


def read_notes(folder: Path) -> dict[Setting, dict[str, Any]]:
    """Return what is noted about every setting in a folder, complete or not."""
    notes = {}
    for path in sorted(folder.glob("*-n*-s*.npz")):
        with np.load(path) as arrays:
            meta = json.loads(str(arrays["meta"]))
        notes[Setting(**meta["setting"])] = meta
    return dict(sorted(notes.items(), key=lambda item: _place(item[0])))


def read_all(folder: Path) -> Iterator[Recorded]:
    """Yield every setting of which both parts are there, in the evaluation's order."""
    for setting, meta in read_notes(folder).items():
        if "local" not in meta or "federated" not in meta or not same_training(setting, meta):
            continue
        with np.load(folder / setting.file) as arrays:
            yield Recorded(
                setting,
                arrays["losses"].astype(np.float64),
                arrays["accuracies"].astype(np.float64),
                arrays["federated"].astype(np.float64),
                arrays["federated_1"].astype(np.float64) if "federated_1" in arrays else None,
                arrays["rows"].astype(np.int32),
                meta,
            )


def _place(setting: Setting) -> tuple[int, int, int, int]:
    split = SPLITS.index("0.5" if setting.split == "2" else setting.split)
    return DATASETS.index(setting.dataset), setting.clients, split, setting.seed
