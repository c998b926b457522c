"""`urna train`: private training from the command line, all clients on this machine."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.keep import Keeper, keeping
from urna.cli.origin import origin
from urna.cli.output import Format, FormatOption, errors, print_table, results, table
from urna.cli.progress import live_progress
from urna.cli.terms import (
    AdjacencyOption,
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
from urna.cli.training import (
    AdaptiveOption,
    ClipOption,
    MomentumOption,
    OptimiserOption,
    PartOption,
    RecordClipOption,
    RoundsOption,
    SamplingKind,
    SamplingOption,
    ServerRateOption,
    StopOption,
    TailOption,
    ValidateOption,
    settings_of,
)
from urna.data import Dataset, Samples, Split, load, split
from urna.errors import ParameterError
from urna.files import write_whole
from urna.local import Recipe, TorchLoss
from urna.privacy import Budget
from urna.privacy.budget import rounded_up
from urna.protocols.secagg import ServerModel
from urna.randomness import secrets_of
from urna.report import load_result
from urna.study.tune_and_train import Tuned, tune_and_train
from urna.systems.train import RoundReport, Settings, TorchLearner, TrainResult, fit
from urna.systems.train.card import model_card
from urna.systems.train.checkpoint import FILE, write_model
from urna.systems.train.models import MODELS, network
from urna.systems.train.pipelined import PipelinedSummation
from urna.systems.vote import SearchProgress, VoteResult, read_again
from urna.systems.vote.result import UNREAD
from urna.tally import ClearSummation, SecureSummation, Summation

__all__ = ["train"]

_MODEL, _CARD, _VOTE = "model.safetensors", "model-card.md", "vote.json"
_FILES = (_MODEL, "result.json", "report.html", _CARD)


class SummationKind(StrEnum):
    """Ways to add updates up on one machine."""

    SECURE = "secure"
    PIPELINED = "pipelined"
    CLEAR = "clear"


def train(
    data: Annotated[str, typer.Option(help="Data set; `urna data` lists them.")] = "digits",
    folder: Annotated[Path | None, typer.Option(help="Folder that holds the set's file.")] = None,
    hub: Annotated[bool, typer.Option(help="Fetch it from the Hugging Face hub.")] = False,
    model: Annotated[
        str,
        typer.Option(help=f"Model: {', '.join(MODELS)}, or FILE.py:FUNCTION that makes a module."),
    ] = "mlp",
    clients: Annotated[int, typer.Option(help="How many clients there are.")] = 100,
    how: Annotated[Split, typer.Option("--split", help="How data is split.")] = Split.IID,
    beta: Annotated[float, typer.Option(help="Concentration of Dirichlet skews.")] = 0.5,
    level: Annotated[float, typer.Option(help="Feature skew, 0 (iid) to 1.")] = 0.8,
    rounds: RoundsOption = 40,
    epsilon: EpsilonOption = 6.0,
    delta: DeltaOption = 1e-3,
    lr: Annotated[float, typer.Option(help="Step size of the clients.")] = 0.1,
    epochs: Annotated[int, typer.Option(help="Passes over a client's rows in a round.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Rows in one step of a client.")] = 16,
    proximal: Annotated[float, typer.Option(help="FedProx's pull to the common weights.")] = 0.0,
    optimiser: OptimiserOption = "fedavgm",
    server_lr: ServerRateOption = 0.5,
    momentum: MomentumOption = 0.9,
    clip: ClipOption = 0.3,
    adaptive_clip: AdaptiveOption = None,
    sampling: SamplingOption = SamplingKind.EVERYONE,
    part: PartOption = "0.1",
    validate: ValidateOption = False,
    stop_early: StopOption = False,
    tail: TailOption = 0.0,
    dropout: DropoutOption = "0",
    colluding: ColludingOption = "0",
    unit: UnitOption = None,
    adjacency: AdjacencyOption = None,
    record_clip: RecordClipOption = None,
    summation: Annotated[
        SummationKind, typer.Option(help="How updates are added up; `clear` hides nothing.")
    ] = SummationKind.SECURE,
    server: ServerOption = ServerModel.HONEST_BUT_CURIOUS,
    tune: Annotated[
        bool,
        typer.Option(help="Let clients vote on the step size first, within the same budget."),
    ] = False,
    seed: SeedOption = 0,
    ledger: LedgerOption = None,
    scripted_secrets: ScriptOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Folder for model.safetensors, result.json, report.html, model-card.md and the "
            "checkpoint; with a ledger, beside the ledger by default.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on with the training in the output folder.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option(help="Train although the noise drowns everything.")
    ] = False,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Train a model over clients whose data stay with them, under one privacy budget."""
    settings = settings_of(
        optimiser=optimiser,
        server_lr=server_lr,
        momentum=momentum,
        clip=clip,
        adaptive=adaptive_clip,
        sampling=sampling,
        part=part,
        validate=validate,
        stop_early=stop_early,
        tail=tail,
        record_clip=record_clip,
        seed=seed,
    )
    opened = ledger_at(ledger)
    _check_place(out, resume)
    dataset = load(data, folder=folder, hub=hub)
    parts = split(dataset, clients=clients, how=how, beta=beta, level=level, seed=seed)
    recipe = Recipe(lr=lr, epochs=epochs, batch_size=batch_size, proximal=proximal)
    learner = _learner(model, dataset, recipe, settings)
    options = terms_of(dropout, colluding, unit, adjacency, 1, server)
    adding = _summation(summation)
    title = f"{learner.description} on {dataset.name}, {clients} clients ({how})"
    with keeping(out, opened, *_FILES, _VOTE) as keeper, live_progress(quiet) as report:
        keeper.hold_room(len(learner.first_weights(seed=seed)))

        def progress(done: RoundReport) -> None:
            report("training", done.number, rounds)

        common: dict[str, Any] = {
            "budget": Budget(epsilon, delta),
            "rounds": rounds,
            "settings": settings,
            "score": learner.scorer(dataset.test),
            "summation": adding,
            "ledger": opened,
            "secrets": secrets_of(scripted_secrets),
            "folder": keeper.folder,
            "about": {"data": dataset.name, "split": str(how), "beta": beta, "level": level},
            "anyway": anyway,
            "progress": progress,
            **options,
        }
        tuned: Tuned | None = None
        if tune:
            tuned = _tuned(learner, parts, keeper, report, common)
        if tuned is None:
            result = fit(learner, parts, **common)
        else:  # whoever reads of the model reads what choosing its settings cost as well
            result = replace(tuned.training, privacy=tuned.privacy)
        keeper.tell(origin(title, simulated=True, repeatable=not common["secrets"].private))
        written = _keep(keeper, result, learner, title, tuned)
    if output is Format.JSON:
        typer.echo(result.as_json())
        return
    _print(result, title)
    if tuned is not None:
        results().print(f"of which training alone: {tuned.training.privacy}")
    if written:
        results().print(f"written: {', '.join(map(str, written))}")


