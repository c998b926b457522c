"""Claim: ten or twenty large clients find a good candidate when single records are protected.

Under client-level noise so few clients cannot: the noise is made for one ballot of ten. Here
each client's records are split into shards that vote for themselves, the noise stays that of one
ballot, and what is protected is one record instead of one client. Both are measured in the same
run, on the same clients, at the same epsilon, with the same ballot and the same decoder (the
paper's top-5 and argmax, and the product's defaults); only the unit differs. A winner is judged
by the test accuracy of the model that all clients train with it by federated averaging; regret is
how far that is below the best candidate's. The local search is timed both ways, because shards
should not make it much dearer.

    python benchmarks/few_clients.py --folder DATA
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.papers.federated import federated_averaging

from urna.data import Dataset, Samples, load, split
from urna.data.shards import PUBLIC_SHARD_KEY, split_records
from urna.data.split import MIN_SAMPLES
from urna.local import BatchedObjective, Losses, Progress
from urna.local.cache import data_fingerprint
from urna.local.models import adult_mlp, authors_space, mnist_cnn
from urna.noise import IntVector
from urna.privacy import Adjacency, Budget
from urna.randomness import derive_seed
from urna.space import Space
from urna.systems.vote import (
    ArgmaxDecoder,
    NoisyVotes,
    PosteriorDecoder,
    VotePlan,
    fill_ballot,
    plan,
)
from urna.systems.vote.ballot import BallotKind
from urna.systems.vote.decode import Decoder

DELTA = 1e-5
ROWS = {"adult": 12_000, "mnist": 8_000}
METHODS: dict[str, tuple[BallotKind | None, Decoder]] = {
    "paper": (BallotKind.TOP_K, ArgmaxDecoder()),
    "default": (None, PosteriorDecoder()),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: how good the winners of many draws of the noise are."""

    data: str
    clients: int
    method: str
    unit: str
    shards: int
    epsilon: float
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
    networks: dict[str, Callable[..., Any]] = {"adult": adult_mlp, "mnist": mnist_cnn}
    factory = linear(dataset.train.features.shape[1], dataset.classes or 2)
    if model == "network":
        factory = networks[dataset.name]
    return BatchedObjective(factory, epochs=5, batch_size=64, device=device)


class Remembered:
    """An objective that computes the losses of the same rows once, and counts the seconds."""

    def __init__(self, objective: BatchedObjective) -> None:
        self._objective = objective
        self._losses: dict[str, Losses] = {}
        self.seconds = 0.0

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the losses of every candidate."""
        name = data_fingerprint(data)
        if name not in self._losses:
            start = time.process_time()
            self._losses[name] = self._objective.losses(data, space, seed=seed)
            self.seconds += time.process_time() - start
        return self._losses[name]


def true_sum(
    objective: Remembered, parts: list[Samples], space: Space, vote: VotePlan
) -> IntVector:
    """Return the exact sum of all clients' ballots, in grid steps."""
    rng = np.random.default_rng(0)
    total: IntVector = np.zeros(len(space), dtype=np.int64)
    for part in parts:
        key = rng.bytes(32)
        shards = [part]
        if vote.terms.adjacency is Adjacency.REPLACE_ONE_RECORD:
            split = split_records(part, shards=vote.terms.shards, key=PUBLIC_SHARD_KEY)
            shards = [shard.data for shard in split if shard.records >= MIN_SAMPLES]
        for number, shard in enumerate(shards):
            losses = objective.losses(shard, space, seed=0)
            total += fill_ballot(losses, vote.shape, derive_seed(key, b"shard %d" % number))
    return total * vote.tally.scale


