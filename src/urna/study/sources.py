"""The clients of a study: from files of one's own, pictures, or a known set that is dealt out."""

import logging
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import (
    Coding,
    Columns,
    Dataset,
    Samples,
    Tables,
    catalogue,
    holds_pictures,
    load,
    read_pictures,
    read_tables,
    split,
    split_rows,
)
from urna.data.coding import as_texts, places_of, spellings_of
from urna.errors import DataMissing, ParameterError
from urna.study.schema import DataPart

__all__ = [
    "MOST_CLASSES",
    "ClientData",
    "blank_data",
    "classes_of",
    "gather",
    "gather_one",
    "is_known",
]

MOST_CLASSES = 40
"""Whole numbers with more values than this are no classes, where nobody says so."""

_log = logging.getLogger(__name__)

_CLIENTS = 60  # that a known set is dealt out to where nobody says
_SIZE = (28, 28)


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """Everybody's data, and what is public about them."""

    clients: list[Samples]
    names: list[str]
    dataset: Dataset
    """All rows together, and public test rows where there are any."""
    labels: tuple[str, ...] | tuple[int, ...] | None
    """What the classes are called, in order; None for regression."""
    span: tuple[float, float] | None = None
    """Smallest and largest target of a regression, where it was named."""
    how: str = ""
    """Where the clients come from, in words."""
    columns: tuple[str, ...] = ()
    """Names of the columns that features are made of, where files name them."""
    coding: Coding = field(default_factory=Coding)

    @property
    def tested(self) -> bool:
        """Whether there are public test rows."""
        return len(self.dataset.test) > 0

    @property
    def baseline(self) -> float | None:
        """How often the best constant answer is right on the test rows; None where none is."""
        if self.labels is None or not self.tested:
            return None
        targets = self.dataset.test.targets
        return int(np.unique(targets, return_counts=True)[1].max()) / len(targets)


def is_known(source: str) -> bool:
    """Say whether a source is a set that `urna data` lists."""
    return source in {entry.name for entry in catalogue()}


def gather(
    part: DataPart,
    *,
    seed: int,
    base: Path | None = None,
    by_record: bool = False,
    marked: bool = False,
) -> ClientData:
    """Return the clients of a study.

    Args:
        part: What is said of the data.
        seed: Public seed of the split.
        base: The folder that paths are relative to.
        by_record: Whether single records are protected: then no row is left out for what it
            holds, because that would move the others. Rows of no known class are of the first.
        marked: Whether those rows get the class -1 instead, or NaN, for who leaves them out.

    Raises:
        DataMissing: The files or a package are not there.
        ParameterError: They have another form than was said.
    """
    if part.hub or is_known(part.source):
        return _known(part, seed, base)
    path = (base or Path()) / part.source
    if not path.exists():
        near = ", ".join(sorted(entry.name for entry in catalogue()))
        raise DataMissing(
            f"there is no file or folder {path}, and no set is called {part.source!r}; sets are "
            f"{near}"
        )
    if path.is_dir() and holds_pictures(path):
        _check_pictures(by_record)
        return _pictures(part, path, seed)
    return _tables(part, path, seed, base, _Unknown.of(by_record, marked))


def gather_one(part: DataPart, path: Path, *, by_record: bool = False) -> Samples:
    """Return one client's rows from its own file or folder, as a study says; see `gather`."""
    if path.is_dir() and holds_pictures(path):
        _check_pictures(by_record)
        return _together(_pooled_pictures(part, path)[0])
    labels = part.classes or None
    named = replace(part, client_column="", features=_named_features(part))
    return _labelled(
        _together(_read(named, path).clients), labels, path.name, _Unknown.of(by_record)
    )


def _check_pictures(by_record: bool) -> None:
    if by_record:
        raise ParameterError(
            "pictures in class folders have no records of their own: one that changes its class "
            "would move others. Protect clients instead"
        )


def blank_data(part: DataPart, clients: int, *, base: Path | None = None) -> ClientData:
    """Return what is public about the data of a federation: no rows, but how wide they are.

    Raises:
        ParameterError: The study does not say which columns there are.
    """
    if is_known(part.source):
        folder = (base or Path()) / part.folder if part.folder else None
        known = load(part.source, folder=folder)
        labels = None if known.classes is None else tuple(range(known.classes))
        nothing = known.train.take(np.zeros(0, dtype=np.intp))
        return ClientData(
            [nothing] * clients,
            [],
            replace(known, train=nothing, writers=None),
            labels,
            None,
            part.source,
        )
    if not part.classes and not part.span:
        raise ParameterError("a federation must name the `classes`, or the `span` of the targets")
    if part.picture:
        shape = (3 if part.colour else 1, part.picture[0], part.picture[1])
        width = int(np.prod(shape))
    else:
        shape, names = None, _named_features(part)
        if not names:
            raise ParameterError(
                "a federation must name the columns: `features`, or `ranges` and `categories`"
            )
        width = sum(len(part.categories.get(name, ("one",))) for name in names)
    targets: npt.NDArray[Any] = np.zeros(0, dtype=np.int64 if part.classes else np.float32)
    nothing = Samples(np.zeros((0, width), dtype=np.float32), targets)
    test = nothing
    if part.test:
        test = gather_one(part, (base or Path()) / part.test)
    dataset = Dataset(part.source, nothing, test, len(part.classes) or None, None, shape)
    span = (part.span[0], part.span[1]) if part.span else None
    return ClientData([nothing] * clients, [], dataset, part.classes or None, span, part.source)


