"""`urna run`, and the commands that are a study of one stage, or of a vote and one."""

import json
import math
import os
import shlex
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import urna
from urna.cli.options import QuietOption, Said, SpaceOption, keyed, say_candidates
from urna.cli.output import Format, FormatOption, errors, live_progress, print_table, results, table
from urna.cli.pages import write_page
from urna.errors import OutputError, ParameterError
from urna.files import today
from urna.privacy import Ledger, Unit
from urna.privacy.budget import rounded_up
from urna.report import Provenance, account_of, load_run
from urna.study import Hooks, Study, StudyOutcome, read_study, run_study
from urna.study.draft import seen_of
from urna.study.journal import LEDGER
from urna.study.schema import DataPart
from urna.study.sources import is_known
from urna.systems.combine import Combination
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult
from urna.tally.card import header

__all__ = ["StudyArgument", "average", "once", "run_file", "search", "train"]

StudyArgument = Annotated[
    Path, typer.Argument(metavar="STUDY", help="A study file, or the folder that holds study.toml.")
]


def run_file(
    study: StudyArgument,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run STUDY: vote, then what follows, under one budget. Goes on where it was interrupted.

    As JSON the result is one line.
    """
    found = read_study(study)
    run = Provenance(
        version=urna.__version__,
        command="" if found.privacy.scripted_secrets else f"urna run {found.path.name}",
        study=found.text,
        study_name=found.path.name,
        simulated=not found.engine.federation,
    )
    outcome, title = hold(found, run, quiet=quiet)
    if output is Format.JSON:
        typer.echo(json.dumps(_as_mapping(outcome, found), allow_nan=False))
        return
    print_result(outcome, title, head_of(outcome, found))
    results().print(f"\nwritten to {found.folder}:")
    for path in outcome.files:
        if not path.name.startswith("."):
            results().print(f"  {path.name:<20} {_ABOUT.get(path.name, '')}".rstrip())


def hold(
    study: Study, run: Provenance, *, quiet: bool, drawn: bool = True
) -> tuple[StudyOutcome, str]:
    """Run a study; return what came of it, and what it is called.

    Args:
        study: The study.
        run: Where its results come from, as its pages say.
        quiet: Whether to show no progress.
        drawn: Whether to draw the page.
    """
    for name in ("result.json", "report.html"):
        if (study.folder / name).is_dir():  # found out later, it would be paid for by then
            raise OutputError(f"cannot write {study.folder / name}: it is a folder")
    titles = [study.title or study.path.stem]

    def draw(path: Path, _: StudyOutcome, title: str) -> None:
        titles.append(title)
        if drawn:
            write_page(path.with_name("result.json"), path)

    def about(title: str) -> dict[str, Any]:
        named = study.privacy.ledger
        account = account_of(Ledger(study.base / named)) if named else None
        return {"run": replace(run, title=title, account=account).as_mapping()}

    with live_progress(quiet) as report:
        said = (lambda sentence: None) if quiet else errors.print
        hooks = Hooks(report, said, draw, about)
        outcome = run_study(study, version=urna.__version__, cache=cache_folder(), hooks=hooks)
    if outcome.again and (before := load_run(study.folder / "result.json")) is not None:
        titles.append(before.title)
    return outcome, titles[-1]


def ledger_of(study: Study) -> Path | None:
    """Return the ledger that counted a study: the one it names, or its own; None where none did."""
    named = study.privacy.ledger
    path = study.base / named if named else study.folder / LEDGER
    return path if path.exists() else None


def head_of(outcome: StudyOutcome, study: Study) -> str:
    """Return what stands at the head of a study's output, as on its page and card."""
    ledger = ledger_of(study)
    return header(
        outcome.privacy,
        played=not study.engine.federation,
        ledger=None if ledger is None else ledger.name,
    )


def cache_folder() -> Path:
    """Return where this user's programs keep losses, which can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "urna" / "losses"


def _as_mapping(outcome: StudyOutcome, study: Study) -> dict[str, Any]:
    last, privacy, ledger = outcome.result, outcome.privacy, ledger_of(study)
    return {
        "kind": "study",
        "version": 1,
        "epsilon": privacy.epsilon if privacy.private else None,
        "delta": privacy.delta,
        "unit": str(study.privacy.relation.unit),
        "simulated": not study.engine.federation,
        "ledger": None if ledger is None else str(ledger),
        "accuracy": outcome.accuracy,
        "baseline": outcome.baseline,
        "folder": str(study.folder),
        "files": [path.name for path in outcome.files],
        "best": None if outcome.vote is None else outcome.vote.best,
        "privacy": outcome.privacy.as_mapping(),
        "vote": None if outcome.vote is None else outcome.vote.as_mapping(),
        "result": None if isinstance(last, VoteResult) else last.as_mapping(),
    }


_ABOUT = {
    "report.html": "the page to show",
    "result.json": "the last result",
    "vote.json": "the vote",
    "model.safetensors": "the model",
    "model.npz": "the model",
    "model.json": "the model, with its plan",
    "combination.json": "the combination",
    "MODEL_CARD.md": "the model's card",
    "ledger": "what was spent (`urna ledger show`)",
    "study.toml": "the study as it was run",
    "study.json": "how far it is",
}


_TOLD = ("label", "record_column", "clients", "classes", "span", "ranges", "categories")


def run_once(said: Said, *stages: str, quiet: bool, output: Format) -> None:
    """Run the study that options say, as `urna run` would, and print what came of it."""
    for stage in stages:
        said.section(stage)
    study = said.study()
    if seen := _seen(study):
        for name, value in seen.items():
            said.section("data").setdefault(name, value)
        study = said.study()
    with once(study, quiet=quiet) as (outcome, title, folder, head):
        pass
    if output is Format.JSON:
        typer.echo(outcome.result.as_json())
        return
    print_result(outcome, title, head)
    if folder is not None:
        results().print(f"written: {folder / 'report.html'} and {folder / 'result.json'}")


@contextmanager
def once(study: Study, *, quiet: bool) -> Iterator[tuple[StudyOutcome, str, Path | None, str]]:
    """Run a study; give what came of it, its title, the folder that is kept, and its head.

    Without a folder it runs in one that is thrown away; with a ledger the folder is beside it.
    """
    with _somewhere(study) as (folder, kept):
        scripted = bool(study.privacy.scripted_secrets)
        command = "" if scripted else shlex.join(["urna", *sys.argv[1:]])
        run = Provenance(version=urna.__version__, command=command, simulated=True)
        placed = replace(study, output=replace(study.output, folder=str(folder)))
        outcome, title = hold(placed, run, quiet=quiet, drawn=kept)
        yield outcome, title, folder if kept else None, head_of(outcome, placed)


@contextmanager
def _somewhere(study: Study) -> Iterator[tuple[Path, bool]]:
    """Give the folder that results are written to, and whether it stays."""
    if ("output", "folder") in study.places:
        yield study.folder, True
    elif study.privacy.ledger:
        ledger = Ledger(study.base / study.privacy.ledger).path
        yield ledger.with_name(f"{ledger.name}.results") / _stamp(), True
    else:
        with tempfile.TemporaryDirectory(prefix="urna-") as folder:
            yield Path(folder), False


def _stamp() -> str:
    """Return a name of its own for what is kept: the day, because hours tell how long data took."""
    day = time.strftime("%Y%m%d", time.gmtime(today()))
    return f"{day}-{uuid.uuid4().hex[:8]}"


def _seen(study: Study) -> dict[str, Any]:
    """Return what files of one's own say of themselves, where nobody says it, and tell it."""
    part: DataPart = study.data
    if part.hub or is_known(part.source) or not (study.base / part.source).exists():
        return {}
    if (part.classes or part.span) and (part.features or part.ranges or part.categories):
        return {}
    with study.blaming("data.source"):
        people = study.privacy.relation.unit is Unit.RECORD
        guess = ("data", "label") not in study.places
        seen, notes = seen_of(part, base=study.base, people=people, guess=guess)
    new = {key: value for key, value in seen.items() if ("data", key) not in study.places}
    for note in notes:
        errors.print(f"note: {note}")
    told = (f"{key} = {str(new[key])[:60]}" for key in _TOLD if key in new)
    errors.print("note: read off these data, and so as public as your command line:", end=" ")
    errors.print(", ".join(told))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in new.items()}


