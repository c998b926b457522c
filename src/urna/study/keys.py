"""Every key of a study file, in one table: what it may be, what it is by default, what it says.

The file's reader checks against it, `urna init` takes its comments from it, and the guide's table
is made of it: a key that is not here does not exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from urna.data import Split
from urna.local import Metric
from urna.privacy import Adjacency, Unit
from urna.protocols.secagg import ServerModel
from urna.systems.average import LearnerKind
from urna.systems.combine import STRATEGIES
from urna.systems.train.optimisers import OPTIMISERS
from urna.systems.vote import BallotKind, DecoderKind

__all__ = ["KEYS", "SECTIONS", "Follow", "Key", "Kind", "keys_of", "keys_table"]


class Kind(StrEnum):
    """What a value may be."""

    TEXT = "a text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"
    PART = "a part of one, such as 0.2 or '1/5'"
    TEXTS = "a list of texts"
    CLASSES = "a list of texts, or of whole numbers"
    PAIR = "two numbers, the smaller first"
    SIZE = "two whole numbers, height and width"
    TABLE = "a table"
    SHARE = "'auto', or a part of one"


class Follow(StrEnum):
    """What follows the vote."""

    NOTHING = "nothing"
    TRAIN = "train"
    AVERAGE = "average"
    COMBINE = "combine"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a study file."""

    section: str
    name: str
    kind: Kind
    default: Any
    says: str
    choices: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        """The key with its section, as errors name it."""
        return f"{self.section}.{self.name}" if self.section else self.name


SECTIONS: Mapping[str, str] = {
    "": "The study",
    "data": "Who holds which data. Everything said here is public",
    "space": "The candidates: one line for each hyperparameter",
    "objective": "How a client judges a candidate on its own data",
    "privacy": "What it may cost, against whom, and what may go wrong",
    "vote": "How ballots are filled, added up and read",
    "then": "What follows the vote, under the same budget",
    "engine": "Where the clients run",
    "output": "Where everything is written",
}
"""The sections, in the order of the file, in words."""


def _named(kind: type[StrEnum]) -> tuple[str, ...]:
    return tuple(map(str, kind))


