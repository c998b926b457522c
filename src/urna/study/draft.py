"""A first study file, with comments, from what can be seen of the data.

Whoever drafts a study looks at the data on this machine. What the draft says of them (classes,
ranges, categories) becomes public with the file: it is for people to check before they share it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import MIN_SAMPLES, TABLES, holds_pictures, read_columns
from urna.data.coding import as_numbers
from urna.errors import DataMissing, ParameterError
from urna.study.keys import quoted_key, shown
from urna.study.schema import SECTIONS, SPACE_SAYS, STAGES, DataPart, Follow, keys_of
from urna.study.sources import is_known, looked_at

__all__ = ["Draft", "draft_study", "find_data", "labels_of", "seen_of"]

_MOST_CATEGORIES = 20
_ENOUGH = 100  # ballots that outvote the noise of a usual budget
_MANY = 30  # clients that can train together under a client-level budget
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
        for section, part in SECTIONS.items():
            if section not in STAGES or section in self.values:
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
        if not path.is_dir():
            continue
        tables = _files(path)
        if len(tables) == 1:
            return str(tables[0].relative_to(folder))
        if tables or holds_pictures(path):
            return str(path.relative_to(folder))
    return None


def draft_study(
    source: str,
    *,
    base: Path,
    label: str | None = None,
    client: str | None = None,
    clients: int | None = None,
    model: str | None = None,
    follow: Follow | None = None,
) -> Draft:
    """Return a first study on some data.

    Args:
        source: A known set, a file or a folder, relative to `base`.
        base: Where the file will stand.
        label: The column to predict; by default one that is called so, or the last.
        client: The column that says whose a row is.
        clients: How many clients to deal one pool out to.
        model: What is voted on; `linear` by default.
        follow: What follows the vote; by default what the data and the packages allow.

    Raises:
        DataMissing: There is nothing to read.
        ParameterError: It cannot be read, or there is no such column.
    """
    if is_known(source):
        seen = _Seen({"source": source, "clients": clients or 60}, clients or 60, 1000, 10)
    else:
        path = base / source
        if not path.exists():
            raise DataMissing(f"there is no file or folder {path}, and no known set {source!r}")
        if path.is_dir() and holds_pictures(path):
            seen = _pictures(source, path, clients)
        else:
            seen = _table(source, path, label, client, clients, base)
    return _study(seen, model, follow)


def seen_of(part: DataPart, *, base: Path) -> dict[str, Any]:
    """Return what files of one's own say of themselves: columns, classes, ranges.

    Raises:
        DataMissing: There is nothing to read.
        ParameterError: It cannot be read, or there is no such column.
    """
    seen = draft_study(
        part.source,
        base=base,
        label=part.label if part.label != keys_of("data")["label"].default else None,
        client=part.client_column or None,
        clients=part.clients or None,
    ).values["data"]
    return {key: tuple(v) if isinstance(v, list) else v for key, v in seen.items()}


@dataclass(frozen=True, slots=True)
class _Seen:
    """What can be seen of some data."""

    said: Mapping[str, Any]
    clients: int
    fewest: int
    """Rows of the smallest client."""
    classes: int | None
    notes: tuple[str, ...] = field(default=())


def _study(seen: _Seen, model: str | None, follow: Follow | None) -> Draft:
    notes = list(seen.notes)
    privacy: dict[str, Any] = {"dropout": 0.1, "colluding": 0.0}
    privacy |= {name: keys_of("privacy")[name].key.preset for name in ("epsilon", "delta")}
    torch = find_spec("torch") is not None and find_spec("safetensors") is not None
    if seen.clients >= _MANY:
        privacy["unit"] = "client"
        usual = Follow.TRAIN if torch else Follow.AVERAGE
        if seen.classes is None and usual is Follow.AVERAGE:
            usual = Follow.NOTHING
        chosen = follow or (Follow.NOTHING if model is not None else usual)
    else:
        shards = max(1, min(math.ceil(_ENOUGH / seen.clients), seen.fewest // (2 * MIN_SAMPLES)))
        privacy |= {"unit": "record", "shards": shards, "dropout": 0.0}
        chosen = follow or Follow.NOTHING
        notes.append(
            f"{seen.clients} clients cannot out-vote noise that hides one of them, so single "
            f"records are protected, and {shards} shards of each client's records vote."
        )
    values: dict[str, Mapping[str, Any]] = {
        "": {"title": f"{Path(str(seen.said['source'])).stem}, {seen.clients} clients"},
        "data": seen.said,
        "objective": {"model": model or "linear"},
        "privacy": privacy,
        "vote": {},
        **({} if chosen is Follow.NOTHING else {str(chosen): {}}),
        "engine": {"kind": "memory"},
        "output": {"folder": "results"},
    }
    if model is not None and ":" in model:
        values["space"] = _usual_space(model)
    return Draft(values, tuple(notes))


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
    return _Seen(said, number, min(counts) // (number if pool else 1), len(names), (_CHECK,))


_CHECK = (
    "Classes, ranges and categories below were read off the data on this machine. They become "
    "public with this file: put what everybody knows in their place before you share it."
)


def labels_of(path: Path) -> list[str]:
    """Return the columns of a table, or of the first of a folder."""
    first = next(iter(_files(path)), path) if path.is_dir() else path
    return list(read_columns(first))


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.suffix in TABLES)


def _check_columns(files: Sequence[Path], tables: Sequence[Mapping[str, Any]]) -> None:
    for file, table in zip(files, tables, strict=True):
        if set(table) != set(tables[0]):
            raise ParameterError(
                f"tables of one folder have the same columns: {files[0].name} has "
                f"{', '.join(tables[0])}, {file.name} has {', '.join(table)}"
            )


def _table(
    source: str,
    path: Path,
    label: str | None,
    client: str | None,
    clients: int | None,
    base: Path,
) -> _Seen:
    files = _files(path) if path.is_dir() else [path]
    if not files:
        raise DataMissing(f"{path} holds no .csv, .parquet or .npz file, and no class folders")
    tables = [read_columns(file) for file in files]
    names = list(tables[0])
    _check_columns(files, tables)
    chosen = _label(names, label, files[0])
    said: dict[str, Any] = {"source": source, "label": chosen}
    sizes = [len(table[names[0]]) for table in tables]
    if not all(sizes):
        raise ParameterError(f"{files[sizes.index(0)]} has columns and no rows")
    number, fewest = len(files), min(sizes)
    if len(files) == 1:
        if client is not None:
            owners = _column(tables[0], client, files[0]).astype(str)
            found, counts = np.unique(owners, return_counts=True)
            number, fewest = len(found), int(counts.min())
            said["client_column"] = client
        else:
            number = clients or max(2, min(60, sizes[0] // 20))
            fewest = sizes[0] // number
            said["clients"] = number
    if "features" in names and "targets" in names:
        said.pop("label")
    part = replace(
        looked_at(DataPart(source=source, label=chosen, client_column=client or ""), base=base)
    )
    targets = _joined(tables, "targets" if "targets" in tables[0] else chosen)
    if part.classes:
        said["classes"] = list(part.classes)
    else:
        numbers = as_numbers(targets)
        said["span"] = list(_rounded(numbers[np.isfinite(numbers)]))
    left = [n for n in names if n not in (chosen, client, "features", "targets", "ids")]
    ranges, categories, dropped = _features(tables, left)
    if dropped:
        said["features"] = [name for name in left if name not in dropped]
        if not said["features"]:
            raise ParameterError(f"{files[0]}: no column beside {chosen!r} can be predicted from")
    said |= {"ranges": ranges} if ranges else {}
    said |= {"categories": categories} if categories else {}
    notes = [_CHECK]
    if dropped:
        notes.append(f"Left out, because they hold too many different texts: {', '.join(dropped)}.")
    return _Seen(said, number, fewest, len(part.classes) or None, tuple(notes))


def _label(names: Sequence[str], label: str | None, file: Path) -> str:
    if label is not None:
        if label not in names and "targets" not in names:
            raise ParameterError(f"{file} has no column {label!r}; it has {', '.join(names[:20])}")
        return label
    usual = ("target", "label", "outcome", "class", "y", "targets")
    lowered = {name.lower(): name for name in names}
    return next((lowered[name] for name in usual if name in lowered), names[-1])


def _column(table: Mapping[str, npt.NDArray[Any]], name: str, file: Path) -> npt.NDArray[Any]:
    if name not in table:
        raise ParameterError(f"{file} has no column {name!r}; it has {', '.join(list(table)[:20])}")
    return table[name]


def _joined(tables: Sequence[Mapping[str, npt.NDArray[Any]]], name: str) -> npt.NDArray[Any]:
    return np.concatenate([table[name] for table in tables if name in table])


def _features(
    tables: Sequence[Mapping[str, npt.NDArray[Any]]], names: Sequence[str]
) -> tuple[dict[str, list[float]], dict[str, list[str]], list[str]]:
    """Return ranges of numbers, categories of texts, and columns that are neither."""
    ranges: dict[str, list[float]] = {}
    categories: dict[str, list[str]] = {}
    dropped = []
    for name in names:
        values = _joined(tables, name)
        if values.ndim > 1:
            continue
        numbers = as_numbers(values)
        finite = numbers[np.isfinite(numbers)]
        texts = sorted({str(v).strip() for v in values.tolist()} - {""})
        if len(finite) >= len(numbers) / 2 and len(finite):
            low, high = _rounded(finite)
            ranges[name] = [low, high]
        elif 0 < len(texts) <= _MOST_CATEGORIES:
            categories[name] = texts
        else:
            dropped.append(name)
    return ranges, categories, dropped


def _rounded(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return round numbers around values: what is agreed on should not tell a single one."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if low == high:
        return low - 1, high + 1
    step = 10.0 ** math.floor(math.log10(high - low))
    digits = max(0, -math.floor(math.log10(step)))
    ends = math.floor(low / step) * step, math.ceil(high / step) * step
    return round(ends[0], digits), round(ends[1], digits)
