"""A first study file, with comments, from what can be seen of the data.

Whoever drafts a study looks at the data on this machine. What the draft says of them (classes,
ranges, categories) becomes public with the file: it is for people to check before they share it.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import MIN_SAMPLES, holds_pictures, read_columns, table_files
from urna.data.coding import (
    ColumnKind,
    ColumnLook,
    as_numbers,
    look_at_column,
    record_column_of,
    round_span,
)
from urna.errors import DataMissing, ParameterError
from urna.study.file import make_study
from urna.study.keys import quoted_key, shown
from urna.study.plan import StudyPlan, plan_study
from urna.study.prepare import prepare
from urna.study.schema import SECTIONS, SPACE_SAYS, STAGES, DataPart, Follow, keys_of
from urna.study.sources import classes_of, is_known

__all__ = ["Draft", "check_draft", "draft_study", "find_data", "labels_of", "seen_of"]

_ENOUGH = 100  # ballots that outvote the noise of a usual budget
_MANY = 30  # clients that can train together under a client-level budget
_DEALT = 10  # clients that one file is dealt out to
_EPSILON_OF_RECORDS = 2.0
_ROWS_OF = "Rows of one"
_USUAL = ("target", "label", "outcome", "class", "y", "diagnosis")
_ALWAYS = ("model", "epsilon", "delta", "unit", "dropout", "colluding", "kind")
_WORDS = 92


@dataclass(frozen=True, slots=True)
class Draft:
    """A study before it is written."""

    values: Mapping[str, Mapping[str, Any]]
    """What is said, by section and key."""
    notes: tuple[str, ...] = ()
    """What whoever reads the file should know, in sentences."""

    def as_toml(self) -> str:
        """Return the file, every key with what it says; keys left as they are are commented out."""
        lines = [line for note in self.notes for line in _wrapped(note)]
        if lines:
            lines.append("")
        votes = not any(name in self.values for name in STAGES[1:]) or "vote" in self.values
        for section, part in SECTIONS.items():
            unused = section in STAGES or (section in ("space", "objective") and not votes)
            if not unused or section in self.values:
                lines += self._space() if part is None else self._section(section, part.says)
        return "\n".join(lines).rstrip() + "\n"

    def _space(self) -> list[str]:
        said = self.values.get("space", {})
        axes = [f"{quoted_key(name)} = {shown(values)}" for name, values in said.items()]
        return [f"# {SPACE_SAYS}.", *(["[space]", *axes] if said else ["# [space]", *_SPACE]), ""]

    def _section(self, section: str, says: str) -> list[str]:
        said = self.values.get(section, {})
        lines = [f"# {says}.", *([f"[{section}]"] if section else [])]
        tables: list[str] = []
        for key in keys_of(section).values():
            value = said.get(key.name, key.default)
            if isinstance(value, Mapping) and value:
                tables += ["", *_wrapped(key.key.says), f"[{section}.{key.name}]"]
                tables += [f"{quoted_key(k)} = {shown(v)}" for k, v in value.items()]
                continue
            written = key.name in said or key.name in _ALWAYS
            if not written and key.required:
                continue
            if not written and value in ("", (), {}, 0, None) and not key.kind.choices:
                continue  # nothing is said, and nothing would be: the guide lists it
            choices = key.kind.choices
            of = f" One of {', '.join(choices)}." if len(choices) > 1 else ""
            lines += _wrapped(key.key.says + of)
            lines.append(f"{'' if written else '# '}{key.name} = {shown(value)}")
        return [*lines, *tables, ""]


_SPACE = (
    "# Left out, the model's own candidates are voted on. To name some:",
    '# lr = { kind = "log", values = [0.01, 0.1, 1.0] }',
)


def _wrapped(text: str) -> list[str]:
    lines, line = [], "#"
    for word in text.split():
        if len(line) + 1 + len(word) > _WORDS:
            lines.append(line)
            line = "#"
        line += f" {word}"
    return [*lines, line]


def find_data(folder: Path) -> str | None:
    """Return the data in a folder, if it is plain which: its tables, or a folder of them."""
    for path in (folder, folder / "data"):
        with suppress(DataMissing, OSError):
            tables = table_files(path)
            return str((tables[0] if len(tables) == 1 else path).relative_to(folder))
        if holds_pictures(path):
            return str(path.relative_to(folder))
    return None


def draft_study(
    part: DataPart,
    *,
    base: Path,
    model: str | None = None,
    follow: Follow | None = None,
    people: bool = True,
    guess: bool = True,
) -> Draft:
    """Return a first study on some data.

    Args:
        part: What is said of the data; what is not is read off them.
        base: Where the file will stand.
        model: What is voted on; `linear` by default.
        follow: What follows the vote; by default what the data and the packages allow.
        people: Whether to look for a column whose equal values are one record.
        guess: Whether another column may be predicted where the label's is not there.

    Raises:
        DataMissing: There is nothing to read.
        ParameterError: It cannot be read, or there is no such column.
    """
    seen = _seen(part, base, guess)
    return _study(seen if people else seen.of_rows(), model, follow)


def seen_of(
    part: DataPart, *, base: Path, people: bool = True, guess: bool = True
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what files of one's own say of themselves where `part` does not, and notes on it.

    `people` and `guess` are those of `draft_study`.

    Raises:
        DataMissing: There is nothing to read.
        ParameterError: It cannot be read, or there is no such column.
    """
    seen = _seen(part, base, guess)
    seen = seen if people else seen.of_rows()
    return {k: tuple(v) if isinstance(v, list) else v for k, v in seen.said.items()}, seen.notes


