"""Compute, once per setting, what every vote of DP-Hype's evaluation is replayed from.

For each setting: every client's validation losses and accuracies of the authors' 100
candidates, and the test accuracy of every candidate trained by federated averaging. One
.npz file per setting; what is there is not computed again, so that a run may be cut short
anywhere and continued elsewhere.

    python benchmarks/dp_hype/losses.py --plan
    python benchmarks/dp_hype/losses.py --data FOLDER --output FOLDER --datasets adult,mnist

FOLDER of data: mnist.npz, cifar10_small.npz, and adult.parquet (or adult_rows.npz and
adult_test.npz, which `--prepare-adult FOLDER` makes of it). Needs a GPU in earnest; on a CPU
it serves tests, with `--limit-rows`.
"""

import argparse
import contextlib
import datetime
import json
import logging
import platform
import sys
import time
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from urna.data import Samples
from urna.local import BatchedObjective
from urna.local.models import authors_space
from urna.space import Space

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.dp_hype.federated import STILL, train_federated
from benchmarks.dp_hype.sets import clients_of, prepare_adult, read
from benchmarks.dp_hype.settings import BATCH, MODELS, Setting, chosen
from benchmarks.local_search.measure import scores_of_clients

PARTS = ("local", "federated")
SPACE = authors_space()
EXPECTED = {"adult": (10.0, 40.0), "mnist": (50.0, 200.0), "cifar10": (360.0, 1250.0)}
"""Seconds of a setting's two parts on an H200 before one was measured in this run."""
PREPARING = {"adult": 5.0, "mnist": 40.0, "cifar10": 100.0}
"""Seconds to record steps for a data set, likewise."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to compute; but for `federated_epochs` and `still_once` the same beyond rounding."""

    device: str
    limit_rows: int | None = None
    federated_epochs: int | None = None
    """Local epochs in each federated round; None for as many as in the local search."""
    checkpoints: Path | None = None
    """Where finished federated rounds are kept, for a run that is cut short."""
    compiled: tuple[tuple[int, int], ...] = ()
    """Lanes and rows of batches for which steps are compiled, each client by itself."""
    still_once: bool = False
    """Search: learning rates at which nothing moves are trained as the largest of them."""


@dataclass(slots=True)
class Clock:
    """Says whether another part would fit into the time there is."""

    limit: float | None
    start: float
    seen: dict[tuple[str, str], float]

    def fits(self, setting: Setting, part: str, prepared: bool) -> bool:
        """Return whether a part, as long as the last one like it, would end in time."""
        if self.limit is None:
            return True
        guess = EXPECTED[setting.dataset][PARTS.index(part)]
        needed = 1.1 * self.seen.get((setting.dataset, part), guess)
        needed += 0.0 if prepared or part == "federated" else PREPARING[setting.dataset]
        return time.perf_counter() - self.start + needed < self.limit

    def note(self, setting: Setting, part: str, seconds: float) -> None:
        """Remember how long a part took."""
        self.seen[setting.dataset, part] = seconds


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def progress_line(what: str, every: float = 20.0) -> Callable[[int, int], None]:
    """Return a progress function that prints at most every so many seconds."""
    start = last = time.perf_counter()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last > every:
            last = now
            say(f"  {what}: {done / total:.0%} after {now - start:.0f} s")

    return show


def objective_for(setting: Setting, options: Options) -> BatchedObjective:
    """Return the authors' objective for a data set."""
    return BatchedObjective(
        MODELS[setting.dataset],
        epochs=setting.local_epochs,
        batch_size=BATCH,
        device=options.device,
    )


def steps_of(shapes: Collection[tuple[int, int]]) -> contextlib.AbstractContextManager[None]:
    """Return the context in which steps of these shapes are compiled."""
    if not shapes:
        return contextlib.nullcontext()
    from benchmarks.dp_hype.compiled import compiled_steps  # noqa: PLC0415 - imports triton

    return compiled_steps(shapes)


def synchronise(device: str) -> None:
    """Wait until the device has done all it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def local_part(
    setting: Setting, objective: BatchedObjective, clients: Sequence[Samples], still_once: bool
) -> dict[str, Any]:
    """Return the clients' validation losses and accuracies."""
    trained = at_once() if still_once else SPACE
    scores = scores_of_clients(
        objective,
        clients,
        trained,
        seeds=setting.client_seeds(),
        progress=progress_line(f"{setting.name} local"),
    )
    if still_once:
        places = {tuple(candidate.values()): place for place, candidate in enumerate(trained)}
        each = [{**c, "lr": max(float(c["lr"]), STILL)} for c in SPACE]
        scores = scores[:, [places[tuple(candidate.values())] for candidate in each]]
    return {
        "losses": scores[..., 0].astype(np.float32),
        "accuracies": scores[..., 1].astype(np.float16),
        "rows": np.array([len(client) for client in clients], dtype=np.int32),
    }


