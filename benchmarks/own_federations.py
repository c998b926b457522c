"""Local and federated grid searches of our own, on which the strategy `anchored` was chosen.

PrivTuna's authors searched MNIST, EMNIST, SVHN and CIFAR-10. Here the same two searches are run on
other data: Adult, scikit-learn's digits, and problems made by random teacher networks. Clients
search a learning rate and a momentum for their own training; the federation searches the
server's learning rate and momentum for federated averaging (30 rounds of two local epochs at a
rate of .01). Feature, label and quantity skews, levels and client numbers are the paper's.

    python benchmarks/own_federations.py data --folder ../shared/data --output local-data/own.npz
    python benchmarks/own_federations.py train --data local-data/own.npz --output FILE.npz
    python benchmarks/own_federations.py choose                  # strategies on what was trained

All candidates of all clients train together as one batch of small networks; on an H200 the 90
cases take some minutes. `benchmarks/results/own_federations.npz` holds what came out.
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.papers.anchored import Anchored

from urna.errors import ParameterError
from urna.space import Axis, Space
from urna.systems.combine import (
    Dbscan,
    Frame,
    LocalSearch,
    MeanSetting,
    Median,
    Searches,
    Strategy,
    TrimmedMean,
)

Tensor = Any  # torch's, which is imported where something is trained
Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LOCAL_RATES = (0.01, 0.03, 0.05, 0.07, 0.1, 0.3, 0.5, 0.7)
LOCAL_MOMENTA = (0.0, 0.3, 0.6, 0.9, 0.95)
RATES = (0.01, 0.03, 0.05, 0.1, 0.3, 0.5)
MOMENTA = (0.0, 0.3, 0.6, 0.9)
SKEWS = {"feature": (0.02, 0.1), "label": (0.1, 1.0, 5.0), "qty": (0.1, 0.4, 1.0, 2.0)}
CLIENTS = (10, 20)
BATCH, EPOCHS, ROUNDS, LOCAL_EPOCHS, CLIENT_RATE = 16, 30, 30, 2, 0.01
HIDDEN = 32
RESULTS = Path(__file__).parent / "results" / "own_federations.npz"


def teacher(seed: int, features: int, classes: int, wrong: float, rows: int) -> tuple[Array, Ints]:
    """Make a problem: classes by a random network, some of the labels drawn at random."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, features))
    hidden = np.maximum(x @ rng.standard_normal((features, 2 * features)), 0)
    logits = hidden @ rng.standard_normal((2 * features, classes))
    logits -= logits.mean(axis=0)  # classes of about equal size
    y = logits.argmax(axis=1)
    drawn = rng.random(rows) < wrong
    y[drawn] = rng.integers(classes, size=int(drawn.sum()))
    return x, y


def prepare(folder: Path, output: Path) -> None:
    """Write all data sets into one file: features of unit deviation, labels, test rows last."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - heavy, and needed here alone

    from urna.data import load  # noqa: PLC0415 - heavy, and needed here alone

    adult = load("adult", folder=folder)
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    copies = np.concatenate([order[:1500]] * 6)  # few rows, so each is there several times
    rng = np.random.default_rng(1)
    x = digits.data / 16.0
    made = {
        "digits": (
            np.concatenate(
                [x[copies] + 0.1 * rng.standard_normal((len(copies), 64)), x[order[1500:]]]
            ),
            np.concatenate([digits.target[copies], digits.target[order[1500:]]]),
            len(order) - 1500,
        ),
    }
    ax, ay = np.asarray(adult.train.features, float), np.asarray(adult.train.targets)
    rows = np.random.default_rng(2).permutation(len(ax))[:18_000]
    made["adult"] = (ax[rows], ay[rows], 3000)
    for name, seed, features, classes, wrong in (
        ("teacher-a", 11, 20, 10, 0.0),
        ("teacher-b", 12, 40, 10, 0.1),
        ("teacher-c", 13, 30, 4, 0.3),
    ):
        made[name] = (*teacher(seed, features, classes, wrong, 18_000), 3000)
    held = {}
    for name, (x, y, test) in made.items():
        scale = x.std(axis=0)
        held[f"{name}_x"] = ((x - x.mean(axis=0)) / np.where(scale > 0, scale, 1)).astype(
            np.float32
        )
        held[f"{name}_y"] = y.astype(np.int16)
        held[f"{name}_test"] = np.array(test)
    np.savez_compressed(output, **held)


def split(y: Ints, skew: str, level: float, clients: int, rng: np.random.Generator) -> list[Ints]:
    """Return each client's rows, skewed as Li et al. (2022) describe."""
    if skew == "label":
        parts: list[list[Ints]] = [[] for _ in range(clients)]
        for label in np.unique(y):
            rows = rng.permutation(np.flatnonzero(y == label))
            ends = np.cumsum(rng.dirichlet([level] * clients))[:-1] * len(rows)
            for part, some in zip(parts, np.split(rows, ends.astype(int)), strict=True):
                part.append(some)
        return [rng.permutation(np.concatenate(part)) for part in parts]
    rows = rng.permutation(len(y))
    if skew == "feature":
        return list(np.array_split(rows, clients))
    ends = np.cumsum(rng.dirichlet([level] * clients))[:-1] * len(rows)
    return np.split(rows, ends.astype(int))