def _named_features(part: DataPart) -> tuple[str, ...]:
    """Return the columns in an order that every node of a federation has."""
    return part.features or (*part.ranges, *part.categories)


def classes_of(label: str, targets: npt.NDArray[Any]) -> tuple[str, ...] | tuple[int, ...]:
    """Return the classes that a column of targets seems to hold; none where it holds numbers.

    For somebody's first look at files of their own. What data hold becomes public that way; a
    study file names the classes instead.

    Raises:
        ParameterError: There is nothing to predict.
    """
    values = spellings_of(as_texts(targets).tolist())
    if len(values) < 2:
        held = f"one class alone, {values[0]!r}" if values else "nothing"
        raise ParameterError(
            f"the column {label!r} holds {held}, so there is nothing to predict: name another "
            "with --label"
        )
    numbers = [_number(value) for value in values]
    whole = sorted({int(n) for n in numbers if n is not None and n == int(n)})
    if len(whole) == len(values) <= MOST_CLASSES:
        return tuple(whole)
    if None not in numbers:
        return ()
    if len(values) > MOST_CLASSES:
        raise ParameterError(
            f"the column {label!r} holds {len(values)} different texts, which are no classes: name "
            "another with --label, or the classes"
        )
    return tuple(values)


def _known(part: DataPart, seed: int, base: Path | None) -> ClientData:
    for name in (
        "client_column",
        "record_column",
        "features",
        "classes",
        "span",
        "test",
        "ranges",
        "categories",
    ):
        if getattr(part, name):
            raise ParameterError(
                f"{part.source} is a known set, whose columns, classes and test rows are known: "
                f"leave `{name}` out"
            )
    folder = (base or Path()) / part.folder if part.folder else None
    dataset = load(part.source, folder=folder, hub=part.hub)
    clients = part.clients or _CLIENTS
    parts = split(
        dataset, clients=clients, how=part.split, beta=part.beta, level=part.level, seed=seed
    )
    labels = None if dataset.classes is None else tuple(range(dataset.classes))
    how = f"{part.source}, {clients} clients ({part.split})"
    span = None
    if labels is None:  # what a public set spans is public
        span = (float(dataset.train.targets.min()), float(dataset.train.targets.max()))
    return ClientData(parts, _numbered(clients), dataset, labels, span, how)


def _numbered(clients: int) -> list[str]:
    return [f"client {number}" for number in range(clients)]


def _pictures(part: DataPart, path: Path, seed: int) -> ClientData:
    size = (part.picture[0], part.picture[1]) if part.picture else _SIZE
    clients, names, classes = _pooled_pictures(part, path)
    whole = _together(clients)
    shape = (3 if part.colour else 1, *size)
    test = whole.take(np.zeros(0, dtype=np.intp))
    if part.test:
        raise ParameterError("public test rows of pictures are not read: leave `test` out")
    dataset = Dataset(path.name, whole, test, len(classes), None, shape)
    return _dealt(part, ClientData(clients, names, dataset, classes, None, path.name), seed)


def _pooled_pictures(
    part: DataPart, path: Path
) -> tuple[list[Samples], list[str], tuple[str, ...]]:
    size = (part.picture[0], part.picture[1]) if part.picture else _SIZE
    wanted = tuple(map(str, part.classes)) or None
    return read_pictures(path, size=size, colour=part.colour, classes=wanted)


class _Unknown(Enum):
    """What becomes of a row of no known class, or of no number."""

    LEFT_OUT = "left out"
    FIRST = "the first class, or zero"
    MARKED = "-1, or NaN"

    @classmethod
    def of(cls, by_record: bool, marked: bool = False) -> "_Unknown":
        return cls.LEFT_OUT if not by_record else cls.MARKED if marked else cls.FIRST