def federated_part(
    setting: Setting,
    objective: BatchedObjective,
    clients: Sequence[Samples],
    test: Samples,
    epochs: int,
    checkpoints: Path | None,
) -> dict[str, Any]:
    """Return how every candidate does when all clients train together."""
    accuracies, losses = train_federated(
        objective,
        clients,
        test,
        rounds=setting.rounds,
        local_epochs=epochs,
        seed=setting.seed,
        checkpoints=checkpoints and checkpoints / Path(setting.file).stem,
        progress=progress_line(f"{setting.name} federated"),
    )
    return {
        "federated": accuracies.astype(np.float32),
        "federated_losses": losses.astype(np.float32),
    }


def at_once() -> Space:
    """Return the authors' space with one learning rate for all at which nothing moves."""
    axes = _describe(SPACE)
    return Space(**{**axes, "lr": [rate for rate in axes["lr"] if rate >= STILL]})


def warm_up(
    settings: Sequence[Setting], objective: BatchedObjective, train: Samples, still_once: bool
) -> float:
    """Record a search's steps on the largest client of all settings; return the seconds.

    What is recorded for it serves every smaller one.
    """
    start = time.perf_counter()
    largest = max((c for s in settings for c in clients_of(s, train)), key=len)
    objective.scores(largest, at_once() if still_once else SPACE, seed=0)
    synchronise(objective.device)
    return time.perf_counter() - start


def load_file(folder: Path, setting: Setting) -> dict[str, Any]:
    """Return what is known of a setting, or nothing."""
    path = folder / setting.file
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        found: dict[str, Any] = dict(arrays)
    found["meta"] = json.loads(str(found["meta"]))
    return found


def store(folder: Path, setting: Setting, content: dict[str, Any], archive: Path | None) -> None:
    """Write a setting's file, whole or not at all, and renew the archive of all files."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / setting.file
    waiting = path.with_suffix(".part")
    arrays = {**content, "meta": np.array(json.dumps(content["meta"], sort_keys=True))}
    with waiting.open("wb") as file:
        np.savez_compressed(file, **arrays)
    waiting.replace(path)
    if archive is None:
        return
    waiting = archive.with_suffix(".part")
    with zipfile.ZipFile(waiting, "w") as bundle:  # the files in it are compressed already
        for file_path in sorted(folder.glob("*.npz")):
            bundle.write(file_path, file_path.name)
    waiting.replace(archive)


def run_part(
    part: str,
    setting: Setting,
    objective: BatchedObjective,
    clients: Sequence[Samples],
    test: Samples,
    options: Options,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compute one part; return its arrays, and its seconds and memory."""
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    epochs = epochs_of(part, setting, options)
    if part == "local":
        arrays = local_part(setting, objective, clients, options.still_once)
    else:
        arrays = federated_part(setting, objective, clients, test, epochs, options.checkpoints)
    synchronise(options.device)
    note: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 3), "epochs": epochs}
    note["peak_bytes"] = int(torch.cuda.max_memory_allocated()) if on_gpu else None
    note["options"] = {k: v for k, v in asdict(options).items() if k != "checkpoints"}
    note["machine"] = torch.cuda.get_device_name() if on_gpu else platform.processor() or "CPU"
    note["torch"] = torch.__version__
    note["date"] = datetime.date.today().isoformat()
    return arrays, note


def run(
    settings: Sequence[Setting],
    options: Options,
    data: Path,
    output: Path,
    have: Path | None,
    archive: Path | None,
    parts: Sequence[str],
    clock: Clock,
) -> list[dict[str, Any]]:
    """Compute all that is missing, as far as the time goes; return a line per setting."""
    rows = []
    for dataset in dict.fromkeys(s.dataset for s in settings):
        mine = [s for s in settings if s.dataset == dataset]
        known = {s: load_file(output, s) or (load_file(have, s) if have else {}) for s in mine}
        missing = [s for s in mine if any(not there(p, s, known[s], options) for p in parts)]
        objective = objective_for(mine[0], options)
        prepared: dict[tuple[str, int], float] = {}
        train = test = None
        for setting in missing:
            content = known[setting]
            content.setdefault("meta", {"setting": asdict(setting), "space": _describe(SPACE)})
            for part in (p for p in parts if not there(p, setting, content, options)):
                epochs = epochs_of(part, setting, options)
                if not clock.fits(setting, part, (part, epochs) in prepared):
                    say(f"{setting.name} {part}: left out, it would not end in time")
                    continue
                if train is None or test is None:
                    train, test = read(dataset, data, options.limit_rows)
                # Federated training records for itself.
                if part == "local" and (part, epochs) not in prepared and options.device == "cuda":
                    took = warm_up(missing, objective, train, options.still_once)
                    prepared[part, epochs] = took
                    say(f"{dataset} {part}: recorded in {took:.1f} s")
                clients = clients_of(setting, train)
                arrays, note = run_part(part, setting, objective, clients, test, options)
                took = prepared.get((part, epochs), 0.0)
                note["preparing_seconds_of_data_set"] = round(took, 1)
                if part == "federated" and "federated" in content:  # of other epochs
                    before = content["meta"]["federated"].get("epochs", 1)
                    content[f"federated_{before}"] = content["federated"]
                clock.note(setting, part, note["seconds"])
                content.update(arrays)
                content["meta"][part] = note
                store(output, setting, content, archive)
                say(f"{setting.name} {part}: {note['seconds']:.1f} s")
            if all(there(p, setting, content, options) for p in parts):
                rows.append(_summary(setting, content))
                say(json.dumps(rows[-1]))
    return rows


