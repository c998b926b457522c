"""`urna average`: one message per client, one model; all clients on this machine."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from urna.cli.keep import Keeper, keeping
from urna.cli.origin import origin
from urna.cli.output import Format, FormatOption, results
from urna.cli.progress import live_progress
from urna.cli.terms import (
    AdjacencyOption,
    AnywayOption,
    ColludingOption,
    DeltaOption,
    DropoutOption,
    EpsilonOption,
    LedgerOption,
    QuietOption,
    ScriptOption,
    SeedOption,
    ServerOption,
    UnitOption,
    ledger_at,
    terms_of,
)
from urna.data import Columns, Samples, Split, catalogue, load, read_tables, split
from urna.errors import ParameterError
from urna.files import write_whole
from urna.privacy import Budget
from urna.protocols.secagg import ServerModel
from urna.randomness import secrets_of
from urna.space import Space
from urna.study import VOTE_SHARE, tune_then_fit
from urna.systems.average import (
    LearnerKind,
    ModelResult,
    RowRule,
    Schema,
    Settings,
    Trainer,
    fit,
    model_card,
)
from urna.systems.average.batch import check_device
from urna.systems.average.schema import Class
from urna.systems.vote import VoteResult
from urna.tally import ClearSummation, SecureSummation

__all__ = ["average"]

_MOST_CLASSES = 100_000  # of a range
_LONGEST_CLASS = 18
_FILES = ("result.json", "report.html", "model.npz", "README.md", "vote.json")


class SummationKind(StrEnum):
    """Ways to add contributions up in one process."""

    SECURE = "secure"
    CLEAR = "clear"


@dataclass(frozen=True, slots=True)
class _Task:
    """What is learnt from whom, and what it is tried on."""

    title: str
    clients: list[Samples]
    schema: Schema
    test: Samples | None


def average(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder with one file for each client (.csv, .parquet, .npz), one file of all "
            "clients, or a data set that `urna data` lists."
        ),
    ],
    classes: Annotated[
        str | None, typer.Option(help="All classes there may be: `cat,dog`, or `0..9`.")
    ] = None,
    span: Annotated[
        str | None, typer.Option(help="Smallest and largest target of a regression: `0,400`.")
    ] = None,
    target: Annotated[str, typer.Option(help="Column to predict.")] = "target",
    client_column: Annotated[
        str | None, typer.Option(help="Column that says whose a row is, in one file of all.")
    ] = None,
    record_column: Annotated[
        str | None, typer.Option(help="Column whose equal values make rows one record.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="File of public test data, to measure the model on.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Deal the rows of a set or a file out to so many clients.")
    ] = None,
    how: Annotated[Split, typer.Option("--split", help="How a data set is split.")] = Split.IID,
    folder: Annotated[
        Path | None, typer.Option(help="Folder that holds a data set's file.")
    ] = None,
    learner: Annotated[
        LearnerKind, typer.Option(help="What each client computes; `auto` chooses and says why.")
    ] = LearnerKind.AUTO,
    trainer: Annotated[
        Trainer | None, typer.Option(help="How clients train: exactly, or by the paper's SGD.")
    ] = None,
    regularisation: Annotated[float | None, typer.Option(help="Λ of blind averaging.")] = None,
    radius: Annotated[float | None, typer.Option(help="R, largest norm of a model.")] = None,
    skewed: Annotated[
        bool, typer.Option(help="Clients may hold few classes each: average with a larger Λ.")
    ] = False,
    clip: Annotated[float, typer.Option(help="c, the norm of rows.")] = 1.0,
    unit_rows: Annotated[
        bool, typer.Option(help="Scale every row to norm c, or only clip longer ones.")
    ] = True,
    intercept: Annotated[float, typer.Option(help="A constant beside the features.")] = 0.3,
    projected: Annotated[
        int | None, typer.Option(help="Project features onto so many public random directions.")
    ] = None,
    tune: Annotated[
        bool, typer.Option(help="Let clients vote on Λ, R and c first, under the same budget.")
    ] = False,
    space: Annotated[
        Path | None, typer.Option(help="With --tune: candidates, as .toml or .json.")
    ] = None,
    share: Annotated[
        float, typer.Option(help="With --tune: the vote's share of the budget (of μ²).")
    ] = VOTE_SHARE,
    anyway: AnywayOption = False,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-5,
    unit: UnitOption = None,
    group: Annotated[
        int, typer.Option(help="With --unit record: records of a client protected together.")
    ] = 1,
    adjacency: AdjacencyOption = None,
    dropout: DropoutOption = "0",
    colluding: ColludingOption = "0",
    server: ServerOption = ServerModel.HONEST_BUT_CURIOUS,
    summation: Annotated[
        SummationKind, typer.Option(help="How messages are added up; `clear` hides nothing.")
    ] = SummationKind.SECURE,
    device: Annotated[
        str | None, typer.Option(help="A torch device such as cuda, to train all clients on.")
    ] = None,
    seed: SeedOption = 0,
    ledger: LedgerOption = None,
    scripted_secrets: ScriptOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Folder for model.npz, README.md (a model card), result.json, report.html, "
            "vote.json; with a ledger, beside the ledger by default.",
        ),
    ] = None,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Fit one model to all clients' data; each client sends one message, once."""
    if not tune and (space is not None or share != VOTE_SHARE):
        raise ParameterError("--space and --share say how settings are voted on: add --tune")
    if clients is not None and clients < 1:
        raise ParameterError(f"rows are dealt out to 1 client or more, got --clients {clients}")
    check_device(device)
    rows = RowRule(clip=clip, unit=unit_rows, intercept=intercept, projected=projected, seed=seed)
    opened = ledger_at(ledger)
    secrets = secrets_of(scripted_secrets)
    settings = _settings(regularisation, radius, trainer, skewed)
    common: dict[str, Any] = {
        "budget": Budget(epsilon, delta),
        "group": group,
        "settings": settings,
        "summation": ClearSummation() if summation is SummationKind.CLEAR else SecureSummation(),
        "ledger": opened,
        "secrets": secrets,
        "device": device,
        **terms_of(dropout, colluding, unit, adjacency, 1, server),
    }
    with keeping(out, opened, *_FILES) as keeper:
        columns = Columns(target, client_column, record_column)
        if source in {entry.name for entry in catalogue()}:
            if classes or span or test or client_column or record_column:
                raise ParameterError(
                    f"{source} is a known data set, whose columns, classes and test data are "
                    "known: name none of them"
                )
            task = _known(source, folder, clients or 60, how, seed, rows)
        else:
            task = _own(Path(source), columns, classes, span, test, clients, seed, rows)
        keeper.hold_room(task.schema.width * task.schema.outputs)
        with live_progress(quiet) as report:
            common |= {"progress": report, "keep": lambda made: _keep(made, keeper, task.title)}
            if tune:
                common |= {"anyway": anyway, "share": share, "seed": seed}
                result = _tuned(task, learner, space, keeper, common)
            else:
                result = fit(task.clients, task.schema, learner=learner, **common)
        if task.test is not None:
            result = replace(result, measured=_measured(result, task.test))
        keeper.tell(origin(task.title, simulated=True, repeatable=not secrets.private))
        _keep(result, keeper, task.title)
    if output is Format.JSON:
        typer.echo(result.as_json())
        return
    results().print(f"{task.title}\n{result}")
    if keeper.folder is not None:
        results().print(f"written: {', '.join(_FILES[:4])} in {keeper.folder}")


