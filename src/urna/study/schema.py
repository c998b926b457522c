"""Every key of a study, once: what it may be, what it is by default, what it says.

The file's reader, the options of commands, `urna init` and the guide's table are made of these
sections: a key that is not here does not exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from urna.data import Split
from urna.local import Metric
from urna.privacy import Adjacency, Budget, Unit
from urna.protocols.secagg import ServerModel
from urna.study.keys import Key, StudyField, fields_of, shown
from urna.systems.average import LearnerKind
from urna.systems.combine import STRATEGIES, Guarantee
from urna.systems.train.settings import SamplingKind
from urna.systems.vote import DecoderKind
from urna.systems.vote.ballot import BallotKind
from urna.tally import Options

__all__ = [
    "SECTIONS",
    "AboutPart",
    "AveragePart",
    "CombinePart",
    "DataPart",
    "EnginePart",
    "Follow",
    "ObjectivePart",
    "OutputPart",
    "PrivacyPart",
    "StudyPart",
    "TrainPart",
    "VotePart",
    "keys_of",
    "keys_table",
]

_FITTED = "search train average"
_SPLIT = f"{_FITTED} data"
_EVERY = "search train average combine"
_VOTES = "search plan"
_PLANS = "plan plan-train"


class Follow(StrEnum):
    """What follows the vote."""

    NOTHING = "nothing"
    TRAIN = "train"
    AVERAGE = "average"
    COMBINE = "combine"


# A table: each key, what it may be, what it says, its default.
# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPart:
    """What stands above all sections."""

    says: ClassVar[str] = "The study"
    title: Annotated[str, Key("What the page is called.")] = ""
    seed: Annotated[int, Key("Public seed of splits, holdouts and first weights.", on=_SPLIT)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart:
    """`[data]`: who holds which data."""

    says: ClassVar[str] = "Who holds which data. Everything said here is public"
    source: Annotated[str, Key(
        "A folder with one file for each client (.csv, .parquet, .npz), one file, a folder of "
        "pictures in class folders, or a set that `urna data` lists. Paths are relative to this "
        "file.", on=_FITTED, option="--data", preset="digits")]
    folder: Annotated[str, Key("Folder that holds a listed set's file.", on="data")] = ""
    hub: Annotated[bool, Key("Fetch a listed set from the Hugging Face hub.", on="data")] = False
    clients: Annotated[int, Key(
        "Deal the rows out to so many clients, where the files do not say whose they are.",
        on=_SPLIT)] = 0
    split: Annotated[Split, Key("How rows are dealt out.", on=_SPLIT)] = Split.IID
    beta: Annotated[float, Key("Concentration of Dirichlet splits.", on="data")] = 0.5
    level: Annotated[float, Key("Skew of feature splits, 0 (iid) to 1.", on="data")] = 0.8
    label: Annotated[str, Key("The column to predict.", on=_FITTED)] = "target"
    features: Annotated[tuple[str, ...], Key(
        "The columns to predict from; all others if empty.")] = ()
    client_column: Annotated[str, Key(
        "The column that says whose a row is, in one file.", on=_FITTED)] = ""
    record_column: Annotated[str, Key(
        "The column whose equal values make rows one record.", on=_FITTED)] = ""
    classes: Annotated[tuple[str, ...] | tuple[int, ...], Key(
        "All classes there may be. Not what the data hold decides: everybody agrees on them.",
        on="train average")] = ()
    span: Annotated[tuple[float, float] | None, Key(
        "Smallest and largest target, where a number is predicted.", on="average")] = None
    ranges: Annotated[Mapping[str, Any], Key(
        "Of columns of numbers: the smallest and the largest value, agreed on beforehand. They "
        "are scaled to -1..1; what is missing becomes 0.")] = field(default_factory=dict)
    categories: Annotated[Mapping[str, Any], Key(
        "Of columns of texts: all values there may be. Each becomes a column of 0 and 1."
    )] = field(default_factory=dict)
    picture: Annotated[tuple[int, int] | None, Key(
        "Height and width that pictures are scaled to.", least=1)] = None
    colour: Annotated[bool, Key("Whether pictures keep their colours.")] = False
    test: Annotated[str, Key(
        "A file of public test rows, to measure a model on.", on="train average")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePart:
    """`[objective]`: how a client judges a candidate."""

    says: ClassVar[str] = "How a client judges a candidate on its own data"
    model: Annotated[str, Key(
        "`linear`, `network`, `mlp` or `pooled`; or `module:name` or `file.py:name` of your own: "
        "a function (candidate, data) -> loss, an estimator, or what makes a torch module.",
        on="search train")] = "linear"
    metric: Annotated[Metric, Key("How estimators are judged.")] = Metric.AUTO
    fixed: Annotated[Mapping[str, Any], Key(
        "Parameters of an estimator that all share.")] = field( default_factory=dict )
    epochs: Annotated[int, Key("Passes of a torch module over a client's rows.")] = 5
    batch_size: Annotated[int, Key("Rows in one step of a torch module.")] = 16
    cache: Annotated[bool, Key("Keep local losses on this machine's disk.")] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPart:
    """`[privacy]`: what it may cost, against whom."""

    says: ClassVar[str] = "What it may cost, against whom, and what may go wrong"
    epsilon: Annotated[float, Key(
        "What everything together may cost: epsilon.",
        on=f"{_EVERY} {_PLANS}", preset=6.0, above=0)]
    delta: Annotated[float, Key(
        "The delta that goes with it.", on=f"{_EVERY} {_PLANS}", preset=1e-5, above=0, below=1)]
    unit: Annotated[Unit, Key(
        "What is protected: a client, or a record.", on=f"{_FITTED} {_PLANS}")] = Unit.CLIENT
    adjacency: Annotated[Adjacency | None, Key(
        "Between which data sets it holds; that of the unit if empty.", on=_PLANS)] = None
    shards: Annotated[int, Key(
        "Ballots of each client, where records are protected.", on=_VOTES, least=1)] = 1
    group: Annotated[int, Key(
        "average: records of one client that are protected together.", least=1)] = 1
    dropout: Annotated[Fraction, Key(
        "Largest part of the clients that may drop out.",
        on=f"{_EVERY} {_PLANS}", least=0, below=1)] = Fraction(0)
    colluding: Annotated[Fraction, Key(
        "Largest part that may tell the server their noise.",
        on=_PLANS, least=0, below=1)] = Fraction(0)
    server: Annotated[ServerModel, Key(
        "Which server is protected against.", on=_PLANS)] = ServerModel.HONEST_BUT_CURIOUS
    summation: Annotated[Literal["secure", "encrypted", "pipelined", "clear"], Key(
        "How ballots and models are added up: by masks, also in chunks while others are masked "
        "(training alone), under threshold encryption (few clients), or in the clear, which hides "
        "nothing.")] = "secure"
    vote_share: Annotated[Literal["auto"] | float, Key(
        "The vote's part of the budget (of squares of mu), where something follows; `auto` finds "
        "it by a dry run on synthetic data.", above=0, below=1)] = "auto"
    ledger: Annotated[str, Key(
        "Ledger to count in (`urna ledger create`); one of the study's own if empty.",
        on=_EVERY)] = ""
    scripted_secrets: Annotated[str, Key(
        "Repeatable noise from this label, for tests. NOT PRIVATE.", on=_EVERY)] = ""

    @property
    def budget(self) -> Budget:
        """What everything together may cost."""
        return Budget(self.epsilon, self.delta)

    @property
    def relation(self) -> Adjacency:
        """Between which data sets it holds."""
        if self.adjacency is not None:
            return self.adjacency
        by_record = self.unit is Unit.RECORD
        return Adjacency.REPLACE_ONE_RECORD if by_record else Adjacency.REPLACE_ONE_CLIENT

    @property
    def options(self) -> Options:
        """The terms of each sum, but for the clients and the budget."""
        return {
            "dropout": self.dropout,
            "colluding": self.colluding,
            "adjacency": self.relation,
            "shards": self.shards,
            "server": self.server,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VotePart:
    """`[vote]`: how ballots are filled, added up and read."""

    says: ClassVar[str] = "How ballots are filled, added up and read"
    ballot: Annotated[BallotKind | None, Key(
        "How a client spreads its vote; by scores if empty.", on="plan")] = None
    votes: Annotated[int, Key("How many candidates a top-k ballot names; 0 for 5.", on=_VOTES)] = 0
    decoder: Annotated[DecoderKind, Key(
        "How the winner is read.", on="plan")] = DecoderKind.POSTERIOR
    rehearse: Annotated[str, Key(
        "PUBLIC data of the same kind, named as the source is, on which the search is rehearsed "
        "first, for nothing; never the clients' own.", on="search")] = ""
    opens: Annotated[Literal["tally", "winner"], Key(
        "What becomes public: the noisy tally, or the winner alone, which takes less noise and a "
        "helper that does not collude with the leader.", on="search")] = "tally"
    helper: Annotated[str, Key(
        "With a winner alone: who holds the other share of the sum.", on="search")] = ""
    verified: Annotated[bool, Key(
        "With a winner alone, in memory or in a federation: leader and helper check every ballot, "
        "and refuse and name those that are not valid.")] = False
    force: Annotated[bool, Key(
        "Run a vote that will probably be inconclusive all the same.", on="search")] = False

    @property
    def winner(self) -> bool:
        """Whether only the winner is opened."""
        return self.opens == "winner"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPart:
    """`[train]`: how a model is trained."""

    says: ClassVar[str] = "A model is trained, in rounds"
    rounds: Annotated[int, Key("Rounds, at most.", on="train plan-train", least=1)] = 20
    lr: Annotated[float, Key(
        "Clients' step size, where nobody votes on it.", on="train", above=0)] = 0.1
    epochs: Annotated[int, Key("Passes over a client's rows in a round.", least=1)] = 1
    batch_size: Annotated[int, Key("Rows in one step of a client.", least=1)] = 16
    proximal: Annotated[float, Key("FedProx's pull to the common weights.", least=0)] = 0.0
    clip: Annotated[float, Key(
        "How long a client's update may be, in L2.", on="train plan-train", above=0)] = 0.3
    adaptive_clip: Annotated[float | None, Key(
        "Let the clip norm follow this quantile of the updates, privately.",
        on="plan-train", above=0, below=1)] = None
    record_clip: Annotated[float | None, Key(
        "Where records are protected: how long one's gradient may be.",
        on="plan-train", above=0)] = None
    optimiser: Annotated[Literal["fedavg", "fedavgm", "fedadam"], Key(
        "What the server does with the mean.")] = "fedavgm"
    server_lr: Annotated[float, Key("Step size of the server.", above=0)] = 0.5
    momentum: Annotated[float, Key("Momentum of fedavgm.", least=0, below=1)] = 0.9
    sampling: Annotated[SamplingKind, Key(
        "Who takes part: everyone; cohorts in turn; or secret Poisson sampling.",
        on="plan-train")] = SamplingKind.EVERYONE
    part: Annotated[Fraction, Key(
        "Part of the clients in a cohort, or a lot's probability.",
        on="plan-train", above=0, below=1)] = Fraction(1, 10)
    validate: Annotated[bool, Key(
        "Let clients judge the model, by a private tally in every round.", on="plan-train")] = False
    stop_early: Annotated[bool, Key("Stop once that tally's loss has stopped falling.")] = False
    tail: Annotated[float, Key(
        "Share of the last rounds whose weights are averaged.", least=0)] = 0.0
    force: Annotated[bool, Key(
        "Train although noise drowns everything.", on="train plan-train")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePart:
    """`[average]`: how one message of each client becomes one model."""

    says: ClassVar[str] = "One message of each client becomes one model"
    learner: Annotated[LearnerKind, Key(
        "What each client computes; `auto` chooses and says why.", on="average")] = LearnerKind.AUTO
    regularisation: Annotated[float | None, Key(
        "Λ of blind averaging.", on="average", above=0)] = None
    clip: Annotated[float, Key("c, the norm of rows.", on="average", above=0)] = 1.0
    unit_rows: Annotated[bool, Key("Scale every row to norm c, or only clip longer ones.")] = True
    intercept: Annotated[float, Key("A constant beside the features.")] = 0.3
    projected: Annotated[int, Key(
        "Project features onto so many public random directions; 0 for none.")] = 0

    @property
    def voted_on(self) -> LearnerKind:
        """The learner whose settings are voted on: moments have none."""
        return LearnerKind.SOFTMAX if self.learner is LearnerKind.AUTO else self.learner


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinePart:
    """`[combine]`: how clients' own best settings become one."""

    says: ClassVar[str] = (
        "Clients' own best settings become one. After a vote with noise; without one the data's "
        "source is a table of searches that clients have run"
    )
    strategy: Annotated[str, Key(
        f"How they become one: {', '.join(STRATEGIES)} or vote; after a vote, mean or top-mean.",
        on="combine")] = "mean"
    guarantee: Annotated[Guarantee, Key(
        "What clients of recorded searches are promised.", on="combine")] = Guarantee.NONE
    where: Annotated[tuple[str, ...], Key(
        "Only recorded rows with COLUMN=VALUE.", on="combine")] = ()
    axes: Annotated[tuple[str, ...], Key(
        "Recorded hyperparameters; all columns if empty.", on="combine")] = ()
    score: Annotated[str, Key(
        "Column that says how good a recorded setting is.", on="combine")] = "accuracy"
    min_points: Annotated[int, Key(
        "Clients that make a cell dense; for dbscan in the clear, settings that make a core.",
        on="combine", least=1)] = 4
    cell: Annotated[float | None, Key(
        "Length of a cell, as a part of an axis; 0.15 if empty.", on="combine", above=0)] = None
    log_scale: Annotated[bool, Key(
        "Average rates on their log scale, not as they are.", on="combine")] = False
    tolerance: Annotated[float, Key(
        "For dbscan: clients keep what is within this part of their best score.",
        above=0, below=1)] = 0.15
    reach: Annotated[float | None, Key(
        "For dbscan in the clear: settings this close, in parts of an axis, are neighbours; 0.3 if "
        "empty.", above=0)] = None
    stretched: Annotated[bool, Key(
        "For dbscan in the clear: axes end where kept settings do, as in PrivTuna's code.")] = False
    by_rule: Annotated[bool, Key(
        "For dbscan in the clear: `min_points` is twice the number of axes, `reach` the knee of "
        "distances between settings.")] = False
    threshold: Annotated[int | None, Key(
        "With encryption: how many must help to open; all if empty.", on="combine", least=1)] = None
    recompute: Annotated[bool, Key(
        "With encryption: parties compute keys and results again before they use them.",
        on="combine")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePart:
    """`[engine]`: where the clients run."""

    says: ClassVar[str] = "Where the clients run"
    kind: Annotated[Literal["memory", "flower"], Key(
        "`memory`: all clients in this process. `flower`: as nodes, simulated unless a federation "
        "is named.")] = "memory"
    federation: Annotated[str, Key(
        "Name of a SuperLink connection of `flwr`'s configuration: real nodes take part.")] = ""
    nodes: Annotated[int, Key("How many nodes to wait for in a federation.")] = 0
    least_clients: Annotated[int, Key("With fewer nodes ready, nothing is begun.")] = 2
    directory: Annotated[str, Key("File of all nodes' identity keys: signed sums.")] = ""
    server_key: Annotated[str, Key("File of the key that signs announcements.")] = ""
    stage_seconds: Annotated[float, Key(
        "How long to wait for one stage's answers.", above=0)] = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPart:
    """`[output]`: where everything is written."""

    says: ClassVar[str] = "Where everything is written"
    folder: Annotated[str, Key(
        "Folder for results, pages, model and ledger. A command that names none keeps nothing; "
        "with a ledger, it keeps them beside the ledger.",
        on=_EVERY, option="--output")] = "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutPart:
    """`[about]`: what people who review the study want to know."""

    says: ClassVar[str] = "For reviewers: shown in the report, and changes nothing else"
    purpose: Annotated[str, Key("What the model or the settings are for.")] = ""
    controller: Annotated[str, Key("Who is responsible for the data, each organisation.")] = ""
    contact: Annotated[str, Key("Who answers questions, such as a data-protection officer.")] = ""
    data_categories: Annotated[str, Key("Which personal data, of which people.")] = ""
    retention: Annotated[str, Key("How long data, results and ledgers are kept.")] = ""
    review_date: Annotated[str, Key("When the study is reviewed again.")] = ""


# fmt: on


SECTIONS: Mapping[str, Any] = {
    "": StudyPart,
    "data": DataPart,
    "space": None,
    "objective": ObjectivePart,
    "privacy": PrivacyPart,
    "vote": VotePart,
    "train": TrainPart,
    "average": AveragePart,
    "combine": CombinePart,
    "engine": EnginePart,
    "output": OutputPart,
    "about": AboutPart,
}
"""The sections, in the order of the file; `[space]` has keys of its own choice."""

STAGES = ("vote", "train", "average", "combine")
"""Sections of what a study does: what it names is held. Without any of them, a vote."""

SPACE_SAYS = "The candidates: one line for each hyperparameter"


def keys_of(section: str) -> Mapping[str, StudyField]:
    """Return a section's keys by name."""
    part = SECTIONS[section]
    return {} if part is None else fields_of(section, part)


def keys_table() -> str:
    """Return the table of all keys as Markdown, as the guide shows it."""
    lines = []
    for section, part in SECTIONS.items():
        heading = f"`[{section}]`" if section else "At the top"
        lines += [f"### {heading}", "", f"{SPACE_SAYS if part is None else part.says}.", ""]
        if part is None:
            lines += [
                'Each line is `name = [values]`, or `name = { kind = "log", values = [...] }`; the '
                "kinds are log, linear, ordinal and categorical. Left out, the model's own "
                "candidates are voted on.",
                "",
            ]
            continue
        lines += ["| key | is | by default | says |", "|---|---|---|---|"]
        for entry in keys_of(section).values():
            listed = ", ".join(f"`{choice}`" for choice in entry.kind.choices)
            kind = listed if len(entry.kind.choices) > 1 else entry.kind.words
            default = "must be named" if entry.required else f"`{shown(entry.default)}`"
            default = "" if entry.default is None else default
            lines.append(f"| `{entry.name}` | {kind} | {default} | {entry.key.says} |")
        lines.append("")
    return "\n".join(lines)
