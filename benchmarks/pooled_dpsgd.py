"""Claim: ten hospitals' records train a model as well as if one machine had them all.

MNIST on ten clients, single records protected, delta 1e-5. Each client draws a secret Poisson
sample of its own records; clipped gradients and integer noise are added up by real secure sums.
Beside it, in the same run, with the same settings, relation and accountant: central DP-SGD on the
pooled rows, and clients of which each makes enough noise for itself. Where Opacus is installed, it
does both as well.

    python benchmarks/pooled_dpsgd.py --data FOLDER --epsilon 1 --relation add-remove --seeds 1

`--choose` tries all settings by central DP-SGD on 55,000 training rows and judges them on the other
5,000. No setting is chosen on test rows.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from urna.data import Dataset, Samples, load
from urna.privacy import Adjacency, Budget
from urna.privacy.sampling import sampled_epsilon
from urna.randomness import SecretSource
from urna.systems.train import FedAvgM, Sampling, Settings, TorchLearner, fit
from urna.tally import Contributions, Run, SecureAggregation, Tallied, TallyPlan, Terms

HOSPITALS, DELTA, MOMENTUM, HELD_OUT = 10, 1e-5, 0.9, 5_000
RELATIONS = {
    "add-remove": Adjacency.ADD_OR_REMOVE_ONE_RECORD,
    "replace": Adjacency.REPLACE_ONE_RECORD,
}
_ROWS = 256  # whose gradients are in memory at a time

Tensors = dict[str, torch.Tensor]
Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Chosen:
    """How the model is trained: records expected in a round, rounds, learning rate, clip norm."""

    batch: int
    rounds: int
    rate: float
    clip: float


CANDIDATES = {
    1.0: (
        Chosen(1_024, 300, 3.0, 0.1),
        Chosen(2_048, 200, 4.0, 0.1),
        Chosen(2_048, 200, 8.0, 0.1),
    ),
    3.0: (
        Chosen(1_024, 300, 1.0, 0.5),
        Chosen(1_024, 300, 6.0, 0.1),
    ),
}
"""By epsilon; the first is the chosen one. Other budgets take those of the nearest."""


def network() -> nn.Module:
    """Build the convolutional network of 26,010 parameters that papers on DP-SGD use."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


def scaled(rows: Samples) -> Samples:
    """Return pictures scaled by public constants."""
    pixels = (rows.features.reshape(-1, 1, 28, 28).astype(np.float32) - 0.1307) / 0.3081
    return Samples(pixels, rows.targets)


def noise_multiplier(
    epsilon: float, rate: Fraction, rounds: int, relation: Adjacency
) -> tuple[float, float]:
    """Return the least noise over the clip norm of a sampled Gaussian, and its epsilon."""

    def cost(noise: float) -> float:
        return sampled_epsilon(1 / noise, rate, rounds, DELTA, replaced=relation.replaces)

    low, high = 0.3, 60.0
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > epsilon else (low, middle)
    return high, cost(high)


# --- the peers: everything on one machine ---------------------------------------------------------