class Networks:
    """Many small networks of the same shape, trained together: two hidden layers."""

    def __init__(self, torch: ModuleType, weights: list[Any]) -> None:
        self.torch, self.weights = torch, weights
        self.speeds = [torch.zeros_like(w) for w in weights]

    @classmethod
    def equal(
        cls, torch: ModuleType, count: int, features: int, classes: int, device: str
    ) -> "Networks":
        """Make networks that all start from the same weights."""
        generator = torch.Generator().manual_seed(7)
        sizes = [features, HIDDEN, HIDDEN, classes]
        weights = []
        for inside, outside in itertools.pairwise(sizes):
            w = torch.randn(inside, outside, generator=generator) * math.sqrt(2 / inside)
            for made in (w, torch.zeros(1, outside)):
                weights.append(made.to(device).expand(count, *made.shape).clone())
        return cls(torch, weights)

    def step(self, x: Tensor, y: Tensor, rate: Tensor, momentum: Tensor, live: Tensor) -> None:
        """One step of SGD for every network on its own batch (count, batch, features)."""
        torch, w = self.torch, self.weights
        a = torch.baddbmm(w[1], x, w[0])
        b = a.relu()
        c = torch.baddbmm(w[3], b, w[2])
        d = c.relu()
        logits = torch.baddbmm(w[5], d, w[4])
        slope = logits.softmax(dim=2)
        slope.scatter_add_(2, y.unsqueeze(2), slope.new_full((*y.shape, 1), -1.0))
        slope = slope / y.shape[1]
        back = (slope @ w[4].mT) * (c > 0)
        first = (back @ w[2].mT) * (a > 0)
        gradients = [
            x.mT @ first,
            first.sum(1, keepdim=True),
            b.mT @ back,
            back.sum(1, keepdim=True),
            d.mT @ slope,
            slope.sum(1, keepdim=True),
        ]
        for weight, speed, gradient in zip(w, self.speeds, gradients, strict=True):
            new = momentum * speed + gradient
            speed.copy_(torch.where(live, new, speed))
            weight.sub_(torch.where(live, rate * new, 0.0))

    def accuracy(self, x: Tensor, y: Tensor, known: Tensor) -> Tensor:
        """Return each network's accuracy on its own rows (count, rows, features)."""
        torch, w = self.torch, self.weights
        b = torch.baddbmm(w[1], x, w[0]).relu()
        d = torch.baddbmm(w[3], b, w[2]).relu()
        logits = torch.baddbmm(w[5], d, w[4])
        right = (logits.argmax(2) == y) & known & logits.isfinite().all(2)
        return right.sum(1) / known.sum(1).clamp(min=1)


