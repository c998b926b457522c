"""A study made ready: its data read, its objective found, its budget divided; nothing spent."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Dataset, Samples, count_records
from urna.errors import ParameterError, UnknownName
from urna.local import (
    BatchedObjective,
    CachedObjective,
    CallableObjective,
    EstimatorObjective,
    Objective,
    Recipe,
    TorchLoss,
    check_objective,
)
from urna.local.models import PRESETS, preset
from urna.local.named import named_object, said_in_one_line
from urna.privacy import Unit
from urna.space import Axis, Space
from urna.study.division import RATES, Division
from urna.study.file import Study
from urna.study.schema import Follow, ObjectivePart
from urna.study.sources import ClientData, gather
from urna.study.stages import Among, AverageStage, CombineStage, TrainStage
from urna.systems.average import LearnerSettings, RowRule, Schema
from urna.systems.train import (
    Clip,
    EarlyStop,
    Sampling,
    Settings,
    TorchLearner,
    Validation,
    read_optimiser,
)
from urna.systems.train.models import MODELS, network
from urna.systems.train.pipelined import PipelinedSummation
from urna.systems.vote import COUNTS, Reveal
from urna.tally import ClearSummation, EncryptedSummation, SecureAggregation, Summation

__all__ = [
    "ChosenObjective",
    "Prepared",
    "among_of",
    "choose_objective",
    "division_of",
    "learner_of",
    "named_targets",
    "prepare",
    "prepare_with",
    "reveal_of",
    "schema_of",
    "settings_of",
    "stage_of",
]

_SUMMATIONS: Mapping[str, Callable[[], Summation]] = {
    "secure": SecureAggregation,
    "encrypted": EncryptedSummation,
    "pipelined": PipelinedSummation,
    "clear": ClearSummation,
}


@dataclass(frozen=True, slots=True)
class ChosenObjective:
    """How candidates are judged, and what can be trained with the winner."""

    description: str
    objective: Objective[Samples]
    space: Space | None
    """The model's own candidates, where it has any."""
    factory: Callable[[], Any] | None = None
    """Makes the torch module, where it is one: what can be trained afterwards."""
    loss: TorchLoss = TorchLoss.CROSS_ENTROPY


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
    def fewest(self) -> float:
        """How many records each client has at least, as far as they are here."""
        return min(map(count_records, self.clients), default=math.inf)

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


def among_of(prepared: Prepared) -> Among:
    """Return who takes part in a study in this process, and how contributions are added up."""
    privacy, averaged = prepared.study.privacy, prepared.study.follow is Follow.AVERAGE
    data = _named_clients(prepared) if averaged else prepared.clients
    return Among(data, _SUMMATIONS[privacy.summation](), privacy.options)


def stage_of(
    prepared: Prepared, cache: Path | None = None
) -> TrainStage | AverageStage | CombineStage | None:
    """Return what follows the vote of a study, or stands alone; None where nothing does."""
    study, data = prepared.study, prepared.client_data
    match study.follow:
        case Follow.NOTHING:
            return None
        case Follow.TRAIN:
            learner = learner_of(prepared)
            score = learner.scorer(data.dataset.test) if data.tested else None
            about = {"study": study.fingerprint}
            how = settings_of(study)
            return TrainStage(learner, study.train.rounds, how, score=score, about=about)
        case Follow.AVERAGE:
            said = study.average
            learned = said.voted_on if study.votes else said.learner
            own: LearnerSettings = {"regularisation": said.regularisation}
            return AverageStage(schema_of(prepared), learned, study.privacy.group, own)
        case _:
            judge, how_combined = prepared.objective(cache), study.combine.strategy
            return CombineStage(prepared.candidates, judge, how_combined, study.seed)


def division_of(prepared: Prepared, among: Among) -> Division | None:
    """Return how the budget is divided between the vote and what follows; None if nothing does."""
    privacy, reveal = prepared.study.privacy, reveal_of(prepared.study)
    stage = stage_of(prepared) if prepared.study.votes else None
    if stage is None:
        return None
    if privacy.vote_share != "auto":
        return Division.of(privacy.budget, float(privacy.vote_share), reveal)
    return stage.divide(privacy.budget, among, reveal, len(prepared.space or ()))