def accuracies_of_winners(
    total: IntVector,
    vote: VotePlan,
    decoder: Decoder,
    space: Space,
    scores: npt.NDArray[np.float64],
    draws: int,
) -> npt.NDArray[np.float64]:
    """Return the accuracy of the winner under each of many draws of the planned noise."""
    tally, rng = vote.tally, np.random.default_rng(1)
    ballots = tally.clients * vote.terms.shards
    table = tally.noise.table(tally.most_noise)  # Skellam: all clients' noise is one draw
    found = []
    for _ in range(draws):
        votes = (total + table.draw(rng.bytes(32), len(space))) / vote.vote
        noisy = NoisyVotes(
            space, votes, vote.most_noise_std, ballots, vote.shape.norm / vote.shape.vote
        )
        found.append(scores[decoder.decode(noisy).winner])
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
        remembered = Remembered(objective)
        for method, epsilon in itertools.product(METHODS, arguments.epsilon):
            ballot, decoder = METHODS[method]
            vote = plan(
                clients=clients,
                candidates=len(space),
                budget=Budget(epsilon, DELTA),
                ballot=ballot,
                adjacency=adjacency,
                shards=shards,
            )
            total = true_sum(remembered, parts, space, vote)
            won = accuracies_of_winners(total, vote, decoder, space, scores, arguments.draws)
            whole = vote.tally.whole_client_over(1)
            rows.append(
                Row(
                    data=name,
                    clients=clients,
                    method=method,
                    unit=str(adjacency.unit),
                    shards=shards,
                    epsilon=epsilon,
                    accuracy=float(won.mean()),
                    regret=float(scores.max() - won.mean()),
                    standard_error=float(won.std() / math.sqrt(len(won))),
                    best=float(scores.max()),
                    random_guess=float(scores.mean()),
                    whole_client_epsilon=whole if math.isfinite(whole) else None,
                    local_seconds=remembered.seconds,
                )
            )
    return rows


def compared(rows: list[Row], shards: int) -> dict[str, Any]:
    """Return record-level regret and local cost over client-level ones, all settings together."""

    def mean(value: str, **wanted: object) -> float:
        chosen = [r for r in rows if all(getattr(r, k) == v for k, v in wanted.items())]
        return float(np.mean([getattr(row, value) for row in chosen]))

    def ratio(value: str, **wanted: object) -> float:
        record = mean(value, unit="record", shards=shards, **wanted)
        return record / max(mean(value, unit="client", **wanted), 1e-9)

    budgets = sorted({row.epsilon for row in rows})
    regret = {m: {f"{e:g}": ratio("regret", method=m, epsilon=e) for e in budgets} for m in METHODS}
    return {"regret": regret, "local_cost": ratio("local_seconds")}


def main() -> None:
    """Measure all settings and print the regrets side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="holds mnist.npz, adult.parquet")
    parser.add_argument("--data", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 20])
    parser.add_argument("--shards", nargs="+", type=int, default=[20])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.25, 0.5, 1.0, 3.0])
    parser.add_argument("--model", choices=("linear", "network"), default="linear")
    parser.add_argument("--split", choices=("iid", "dirichlet"), default="iid")
    parser.add_argument("--beta", type=float, default=0.5)
    parser.add_argument("--rows", type=int, help="training rows; a set's own number by default")
    parser.add_argument("--draws", type=int, default=60)
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
    print(
        "data   clients method  unit    shards  epsilon  accuracy  regret    local s  whole client"
    )
    for row in rows:
        whole = "none" if row.whole_client_epsilon is None else f"{row.whole_client_epsilon:.3g}"
        print(
            f"{row.data:<6} {row.clients:>7} {row.method:<7} {row.unit:<7} {row.shards:>6} "
            f"{row.epsilon:>8g}  "
            f"{row.accuracy:>8.3f} {row.regret:>7.3f} "
            f"{row.local_seconds:>10.1f}  {whole}"
        )
    for shards, ratio in ratios.items():
        print(f"{shards} shards: local search {ratio['local_cost']:.1f} times as dear")
        for method, regret in ratio["regret"].items():
            shares = ", ".join(f"{value:.3f} at {epsilon}" for epsilon, value in regret.items())
            print(f"  {method}: regret over that of client-level votes {shares}")


if __name__ == "__main__":
    main()