def batches(sizes: list[int], epochs: int, rng: np.random.Generator) -> Iterator[tuple[Ints, Any]]:
    """Yield (clients, batch) places and who still has rows this epoch; small ones repeat rows."""
    steps = [max(1, size // BATCH) for size in sizes]
    for _ in range(epochs):
        orders = []
        for size, count in zip(sizes, steps, strict=True):
            order = rng.permutation(size)
            while len(order) < count * BATCH:
                order = np.concatenate([order, rng.permutation(size)])
            orders.append(order)
        for step in range(max(steps)):
            live = np.array([step < count for count in steps])
            places = np.stack(
                [
                    order[(step % count) * BATCH : (step % count + 1) * BATCH]
                    for order, count in zip(orders, steps, strict=True)
                ]
            )
            yield places, live


@dataclass
class Case:
    """One split data set, on the device."""

    torch: ModuleType
    device: str
    x: Array
    y: Ints
    test: int
    skew: str
    level: float
    clients: int
    seed: int

    def __post_init__(self) -> None:
        torch, rng = self.torch, np.random.default_rng(self.seed)
        known = len(self.y) - self.test
        parts = split(self.y[:known], self.skew, self.level, self.clients, rng)
        parts = [part for part in parts if len(part) >= 20]  # who has next to nothing stays away
        self.sizes = [len(part) for part in parts]
        width, features = max(self.sizes), self.x.shape[1]
        xs = np.zeros((len(parts), width, features), dtype=np.float32)
        ys = np.zeros((len(parts), width), dtype=np.int64)
        for i, part in enumerate(parts):
            xs[i, : len(part)] = self.x[part]
            if self.skew == "feature":
                spread = 3 * math.sqrt(self.level * (i + 1) / len(parts))
                xs[i, : len(part)] += spread * rng.standard_normal((len(part), features))
            ys[i, : len(part)] = self.y[part]
        self.xs = torch.from_numpy(xs).to(self.device)
        self.ys = torch.from_numpy(ys).to(self.device)
        self.held = [max(2, size // 10) for size in self.sizes]
        self.classes, self.rng = int(self.y.max()) + 1, rng

    def local(self) -> tuple[Array, Array]:
        """Return validation and training accuracies, (clients, settings)."""
        torch, n = self.torch, len(self.sizes)
        settings = [(r, m) for r in LOCAL_RATES for m in LOCAL_MOMENTA]
        k = len(settings)
        nets = Networks.equal(torch, n * k, self.xs.shape[2], self.classes, self.device)
        column = torch.tensor(settings, dtype=torch.float32, device=self.device).repeat(n, 1)
        rate, momentum = column[:, 0].view(-1, 1, 1), column[:, 1].view(-1, 1, 1)
        train = [size - held for size, held in zip(self.sizes, self.held, strict=True)]
        for places, live in batches(train, EPOCHS, self.rng):
            x, y = self._rows(places, k)
            nets.step(x, y, rate, momentum, self._live(live, k))
        mask = torch.zeros(n, self.xs.shape[1], dtype=torch.bool)
        for i, (size, held) in enumerate(zip(self.sizes, self.held, strict=True)):
            mask[i, size - held : size] = True
        valid, mask = mask.to(self.device), None
        used = torch.zeros_like(valid)
        for i, count in enumerate(train):
            used[i, :count] = True
        found = []
        for known in (valid, used):
            accuracies = []
            for i in range(n):  # one client at a time: its rows serve all its networks
                some = Networks(torch, [w[i * k : (i + 1) * k] for w in nets.weights])
                rows = known[i].nonzero().squeeze(1)[:2000]
                x = self.xs[i, rows].expand(k, -1, -1)
                y = self.ys[i, rows].expand(k, -1)
                accuracies.append(some.accuracy(x, y, torch.ones_like(y, dtype=torch.bool)))
            found.append(torch.stack(accuracies).cpu().numpy())
        return found[0], found[1]

    def federated(self) -> Array:
        """Return the test accuracy of every server rate and momentum."""
        torch, n = self.torch, len(self.sizes)
        settings = [(r, m) for r in RATES for m in MOMENTA]
        k = len(settings)
        server = Networks.equal(torch, k, self.xs.shape[2], self.classes, self.device)
        column = torch.tensor(settings, dtype=torch.float32, device=self.device)
        rate, momentum = column[:, 0].view(-1, 1, 1), column[:, 1].view(-1, 1, 1)
        share = torch.tensor(self.sizes, dtype=torch.float32, device=self.device)
        share = (share / share.sum()).view(n, 1, 1, 1)
        for _ in range(ROUNDS):
            start = [w.repeat(n, 1, 1) for w in server.weights]
            nets = Networks(torch, start)
            for places, live in batches(self.sizes, LOCAL_EPOCHS, self.rng):
                x, y = self._rows(places, k)
                nets.step(x, y, CLIENT_RATE, CLIENT_RATE, self._live(live, k))
            for weight, speed, moved in zip(
                server.weights, server.speeds, nets.weights, strict=True
            ):
                mean = (moved.view(n, k, *weight.shape[1:]) * share).sum(0)
                speed.mul_(momentum).add_(mean - weight)
                weight.add_(rate * speed)
        rows = len(self.y) - self.test
        x = torch.from_numpy(self.x[rows:].astype(np.float32)).to(self.device).expand(k, -1, -1)
        y = torch.from_numpy(self.y[rows:].astype(np.int64)).to(self.device).expand(k, -1)
        return server.accuracy(x, y, torch.ones_like(y, dtype=torch.bool)).cpu().numpy()

    def _rows(self, places: Ints, settings: int) -> tuple[Any, Any]:
        index = self.torch.from_numpy(places).to(self.device, non_blocking=True)
        who = self.torch.arange(len(places), device=self.device).unsqueeze(1)
        x, y = self.xs[who, index], self.ys[who, index]
        return x.repeat_interleave(settings, 0), y.repeat_interleave(settings, 0)

    def _live(self, live: Tensor, settings: int) -> Tensor:
        found = self.torch.from_numpy(live).to(self.device)
        return found.repeat_interleave(settings).view(-1, 1, 1)


def train(data: Path, output: Path, only: str | None) -> None:
    """Run all searches, and write what they found after every case."""
    import torch  # noqa: PLC0415 - heavy, and needed here alone

    device = "cuda" if torch.cuda.is_available() else "cpu"
    held = np.load(data)
    names = sorted({key.rsplit("_", 1)[0] for key in held.files})
    found: dict[str, Any] = {}
    with torch.no_grad():
        for name in names:
            if only and name not in only.split(","):
                continue
            for skew, levels in SKEWS.items():
                for level in levels:
                    for clients in CLIENTS:
                        start = time.monotonic()
                        case = Case(
                            torch,
                            device,
                            held[f"{name}_x"],
                            held[f"{name}_y"].astype(np.int64),
                            int(held[f"{name}_test"]),
                            skew,
                            level,
                            clients,
                            seed=clients,
                        )
                        valid, used = case.local()
                        federated = case.federated()
                        key = f"{name}/{skew}/{level}/{clients}"
                        found[f"{key}/valid"] = valid.astype(np.float16)
                        found[f"{key}/train"] = used.astype(np.float16)
                        found[f"{key}/federated"] = federated.astype(np.float32)
                        took = time.monotonic() - start
                        best = federated.max()
                        print(
                            f"{key}: {len(case.sizes)} clients, best {best:.3f}, {took:.1f} s",
                            flush=True,
                        )
                        np.savez_compressed(output, **found)


def choose() -> dict[str, Any]:
    """Count how often each strategy is closest to the federated optimum, axis by axis.

    The field is the six strategies of the paper; a strategy of ours is held against all six.
    """
    held = np.load(RESULTS)
    frame = Frame.of(Space(lr=Axis.log(LOCAL_RATES), momentum=Axis.linear(LOCAL_MOMENTA)), log=True)
    plain = Frame.of(Space(lr=Axis.log(LOCAL_RATES), momentum=Axis.linear(LOCAL_MOMENTA)))
    server = Frame.of(Space(lr=Axis.log(RATES), momentum=Axis.linear(MOMENTA)), log=True)
    tried = np.array([(r, m) for r in LOCAL_RATES for m in LOCAL_MOMENTA])
    searched = np.array([(r, m) for r in RATES for m in MOMENTA])
    table: dict[str, Any] = {}
    for score in ("valid", "train"):
        away: dict[str, list[Array]] = {}
        for key in (k.removesuffix("/federated") for k in held.files if k.endswith("federated")):
            rows = held[f"{key}/{score}"].astype(float)
            clients = tuple(LocalSearch(tried, row) for row in rows)
            best = searched[int(held[f"{key}/federated"].argmax())]
            few = 2 if "/qty/" in key else 4
            field: list[Strategy] = [
                MeanSetting(),
                Median(),
                TrimmedMean(),
                MeanSetting(0.05),
                Median(0.05),
                Dbscan(stretched=True, least=0.4, min_points=few),
            ]
            ours: list[tuple[str, Strategy]] = [
                (f"anchored {t:g}", Anchored(tolerance=t, within=server))
                for t in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
            ]
            for name, strategy in [(s.name, s) for s in field] + ours:
                searches = Searches(frame if isinstance(strategy, Anchored) else plain, clients)
                try:
                    found = frame.row(strategy.combine(searches).setting)
                except ParameterError:
                    found = np.full(2, np.inf)
                away.setdefault(name, []).append(np.abs(found - best))
        names, every = list(away), np.array(list(away.values()))
        for place, name in enumerate(names):
            others = every[[i for i in range(6) if i != place]].min(axis=0)
            closest = every[place] <= others + 1e-5
            table.setdefault(name, {})[score] = int(closest.sum())
        table["cases"] = int(every[0].size)
    return table


def main() -> None:
    """Prepare, train, or choose."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("data", "train", "choose"))
    parser.add_argument("--folder", type=Path, default=Path("../shared/data"))
    parser.add_argument("--data", type=Path, default=Path("local-data/own.npz"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", help="data sets, separated by commas")
    given = parser.parse_args()
    if given.what == "data":
        prepare(given.folder, given.output or given.data)
    elif given.what == "train":
        train(given.data, given.output or RESULTS, given.only)
    else:
        print(json.dumps(choose(), indent=2))


if __name__ == "__main__":
    main()