def _learner(model: str, dataset: Dataset, recipe: Recipe, settings: Settings) -> TorchLearner:
    share = 0.0 if settings.validation is None else settings.validation.part
    loss = TorchLoss.CROSS_ENTROPY if dataset.classes else TorchLoss.SQUARED_ERROR
    return TorchLearner(network(model, dataset), recipe, share, loss)


def _tuned(
    learner: TorchLearner,
    parts: list[Samples],
    keeper: Keeper,
    report: SearchProgress,
    common: dict[str, Any],
) -> Tuned:
    """Vote, then train; a vote that was paid for before is not held again."""
    file = None if keeper.folder is None else keeper.folder / _VOTE
    before = None
    if file is not None and file.exists():
        found = load_result(file)
        before = found if isinstance(found, VoteResult) else None
        if before is not None and before.decoder == UNREAD:
            before = read_again(before)
    report("planning the division", 0, 1)

    def keep(result: VoteResult) -> None:
        keeper.keep(result, _VOTE)
        keeper.hold_room(len(learner.first_weights(seed=common["settings"].seed)))

    done = tune_and_train(
        learner,
        parts,
        vote=before,
        announce=errors.print,
        keep=keep,
        voting_progress=report,
        **common,
    )
    report("planning the division", 1, 1)
    return done


def _summation(kind: SummationKind) -> Summation:
    if kind is SummationKind.PIPELINED:
        return PipelinedSummation()
    return ClearSummation() if kind is SummationKind.CLEAR else SecureSummation()


def _check_place(out: Path | None, resume: bool) -> None:
    """See that a training that is begun goes on only where that is meant."""
    if out is None:
        if resume:
            raise ParameterError("--resume goes on in a folder: name it with --output")
        return
    begun = (out / FILE).exists() or (out / _VOTE).exists()
    if begun and not resume:
        raise ParameterError(
            f"{out} holds a training already: say --resume to go on with it, or take another folder"
        )
    if resume and not begun:
        raise ParameterError(f"there is no training in {out} to go on with")


def _keep(
    keeper: Keeper, result: TrainResult, learner: TorchLearner, title: str, tuned: Tuned | None
) -> list[Path]:
    """Write the model, the result, the page and the card."""
    place = keeper.folder
    if place is None:
        return []
    keeper.give_room_back()
    write_model(place / _MODEL, learner, result)
    keeper.keep(_Told(result, tuned))
    keeper.keep_page()
    write_whole(place / _CARD, model_card(result, title=title, data=title.partition(" on ")[2]))
    return [place / name for name in _FILES]


@dataclass(frozen=True, slots=True)
class _Told:
    """A training's result, and what choosing its settings cost where they were voted on."""

    result: TrainResult
    tuned: Tuned | None

    @property
    def entry(self) -> str | None:
        """Its id in the ledger."""
        return self.result.entry

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        told = {} if self.tuned is None else {"tuned": self.tuned.as_mapping()}
        return self.result.as_mapping() | told


def _print(result: TrainResult, title: str) -> None:
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
    results().print(str(result))
