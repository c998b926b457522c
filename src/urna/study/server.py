"""A study among Flower's nodes: in its simulation, or served in a real federation.

The server's part is the same in both. In a federation it runs where the SuperLink runs its
ServerApps.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from urna.flower import Deadlines, Federation, SumProgress, poll
from urna.flower.learning import server_strategy, train_learner
from urna.flower.simulation import run_among, simulated_helper
from urna.local import Objective
from urna.privacy import Budget, Ledger, PrivacyStatement, Release
from urna.space import Space
from urna.study.file import read_study
from urna.study.node import blank, participant_of
from urna.study.prepare import reveal_of, stage_of
from urna.study.run import MODEL, TRAINING, Hooks, Result, StudyOutcome, StudyRun, run_stages
from urna.study.schema import Follow, TrainPart
from urna.study.stages import Among, AverageStage, CombineStage, Setting, TrainStage, VoteStage
from urna.systems.train import TrainResult
from urna.systems.train.checkpoint import read_tensors
from urna.systems.train.plan import TrainPlan
from urna.systems.vote import VotePlan, VoteResult, plan_vote
from urna.tally import Run

__all__ = ["NodesRun", "SimulatedRun", "serve_study"]

_GATHER = 600.0  # seconds: a simulation's workers start slowly


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodesVote(VoteStage):
    """A vote among the nodes of a grid; how many there are only gathering tells."""

    grid: Any
    federation: Federation
    progress: Any = None

    def check(self, planned: VotePlan, space: Space, ledger: Ledger | None, *, force: bool) -> None:
        """Leave it to the vote, whose terms are of the nodes that are there."""

    def hold(
        self, planned: VotePlan, space: Space, objective: Objective[Any], among: Among, run: Run
    ) -> VoteResult:
        """Hold the vote."""
        del objective  # the nodes' own
        helped = len(among.clients) + self.settings.reveal.winner
        return poll(
            self.grid,
            space,
            budget=planned.terms.budget,
            settings=self.settings,
            seed=self.seed,
            federation=replace(self.federation, wait_for=helped),
            run=replace(run, progress=self.progress),
            **among.options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodesTraining(TrainStage):
    """A training among the nodes of a grid."""

    grid: Any
    federation: Federation
    said: TrainPart

    def run(self, setting: Setting, budget: Budget, among: Among, run: Run) -> TrainResult:
        """Train with what the vote chose."""
        said = self.said
        trained = train_learner(
            self.grid,
            self.learner,
            setting,
            rounds=self.rounds,
            settings=self.settings,
            strategy=server_strategy(said.optimiser, said.server_lr, said.momentum),
            score=self.score,
            budget=budget,
            folder=self.folder,
            federation=self.federation,
            run=run,
            **among.options,
        )
        history = trained.history
        if self.score is not None and history:
            history = (*history[:-1], replace(history[-1], test=self.score(trained.weights)))
        return replace(trained, description=self.learner.description, history=history)

    def spent(self, planned: TrainPlan, result: TrainResult) -> tuple[Release, ...] | None:
        """Return None: the noise is planned once it is known who is there."""
        del planned, result
        return None


class NodesRun(StudyRun):
    """The stages of a study over a grid; training in a federation goes on where it stood."""

    grid: Any = None
    """Flower's, as `@app.main()` gets it."""

    @property
    def nodes(self) -> int:
        """How many nodes have data; a helper is one more."""
        return self.study.engine.nodes

    def among(self) -> Among:
        """Return the nodes that are waited for, by their places."""
        return Among(range(self.nodes), options=self.study.privacy.options)

    def vote(self, among: Among) -> VoteResult:
        """Hold a vote that nothing follows."""
        stage, space = self.vote_stage("vote"), self.prepared.candidates
        planned = plan_vote(among.terms(self.study.privacy.budget), space, stage.settings)
        run = replace(self.counted("vote"), keep=self.keep_vote, force=stage.force)
        found = stage.hold(planned, space, self.prepared.objective(None), among, run)
        self.keep_vote(found)
        return found

    def vote_stage(
        self,
        what: str,
        kind: type[VoteStage] = _NodesVote,
        **more: Any,  # noqa: ANN401 - fields of that kind
    ) -> VoteStage:
        """Return the vote among nodes."""
        reached = {"grid": self.grid, "federation": self._federation(), "progress": self._show}
        return super().vote_stage(what, kind, **reached, **more)

    def follower(self) -> TrainStage | AverageStage | CombineStage | None:
        """Return the training among nodes, with what was done of it."""
        stage, journal, before = stage_of(self.prepared), self.journal, None
        if not isinstance(stage, TrainStage):
            return stage
        if journal.has(MODEL):
            _, said = read_tensors(journal.folder / MODEL)
            before = TrainResult.read(said["result"])
        # Simulated nodes end with this process: what they hold of a round cannot go on.
        goes_on = bool(self.study.engine.federation) and stage.rounds > 1
        return _NodesTraining(
            stage.learner,
            stage.rounds,
            stage.settings,
            score=stage.score,
            folder=journal.folder / TRAINING if goes_on else None,
            before=before,
            grid=self.grid,
            federation=self._federation(),
            said=self.study.train,
        )

    def counted(self, stage: str = "then") -> Run:
        """Return where sums are counted and shown; secrets are the nodes' own."""
        journal, forced = self.journal, self.study.follow is Follow.TRAIN and self.study.train.force
        return Run(
            ledger=journal.ledger, entry=journal.entry(stage), progress=self._show, force=forced
        )

    def _show(self, step: SumProgress) -> None:
        self.hooks.progress(step.stage, step.answered, step.asked)

    def _federation(self) -> Federation:
        """Return how nodes are reached, for the vote and the training alike."""
        engine, base = self.study.engine, self.study.base
        return Federation(
            directory=base / engine.directory if engine.directory else None,
            server_key=base / engine.server_key if engine.server_key else None,
            least_clients=engine.least_clients if engine.federation else self.nodes,
            wait_for=self.nodes,
            deadlines=Deadlines(gather=_GATHER, stage=engine.stage_seconds),
            transcripts=self.journal.folder / "transcripts" if engine.federation else None,
        )