def _settings(
    regularisation: float | None, radius: float | None, trainer: Trainer | None, skewed: bool
) -> Settings:
    """Return what was said of the learner."""
    said: Settings = {}
    if regularisation is not None:
        said["regularisation"] = regularisation
    if radius is not None:
        said["radius"] = radius
    if trainer is not None:
        said["trainer"] = trainer
    if skewed:
        said["skewed"] = True
    return said


def _tuned(
    task: _Task,
    learner: LearnerKind,
    space: Path | None,
    keeper: Keeper,
    common: dict[str, Any],
) -> ModelResult:
    """Vote on settings, then average, under one budget."""

    def between(vote: VoteResult) -> None:
        keeper.keep(vote, "vote.json")
        keeper.hold_room(task.schema.width * task.schema.outputs)

    kind = LearnerKind.SOFTMAX if learner is LearnerKind.AUTO else learner
    model = tune_then_fit(
        task.clients,
        task.schema,
        learner=kind,
        space=None if space is None else Space.read(space),
        between=between,
        **common,
    ).model
    if learner is LearnerKind.AUTO:
        model = replace(model, why="settings are voted on, and moments have none")
    return model


def _keep(result: ModelResult, keeper: Keeper, title: str) -> None:
    """Write everything about the model into the folder, if there is one."""
    keeper.keep(result)
    keeper.keep_page()
    if keeper.folder is not None:
        result.save(keeper.folder / "model.npz")
        write_whole(keeper.folder / "README.md", model_card(result, name=title))


