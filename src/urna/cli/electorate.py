"""Whose data a search runs on: the voters', and public ones on which it is rehearsed."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from urna.cli.output import errors
from urna.data import MIN_SAMPLES, Dataset, Samples, Split, holds_pictures, load, split
from urna.errors import ParameterError
from urna.study.draft import draft_study, labels_of
from urna.study.file import DataPart
from urna.study.sources import Electorate, gather, is_known

__all__ = ["gather_voters", "load_public"]

_PRETEND = 5  # clients of a rehearsal; were it to follow the voters' sizes, it would tell them
_SEEN = ("label", "clients", "classes", "span", "features")


def gather_voters(
    part: DataPart, *, hub: bool, seed: int, by_record: bool
) -> tuple[Electorate, str | None]:
    """Return everybody's data, from a known set or from files of one's own, and their label.

    The label is the column to predict, where there are columns.

    Args:
        part: What is said of the data.
        hub: Whether a known set is fetched from the hub.
        seed: Public seed of the split.
        by_record: Whether single records are protected.
    """
    if is_known(part.source) and not hub and part.client:
        raise ParameterError(f"{part.source} is a known set: leave --client-column out")
    if hub or is_known(part.source):
        return _known(part, hub, seed), None
    seen = _seen(part)
    errors.print("read off these data, and so as public as your command line:", end=" ")
    errors.print(", ".join(f"{key} = {str(seen[key])[:60]}" for key in _SEEN if key in seen))
    electorate = gather(replace(part, **seen), seed=seed, by_record=by_record)
    return electorate, seen.get("label")


def load_public(
    source: str,
    part: DataPart,
    voters: Dataset,
    *,
    label: str | None,
    hub: bool,
    seed: int,
    by_record: bool,
) -> tuple[Dataset, list[Samples]]:
    """Return public data to rehearse on, loaded as the voters' are, and dealt out to a few.

    Args:
        source: A known set, a file or a folder.
        part: What is said of the voters' data.
        voters: Those data, which public ones must not be.
        label: What the voters predict; public tables must have that column. None where it may be
            any.
        hub: Whether known sets are fetched from the hub.
        seed: Public seed of the split.
        by_record: Whether single records are protected.

    Raises:
        ParameterError: There are no such data, they are the voters' own, or of another kind.
    """
    try:
        if not source:
            raise ParameterError("name public data, a known set, a file or a folder; got nothing")
        asked = replace(part, source=source, client="", clients=2, split=Split.IID)
        if is_known(source):
            public = _known(asked, hub, seed).dataset
        else:
            asked = replace(asked, client=_owners(part.client, Path(source)))
            seen = {"clients": 0} | _seen(asked, label)  # a folder's files are clients already
            public = gather(replace(asked, **seen), seed=seed, by_record=by_record).dataset
        if _digest(public.train) == _digest(voters.train):
            raise ParameterError(
                f"a rehearsal is on public data, and {source} is what the clients hold: name "
                "other data of the same kind"
            )
        if (public.classes is None) != (voters.classes is None):
            kinds = ("classes", "numbers")
            wanted, got = kinds if public.classes is None else kinds[::-1]
            raise ParameterError(
                f"a rehearsal is on data of the same kind: the clients predict {wanted}, {source} "
                f"has {got} to predict; name other data"
            )
        pretend = min(_PRETEND, len(public.train) // MIN_SAMPLES)
        public = replace(public, name=source)  # as it was typed: a file's stem may be a set's name
        return public, split(public, clients=pretend, how=Split.IID, seed=seed)
    except ParameterError as error:
        raise ParameterError(f"--rehearse {source}: {error}") from error


def _known(part: DataPart, hub: bool, seed: int) -> Electorate:
    if not hub:
        return gather(part, seed=seed)
    dataset = load(part.source, folder=part.folder or None, hub=True)
    dealt = split(
        dataset,
        clients=part.clients or 60,
        how=part.split,
        beta=part.beta,
        level=part.level,
        seed=seed,
    )
    return Electorate(dealt, [], dataset, None, how=f"({part.split})")


def _seen(part: DataPart, label: str | None = None) -> dict[str, Any]:
    """Return what files of one's own say of themselves: columns, classes, ranges."""
    if not Path(part.source).exists():
        load(part.source)  # says which sets there are, and the nearest
    seen = draft_study(
        part.source,
        base=Path(),
        label=label or (part.label if part.label != "target" else None),
        client=part.client or None,
        clients=part.clients or None,
    ).values["data"]
    return {key: tuple(v) if isinstance(v, list) else v for key, v in seen.items()}


def _owners(column: str, path: Path) -> str:
    """Return the column that says whose a row is, where public data have it too."""
    tables = path.exists() and not (path.is_dir() and holds_pictures(path))
    return column if column and tables and column in labels_of(path) else ""


def _digest(samples: Samples) -> bytes:
    """Return a digest of all rows, in whatever order."""
    features = np.ascontiguousarray(samples.features)
    pairs = zip(features, np.ascontiguousarray(samples.targets), strict=True)
    rows = sorted(hashlib.sha256(f.tobytes() + t.tobytes()).digest() for f, t in pairs)
    return hashlib.sha256(b"".join(rows)).digest()
