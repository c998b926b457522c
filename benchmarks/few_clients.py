"""Claim: ten or twenty large clients find a good candidate when single records are protected.

Under client-level noise so few clients cannot: the noise is made for one ballot of ten. Here
each client's records are split into shards that vote for themselves, the noise stays that of one
ballot, and what is protected is one record instead of one client. Both are measured in the same
run, on the same clients, at the same epsilon, with the same ballot and the same decoder; only
the unit differs. A winner is judged by the test accuracy of the model that all clients train with
it by federated averaging; regret is how far that is below the best candidate's. The local search
is timed both ways, because shards must not make it dearer.

    python benchmarks/few_clients.py --folder DATA
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Dataset, Samples, load, split
from urna.local import (
    BatchedObjective,
    adult_mlp,
    authors_space,
    federated_averaging,
    mnist_cnn,
)
from urna.noise import IntVector
from urna.privacy import Adjacency, Budget
from urna.space import Space
from urna.tally import TallyPlan
from urna.vote import ArgmaxDecoder, NoisyVotes, fill_ballot, plan, shard_ballots

DELTA = 1e-5
ROWS = {"adult": 16_000, "mnist": 10_000}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: how good the winners of many draws of the noise are."""

    data: str
    clients: int
    unit: str
    shards: int
    epsilon: float
    """Zero stands for no noise at all."""
    accuracy: float
    regret: float
    standard_error: float
    """Of the mean accuracy, over draws."""
    best: float
    random_guess: float
    whole_client_epsilon: float | None
    """What is proven for all data of one client; None where nothing is."""
    local_seconds: float


def linear(features: int, classes: int) -> Callable[[], Any]:
    """Return a factory of a linear classifier."""

    def make() -> Any:  # noqa: ANN401 - a torch module
        from torch import nn  # noqa: PLC0415 - after the arguments are read

        return nn.Sequential(nn.Flatten(), nn.Linear(features, classes))

    return make


def objective_for(dataset: Dataset, model: str, device: str) -> BatchedObjective:
    """Return the objective that clients and the federation share."""
    factory: Callable[..., Any] = linear(dataset.train.features.shape[1], dataset.classes or 2)
    if model == "network":
        factory = {"adult": adult_mlp, "mnist": mnist_cnn}[dataset.name]
    return BatchedObjective(factory, epochs=5, batch_size=64, device=device)


def true_sum(
    objective: BatchedObjective, parts: list[Samples], space: Space, tally: TallyPlan
) -> tuple[IntVector, float]:
    """Return the exact sum of all clients' ballots in votes, and the seconds it took."""
    rng = np.random.default_rng(0)
    total: IntVector = np.zeros(len(space), dtype=np.int64)
    start = time.process_time()
    for part in parts:
        if tally.adjacency is Adjacency.REPLACE_ONE_RECORD:
            key = rng.bytes(32)
            total += sum(shard_ballots(objective, part, space, tally, key=key, seed=0))
        else:
            losses = objective.losses(part, space, seed=0)
            total += fill_ballot(losses, tally.shape, rng.bytes(32))
    return total, time.process_time() - start


def accuracies_of_winners(
    votes: IntVector,
    tally: TallyPlan | None,
    space: Space,
    scores: npt.NDArray[np.float64],
    draws: int,
) -> npt.NDArray[np.float64]:
    """Return the accuracy of the winner under each of many draws of the planned noise."""
    decoder, rng = ArgmaxDecoder(), np.random.default_rng(1)
    if tally is None:
        winner = decoder.decode(NoisyVotes(space, votes.astype(float), 0.0, 1)).winner
        return np.array([scores[winner]])
    ballots, std = tally.clients * tally.shards, tally.most_noise_std
    table = tally.noise.table(tally.most_noise)  # Skellam: all clients' noise is one draw
    found = []
    for _ in range(draws):
        noisy = votes + table.draw(rng.bytes(32), len(space)) / tally.scale
        found.append(scores[decoder.decode(NoisyVotes(space, noisy, std, ballots)).winner])
    return np.array(found)


