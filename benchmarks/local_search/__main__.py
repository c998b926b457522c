"""Claim: training all candidates of a client together beats a plain PyTorch loop over them.

Every ratio is the time of a plain sequential loop (one candidate after the other, PyTorch's
own layers, optimiser and dropout) over the time of `BatchedObjective` on the same client, in
the same run and on the same device. The loop is timed on some of the candidates, spread over
the space, and scaled to all of them: each candidate costs the loop the same.

    python -m benchmarks.local_search                     CPU, data that packages carry
    python -m benchmarks.local_search --suite parts       what each part of Speed is worth
    python -m benchmarks.local_search --suite training    100 clients of one federated round
    python -m benchmarks.local_search --suite apart       100 shards in processes of their own
    python -m benchmarks.local_search --suite racing --data FOLDER    races, on a CPU
    python -m benchmarks.local_search --suite curves --data FOLDER    many races from one search
    python -m benchmarks.local_search --suite h200 --data FOLDER    on a GPU: Adult, MNIST, races
    python -m benchmarks.local_search --suite cifar10 --data FOLDER    on a GPU: CIFAR-10
    python -m benchmarks.local_search --suite convolve    on a GPU: our convolutions and cuDNN's

FOLDER holds mnist.npz, cifar10_small.npz and adult.parquet, or adult_rows.npz where the
machine cannot read parquet (`--prepare FOLDER` writes that file beside adult.parquet).
Times are wall times with PyTorch's default number of threads; `--threads 1` sets another.
CPU times are given beside them: on a busy machine, wall time is mostly waiting.
"""

import argparse
import datetime
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.local_search import convolve, cpu, curves, gpu, measure, racing

SUITES = ("cpu", "parts", "training", "apart", "racing", "curves", "h200", "cifar10", "convolve")
ON_GPU = ("h200", "cifar10", "convolve")
RACING_SECONDS = 300.0  # no part of the racing suite starts later
TARGETS = {
    "cpu": {"adult": 6, "small-cnn": 10},
    "cuda": {"adult": 150, "small-cnn": 60, "mnist-cnn": 20},
}


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the suite that was asked for."""
    limit = min(given.seconds, RACING_SECONDS)
    suites: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "cpu": lambda: cpu.cpu_suite(given.data, given.model),
        "parts": cpu.parts_suite,
        "training": lambda: cpu.training_suite(given.device),
        "apart": cpu.apart_suite,
        "racing": lambda: racing.racing_suite(given.data, limit, given.clients, given.model),
        "curves": lambda: curves.curves_suite(given.data, given.clients),
        "h200": lambda: gpu.h200_suite(given.data, given.seconds),
        "cifar10": lambda: gpu.cifar10_suite(given.data, given.seconds),
        "convolve": lambda: convolve.convolve_suite(given.lanes),
    }
    return suites[given.suite]()


def main() -> None:
    """Run a suite and print every measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, default="cpu")
    parser.add_argument("--model", choices=("adult", "small-cnn"), help="one of the two only (CPU)")
    parser.add_argument("--clients", type=int, default=2, help="MNIST's, of a CPU's races")
    parser.add_argument("--lanes", type=int, default=80, help="candidates at once (convolve)")
    parser.add_argument("--device", default="cpu", help="of the training suite")
    parser.add_argument("--data", type=Path, default=None, help="folder of data files")
    parser.add_argument("--prepare", type=Path, default=None, help="write adult_rows.npz and stop")
    parser.add_argument("--threads", type=int, default=None, help="PyTorch's threads")
    parser.add_argument("--seconds", type=float, default=450.0, help="time for the GPU suite")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--output", type=Path, default=None, help="also write the JSON here")
    given = parser.parse_args()
    if given.prepare is not None:
        measure.prepare(given.prepare)
        return
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    device = "cuda" if given.suite in ON_GPU or given.device == "cuda" else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("this measures a GPU, and there is none here")
    rows = run(given)
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
    if given.output is not None:
        given.output.write_text(text + "\n")
    if given.format == "json":
        print(text)
        return
    for row in rows:
        print(row["name"], *(f"{k}={v:.4g}" for k, v in row.items() if isinstance(v, float)))


if __name__ == "__main__":
    main()
