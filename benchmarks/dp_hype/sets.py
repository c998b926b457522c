"""Read the data sets from a folder, on machines without a parquet reader as well."""

from pathlib import Path

import numpy as np
from benchmarks.dp_hype.settings import Setting

from urna.data import Samples, load, split

__all__ = ["clients_of", "prepare_adult", "read"]


def read(name: str, folder: Path, limit: int | None = None) -> tuple[Samples, Samples]:
    """Return training and test rows.

    Args:
        name: "mnist", "cifar10" or "adult".
        folder: Holds mnist.npz, cifar10_small.npz, and adult.parquet or the two files
            that `prepare_adult` writes.
        limit: Keep only so many training rows, and a quarter as many test rows.
    """
    if name == "adult" and (folder / "adult_rows.npz").exists():
        train, test = _rows(folder / "adult_rows.npz"), _rows(folder / "adult_test.npz")
    else:
        data = load(name, folder=folder)
        train, test = data.train, data.test
    if limit is not None:
        rng = np.random.default_rng(0)
        train = train.take(rng.permutation(len(train))[:limit])
        test = test.take(rng.permutation(len(test))[: max(limit // 4, 1)])
    return train, test


def clients_of(setting: Setting, train: Samples) -> list[Samples]:
    """Deal the training rows out to a setting's clients."""
    if setting.split == "iid":
        return split(train, clients=setting.clients, how="iid", seed=setting.seed)
    beta = float(setting.split)
    return split(train, clients=setting.clients, how="dirichlet", beta=beta, seed=setting.seed)


def prepare_adult(source: Path, folder: Path) -> None:
    """Write Adult as two plain files, adult_rows.npz and adult_test.npz."""
    data = load("adult", folder=source)
    for part, file in ((data.train, "adult_rows.npz"), (data.test, "adult_test.npz")):
        features, targets = part.features.astype(np.float16), part.targets.astype(np.uint8)
        np.savez_compressed(folder / file, features=features, targets=targets)


def _rows(path: Path) -> Samples:
    with np.load(path) as rows:
        return Samples(rows["features"].astype(np.float32), rows["targets"].astype(np.int64))