def measure(name: str, dataset: Dataset, clients: int, arguments: argparse.Namespace) -> list[Row]:
    """Measure one data set and number of clients, both units, all budgets."""
    space, rows = authors_space(), []
    objective = objective_for(dataset, arguments.model, arguments.device)
    count = min(arguments.rows or ROWS[name], len(dataset.train))
    chosen = np.random.default_rng(0).permutation(len(dataset.train))[:count]
    parts = split(
        dataset.train.take(chosen),
        clients=clients,
        how=arguments.split,
        beta=arguments.beta,
        seed=0,
    )
    federated = federated_averaging(objective, parts, space, dataset.test, rounds=5, seed=0)
    scores = np.nan_to_num(federated.accuracies)
    units = [(Adjacency.REPLACE_ONE_CLIENT, 1)]
    units += [(Adjacency.REPLACE_ONE_RECORD, shards) for shards in arguments.shards]
    for adjacency, shards in units:
        plans = {
            epsilon: plan(
                clients=clients,
                candidates=len(space),
                budget=Budget(epsilon, DELTA),
                adjacency=adjacency,
                shards=shards,
            ).tally
            for epsilon in arguments.epsilon
        }
        votes, seconds = true_sum(objective, parts, space, plans[arguments.epsilon[0]])
        for epsilon, tally in {**plans, 0.0: None}.items():
            won = accuracies_of_winners(votes, tally, space, scores, arguments.draws)
            whole = math.inf if tally is None else tally.whole_client_epsilon
            rows.append(
                Row(
                    data=name,
                    clients=clients,
                    unit=str(adjacency.unit),
                    shards=shards,
                    epsilon=epsilon,
                    accuracy=float(won.mean()),
                    regret=float(scores.max() - won.mean()),
                    standard_error=float(won.std() / math.sqrt(len(won))),
                    best=float(scores.max()),
                    random_guess=float(scores.mean()),
                    whole_client_epsilon=whole if math.isfinite(whole) else None,
                    local_seconds=seconds,
                )
            )
    return rows


def compared(rows: list[Row], shards: int) -> dict[str, Any]:
    """Return record-level regret and local cost over client-level ones, all settings together."""

    def mean(unit: str, number: int, epsilon: float | None, value: str) -> float:
        chosen = [r for r in rows if (r.unit, r.shards) == (unit, number)]
        return float(np.mean([getattr(r, value) for r in chosen if epsilon in (None, r.epsilon)]))

    budgets = sorted({row.epsilon for row in rows if row.epsilon})
    return {
        "regret": {
            f"{epsilon:g}": mean("record", shards, epsilon, "regret")
            / max(mean("client", 1, epsilon, "regret"), 1e-9)
            for epsilon in budgets
        },
        "local_cost": mean("record", shards, None, "local_seconds")
        / mean("client", 1, None, "local_seconds"),
    }


def main() -> None:
    """Measure all settings and print the regrets side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="holds mnist.npz, adult.parquet")
    parser.add_argument("--data", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 20])
    parser.add_argument("--shards", nargs="+", type=int, default=[10, 30])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.25, 0.5, 1.0, 3.0])
    parser.add_argument("--model", choices=("linear", "network"), default="linear")
    parser.add_argument("--split", choices=("iid", "dirichlet"), default="iid")
    parser.add_argument("--beta", type=float, default=0.5)
    parser.add_argument("--rows", type=int, help="training rows; a set's own number by default")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.data:
        dataset = load(name, folder=arguments.folder)
        for clients in arguments.clients:
            rows += measure(name, dataset, clients, arguments)
    ratios = {shards: compared(rows, shards) for shards in arguments.shards}
    if arguments.format == "json":
        settings = {name: str(value) for name, value in vars(arguments).items() if name != "folder"}
        shown = {"settings": settings, "ratios": ratios, "rows": [asdict(row) for row in rows]}
        print(json.dumps(shown, allow_nan=False))
        return
    print(
        f"model {arguments.model}, split {arguments.split}, {arguments.draws} draws, delta {DELTA}"
    )
    print("data   clients unit    shards  epsilon  accuracy  regret    local s  (whole client)")
    for row in rows:
        epsilon = f"{row.epsilon:g}" if row.epsilon else "none"
        whole = "none" if row.whole_client_epsilon is None else f"{row.whole_client_epsilon:.3g}"
        print(
            f"{row.data:<6} {row.clients:>7} {row.unit:<7} {row.shards:>6} {epsilon:>8}  "
            f"{row.accuracy:>8.3f} {row.regret:>7.3f} "
            f"{row.local_seconds:>10.1f}  {whole}"
        )
    for shards, ratio in ratios.items():
        regrets = ", ".join(f"{value:.3f} at {name}" for name, value in ratio["regret"].items())
        print(f"{shards} shards: regret over that of client-level votes {regrets}; ", end="")
        print(f"local search {ratio['local_cost']:.1f} times as dear")


if __name__ == "__main__":
    main()
