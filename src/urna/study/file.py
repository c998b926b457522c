"""A study as a file: read, checked once, and from then on trusted.

What is wrong is told in one line: the file and the line, what should hold, what was found.
"""

import difflib
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, Unit
from urna.protocols.secagg import ServerModel
from urna.space import Space
from urna.study.keys import KEYS, SECTIONS, Follow, Key, Kind, keys_of
from urna.tally import Options

__all__ = [
    "DataPart",
    "EnginePart",
    "ObjectivePart",
    "OutputPart",
    "PrivacyPart",
    "Study",
    "ThenPart",
    "VotePart",
    "read_study",
]

_HEADER = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"""^\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(\s*\.\s*[A-Za-z0-9_-]+)*\s*=""")
_LONGEST_NAME = 64
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_BROKEN = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart:
    """`[data]`: who holds which data."""

    source: str
    folder: str = ""
    clients: int = 0
    split: str = "iid"
    beta: float = 0.5
    level: float = 0.8
    label: str = "target"
    features: tuple[str, ...] = ()
    client: str = ""
    record: str = ""
    classes: tuple[str, ...] | tuple[int, ...] = ()
    span: tuple[float, ...] = ()
    ranges: Mapping[str, Any] = field(default_factory=dict)
    categories: Mapping[str, Any] = field(default_factory=dict)
    picture: tuple[int, ...] = ()
    colour: bool = False
    test: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePart:
    """`[objective]`: how a client judges a candidate."""

    model: str = "linear"
    metric: str = "auto"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 5
    batch_size: int = 16
    cache: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPart:
    """`[privacy]`: what it may cost, against whom."""

    epsilon: float
    delta: float
    unit: str = "client"
    adjacency: str = ""
    shards: int = 1
    dropout: float | str = 0
    colluding: float | str = 0
    server: str = "honest-but-curious"
    vote_share: float | str = "auto"
    ledger: str = ""
    scripted_secrets: str = ""

    @property
    def budget(self) -> Budget:
        """What everything together may cost."""
        return Budget(self.epsilon, self.delta)

    @property
    def relation(self) -> Adjacency:
        """Between which electorates it holds.

        Raises:
            ParameterError: The relation protects another unit.
        """
        unit = Unit(self.unit)
        if not self.adjacency:
            by_record = unit is Unit.RECORD
            return Adjacency.REPLACE_ONE_RECORD if by_record else Adjacency.REPLACE_ONE_CLIENT
        found = Adjacency(self.adjacency)
        if found.unit is not unit:
            raise ParameterError(f"{found} protects a {found.unit}, and unit says {unit}")
        return found

    @property
    def options(self) -> Options:
        """The terms of each sum, but for the clients and the budget."""
        return {
            "dropout": self.dropout,
            "colluding": self.colluding,
            "adjacency": self.relation,
            "shards": self.shards,
            "server": ServerModel(self.server),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VotePart:
    """`[vote]`: how ballots are filled, added up and read."""

    ballot: str = ""
    votes: int = 0
    decoder: str = "posterior"
    summation: str = "secure"
    opens: str = "tally"
    helper: str = ""
    verified: bool = False
    anyway: bool = False

    @property
    def winner(self) -> bool:
        """Whether only the winner is opened."""
        return self.opens == "winner"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThenPart:
    """`[then]`: what follows the vote."""

    what: str = "nothing"
    rounds: int = 20
    lr: float = 0.1
    epochs: int = 1
    batch_size: int = 16
    clip: float = 0.3
    optimiser: str = "fedavgm"
    server_lr: float = 0.5
    momentum: float = 0.9
    tail: float = 0.0
    learner: str = "softmax"
    strategy: str = "mean"
    anyway: bool = False

    @property
    def follow(self) -> Follow:
        """What follows."""
        return Follow(self.what)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePart:
    """`[engine]`: where the clients run."""

    kind: str = "memory"
    federation: str = ""
    nodes: int = 0
    least_clients: int = 2
    directory: str = ""
    server_key: str = ""
    stage_seconds: float = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPart:
    """`[output]`: where everything is written."""

    folder: str = "results"


@dataclass(frozen=True, slots=True)
class Study:
    """One study: data, candidates, objective, budget, and what follows."""

    path: Path
    text: str = field(repr=False)
    title: str
    seed: int
    data: DataPart
    space: Space | None
    """None where the model's own candidates are voted on."""
    objective: ObjectivePart
    privacy: PrivacyPart
    vote: VotePart
    then: ThenPart
    engine: EnginePart
    output: OutputPart
    lines: Mapping[str, int] = field(repr=False)
    """On which line each section and key stands."""

    @property
    def base(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.path.parent

    @property
    def folder(self) -> Path:
        """Where everything is written."""
        return self.base / self.output.folder

    @property
    def fingerprint(self) -> str:
        """A digest of all that must not change while a study is interrupted."""
        values = tomllib.loads(self.text)
        for name in ("title", "output"):
            values.pop(name, None)
        said = json.dumps(values, sort_keys=True, default=str)
        return hashlib.sha256(b"urna study\0" + said.encode()).hexdigest()

    def error(self, key: str, message: str) -> ParameterError:
        """Return an error that names the file and the line of a key."""
        return ParameterError(f"{_place(self.path, self.lines, key)}: {message}")

    @contextmanager
    def blaming(self, key: str) -> Iterator[None]:
        """Add the file and the line of a key to what is refused in the block."""
        try:
            yield
        except ParameterError as error:
            raise self.error(key, str(error)) from error


def read_study(path: Path | str) -> Study:
    """Read a study file.

    Raises:
        ParameterError: It is not there, is no TOML, or a key or value cannot be; one line names
            the file, the line, what should hold and what was found.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "study.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ParameterError(
            f"cannot read the study {path}: {error.strerror}. `urna init` writes one"
        ) from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{path}: a study is a text in UTF-8") from error
    return parse_study(text, path)


def parse_study(text: str, path: Path) -> Study:
    """Read a study from its text; `path` is where it is said to stand."""
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _BROKEN.search(str(error))
        line = f":{found.group(1)}" if found else ""
        said = _BROKEN.sub("", str(error)).strip()
        raise ParameterError(f"{path}{line}: this is no TOML: {said}") from error
    return _Reader(path, text, find_lines(text)).study(values)


def find_lines(text: str) -> dict[str, int]:
    """Return the line of every section and key: `data`, `data.source`, `space.lr`.

    A small finder that knows headers and `key =` at the beginning of lines, and neither inside a
    text or list of several lines: what it misses is told with the line of its section.
    """
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if (header := _HEADER.match(line)) and not _KEY.match(line):
            section = ".".join(part.strip().strip("\"'") for part in header.group(1).split("."))
            found.setdefault(section, number)
            for end in range(1, section.count(".") + 1):
                found.setdefault(section.rsplit(".", end)[0], number)
        elif key := _KEY.match(line):
            name = ".".join(p.strip().strip("\"'") for p in line[: key.end() - 1].split("."))
            full = f"{section}.{name}" if section else name
            found.setdefault(full, number)
    return found


def _place(path: Path, lines: Mapping[str, int], key: str) -> str:
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"{path}:{lines[key]}" if key else f"{path}"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks a file's values against the table of keys."""

    path: Path
    text: str
    lines: Mapping[str, int]

    def study(self, values: Mapping[str, Any]) -> Study:
        tables = {name for name in SECTIONS if name}
        top = keys_of("")
        for name, value in values.items():
            if name not in tables and name not in top:
                raise self.unknown(name, name, [*top, *tables], "key or section")
            if name in tables and not isinstance(value, Mapping):
                raise self.error(name, f"[{name}] is a section, got {_found(value)}")
        parts = {name: self.part(name, values.get(name, {})) for name in tables if name != "space"}
        head = self.part("", {name: values[name] for name in top if name in values})
        study = Study(
            self.path,
            self.text,
            head["title"],
            head["seed"],
            DataPart(**parts["data"]),
            self.space(values.get("space")),
            ObjectivePart(**parts["objective"]),
            PrivacyPart(**parts["privacy"]),
            VotePart(**parts["vote"]),
            ThenPart(**parts["then"]),
            EnginePart(**parts["engine"]),
            OutputPart(**parts["output"]),
            self.lines,
        )
        _check_together(study)
        return study

    def part(self, section: str, values: Mapping[str, Any]) -> dict[str, Any]:
        known = keys_of(section)
        for name in values:
            if name not in known:
                full = f"{section}.{name}" if section else name
                raise self.unknown(full, name, known, "key")
        return {key.name: self.value(key, values) for key in known.values()}

    def value(self, key: Key, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if key.name not in values:
            if key.default is None:
                raise self.error(
                    key.section, f"[{key.section}] must name `{key.name}`: {_small(key.says)}"
                )
            return _frozen(key.default)
        value = values[key.name]
        if key.choices:
            if not isinstance(value, str) or value not in key.choices:
                near = difflib.get_close_matches(str(value), key.choices, n=1, cutoff=0.5)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                listed = ", ".join(repr(choice) for choice in key.choices if choice)
                raise self.error(
                    key.full, f"`{key.full}` is one of {listed}; got {_found(value)}.{hint}"
                )
        elif not _is(key.kind, value):
            raise self.error(key.full, f"`{key.full}` is {key.kind}; got {_found(value)}")
        return _frozen(value)

    def space(self, values: Mapping[str, Any] | None) -> Space | None:
        if not values:
            return None
        for name, entry in values.items():
            try:
                Space.from_mapping({"axes": {name: entry}})
            except ParameterError as error:
                raise self.error(f"space.{name}", str(error)) from error
        try:
            return Space.from_mapping({"axes": dict(values)})
        except ParameterError as error:
            raise self.error("space", str(error)) from error

    def error(self, key: str, message: str) -> ParameterError:
        return ParameterError(f"{_place(self.path, self.lines, key)}: {message}")

    def unknown(
        self, full: str, name: str, known: Sequence[str] | Mapping[str, Any], what: str
    ) -> ParameterError:
        near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
        elsewhere = [key.full for key in KEYS if key.name == name]
        if elsewhere:
            hint = f"there is `{elsewhere[0]}`"
        elif near:
            hint = f"did you mean `{near[0]}`?"
        else:
            hint = f"known are {', '.join(known)}"
        return self.error(full, f"unknown {what} `{full}`; {hint}")


def _is(kind: Kind, value: Any) -> bool:  # noqa: ANN401, PLR0911 - whatever a file holds
    number = isinstance(value, int | float) and not isinstance(value, bool)
    finite = number and math.isfinite(value)
    match kind:
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.WHOLE:
            return type(value) is int and value >= 0
        case Kind.NUMBER:
            return finite
        case Kind.SWITCH:
            return isinstance(value, bool)
        case Kind.PART:
            return isinstance(value, str) or finite
        case Kind.SHARE:
            return value == "auto" or (finite and 0 < value < 1)
        case Kind.TABLE:
            return isinstance(value, Mapping)
    if not isinstance(value, list):
        return False
    match kind:
        case Kind.TEXTS:
            return all(isinstance(item, str) for item in value)
        case Kind.CLASSES:
            kinds = {type(item) for item in value}
            return kinds in ({str}, {int}, set()) and len(set(value)) == len(value)
        case Kind.PAIR:
            pair = len(value) == 2 and all(_is(Kind.NUMBER, item) for item in value)
            return not value or (pair and value[0] < value[1])
        case _:
            return not value or (
                len(value) == 2 and all(type(item) is int and item > 0 for item in value)
            )


def _found(value: Any) -> str:  # noqa: ANN401 - whatever a file holds
    """Return a value in a few words."""
    kinds = {bool: "true/false", str: "text", int: "number", float: "number", list: "list"}
    named = "table" if isinstance(value, Mapping) else kinds.get(type(value), type(value).__name__)
    return (
        f"the {named} {str(value)[:60]!r}"
        if isinstance(value, str)
        else (f"the {named} {str(value).lower() if isinstance(value, bool) else str(value)[:60]}")
    )


def _frozen(value: Any) -> Any:  # noqa: ANN401 - plain values
    return tuple(value) if isinstance(value, list) else value


def _small(text: str) -> str:
    return text[0].lower() + text[1:].rstrip(".")


def _check_together(study: Study) -> None:
    """Refuse what single keys allow and together cannot be."""
    privacy, then = study.privacy, study.then
    for name in ("epsilon", "delta"):
        with study.blaming(f"privacy.{name}"):
            Budget(
                privacy.epsilon if name == "epsilon" else 1.0,
                privacy.delta if name == "delta" else 0.1,
            )
    with study.blaming("privacy.adjacency"):
        unit = privacy.relation.unit
    if privacy.shards > 1 and unit is Unit.CLIENT:
        raise study.error(
            "privacy.shards",
            f"{privacy.shards} shards make every client add up {privacy.shards} ballots, under "
            'noise made for one: say unit = "record" as well, which protects single records',
        )
    if unit is Unit.RECORD and then.follow in (Follow.TRAIN, Follow.COMBINE):
        raise study.error(
            "then.what",
            f'`{then.what}` after a vote protects whole clients; with unit = "record" there are '
            "`average` and `nothing`",
        )
    if study.data.classes and study.data.span:
        raise study.error("data.span", "name `classes` or a `span`, not both")
    _check_opening(study)
    if study.engine.federation and study.engine.kind != "flower":
        raise study.error("engine.federation", 'a federation is Flower\'s: say kind = "flower"')
    if study.engine.kind == "flower":
        _check_flower(study)


def _check_opening(study: Study) -> None:
    """Refuse what does not go with what the vote opens."""
    vote = study.vote
    if not vote.winner:
        for name in ("helper", "verified"):
            if getattr(vote, name):
                raise study.error(
                    f"vote.{name}", 'only a winner is opened with a helper: say opens = "winner"'
                )
        return
    if not vote.helper.strip():
        raise study.error(
            "vote.opens",
            "opening only the winner takes a helper, an organisation that does not collude with "
            'the leader: name it, helper = "..."',
        )
    if len(vote.helper) > _LONGEST_NAME or not vote.helper.isprintable():
        raise study.error("vote.helper", f"a helper's name has {_LONGEST_NAME} signs at most")
    for name, default in (("ballot", ""), ("votes", 0), ("decoder", "posterior")):
        if getattr(vote, name) != default:
            raise study.error(
                f"vote.{name}",
                f"where only the winner is opened ballots are levels, and there is no tally to "
                f"read: leave `{name}` out",
            )
    if vote.summation != "secure":
        raise study.error(
            "vote.summation", "only the winner is opened of secret sums: leave `summation` out"
        )


def _check_winner_over_flower(study: Study) -> None:
    vote, engine = study.vote, study.engine
    if vote.verified and not engine.federation:
        raise study.error(
            "vote.verified",
            "verified ballots are signed, and simulated nodes have no keys: say kind = "
            '"memory" under [engine], or name a federation',
        )
    if study.privacy.scripted_secrets:
        raise study.error(
            "privacy.scripted_secrets",
            "the noise around a winner comes from the coins of server and helper, which over "
            "Flower are never scripted: leave it out",
        )
    if engine.federation and not engine.directory:
        raise study.error(
            "vote.helper",
            "nodes believe a helper's name only where sums are signed: name the `directory` of "
            "keys under [engine]",
        )
    if not _NODE.fullmatch(vote.helper) or (vote.helper.isdecimal() and not engine.federation):
        raise study.error(
            "vote.helper",
            "over Flower a helper is a node: its name is of letters, digits, points, dashes and "
            "underscores, and no number, which simulated clients are called by",
        )


def _check_flower(study: Study) -> None:
    if study.vote.winner:
        _check_winner_over_flower(study)
    if study.then.follow not in (Follow.NOTHING, Follow.TRAIN):
        raise study.error(
            "then.what", f'`{study.then.what}` runs in memory: say kind = "memory" under [engine]'
        )
    if study.vote.summation != "secure":
        raise study.error("vote.summation", "over Flower ballots are always summed by masks")
    if study.privacy.server == "dishonest" and not study.engine.federation:
        raise study.error(
            "privacy.server",
            "against a dishonest server nodes need a directory of keys, which simulated ones "
            "have not",
        )
    if study.engine.federation and study.engine.nodes < 2:
        raise study.error("engine.federation", "a federation must name `nodes`, two or more")
