"""Claim: training all candidates of a client together beats a plain PyTorch loop over them.

Every ratio is the time of a plain sequential loop (one candidate after the other, PyTorch's
own layers, optimiser and dropout) over the time of `BatchedObjective` on the same client, in
the same run and on the same device. The loop is timed on some of the candidates, spread over
the space, and scaled to all of them: each candidate costs the loop the same.

    python benchmarks/local_search.py                     CPU, data that packages carry
    python benchmarks/local_search.py --suite racing --data FOLDER    races, on a CPU
    python benchmarks/local_search.py --suite h200 --data FOLDER    on a GPU: Adult, MNIST, races
    python benchmarks/local_search.py --suite cifar10 --data FOLDER    on a GPU: CIFAR-10
    python benchmarks/local_search.py --suite curves --data FOLDER    many races from one search

FOLDER holds mnist.npz, cifar10_small.npz and adult.parquet, or adult_rows.npz where the
machine cannot read parquet (`--prepare FOLDER` writes that file beside adult.parquet).
Times are wall times with PyTorch's default number of threads; `--threads 1` sets another.
CPU times are given beside them: on a busy machine, wall time is mostly waiting.
"""

import argparse
import datetime
import functools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from urna.data import Dataset, Samples, load, split
from urna.local.batched import BatchedObjective
from urna.local.batches import epoch_batches, seeded_module
from urna.local.holdout import hold_out
from urna.local.models import adult_mlp, authors_space, mnist_cnn
from urna.local.torch_sgd import as_tensors

SPACE = authors_space()
SMALL_CNN = functools.partial(mnist_cnn, first=8, second=16, hidden=64)
ROWS_OF_A_CLIENT = 326  # Adult over 100 clients
RACING_SECONDS = 300.0  # no part of the racing suite starts later
SUITES = ("cpu", "racing", "curves", "h200", "cifar10")
TARGETS = {
    "cpu": {"adult": 6, "small-cnn": 10},
    "cuda": {"adult": 500, "small-cnn": 60, "mnist-cnn": 20},
}


def digits_cnn(first: int = 8, second: int = 16) -> nn.Module:
    """Build a CNN of 8 and 16 channels for the 8×8 digits that scikit-learn carries."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * 4, 10),
    )


def synchronise(device: str) -> None:
    """Wait until the device has done all it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], device: str, repeats: int = 1) -> tuple[float, Any]:
    """Return the least wall time of some repetitions, and the last result."""
    wall, _, result = spent(work, device, repeats)
    return wall, result


def spent(work: Callable[[], Any], device: str, repeats: int = 1) -> tuple[float, float, Any]:
    """Return the least wall time, the least CPU time, and the last result.

    CPU time is that of all threads and of processes that have ended.
    """
    wall = cpu = float("inf")
    result = None
    for _ in range(repeats):
        synchronise(device)
        start, used = time.perf_counter(), sum(os.times()[:4])
        result = work()
        synchronise(device)
        wall, cpu = min(wall, time.perf_counter() - start), min(cpu, sum(os.times()[:4]) - used)
    return wall, cpu, result


def plain_loop(
    factory: Callable[[], nn.Module], data: Samples, places: Sequence[int], epochs: int, device: str
) -> list[float]:
    """Train candidates one after the other, as one would write it, and return their losses."""
    parts = hold_out(data, seed=0)
    inputs, targets = as_tensors(parts.train, device)
    held_inputs, held_targets = as_tensors(parts.validation, device)
    losses = []
    for place in places:
        candidate = SPACE[place]
        with seeded_module(0):
            module = factory()
        module.to(device).train()
        optimiser = torch.optim.SGD(
            module.parameters(), lr=candidate["lr"], momentum=candidate["momentum"]
        )
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, gamma=candidate["decay"])
        for epoch in range(epochs):
            batches = epoch_batches(len(targets), 64, seed=0, epoch=epoch)
            order = torch.from_numpy(np.concatenate(batches)).to(device)
            for chosen in order.split(64):
                loss = F.cross_entropy(module(inputs[chosen]), targets[chosen])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            schedule.step()
        module.eval()
        with torch.no_grad():
            losses.append(F.cross_entropy(module(held_inputs), held_targets).item())
    return losses