def epochs_of(part: str, setting: Setting, options: Options) -> int:
    """Return the local epochs of a part: as many in a federated round as in the search."""
    given = options.federated_epochs if part == "federated" else None
    return given or setting.local_epochs


def there(part: str, setting: Setting, content: dict[str, Any], options: Options) -> bool:
    """Return whether a part has been computed, with the epochs that are wanted."""
    if ("losses" if part == "local" else "federated") not in content:
        return False
    known = content["meta"][part].get("epochs", 1 if part == "federated" else None)
    return known is None or bool(known == epochs_of(part, setting, options))


def _describe(space: Space) -> dict[str, list[Any]]:
    names = list(space[0])
    return {name: list(dict.fromkeys(candidate[name] for candidate in space)) for name in names}


def _summary(setting: Setting, content: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": setting.name, "seed": setting.seed}
    if "federated" in content:
        row["opt"] = round(float(np.nanmax(content["federated"])), 4)
        row["rand_guess"] = round(float(np.nanmean(content["federated"])), 4)
    if "losses" in content:
        favourites = np.bincount(np.argmin(content["losses"], axis=1), minlength=len(SPACE))
        row["favourite"] = int(favourites.argmax())
        row["favourite_share"] = round(float(favourites.max() / favourites.sum()), 3)
    for part in PARTS:
        if part in content["meta"]:
            row[f"{part}_seconds"] = content["meta"][part]["seconds"]
    return row


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", action="store_true", help="list the settings and stop")
    parser.add_argument("--prepare-adult", type=Path, help="write Adult's plain files from here")
    parser.add_argument("--data", type=Path, default=Path("local-data"), help="folder of data")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--have", type=Path, help="folder of settings computed before")
    parser.add_argument("--archive", type=Path, help="also keep all files in one .zip")
    parser.add_argument("--settings", help="for example mnist/100/iid,adult/50/0.5")
    parser.add_argument("--datasets", help="for example mnist,adult")
    parser.add_argument("--clients", help="for example 100,50")
    parser.add_argument("--splits", help="for example iid,5")
    parser.add_argument("--seeds", default="0", help="for example 0,1")
    parser.add_argument("--parts", default="local,federated")
    parser.add_argument("--seconds", type=float, help="start nothing that would end later")
    parser.add_argument("--no-tf32", action="store_true", help="full float32 matrix products")
    parser.add_argument(
        "--federated-epochs", type=int, help="in each round; as many as in the search by default"
    )
    parser.add_argument("--checkpoints", type=Path, help="keep federated rounds here, go on there")
    parser.add_argument(
        "--compiled", default="", help="compile steps of so many lanes and rows, as in 40x64,12x64"
    )
    parser.add_argument(
        "--still-once", action="store_true", help="search: train rates that move nothing as one"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--limit-rows", type=int, help="use few rows, to try things out")
    return parser.parse_args()


def main() -> None:
    """Compute what is missing and print a line for each finished setting."""
    given = arguments()
    clock = Clock(given.seconds, time.perf_counter(), {})
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    torch.backends.cuda.matmul.allow_tf32 = not given.no_tf32
    shapes = tuple(
        (int(lanes), int(rows))
        for lanes, _, rows in (shape.partition("x") for shape in given.compiled.split(",") if shape)
    )
    options = Options(
        given.device,
        given.limit_rows,
        given.federated_epochs,
        given.checkpoints,
        shapes,
        given.still_once,
    )
    settings = chosen(
        names=given.settings,
        datasets=given.datasets,
        clients=given.clients,
        splits=given.splits,
        seeds=[int(seed) for seed in given.seeds.split(",")],
    )
    if given.plan:
        for setting in settings:
            content = load_file(given.output, setting)
            state = [p for p in PARTS if there(p, setting, content, options)]
            print(f"{setting.name:20} {setting.file:28} {'+'.join(state) or '-'}")
    elif given.prepare_adult is not None:
        prepare_adult(given.prepare_adult, given.data)
    else:
        parts = given.parts.split(",")
        with steps_of(shapes):
            rows = run(
                settings, options, given.data, given.output, given.have, given.archive, parts, clock
            )
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