def print_result(outcome: StudyOutcome, title: str, head: str) -> None:
    """Print what came of a study: votes and rounds as tables, everything in sentences.

    `head` says where it ran, what it promises and which ledger counted it.
    """
    console, last = results(), outcome.result
    console.print(f"{head}\n")
    if outcome.again:
        console.print("this study is finished; nothing was spent now\n", style="dim")
    if isinstance(last, VoteResult) and last.revealed.counts is not None:
        _print_votes(last, title)
    elif isinstance(last, TrainResult) and last.history:
        _print_rounds(last, title)
    else:
        console.print(title)
    if outcome.vote is not None and outcome.follow is not None:
        console.print(outcome.vote.verdict)
    console.print(str(last))
    if isinstance(last, Combination):
        console.print(f"everything together: {outcome.privacy}")


def _print_votes(result: VoteResult, title: str) -> None:
    rows = table(title, "", *(f">{name}" for name in result.space.axes), ">noisy votes", "")
    longest = max(float(result.votes.max()), 1.0)
    for place in result.places(8):
        votes = float(result.votes[place])
        bar = "█" * round(24 * max(votes, 0.0) / longest)
        mark = "→" if place == result.winner else ""
        values = (f"{value}" for value in result.space[place].values())
        rows.add_row(mark, *values, f"{votes:.1f}", bar)
    print_table(rows)
    star = "a guess" if result.inconclusive else "the winner"
    noise = (
        f"each ± {result.standard_error:.1f} votes of noise (one standard deviation); → {star}\n"
    )
    results().print(noise, style="dim")