def compare(
    name: str,
    factory: Callable[[], nn.Module],
    data: Samples,
    device: str,
    *,
    epochs: int = 5,
    loop_candidates: int = 10,
    repeats: int = 3,
    together: Sequence[Samples] = (),
    **options: Any,  # noqa: ANN401 - passed on
) -> dict[str, Any]:
    """Measure one client's search against the plain loop.

    With `together`, the ratio is that of many simulated clients, per client; the one
    client's alone is given beside it.
    """
    step = len(SPACE) // loop_candidates
    places = list(range(step // 2, len(SPACE), step))
    objective = BatchedObjective(factory, epochs=epochs, device=device, **options)
    plain_loop(factory, data, places[:1], 1, device)
    first, losses = seconds(lambda: objective.losses(data, SPACE, seed=0), device)
    ours, our_cpu, _ = spent(lambda: objective.losses(data, SPACE, seed=0), device, repeats)
    loop, loop_cpu, expected = spent(
        lambda: plain_loop(factory, data, places, epochs, device), device, repeats
    )
    loop, loop_cpu = (taken * len(SPACE) / len(places) for taken in (loop, loop_cpu))
    alone = ours
    if together:
        seeds = range(len(together))

        def search() -> np.ndarray:
            return objective.losses_of_clients(together, SPACE, seeds=seeds)

        search()
        ours = seconds(search, device, repeats)[0] / len(together)
    return {
        "name": name,
        "ratio": loop / ours,
        "ratio_one_client_alone": loop / alone,
        "cpu_time_ratio_one_client_alone": loop_cpu / our_cpu,
        "clients_together": max(len(together), 1),
        "loop_seconds": loop,
        "batched_seconds": ours,
        "batched_first_seconds": first,
        "loop_candidates_timed": len(places),
        "example_losses": [float(losses[places[0]]), expected[0]],
    }


def adult_data(folder: Path | None, clients: int) -> list[Samples]:
    """Return Adult clients: from a prepared file, from urna.data, or rows of Adult's shape."""
    if folder is not None and (folder / "adult_rows.npz").exists():
        rows = np.load(folder / "adult_rows.npz")
        train = Samples(rows["features"].astype(np.float32), rows["targets"].astype(np.int64))
        return split(train, clients=clients, how="iid", seed=0)
    if folder is not None:
        return split(load("adult", folder=folder), clients=clients, how="iid", seed=0)
    rng = np.random.default_rng(0)  # timing does not depend on values: Adult's shape is enough
    features = rng.standard_normal((ROWS_OF_A_CLIENT * clients, 108)).astype(np.float32)
    targets = (features[:, :4].sum(axis=1) + rng.standard_normal(len(features)) > 0).astype(
        np.int64
    )
    return split(Samples(features, targets), clients=max(clients, 2), how="iid", seed=0)[:clients]


def pictures(name: str, folder: Path, clients: int) -> list[Samples]:
    """Return iid clients of MNIST or CIFAR-10."""
    dataset: Dataset = load(name, folder=folder)
    return split(dataset, clients=clients, how="iid", seed=0)


def cpu_suite(folder: Path | None, model: str | None) -> list[dict[str, Any]]:
    """Measure the claims for a CPU on data of the right shape."""
    rows = []
    if model in (None, "adult"):
        rows.append(compare("adult", adult_mlp, adult_data(folder, 100)[0], "cpu"))
    if model in (None, "small-cnn"):
        digits = load("digits").train.take(np.arange(600))
        rows.append(compare("small-cnn", digits_cnn, digits, "cpu"))
    if folder is not None and model is None:
        mnist = pictures("mnist", folder, 100)[0]
        rows.append(
            compare("small-cnn-mnist", SMALL_CNN, mnist, "cpu", loop_candidates=2, repeats=1)
        )
    return rows


def prepare(folder: Path) -> None:
    """Write Adult's rows as a plain file, for a machine that cannot read parquet."""
    train = load("adult", folder=folder).train
    np.savez_compressed(
        folder / "adult_rows.npz",
        features=train.features.astype(np.float16),
        targets=train.targets.astype(np.uint8),
    )


def main() -> None:
    """Run a suite and print every measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, default="cpu")
    parser.add_argument("--model", choices=("adult", "small-cnn"), help="one of the two only (CPU)")
    parser.add_argument("--clients", type=int, default=2, help="MNIST's, of a CPU's races")
    parser.add_argument("--data", type=Path, default=None, help="folder of data files")
    parser.add_argument("--prepare", type=Path, default=None, help="write adult_rows.npz and stop")
    parser.add_argument("--threads", type=int, default=None, help="PyTorch's threads")
    parser.add_argument("--seconds", type=float, default=450.0, help="time for the GPU suite")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--output", type=Path, default=None, help="also write the JSON here")
    arguments = parser.parse_args()
    if arguments.prepare is not None:
        prepare(arguments.prepare)
        return
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    if arguments.suite == "cpu":
        device = "cpu"
        rows = cpu_suite(arguments.data, arguments.model)
    elif arguments.suite == "racing":
        from local_search_racing import racing_suite  # noqa: PLC0415 - imports this module

        device = "cpu"
        limit = min(arguments.seconds, RACING_SECONDS)
        rows = racing_suite(arguments.data, limit, arguments.clients, arguments.model)
    elif arguments.suite == "curves":
        from local_search_curves import curves_suite  # noqa: PLC0415 - imports this module

        device = "cpu"
        rows = curves_suite(arguments.data, arguments.clients)
    else:
        from local_search_gpu import cifar10_suite, h200_suite  # noqa: PLC0415 - needs a GPU

        device = "cuda"
        suite = h200_suite if arguments.suite == "h200" else cifar10_suite
        rows = suite(arguments.data, arguments.seconds)
    claims = {r["name"]: r["ratio"] for r in rows if "ratio" in r}
    wanted = {n: t for n, t in TARGETS[device].items() if n in claims}
    processor = platform.processor() or platform.machine()
    result = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python " + " ".join(sys.argv),
        "machine": torch.cuda.get_device_name() if device == "cuda" else processor,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "ratio": min((claims[n] for n in wanted), default=None),
        "ratios": claims,
        "targets": wanted,
        "met": all(claims[n] >= t for n, t in wanted.items()) if wanted else None,
        "measurements": rows,
    }
    text = json.dumps(result, indent=2)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")
    if arguments.format == "json":
        print(text)
        return
    for row in rows:
        print(row["name"], *(f"{k}={v:.4g}" for k, v in row.items() if isinstance(v, float)))


if __name__ == "__main__":
    main()