def choose_objective(
    part: ObjectivePart, dataset: Dataset, *, base: Path | None = None, train: bool = False
) -> ChosenObjective:
    """Return the objective that a study names.

    Args:
        part: What is said of it.
        dataset: What it is evaluated on.
        base: The folder that files of one's own are relative to.
        train: Whether a torch module is trained afterwards: `linear` is then one.

    Raises:
        ParameterError: There is no such model, or it is nothing that can judge candidates.
    """
    name = part.model
    if ":" in name:
        return _own(part, dataset, base)
    if name in PRESETS and not (train and name in MODELS):
        if train:
            raise ParameterError(
                f"`{name}` is judged and not trained: training takes {', '.join(MODELS)}, or what "
                "makes a torch module of your own"
            )
        ready = preset(name, dataset)
        return ChosenObjective(ready.description, ready.objective, ready.space)
    return _torch(part, network(name, dataset), f"network {name}", dataset)


def _own(part: ObjectivePart, dataset: Dataset, base: Path | None) -> ChosenObjective:
    name = part.model
    found = named_object(name, base=base)
    short = name.rpartition(":")[2]
    if not callable(found) and not hasattr(found, "losses") and not hasattr(found, "get_params"):
        raise ParameterError(
            f"{name} is {type(found).__name__}: a function (candidate, data) -> loss is wanted, an "
            "estimator, or what makes a torch module"
        )
    if hasattr(found, "losses") and not isinstance(found, type):
        return ChosenObjective(short, found, None)
    if not isinstance(found, type) and callable(found) and _takes(found) >= 2:
        return ChosenObjective(f"function {short}", CallableObjective(found), None)
    made = found
    if isinstance(found, type) or not hasattr(found, "get_params"):
        try:
            made = found()
        except (Exception, SystemExit) as error:  # whatever a stranger's function raises
            raise ParameterError(f"{name} cannot be made: {said_in_one_line(error)}") from error
    if hasattr(made, "get_params") and hasattr(made, "fit"):
        return ChosenObjective(short, EstimatorObjective(made, part.metric, dict(part.fixed)), None)
    if hasattr(made, "parameters") and hasattr(made, "forward"):
        return _torch(part, network(name, dataset, base=base), f"torch module {short}", dataset)
    if hasattr(made, "losses"):
        return ChosenObjective(short, made, None)
    raise ParameterError(
        f"{name} makes {type(made).__name__}, which is no estimator and no torch module; a "
        "function that judges takes (candidate, data)"
    )


def _torch(
    part: ObjectivePart, factory: Callable[[], Any], description: str, dataset: Dataset
) -> ChosenObjective:
    loss = TorchLoss.SQUARED_ERROR if dataset.classes is None else TorchLoss.CROSS_ENTROPY
    objective = BatchedObjective(factory, epochs=part.epochs, batch_size=part.batch_size, loss=loss)
    return ChosenObjective(description, objective, Space(lr=Axis.log(list(RATES))), factory, loss)


def _takes(function: Callable[..., Any]) -> int:
    """Return how many arguments a function must be called with."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def schema_of(prepared: Prepared) -> Schema:
    """Return what everybody knows of everybody's tables.

    Raises:
        ParameterError: Numbers are to be predicted, and nobody said from where to where.
    """
    client_data, said = prepared.client_data, prepared.study.average
    rows = RowRule(
        clip=said.clip,
        unit=said.unit_rows,
        intercept=said.intercept,
        projected=said.projected or None,
        seed=prepared.study.seed,
    )
    width = int(np.prod(client_data.clients[0].features.shape[1:]))
    if client_data.labels is None and client_data.span is None:
        raise ParameterError("name the span of the targets, smallest and largest")
    return Schema(width, client_data.labels, client_data.span, rows)


def _named_clients(prepared: Prepared) -> list[Samples]:
    """Return each client's rows with their classes by name."""
    client_data = prepared.client_data
    return [
        Samples(each.features, named_targets(client_data, each), each.ids)
        for each in client_data.clients
    ]


def named_targets(client_data: ClientData, samples: Samples) -> npt.NDArray[Any]:
    """Return targets as a model knows them: classes by name, or numbers; None is no class."""
    if client_data.labels is None:
        return np.asarray(samples.targets, dtype=np.float64)
    names = np.array([*client_data.labels, None], dtype=object)  # of which -1 is the last
    return names[np.asarray(samples.targets)]
