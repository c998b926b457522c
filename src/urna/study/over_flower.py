"""A study among Flower's nodes: in its simulation, or in a real federation.

The server's part is the same in both: `conduct` holds the vote and the training over a grid, and
keeps what was paid for. In a federation it runs where the SuperLink runs its ServerApps.
"""

from dataclasses import replace
from typing import Any

from urna.flower import Deadlines, Federation, SumProgress, poll
from urna.flower.learning import server_strategy, train_learner
from urna.study.node import participant_of
from urna.study.prepare import division_of, learner_of, settings_of
from urna.study.schema import Follow
from urna.study.stages import Done, Stages, within
from urna.study.tune_and_train import Division
from urna.systems.train import TorchLearner, TrainResult
from urna.systems.vote import VoteResult
from urna.tally import Run

__all__ = ["conduct", "simulate_study"]

_GATHER = 600.0  # seconds: a simulation's workers start slowly


def simulate_study(stages: Stages) -> Done:
    """Hold a study's stages in Flower's simulation: a virtual node for each client and helper."""
    from urna.flower.simulation import run_among, simulated_helper  # noqa: PLC0415 - starts Ray

    prepared, helper = stages.prepared, stages.reveal.helper
    script = prepared.study.privacy.scripted_secrets or None
    return run_among(
        lambda grid, _: conduct(grid, stages, nodes=len(prepared.clients)),
        lambda data: participant_of(prepared, data, script=script),
        prepared.clients,
        helper=None if helper is None else simulated_helper(helper),
    )


def conduct(grid: Any, stages: Stages, *, nodes: int) -> Done:  # noqa: ANN401 - Flower's grid
    """Hold the vote and the training of a study over a grid.

    A vote that is on disk is not held again. Training in a federation goes on where it stood.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        stages: The study, and what was done of it.
        nodes: How many nodes have data; a helper is one more.
    """
    prepared, study, journal = stages.prepared, stages.study, stages.journal
    division = division_of(prepared, nodes)
    how, run = _how(stages, nodes), _run(stages)
    vote = stages.held()
    if vote is None:
        vote = poll(
            grid,
            prepared.candidates,
            budget=study.privacy.budget if division is None else division.vote,
            settings=stages.voting,
            seed=study.seed,
            federation=replace(how, wait_for=nodes + stages.reveal.winner),
            run=replace(
                run,
                entry=journal.entry("vote"),
                keep=stages.keep_vote,
                force=study.vote.force or division is not None,
            ),
            **study.privacy.options,
        )
        stages.keep_vote(vote)
    if study.follow is not Follow.TRAIN or division is None:
        return vote, None, vote.privacy
    stages.now = "training"
    stages.hooks.say(_told(vote))
    learner = learner_of(prepared)
    trained = stages.trained()
    if trained is None:
        trained = _train(grid, stages, learner, vote, division, how, run)
    stages.keep_trained(learner, trained)
    journal.note(division=division.as_mapping())
    return vote, trained, trained.privacy


def _train(
    grid: Any,  # noqa: ANN401 - Flower's grid
    stages: Stages,
    learner: TorchLearner,
    vote: VoteResult,
    division: Division,
    how: Federation,
    run: Run,
) -> TrainResult:
    """Train with what the vote chose; the result says what both promise together."""
    prepared, study, journal = stages.prepared, stages.study, stages.journal
    score = learner.scorer(prepared.client_data.dataset.test)
    how_trained = study.train
    federated = bool(study.engine.federation)
    trained = train_learner(
        grid,
        learner,
        vote.best,
        rounds=how_trained.rounds,
        settings=settings_of(study),
        strategy=server_strategy(
            how_trained.optimiser, how_trained.server_lr, how_trained.momentum
        ),
        score=score if prepared.client_data.tested else None,
        budget=division.train,
        # Simulated nodes end with this process: what they hold of a round cannot go on.
        folder=journal.folder / "training" if federated and how_trained.rounds > 1 else None,
        federation=how,
        run=replace(run, entry=journal.entry("then"), force=how_trained.force),
        **study.privacy.options,
    )
    privacy = within(
        study.privacy.budget, vote, trained.privacy, f"{trained.rounds} rounds of training"
    )
    history = trained.history
    if prepared.client_data.tested and history:
        history = (*history[:-1], replace(history[-1], test=score(trained.weights)))
    return replace(trained, privacy=privacy, description=learner.description, history=history)


def _how(stages: Stages, nodes: int) -> Federation:
    """Return how nodes are reached, for the vote and the training alike."""
    engine, base = stages.study.engine, stages.study.base
    return Federation(
        directory=base / engine.directory if engine.directory else None,
        server_key=base / engine.server_key if engine.server_key else None,
        least_clients=engine.least_clients if engine.federation else nodes,
        wait_for=nodes,
        deadlines=Deadlines(gather=_GATHER, stage=engine.stage_seconds),
        transcripts=stages.journal.folder / "transcripts" if engine.federation else None,
    )


def _run(stages: Stages) -> Run:
    """Return where sums are counted and shown."""

    def progress(step: SumProgress) -> None:
        stages.hooks.progress(step.stage, step.answered, step.asked)

    return Run(ledger=stages.journal.ledger, progress=progress)


def _told(vote: VoteResult) -> str:
    return "the vote chose " + ", ".join(f"{name}={value}" for name, value in vote.best.items())