def central(rows: Samples, how: Chosen, noise: float, seed: int) -> nn.Module:
    """Train by DP-SGD on pooled rows: Poisson samples, clipped gradients, Gaussian noise."""
    torch.manual_seed(seed)
    module = network()
    features, targets = torch.from_numpy(rows.features), torch.from_numpy(rows.targets).long()
    weights = {name: part.detach().clone() for name, part in module.named_parameters()}
    velocity = {name: torch.zeros_like(part) for name, part in weights.items()}

    def loss(given: Tensors, row: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(
            functional_call(module, given, (row[None],)), target[None]
        )

    per_row = vmap(grad(loss), in_dims=(None, 0, 0))
    for _ in range(how.rounds):
        drawn = torch.nonzero(torch.rand(len(rows)) < how.batch / len(rows))[:, 0]
        total = {name: how.clip * noise * torch.randn_like(part) for name, part in weights.items()}
        for piece in torch.split(drawn, _ROWS):
            found = per_row(weights, features[piece], targets[piece])
            norms = sum(part.flatten(1).square().sum(1) for part in found.values()).sqrt()
            factors = (how.clip / norms).clamp(max=1)
            for name, part in found.items():
                total[name] += (factors @ part.flatten(1)).view_as(total[name])
        for name, part in weights.items():
            velocity[name] = MOMENTUM * velocity[name] + total[name] / how.batch
            weights[name] = part - how.rate * velocity[name]
    module.load_state_dict(weights)
    return module


def by_opacus(rows: Samples, how: Chosen, noise: float, seed: int) -> nn.Module | None:
    """Train the same by Opacus's modules and optimiser; None where it is not installed."""
    try:
        from opacus import GradSampleModule  # noqa: PLC0415
        from opacus.optimizers import DPOptimizer  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    torch.manual_seed(seed)
    module = network()
    watched = GradSampleModule(module)
    optimiser = DPOptimizer(
        torch.optim.SGD(watched.parameters(), lr=how.rate, momentum=MOMENTUM),
        noise_multiplier=noise,
        max_grad_norm=how.clip,
        expected_batch_size=how.batch,
    )
    features, targets = torch.from_numpy(rows.features), torch.from_numpy(rows.targets).long()
    for _ in range(how.rounds):
        pieces = torch.split(
            torch.nonzero(torch.rand(len(rows)) < how.batch / len(rows))[:, 0], _ROWS
        )
        for number, piece in enumerate(pieces, start=1):
            nn.functional.cross_entropy(watched(features[piece]), targets[piece]).backward()
            optimiser.signal_skip_step(do_skip=number < len(pieces))
            optimiser.step()
            optimiser.zero_grad()
    return module


def accuracy(module: nn.Module | None, rows: Samples) -> float | None:
    """Return the accuracy of a module in percent."""
    if module is None:
        return None
    with torch.no_grad():
        found = module.eval()(torch.from_numpy(rows.features)).argmax(dim=1).numpy()
    return 100 * float((found == rows.targets).mean())


# --- Urna: ten clients, secure sums ---------------------------------------------------------------


@dataclass(slots=True)
class Timed:
    """The real secure aggregation, and the CPU seconds of each of its sums."""

    inner: SecureAggregation = field(default_factory=lambda: SecureAggregation(workers=1))
    seconds: list[float] = field(default_factory=list)
    secure = True
    removes_excess = True

    def describe(self, terms: Terms) -> str:
        """Return one sentence about who saw what."""
        return self.inner.describe(terms)

    def tally(self, given: Contributions, plan: TallyPlan, secrets: SecretSource) -> Tallied:
        """Add up; rounding to the grid is part of it."""
        start = time.process_time()
        tallied = self.inner.tally(given, plan, secrets)
        self.seconds.append(time.process_time() - start)
        return tallied


def by_secure_sums(
    rows: Samples, how: Chosen, budget: Budget, relation: Adjacency, seed: int
) -> tuple[Any, float, float]:
    """Train on ten clients; return the module, epsilon as stated, CPU seconds of a sum."""
    order = np.random.default_rng(seed).permutation(len(rows))
    clients = [rows.take(part) for part in np.array_split(order, HOSPITALS)]
    learner, timed = TorchLearner(network, device="cpu"), Timed()
    settings = Settings(
        optimiser=FedAvgM(lr=how.rate, momentum=MOMENTUM),
        sampling=Sampling.of_records(how.batch, len(rows)),
        record_clip=how.clip,
        seed=seed,
    )
    result = fit(
        learner,
        clients,
        budget=budget,
        rounds=how.rounds,
        settings=settings,
        summation=timed,
        adjacency=relation,
        run=Run(progress=False),
    )
    cpu = statistics.median(timed.seconds)
    return learner.module(result.weights), result.privacy.epsilon, cpu


# --- both, side by side ---------------------------------------------------------------------------


def compare(
    data: Dataset, how: Chosen, epsilon: float, relation: str, seeds: int, say: Callable[..., None]
) -> dict[str, Any]:
    """Train all on the same rows; return the means over seeds."""
    rows, test, among = scaled(data.train), scaled(data.test), RELATIONS[relation]
    rate = Fraction(how.batch, len(rows))
    noise, cost = noise_multiplier(epsilon, rate, how.rounds, among)
    own = noise * math.sqrt(HOSPITALS)  # each client's sum has the whole noise
    say(f"{how}; noise {noise:.3f} times the clip norm: epsilon {cost:.4f}")
    runs: list[dict[str, Any]] = []
    for seed in range(seeds):
        module, stated, cpu = by_secure_sums(rows, how, Budget(epsilon, DELTA), among, seed)
        found = {
            "opacus_accuracy": accuracy(by_opacus(rows, how, noise, seed), test),
            "opacus_own_noise_accuracy": accuracy(by_opacus(rows, how, own, seed), test),
            "accuracy": accuracy(module, test),
            "central_accuracy": accuracy(central(rows, how, noise, seed), test),
            "own_noise_accuracy": accuracy(central(rows, how, own, seed), test),
            "epsilon": stated,
            "round_cpu_s": cpu,
        }
        say(f"seed {seed}: {shown(found)}")
        runs.append(found)
    means = {
        name: None if runs[0][name] is None else statistics.fmean(run[name] for run in runs)
        for name in runs[0]
    }
    last = ("accuracy", "central_accuracy", "own_noise_accuracy", "epsilon")
    return {
        "settings": asdict(how),
        "delta": DELTA,
        "noise_multiplier": noise,
        "accuracies": [run["accuracy"] for run in runs],
        "central_accuracies": [run["central_accuracy"] for run in runs],
        **{name: means[name] for name in ("opacus_accuracy", "opacus_own_noise_accuracy")},
        **{name: means[name] for name in last},
        "relation": str(among),
        "round_cpu_s": means["round_cpu_s"],
    }


def choose(
    data: Dataset,
    candidates: tuple[Chosen, ...],
    epsilon: float,
    relation: str,
    say: Callable[..., None],
) -> None:
    """Print how each setting does, by central DP-SGD, on training rows kept back."""
    rows = scaled(data.train)
    order = np.random.default_rng(0).permutation(len(rows))
    held_out, others = rows.take(order[:HELD_OUT]), rows.take(order[HELD_OUT:])
    for how in candidates:
        rate = Fraction(how.batch, len(others))
        noise, _ = noise_multiplier(epsilon, rate, how.rounds, RELATIONS[relation])
        start = time.process_time()
        found = accuracy(central(others, how, noise, 0), held_out)
        cpu = time.process_time() - start
        say(f"{how}: {found:.2f} % of {HELD_OUT:,} held-out rows, {cpu:.0f} s of CPU")


def shown(found: Mapping[str, float | None]) -> str:
    """Return figures as one line."""
    return ", ".join(
        f"{name} {'not installed' if value is None else format(value, '.4g')}"
        for name, value in found.items()
    )


def main() -> None:
    """Compare at one epsilon, or choose settings for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("URNA_DATA"), help="has mnist.npz"
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--relation", choices=tuple(RELATIONS), default="add-remove")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="fewer, for a first look")
    parser.add_argument("--choose", action="store_true", help="try settings on held-out rows")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    asked = parser.parse_args()

    def say(line: str) -> None:
        if asked.format == "text":
            print(line, flush=True)

    torch.set_num_threads(1)
    data = load("mnist", folder=asked.data)
    nearest = min(CANDIDATES, key=lambda epsilon: abs(math.log(epsilon / asked.epsilon)))
    candidates = CANDIDATES[nearest]
    if asked.rounds:
        candidates = tuple(replace(how, rounds=asked.rounds) for how in candidates)
    if asked.choose:
        choose(data, candidates, asked.epsilon, asked.relation, say)
        return
    found = compare(data, candidates[0], asked.epsilon, asked.relation, asked.seeds, say)
    print(json.dumps(found, indent=2) if asked.format == "json" else f"mean: {shown_means(found)}")


def shown_means(found: Mapping[str, Any]) -> str:
    """Return the last figures of a comparison as one line."""
    return ", ".join(f"{name} {value}" for name, value in list(found.items())[-6:])


if __name__ == "__main__":
    main()
