"""Training and averaging without a vote before them."""

from dataclasses import replace

from urna.study.averages import named_clients, said_of_learner, schema_of
from urna.study.journal import Journal
from urna.study.prepare import Prepared, settings_of
from urna.systems.average import ModelResult
from urna.systems.average import fit as fit_average
from urna.systems.train import RoundReport, TorchLearner, TrainResult, fit
from urna.tally import Run, Summation

__all__ = ["average_alone", "train_alone"]

_TRAINING = "training"  # the folder of a training's rounds


def train_alone(
    prepared: Prepared, journal: Journal, learner: TorchLearner, summation: Summation, run: Run
) -> TrainResult:
    """Train a model with what the study says."""
    study, client_data = prepared.study, prepared.client_data
    journal.has(_TRAINING)  # its rounds may have been seen

    def progress(done: RoundReport) -> None:
        journal.wrote(_TRAINING)
        if callable(run.progress):
            run.progress("training", done.number, study.train.rounds)

    return fit(
        learner,
        prepared.clients,
        budget=study.privacy.budget,
        rounds=study.train.rounds,
        settings=settings_of(study),
        score=learner.scorer(client_data.dataset.test) if client_data.tested else None,
        summation=summation,
        folder=journal.folder / _TRAINING,
        about={"study": study.fingerprint},
        run=replace(run, force=study.train.force, progress=progress),
        **study.privacy.options,
    )


def average_alone(
    prepared: Prepared, journal: Journal, summation: Summation, run: Run
) -> ModelResult:
    """Average one message of each client into one model, with what the study says."""
    study, said = prepared.study, prepared.study.average
    found = journal.found("model.json")
    if found is not None:
        return ModelResult.read(found)

    def keep(model: ModelResult) -> None:
        journal.keep("model.json", model.as_mapping(), model.entry)

    model = fit_average(
        named_clients(prepared),
        schema_of(prepared),
        budget=study.privacy.budget,
        learner=said.learner,
        group=study.privacy.group,
        settings=said_of_learner(said),
        summation=summation,
        run=replace(run, entry=journal.entry("then"), keep=keep),
        **study.privacy.options,
    )
    keep(model)
    return model