def _tables(
    part: DataPart, path: Path, seed: int, base: Path | None, unknown: _Unknown
) -> ClientData:
    if not part.classes and not part.span:
        targets = np.concatenate([one.targets for one in _read(part, path, texts=True).clients])
        seen = classes_of(part.label, targets)
        hint = f"classes = {list(seen)}" if seen else "span = [smallest, largest]"
        raise ParameterError(
            "name the classes there may be, or the span of the targets of a regression: what data "
            f"hold must not decide it. These files would say {hint}"
        )
    read = _read(part, path)
    if path.is_file() and not any(map(len, read.clients)):
        raise ParameterError(f"{path} has columns and no rows")
    labels = part.classes or None
    pairs = zip(read.clients, read.names, strict=True)
    clients = [_labelled(samples, labels, name, unknown) for samples, name in pairs]
    whole = _together(clients)
    test = whole.take(np.zeros(0, dtype=np.intp))
    if part.test:
        test = _test_rows(part, (base or Path()) / part.test, read.features, labels)
    span = (part.span[0], part.span[1]) if part.span else None
    dataset = Dataset(path.stem, whole, test, None if labels is None else len(labels))
    found = ClientData(
        clients, read.names, dataset, labels, span, path.name, read.features or (), _coding(part)
    )
    return _dealt(part, found, seed)


def _test_rows(
    part: DataPart,
    path: Path,
    features: tuple[str, ...] | None,
    labels: tuple[str, ...] | tuple[int, ...] | None,
) -> Samples:
    """Return the rows of public test data that have a target; there is at least one."""
    if path.is_dir():
        raise ParameterError(f"test data are one file, {path} is a folder")
    held = _read(replace(part, client_column="", record_column=""), path, features)
    found = _labelled(_together(held.clients), labels, path.name)
    if not len(found):
        raise ParameterError(f"{path} has no row with a target to measure the model on")
    return found


def _read(
    part: DataPart,
    path: Path,
    features: tuple[str, ...] | None = None,
    *,
    texts: bool = False,
) -> Tables:
    columns = Columns(part.label, part.client_column or None, part.record_column or None)
    named = part.classes and isinstance(part.classes[0], str)
    return read_tables(
        path,
        columns,
        texts=texts or bool(named),
        features=features or part.features or None,
        coding=None if texts else _coding(part),
    )


def _coding(part: DataPart) -> Coding:
    return Coding.read({"ranges": part.ranges, "categories": part.categories})


def _dealt(part: DataPart, found: ClientData, seed: int) -> ClientData:
    """Deal one pool out to clients; where there are several already, leave them."""
    if len(found.clients) > 1:
        if part.clients and part.clients != len(found.clients):
            raise ParameterError(
                f"the files hold {len(found.clients)} clients: leave `clients` out, which deals "
                "one pool out"
            )
        return replace(found, how=f"{found.how}, {len(found.clients)} clients")
    if part.clients < 2:
        raise ParameterError(
            f"{found.how} holds one pool of {len(found.dataset.train):,} rows: say `clients` to "
            "deal it out, or `client`, the column that says whose a row is"
        )
    whole = found.dataset.train
    rows = np.arange(len(whole)) if whole.ids is None else whole.ids
    _, first, record = np.unique(rows, return_index=True, return_inverse=True)
    dealt = split_rows(  # of records, so that rows of one stay together
        whole.take(first),
        clients=part.clients,
        how=part.split,
        beta=part.beta,
        level=part.level,
        seed=seed,
    )
    if whole.ids is None:
        clients = [whole.take(places) for places in dealt]
    else:
        clients = [whole.take(np.flatnonzero(np.isin(record, places))) for places in dealt]
    how = f"{found.how}, {part.clients} clients ({part.split})"
    return replace(found, clients=clients, names=_numbered(part.clients), how=how)


def _labelled(
    samples: Samples,
    labels: tuple[str, ...] | tuple[int, ...] | None,
    name: str,
    unknown: _Unknown = _Unknown.LEFT_OUT,
) -> Samples:
    """Return rows whose targets are places of classes, or numbers; say how many are not.

    Where single records are protected no row is left out: that would move all those behind it.
    """
    features = np.asarray(samples.features, dtype=np.float32)
    given: npt.NDArray[Any] = np.asarray(samples.targets)
    targets: npt.NDArray[Any]
    if labels is None:
        targets = given.astype(np.float32)
        known = np.isfinite(targets)
    else:
        targets = np.full(len(given), -1, dtype=np.int64)
        if isinstance(labels[0], str):
            targets = places_of(given, tuple(map(str, labels)))
        else:
            for place, label in enumerate(labels):
                targets[given == label] = place
        known = targets >= 0
    if not known.all():
        _log.warning(
            "note: %s: %d of %d rows have no target that the study knows; they %s",
            name, (~known).sum(), len(known),
            "count as of the first class, or 0" if unknown is _Unknown.FIRST else "do not count",
        )  # fmt: skip
    if unknown is _Unknown.FIRST:
        targets = np.where(known, targets, 0)
    found = Samples(features, targets, samples.ids)
    return found.take(np.flatnonzero(known)) if unknown is _Unknown.LEFT_OUT else found


def _together(parts: list[Samples]) -> Samples:
    ids = [part.ids for part in parts]
    joined = (
        None
        if any(one is None for one in ids)
        else np.concatenate([i for i in ids if i is not None])
    )
    return Samples(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.targets for part in parts]),
        joined,
    )


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) else None