def _print_rounds(result: TrainResult, title: str) -> None:
    rows = table(title, ">round", ">in the sum", ">clip norm", ">epsilon", ">test", "")
    history = result.history
    every = max(1, len(history) // 8)
    shown = [r for r in history if r.number % every == 0 or r is history[-1] or r is history[0]]
    for report in shown:
        epsilon = "infinite" if report.epsilon is None else rounded_up(report.epsilon)
        right = math.nan if report.test is None else report.test[1]
        test = "" if math.isnan(right) else f"{100 * right:.1f} %"
        bar = "" if math.isnan(right) else "█" * round(24 * right)
        rows.add_row(
            f"{report.number}", f"{report.took_part}", f"{report.clip_norm:.3g}", epsilon, test, bar
        )
    print_table(rows)


def _search(
    said: Said,
    space: SpaceOption = None,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Let clients agree on hyperparameters by secret ballot."""
    say_candidates(said, space)
    run_once(said, "vote", quiet=quiet, output=output)


search = keyed("search", _search)


def _train(
    said: Said,
    tune: Annotated[
        bool, typer.Option(help="Let clients vote on the step size first, within the same budget.")
    ] = False,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Train a model over clients whose data stay with them, under one privacy budget.

    Run again with the same output folder it goes on where it was interrupted.
    """
    run_once(said, *(["vote"] if tune else []), "train", quiet=quiet, output=output)


train = keyed("train", _train)


def _average(
    said: Said,
    tune: Annotated[
        bool, typer.Option(help="Let clients vote on Λ, R and c first, under the same budget.")
    ] = False,
    space: SpaceOption = None,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Fit one model to all clients' data; each client sends one message, once."""
    if not tune and space:
        raise ParameterError("--space says how settings are voted on: add --tune")
    say_candidates(said, space)
    run_once(said, *(["vote"] if tune else []), "average", quiet=quiet, output=output)


average = keyed("average", _average)