KEYS: tuple[Key, ...] = (
    Key("", "title", Kind.TEXT, "", "What the page is called."),
    Key("", "seed", Kind.WHOLE, 0, "Public seed of splits, holdouts and first weights."),
    Key(
        "data", "source", Kind.TEXT, None,
        "A folder with one file for each client (.csv, .parquet, .npz), one file, a folder of "
        "pictures in class folders, or a set that `urna data` lists. Paths are relative to this "
        "file.",
    ),
    Key("data", "folder", Kind.TEXT, "", "Folder that holds a listed set's file."),
    Key(
        "data", "clients", Kind.WHOLE, 0,
        "Deal the rows out to so many clients, where the files do not say whose they are.",
    ),
    Key("data", "split", Kind.TEXT, "iid", "How rows are dealt out.", _named(Split)),
    Key("data", "beta", Kind.NUMBER, 0.5, "Concentration of Dirichlet splits."),
    Key("data", "level", Kind.NUMBER, 0.8, "Skew of feature splits, 0 (iid) to 1."),
    Key("data", "label", Kind.TEXT, "target", "The column to predict."),
    Key("data", "features", Kind.TEXTS, [], "The columns to predict from; all others if empty."),
    Key("data", "client", Kind.TEXT, "", "The column that says whose a row is, in one file."),
    Key("data", "record", Kind.TEXT, "", "The column whose equal values make rows one record."),
    Key(
        "data", "classes", Kind.CLASSES, [],
        "All classes there may be. Not what the data hold decides: everybody agrees on them.",
    ),
    Key(
        "data", "span", Kind.PAIR, [],
        "Smallest and largest target, where a number is predicted.",
    ),
    Key(
        "data", "ranges", Kind.TABLE, {},
        "Of columns of numbers: the smallest and the largest value, agreed on beforehand. They "
        "are scaled to -1..1; what is missing becomes 0.",
    ),
    Key(
        "data", "categories", Kind.TABLE, {},
        "Of columns of texts: all values there may be. Each becomes a column of 0 and 1.",
    ),
    Key("data", "picture", Kind.SIZE, [], "Size that pictures are scaled to."),
    Key("data", "colour", Kind.SWITCH, False, "Whether pictures keep their colours."),
    Key("data", "test", Kind.TEXT, "", "A file of public test rows, to measure a model on."),
    Key(
        "objective", "model", Kind.TEXT, "linear",
        "`linear`, `network`, `mlp` or `pooled`; or `module:name` or `file.py:name` of your own: a "
        "function (candidate, data) -> loss, an estimator, or what makes a torch module.",
    ),
    Key("objective", "metric", Kind.TEXT, "auto", "How estimators are judged.", _named(Metric)),
    Key("objective", "fixed", Kind.TABLE, {}, "Parameters of an estimator that all share."),
    Key("objective", "epochs", Kind.WHOLE, 5, "Passes of a torch module over a client's rows."),
    Key("objective", "batch_size", Kind.WHOLE, 16, "Rows in one step of a torch module."),
    Key("objective", "cache", Kind.SWITCH, True, "Keep local losses on this machine's disk."),
    Key("privacy", "epsilon", Kind.NUMBER, None, "What everything together may cost: epsilon."),
    Key("privacy", "delta", Kind.NUMBER, None, "The delta that goes with it."),
    Key(
        "privacy", "unit", Kind.TEXT, "client", "What is protected: a client, or a record.",
        _named(Unit),
    ),
    Key(
        "privacy", "adjacency", Kind.TEXT, "",
        "Between which electorates it holds; that of the unit if empty.", ("", *_named(Adjacency)),
    ),
    Key("privacy", "shards", Kind.WHOLE, 1, "Ballots of each client, where records are protected."),
    Key("privacy", "dropout", Kind.PART, 0, "Largest part of the clients that may drop out."),
    Key("privacy", "colluding", Kind.PART, 0, "Largest part that may tell the server their noise."),
    Key(
        "privacy", "server", Kind.TEXT, "honest-but-curious", "Which server is protected against.",
        _named(ServerModel),
    ),
    Key(
        "privacy", "vote_share", Kind.SHARE, "auto",
        "The vote's part of the budget (of squares of mu), where something follows; `auto` finds "
        "it by a dry run on made-up data.",
    ),
    Key(
        "privacy", "ledger", Kind.TEXT, "",
        "Ledger to count in (`urna ledger create`); one of the study's own if empty.",
    ),
    Key(
        "privacy", "scripted_secrets", Kind.TEXT, "",
        "Repeatable noise from this label, for tests. NOT PRIVATE.",
    ),
    Key(
        "vote", "ballot", Kind.TEXT, "", "How a client spreads its vote; by scores if empty.",
        ("", *_named(BallotKind)),
    ),
    Key("vote", "votes", Kind.WHOLE, 0, "How many candidates a top-k ballot names; 0 for 5."),
    Key("vote", "decoder", Kind.TEXT, "posterior", "How the winner is read.", _named(DecoderKind)),
    Key(
        "vote", "summation", Kind.TEXT, "secure",
        "How ballots are added up: by masks, under threshold encryption, or in the clear, which "
        "hides nothing.", ("secure", "encrypted", "clear"),
    ),
    Key(
        "vote", "opens", Kind.TEXT, "tally",
        "What becomes public: the noisy tally, or the winner alone, which takes less noise and a "
        "helper that does not collude with the leader.", ("tally", "winner"),
    ),
    Key(
        "vote", "helper", Kind.TEXT, "",
        "With a winner alone: who holds the other share of the sum.",
    ),
    Key(
        "vote", "verified", Kind.SWITCH, False,
        "With a winner alone, in memory or in a federation: leader and helper check every ballot, "
        "and refuse and name those that are not valid.",
    ),
    Key("vote", "anyway", Kind.SWITCH, False, "Hold a vote that cannot succeed all the same."),
    Key("then", "what", Kind.TEXT, "nothing", "What follows the vote.", _named(Follow)),
    Key("then", "rounds", Kind.WHOLE, 20, "train: rounds, at most."),
    Key("then", "lr", Kind.NUMBER, 0.1, "train: clients' step size, where nobody votes on it."),
    Key("then", "epochs", Kind.WHOLE, 1, "train: passes over a client's rows in a round."),
    Key("then", "batch_size", Kind.WHOLE, 16, "train: rows in one step of a client."),
    Key("then", "clip", Kind.NUMBER, 0.3, "train: how long a client's update may be, in L2."),
    Key(
        "then", "optimiser", Kind.TEXT, "fedavgm", "train: what the server does with the mean.",
        tuple(OPTIMISERS),
    ),
    Key("then", "server_lr", Kind.NUMBER, 0.5, "train: step size of the server."),
    Key("then", "momentum", Kind.NUMBER, 0.9, "train: momentum of fedavgm."),
    Key("then", "tail", Kind.NUMBER, 0.0, "train: share of the last rounds that is averaged."),
    Key(
        "then", "learner", Kind.TEXT, "softmax", "average: what each client computes.",
        tuple(k for k in _named(LearnerKind) if k in ("softmax", "svm", "logistic")),
    ),
    Key(
        "then", "strategy", Kind.TEXT, "mean",
        "combine: how clients' own best settings become one, with noise.",
        tuple(name for name in STRATEGIES if name in ("mean", "top-mean")),
    ),
    Key("then", "anyway", Kind.SWITCH, False, "Go on although noise drowns everything."),
    Key(
        "engine", "kind", Kind.TEXT, "memory",
        "`memory`: all clients in this process. `flower`: as nodes, simulated unless a federation "
        "is named.", ("memory", "flower"),
    ),
    Key(
        "engine", "federation", Kind.TEXT, "",
        "Name of a SuperLink connection of `flwr`'s configuration: real nodes take part.",
    ),
    Key("engine", "nodes", Kind.WHOLE, 0, "How many nodes to wait for in a federation."),
    Key("engine", "least_clients", Kind.WHOLE, 2, "With fewer nodes ready, nothing is begun."),
    Key("engine", "directory", Kind.TEXT, "", "File of all nodes' identity keys: signed sums."),
    Key("engine", "server_key", Kind.TEXT, "", "File of the key that signs announcements."),
    Key("engine", "stage_seconds", Kind.NUMBER, 180.0, "How long to wait for one stage's answers."),
    Key("output", "folder", Kind.TEXT, "results", "Folder for results, pages, model and ledger."),
)  # fmt: skip
"""All keys, in the order of the file."""


