"""The settings of DP-Hype's evaluation: data set, clients, split, seed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from urna.local.models import adult_mlp, cifar10_cnn, mnist_cnn

__all__ = ["BATCH", "CLIENTS", "DATASETS", "MODELS", "SPLITS", "Setting", "all_settings", "chosen"]

DATASETS = ("adult", "mnist", "cifar10")
CLIENTS = (100, 50, 250)
"""100 first: it is what the claims are about."""
SPLITS = ("iid", "0.5", "5", "30")
"""Equal portions, or label skew by this Dirichlet parameter."""
MODELS: dict[str, Callable[..., Any]] = {
    "adult": adult_mlp,
    "mnist": mnist_cnn,
    "cifar10": cifar10_cnn,
}
BATCH = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """One cell of the evaluation, run once."""

    dataset: str
    clients: int
    split: str
    seed: int = 0

    @property
    def name(self) -> str:
        """Return how the setting is written on a command line."""
        return f"{self.dataset}/{self.clients}/{self.split}"

    @property
    def file(self) -> str:
        """Return the name of the file its losses are in."""
        how = "iid" if self.split == "iid" else f"beta{self.split}"
        return f"{self.dataset}-n{self.clients}-{how}-s{self.seed}.npz"

    @property
    def local_epochs(self) -> int:
        """Return the epochs of a client's own search, as the authors chose them."""
        return 10 if self.dataset == "cifar10" else 5

    @property
    def rounds(self) -> int:
        """Return the rounds of federated training, as the authors chose them."""
        return 10 if self.dataset == "cifar10" and self.split == "iid" else 5

    def client_seeds(self) -> range:
        """Return the public seeds of the clients' searches."""
        first = 1_000 * (self.seed + 1)
        return range(first, first + self.clients)


def _skew(dataset: str, clients: int, split: str) -> str:
    # Two labels, 250 clients and a skew of .5 starve somebody: the authors took 2 there.
    return "2" if (dataset, clients, split) == ("adult", 250, "0.5") else split


def all_settings(seeds: Iterable[int] = (0,)) -> list[Setting]:
    """Return every setting of the evaluation, the cheapest and the most wanted first."""
    return [
        Setting(dataset, clients, _skew(dataset, clients, split), seed)
        for seed in seeds
        for dataset in DATASETS
        for clients in CLIENTS
        for split in SPLITS
    ]


def chosen(
    *,
    names: str | None = None,
    datasets: str | None = None,
    clients: str | None = None,
    splits: str | None = None,
    seeds: Sequence[int] = (0,),
) -> list[Setting]:
    """Return the settings that pass the filters, each a list with commas or None.

    Names are taken as they are given, in their order, and need not be among the authors'.
    """
    if names is not None:
        parts = [name.strip().split("/") for name in names.split(",")]
        return [Setting(d, int(n), split, seed) for seed in seeds for d, n, split in parts]

    def among(value: object, wanted: str | None) -> bool:
        return wanted is None or str(value) in wanted.split(",")

    return [
        setting
        for setting in all_settings(seeds)
        if among(setting.dataset, datasets)
        and among(setting.clients, clients)
        and (among(setting.split, splits) or (splits and setting.split == "2" and "0.5" in splits))
    ]
