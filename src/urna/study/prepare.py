"""A study made ready: its data read, its objective found, its budget divided; nothing spent."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from urna.data import Dataset, Samples
from urna.errors import ParameterError, UnknownName
from urna.local import CachedObjective, Objective, Recipe, check_objective
from urna.privacy import Unit
from urna.space import Space
from urna.study.file import Study
from urna.study.objectives import ChosenObjective, choose_objective
from urna.study.schema import Follow
from urna.study.sources import ClientData, gather
from urna.study.tune import VOTE_SHARE
from urna.study.tune_and_train import Division, divide
from urna.systems.train import (
    Clip,
    EarlyStop,
    Sampling,
    Settings,
    TorchLearner,
    Validation,
    read_optimiser,
)
from urna.systems.vote import COUNTS, Reveal

__all__ = [
    "Prepared",
    "division_of",
    "learner_of",
    "prepare",
    "prepare_with",
    "reveal_of",
    "settings_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A study whose data are read and whose objective is there; nothing is spent yet."""

    study: Study
    client_data: ClientData
    chosen: ChosenObjective | None
    """How candidates are judged; None where they are settings of an average."""
    space: Space | None

    @property
    def title(self) -> str:
        """What pages are called."""
        what = f": {self.what}" if self.clients else ""
        return self.study.title or f"{self.client_data.how}{what}"

    @property
    def what(self) -> str:
        """What is voted on, in a few words."""
        return "one message, one model" if self.chosen is None else self.chosen.description

    @property
    def clients(self) -> list[Samples]:
        """Each client's data."""
        return self.client_data.clients

    @property
    def candidates(self) -> Space:
        """What is voted on, where the study or its objective says so."""
        if self.space is None:
            raise ParameterError("there are no candidates")
        return self.space

    def objective(self, cache: Path | None) -> Objective[Samples]:
        """Return how candidates are judged, with losses kept on disk where that is wanted."""
        if self.chosen is None:
            raise ParameterError("settings of an average are judged by themselves")
        enabled = self.study.objective.cache and cache is not None
        folder = cache or Path()
        return CachedObjective(self.chosen.objective, folder, enabled=enabled)


def prepare(study: Study) -> Prepared:
    """Read a study's data and find its objective. Nothing is computed and nothing is spent.

    Raises:
        ParameterError: Something is not there or does not fit; the message names the line.
    """
    if study.follow is Follow.COMBINE and not study.votes:  # of a table, not of clients' rows
        rows = Samples(np.zeros((0, 1)), np.zeros(0))
        name, where = Path(study.data.source).name, ", ".join(study.combine.where) or "all rows"
        how = f"{name}: {where}"
        nobody = ClientData([], [], Dataset(name, rows, rows, None), None, how=how)
        return Prepared(study, nobody, None, study.space)
    with study.blaming("data.source"):
        by_record = study.privacy.relation.unit is Unit.RECORD
        client_data = gather(
            study.data,
            seed=study.seed,
            base=study.base,
            by_record=by_record,
            marked=study.follow is Follow.AVERAGE,  # a schema makes such rows zeros
        )
    return prepare_with(study, client_data)


def prepare_with(study: Study, client_data: ClientData, *, own: Path | None = None) -> Prepared:
    """Find the objective of a study whose clients are known; see `prepare`."""
    follow = study.follow
    if follow is Follow.AVERAGE:
        if client_data.labels is None and study.votes:
            raise study.error(
                str(study.follow), "settings of an average are voted on for classes alone"
            )
        return Prepared(study, client_data, None, study.space)
    with study.blaming("objective.model"):
        chosen = choose_objective(
            study.objective,
            client_data.dataset,
            base=own or study.base,
            train=follow is Follow.TRAIN,
        )
        if follow is Follow.TRAIN and chosen.factory is None:
            raise ParameterError(
                "training follows a vote on how a torch module is trained, and "
                f"{chosen.description} is none: name `linear`, `mlp`, `pooled` or what makes one"
            )
    if not study.votes:
        return Prepared(study, client_data, chosen, None)
    space = study.space or chosen.space
    if space is None:
        raise study.error(
            "objective.model",
            f"{chosen.description} has no candidates of its own: name some under [space], such as "
            'C = { kind = "log", values = [0.01, 0.1, 1.0] }',
        )
    try:
        check_objective(chosen.objective, space)
    except UnknownName as error:
        raise study.error(f"space.{error.name}", str(error)) from error
    except ParameterError as error:
        raise study.error("space", str(error)) from error
    return Prepared(study, client_data, chosen, space)


def settings_of(study: Study) -> Settings:
    """Return how a study's model is trained."""
    said = study.train
    chosen = {"lr": said.server_lr}
    if said.optimiser == "fedavgm":
        chosen["momentum"] = said.momentum
    return Settings(
        optimiser=read_optimiser(said.optimiser, **chosen),
        clip=Clip(said.clip, said.adaptive_clip),
        sampling=Sampling.of(said.sampling, said.part),
        validation=Validation() if said.validate else None,
        stop=EarlyStop() if said.stop_early else None,
        tail=said.tail,
        record_clip=said.record_clip,
        seed=study.seed,
    )


def learner_of(prepared: Prepared) -> TorchLearner:
    """Return what is trained after the vote."""
    said, chosen = prepared.study.train, prepared.chosen
    if chosen is None or chosen.factory is None:
        raise ParameterError("there is nothing to train")
    recipe = Recipe(
        lr=said.lr, epochs=said.epochs, batch_size=said.batch_size, proximal=said.proximal
    )
    share = Validation().part if said.validate else 0.0
    return TorchLearner(chosen.factory, recipe, share, chosen.loss)


def reveal_of(study: Study) -> Reveal:
    """Return what a study's vote reveals."""
    vote = study.vote
    return Reveal("winner", vote.helper, vote.verified) if vote.winner else COUNTS


def division_of(prepared: Prepared, clients: int | None = None) -> Division | None:
    """Return how the budget is divided between the vote and what follows; None if nothing does."""
    study = prepared.study
    privacy, follow = study.privacy, study.follow
    if follow is Follow.NOTHING or not study.votes:
        return None
    share = privacy.vote_share
    if share == "auto" and follow is Follow.TRAIN:
        return divide(
            privacy.budget,
            clients=clients or len(prepared.clients),
            parameters=len(learner_of(prepared).first_weights(seed=study.seed)),
            rounds=study.train.rounds,
            settings=settings_of(study),
            candidates=len(prepared.space or ()),
            reveal=reveal_of(study),
            **privacy.options,
        )
    part = float(share) if share != "auto" else VOTE_SHARE if follow is Follow.AVERAGE else 0.5
    voting, rest = reveal_of(study).divide(privacy.budget, part)
    return Division(part, voting, rest, ())