def keys_of(section: str) -> dict[str, Key]:
    """Return a section's keys by name."""
    return {key.name: key for key in KEYS if key.section == section}


def keys_table() -> str:
    """Return the table of all keys as Markdown, as the guide shows it."""
    lines = []
    for section, words in SECTIONS.items():
        heading = f"`[{section}]`" if section else "At the top"
        lines += [f"### {heading}", "", f"{words}.", ""]
        known = keys_of(section).values()
        if not known:
            lines += [
                'Each line is `name = [values]`, or `name = { kind = "log", values = [...] }`; the '
                "kinds are log, linear, ordinal and categorical. Left out, the model's own "
                "candidates are voted on.",
                "",
            ]
            continue
        lines += ["| key | is | by default | says |", "|---|---|---|---|"]
        for key in known:
            kind = ", ".join(f"`{c}`" for c in key.choices if c) or str(key.kind)
            default = "must be named" if key.default is None else f"`{shown(key.default)}`"
            lines.append(f"| `{key.name}` | {kind} | {default} | {key.says} |")
        lines.append("")
    return "\n".join(lines)


def shown(value: Any) -> str:  # noqa: ANN401 - plain values of TOML
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{quoted}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(item) for item in value)}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{quoted_key(key)} = {shown(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return repr(value)


def quoted_key(name: str) -> str:
    """Return a key as TOML writes it: bare where that may be."""
    bare = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if bare else shown(name)