def _known(
    name: str, folder: Path | None, clients: int, how: Split, seed: int, rows: RowRule
) -> _Task:
    dataset = load(name, folder=folder)
    parts = split(dataset, clients=clients, how=how, seed=seed)
    features = int(np.prod(dataset.train.features.shape[1:]))
    if dataset.classes is None:
        # The span of a public set is public.
        low, high = float(dataset.train.targets.min()), float(dataset.train.targets.max())
        schema = Schema(features, span=(low, high), rows=rows)
    else:
        schema = Schema(features, tuple(range(dataset.classes)), rows=rows)
    return _Task(f"{name}, {clients} clients ({how})", parts, schema, dataset.test)


def _own(
    source: Path,
    columns: Columns,
    classes: str | None,
    span: str | None,
    test: Path | None,
    clients: int | None,
    seed: int,
    rows: RowRule,
) -> _Task:
    named, ends = _classes(classes), _span(span)
    if (named is None) == (ends is None):
        raise ParameterError(
            "name the classes there may be (--classes cat,dog or --classes 0..9), or the span of a "
            "regression's targets (--span 0,400): what data hold must not decide it"
        )
    texts = named is not None and isinstance(named[0], str)
    tables = read_tables(source, columns, texts=texts)
    parts = tables.clients
    if clients is not None:
        if len(parts) > 1:
            raise ParameterError(
                f"{source} says whose each row is: leave --clients out, which deals rows out"
            )
        order = np.random.default_rng(seed).permutation(len(parts[0]))
        parts = [parts[0].take(some) for some in np.array_split(order, clients)]
    schema = Schema(parts[0].features.shape[1], named, ends, rows)
    held = None if test is None else _test(test, columns, schema, tables.features)
    return _Task(f"{source.name}, {len(parts)} clients", parts, schema, held)


def _test(path: Path, columns: Columns, schema: Schema, names: tuple[str, ...] | None) -> Samples:
    """Return the rows of public test data that have a target; there is at least one."""
    if path.is_dir():
        raise ParameterError(f"test data are one file, {path} is a folder")
    texts = schema.classes is not None and isinstance(schema.classes[0], str)
    alone = replace(columns, client=None)
    (read,) = read_tables(path, alone, texts=texts, features=names).clients
    if read.features.shape[1] != schema.features:
        raise ParameterError(
            f"{path} has {read.features.shape[1]} features, the clients have {schema.features}"
        )
    known = np.asarray(read.targets != "") if texts else np.isfinite(read.targets)
    if not known.any():
        raise ParameterError(f"{path} has no row with a target to measure the model on")
    return read.take(np.flatnonzero(known))


def _measured(result: ModelResult, test: Samples) -> dict[str, float]:
    """Return the figures on test data that are numbers."""
    classes, targets = result.schema.classes, np.asarray(test.targets)
    if classes is not None and isinstance(classes[0], int):
        targets = targets.astype(np.float64)
    with np.errstate(all="ignore"):
        score = result.score(test.features, targets)
    kind = "accuracy" if classes is not None else "r2"
    return {kind: score} if math.isfinite(score) else {}


def _classes(given: str | None) -> tuple[Class, ...] | None:
    if given is None:
        return None
    first, dots, last = given.partition("..")
    if dots:
        if not (first.isdecimal() and last.isdecimal()):
            raise ParameterError(f"a range of classes is two whole numbers, 0..9; got {given}")
        low, high = _whole(first), _whole(last)
        if not low < high <= low + _MOST_CLASSES - 1:
            raise ParameterError(
                f"a range of classes is 2 to {_MOST_CLASSES:,} whole numbers, smallest first; got "
                f"{given}"
            )
        return tuple(range(low, high + 1))
    names = [name.strip() for name in given.split(",")]
    if all(name.removeprefix("-").isdecimal() for name in names):
        return tuple(_whole(name) for name in names)
    return tuple(names)


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_CLASS:
        raise ParameterError(f"a class's number has at most {_LONGEST_CLASS} digits")
    return int(digits)


def _span(given: str | None) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        low, high = (float(end) for end in given.split(","))
    except ValueError as error:
        raise ParameterError(
            f"a span is two numbers, smallest first: 0,400; got {given}"
        ) from error
    return low, high
