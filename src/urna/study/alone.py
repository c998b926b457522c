"""Training and averaging without a vote before them."""

from urna.randomness import SecretSource
from urna.study.averages import named_clients, said_of_learner, schema_of
from urna.study.journal import Journal
from urna.study.prepare import Prepared, settings_of
from urna.systems.average import ModelResult
from urna.systems.average import fit as fit_average
from urna.systems.train import RoundReport, TorchLearner, TrainResult, fit
from urna.systems.vote import SearchProgress
from urna.tally import Run, Summation

__all__ = ["average_alone", "train_alone"]

_TRAINING = "training"  # the folder of a training's rounds


def train_alone(
    prepared: Prepared,
    journal: Journal,
    learner: TorchLearner,
    secrets: SecretSource,
    summation: Summation,
    report: SearchProgress,
) -> TrainResult:
    """Train a model with what the study says."""
    study, electorate = prepared.study, prepared.electorate
    journal.has(_TRAINING)  # its rounds may have been seen

    def progress(done: RoundReport) -> None:
        journal.wrote(_TRAINING)
        report("training", done.number, study.train.rounds)

    return fit(
        learner,
        prepared.clients,
        budget=study.privacy.budget,
        rounds=study.train.rounds,
        settings=settings_of(study),
        score=learner.scorer(electorate.dataset.test) if electorate.tested else None,
        summation=summation,
        folder=journal.folder / _TRAINING,
        about={"study": study.fingerprint},
        run=Run(
            ledger=journal.ledger,
            secrets=secrets,
            force=study.train.anyway,
            progress=progress,
        ),
        **study.privacy.options,
    )


def average_alone(
    prepared: Prepared,
    journal: Journal,
    secrets: SecretSource,
    summation: Summation,
    report: SearchProgress,
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
        device=said.device or None,
        run=Run(
            ledger=journal.ledger,
            secrets=secrets,
            entry=journal.entry("then"),
            progress=report,
            keep=keep,
        ),
        **study.privacy.options,
    )
    keep(model)
    return model