class SimulatedRun(NodesRun):
    """The stages of a study in Flower's simulation: a virtual node for each client and helper."""

    @property
    def nodes(self) -> int:
        """How many clients there are."""
        return len(self.prepared.clients)

    def hold(self) -> tuple[VoteResult | None, Result | None, PrivacyStatement]:
        """Hold them over a grid that ends with them."""
        prepared, helper = self.prepared, reveal_of(self.study).helper
        script = self.study.privacy.scripted_secrets or None

        def held(
            grid: Any,  # noqa: ANN401 - Flower's
            _: Any,  # noqa: ANN401
        ) -> tuple[VoteResult | None, Result | None, PrivacyStatement]:
            self.grid = grid
            return super(SimulatedRun, self).hold()

        return run_among(
            held,
            lambda data: participant_of(prepared, data, script=script),
            prepared.clients,
            helper=None if helper is None else simulated_helper(helper),
        )


def serve_study(
    grid: Any,  # noqa: ANN401 - Flower's grid
    path: Path,
    folder: Path,
    *,
    base: Path,
    version: str,
) -> StudyOutcome:
    """Be the server of a study in a federation: what a ServerApp calls.

    Args:
        grid: Flower's grid.
        path: The study file.
        folder: Where results are written, on this machine.
        base: The folder that the study's paths are relative to, on this machine.
        version: Of Urna, for the journal.

    Raises:
        ParameterError: The study cannot be run, or is finished or interrupted elsewhere.
        RoundAborted: Too few nodes take part; it says who does not and why.
    """
    study = replace(read_study(path), path=base / "study.toml")
    study = replace(study, output=replace(study.output, folder=str(folder)))

    def made(journal: Any) -> NodesRun:  # noqa: ANN401 - a journal
        hooks = Hooks(say=lambda sentence: print(sentence, flush=True))
        run = NodesRun(blank(study, own=path.parent), journal, hooks)
        run.grid = grid
        return run

    return run_stages(study, version, made)
