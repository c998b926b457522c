"""Training and averaging without a vote before them."""

from typing import TYPE_CHECKING

from urna.study.averages import named_clients, said_of_learner, schema_of
from urna.study.prepare import learner_of, settings_of
from urna.systems.average import ModelResult
from urna.systems.average import fit as fit_average
from urna.systems.train import RoundReport, TrainResult, fit
from urna.tally import Run

if TYPE_CHECKING:
    from urna.study.stages import Stages

__all__ = ["average_alone", "train_alone"]

_TRAINING = "training"  # the folder of a training's rounds


def train_alone(stages: "Stages") -> TrainResult:
    """Train a model with what the study says."""
    prepared, study, journal = stages.prepared, stages.study, stages.journal
    learner, electorate = learner_of(prepared), prepared.electorate
    stages.now = "training"
    journal.has(_TRAINING)  # its rounds may have been seen

    def progress(done: RoundReport) -> None:
        journal.wrote(_TRAINING)
        stages.hooks.progress("training", done.number, study.train.rounds)

    result = fit(
        learner,
        prepared.clients,
        budget=study.privacy.budget,
        rounds=study.train.rounds,
        settings=settings_of(study),
        score=learner.scorer(electorate.dataset.test) if electorate.tested else None,
        summation=stages.summation,
        folder=journal.folder / _TRAINING,
        about={"study": study.fingerprint},
        run=Run(
            ledger=journal.ledger,
            secrets=stages.secrets,
            force=study.train.anyway,
            progress=progress,
        ),
        **study.privacy.options,
    )
    stages.keep_trained(learner, result)
    return result


def average_alone(stages: "Stages") -> ModelResult:
    """Average one message of each client into one model, with what the study says."""
    prepared, study, journal = stages.prepared, stages.study, stages.journal
    said = study.average
    stages.now = "average"
    found = journal.found("model.json")
    if found is not None:
        return stages.with_model(ModelResult.read(found))

    def keep(model: ModelResult) -> None:
        journal.keep("model.json", model.as_mapping(), model.entry)

    model = fit_average(
        named_clients(prepared),
        schema_of(prepared),
        budget=study.privacy.budget,
        learner=said.learner,
        group=study.privacy.group,
        settings=said_of_learner(said),
        summation=stages.summation,
        device=said.device or None,
        run=Run(
            ledger=journal.ledger,
            secrets=stages.secrets,
            entry=journal.entry("then"),
            progress=stages.hooks.progress,
            keep=keep,
        ),
        **study.privacy.options,
    )
    keep(model)
    return stages.with_model(model)