def check_draft(draft: Draft, path: Path) -> StudyPlan:
    """Plan the study of a draft, as `urna plan` would if it stood at `path`.

    Raises:
        ParameterError: It cannot be planned. No line is named: the file is not there.
    """
    text = draft.as_toml()
    study = make_study(tomllib.loads(text), {}, path=path, text=text)
    return plan_study(prepare(study), compared=False)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What can be seen of some data."""

    said: Mapping[str, Any]
    clients: int
    fewest: int
    """Rows of the smallest client."""
    classes: int | None
    notes: tuple[str, ...] = field(default=())

    def of_rows(self) -> "_Seen":
        """Return the same without a column of records: each row is one."""
        said = {key: value for key, value in self.said.items() if key != "record_column"}
        return replace(
            self, said=said, notes=tuple(n for n in self.notes if not n.startswith(_ROWS_OF))
        )


def _seen(part: DataPart, base: Path, guess: bool) -> _Seen:
    if is_known(part.source):
        clients = part.clients or 60
        return _Seen({"source": part.source, "clients": clients}, clients, 1000, 10)
    path = base / part.source
    if not path.exists():
        raise DataMissing(f"there is no file or folder {path}, and no known set {part.source!r}")
    if path.is_dir() and holds_pictures(path):
        return _pictures(part.source, path, part.clients or None)
    return _table(part, path, guess)


def _study(seen: _Seen, model: str | None, follow: Follow | None) -> Draft:
    seen = seen.of_rows() if seen.clients >= _MANY else seen
    read = seen.said.keys() & {"classes", "span", "ranges", "categories"}
    notes = [*([_CHECK] if read else []), *seen.notes]
    privacy: dict[str, Any] = {"dropout": 0.1, "colluding": 0.0}
    privacy |= {name: keys_of("privacy")[name].key.preset for name in ("epsilon", "delta")}
    said = dict(seen.said)
    votes, chosen = True, follow or Follow.NOTHING
    if seen.clients >= _MANY:
        privacy["unit"] = "client"
        torch = find_spec("torch") is not None and find_spec("safetensors") is not None
        usual = Follow.TRAIN if torch else Follow.AVERAGE
        if seen.classes is None and usual is Follow.AVERAGE:
            usual = Follow.NOTHING
        chosen = follow or (Follow.NOTHING if model is not None else usual)
    else:
        privacy |= {"unit": "record", "dropout": 0.0, "epsilon": _EPSILON_OF_RECORDS}
        votes = model is not None or follow in (Follow.NOTHING, Follow.COMBINE)
        if not votes:
            chosen = follow or Follow.AVERAGE
        notes.append(_few(seen, privacy, votes, chosen))
    by_row = chosen is Follow.TRAIN and privacy["unit"] == "record" and not votes
    after = {"record_clip": 1.0} if by_row else {}
    values: dict[str, Mapping[str, Any]] = {
        "": {"title": f"{Path(str(said['source'])).stem}, {seen.clients} clients"},
        "data": said,
        "privacy": privacy,
        **({"objective": {"model": model or "linear"}} if votes or chosen is Follow.TRAIN else {}),
        **({"vote": {}} if votes else {}),
        **({} if chosen is Follow.NOTHING else {str(chosen): after}),
        "engine": {"kind": "memory"},
        "output": {"folder": "results"},
    }
    if model is not None and ":" in model:
        values["space"] = _usual_space(model)
    return Draft(values, tuple(notes))


def _few(seen: _Seen, privacy: dict[str, Any], votes: bool, chosen: Follow) -> str:
    """Say what protects few clients' data; a vote of theirs needs shards."""
    record = seen.said.get("record_column")
    unit = f"rows of one {record!r}" if record else "single rows"
    said = f"{seen.clients} clients are too few to hide one among them, so {unit} are protected"
    if not votes and chosen is Follow.TRAIN:
        return f"{said}: each one's gradient is clipped in training, without a vote."
    if not votes:
        return f"{said}, and each client sends one noisy message, without a vote."
    most = seen.fewest // (2 * MIN_SAMPLES)
    privacy["shards"] = max(1, min(math.ceil(_ENOUGH / seen.clients), most))
    return f"{said}, and {privacy['shards']} shards of each client's records vote."


def _usual_space(model: str) -> dict[str, Any]:
    """Return candidates for estimators that everybody knows; one axis to be changed otherwise."""
    name = model.rpartition(":")[2]
    spaces: Mapping[str, dict[str, Any]] = {
        "C": {"C": {"kind": "log", "values": [0.001, 0.01, 0.1, 1.0, 10.0]}},
        "forest": {"max_depth": [2, 4, 8, 16], "min_samples_leaf": [1, 4, 16]},
        "boosting": {"learning_rate": {"kind": "log", "values": [0.01, 0.03, 0.1, 0.3]}},
        "alpha": {"alpha": {"kind": "log", "values": [0.001, 0.01, 0.1, 1.0, 10.0]}},
    }
    if name in ("LogisticRegression", "SVC", "LinearSVC"):
        return spaces["C"]
    if "Forest" in name or "Tree" in name:
        return spaces["forest"]
    if "Boosting" in name:
        return spaces["boosting"]
    if name in ("Ridge", "Lasso", "RidgeClassifier"):
        return spaces["alpha"]
    return {"lr": {"kind": "log", "values": [0.01, 0.1, 1.0]}}


def _pictures(source: str, path: Path, clients: int | None) -> _Seen:
    inner = sorted(p for p in path.iterdir() if p.is_dir())
    pool = any(f.is_file() for p in inner for f in p.iterdir())
    homes = [path] if pool else inner
    names = sorted({p.name for home in homes for p in home.iterdir() if p.is_dir()})
    counts = [sum(1 for f in home.rglob("*") if f.is_file()) for home in homes]
    said: dict[str, Any] = {"source": source, "classes": names, "picture": [28, 28]}
    number = len(homes)
    if pool:
        number = clients or max(2, min(60, counts[0] // 20))
        said["clients"] = number
    return _Seen(said, number, min(counts) // (number if pool else 1), len(names))


_CHECK = (
    "Classes, ranges and categories below were read off the data on this machine. They become "
    "public with this file: put what everybody knows in their place before you share it."
)


def labels_of(path: Path) -> list[str]:
    """Return the columns of a table, or of the first of a folder."""
    return list(read_columns(table_files(path)[0] if path.is_dir() else path))


_Columns = Mapping[str, npt.NDArray[Any]]


def _table(part: DataPart, path: Path, guess: bool) -> _Seen:
    files = table_files(path) if path.is_dir() else [path]
    tables = [read_columns(file) for file in files]
    unsaid = guess and part.label == keys_of("data")["label"].default
    named = "" if unsaid and not any(part.label in table for table in tables) else part.label
    for name in filter(None, (named, part.client_column, part.record_column)):
        for file, table in zip(files, tables, strict=True):
            if name not in table and not (name == named and "targets" in table):
                raise ParameterError(f"{file} has no column {name!r}; it has {_listed([*table])}")
    common = [name for name in tables[0] if all(name in table for table in tables)]
    whole = {name: np.concatenate([table[name] for table in tables]) for name in common}
    given = {part.client_column, part.record_column, "features", "targets", "ids"}
    looks = {n: look_at_column(n, v) for n, v in whole.items() if n not in given}
    label, notes = _label(part, whole, looks, files)
    looks.pop(label, None)
    rare = sorted({name for table in tables for name in table}.difference(common))
    if unread := [p.name for p in _others(path, files)]:
        notes.append(f"Not read, because they are no tables: {', '.join(unread)}.")
    said: dict[str, Any] = {"source": part.source}
    if "targets" not in whole:
        said["label"] = label
    said |= _targets(replace(part, label=label), whole)
    record = part.record_column or record_column_of(looks)
    if record is not None:
        said["record_column"] = record
        notes.append(f"{_ROWS_OF} {record!r} are one record; one message counts the first of them.")
    number, fewest = len(files), min(len(next(iter(table.values()))) for table in tables)
    if len(files) == 1:
        number, fewest = _clients_of_one(part, whole, said, notes)
    if part.clients and "clients" not in said:
        raise ParameterError(
            f"the files hold {number} clients: leave `clients` out, which deals one pool out"
        )
    if not (part.features or part.ranges or part.categories):
        said |= _features(looks, rare, notes, path, some="features" in whole)
    return _Seen(said, number, fewest, len(said.get("classes", ())) or None, tuple(notes))


def _others(path: Path, files: Sequence[Path]) -> list[Path]:
    """Return what lies beside the tables of a folder and is not hidden."""
    beside = sorted(path.iterdir()) if path.is_dir() else []
    return [p for p in beside if p not in files and not p.name.startswith((".", "~"))]


def _clients_of_one(
    part: DataPart, whole: _Columns, said: dict[str, Any], notes: list[str]
) -> tuple[int, int]:
    """Return how many clients one file holds, and the rows of the smallest."""
    if part.client_column:
        said["client_column"] = part.client_column
        _, counts = np.unique(whole[part.client_column].astype(str), return_counts=True)
        return len(counts), int(counts.min())
    rows = len(next(iter(whole.values())))
    number = part.clients or max(2, min(_DEALT, rows // 20))
    said["clients"] = number
    if not part.clients:
        notes.append(
            f"Nobody said whose a row is, so rows are dealt out to {number} clients: name the "
            "column that says it with --client-column, or their number with --clients."
        )
    return number, rows // number


def _label(
    part: DataPart, whole: _Columns, looks: Mapping[str, ColumnLook], files: Sequence[Path]
) -> tuple[str, list[str]]:
    """Return the column to predict, and what is said where it is a guess."""
    if part.label in whole or "targets" in whole:
        return part.label, []
    if not looks:
        raise ParameterError(f"the files {_listed([f.name for f in files])} share no column")
    lowered = {name.lower(): name for name in looks}
    kinds = (ColumnKind.NUMBERS, ColumnKind.CATEGORIES)
    some = [name for name, look in looks.items() if look.kind in kinds]
    named = next((lowered[name] for name in _USUAL if name in lowered), None)
    found = named or next(reversed(some or list(looks)))
    why = "by its name" if named else "the last column"
    return found, [f"{found!r} is predicted, a guess ({why}): name another with --label."]


def _targets(part: DataPart, whole: _Columns) -> dict[str, Any]:
    """Return the classes, or the span of numbers."""
    if part.classes or part.span:
        return {}
    targets = whole["targets" if "targets" in whole else part.label]
    if classes := classes_of(part.label, targets):
        return {"classes": list(classes)}
    numbers = as_numbers(targets)
    return {"span": list(round_span(numbers[np.isfinite(numbers)]))}


def _features(
    looks: Mapping[str, ColumnLook],
    rare: Sequence[str],
    notes: list[str],
    path: Path,
    *,
    some: bool,
) -> dict[str, Any]:
    """Return ranges of numbers and categories of texts; note the columns that are neither."""
    ranges = {name: list(look.span) for name, look in looks.items() if look.span is not None}
    known = {name: list(look.categories) for name, look in looks.items() if look.categories}
    left = [name for name in looks if name not in ranges and name not in known]
    if not (ranges or known or some):
        raise ParameterError(f"{path}: no column beside the label can be predicted from")
    why = {name: f"holds {looks[name].kind}" for name in left}
    why |= dict.fromkeys(rare, "not in every file")
    said: dict[str, Any] = {}
    if why:
        said["features"] = [name for name in looks if name not in left]
        notes.append("Left out: " + ", ".join(f"{n} ({w})" for n, w in why.items()) + ".")
    return said | ({"ranges": ranges} if ranges else {}) | ({"categories": known} if known else {})


def _listed(names: Sequence[str]) -> str:
    return ", ".join(list(names)[:20])
