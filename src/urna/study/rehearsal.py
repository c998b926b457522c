"""Public data on which a study's vote is rehearsed, for nothing."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from urna.data import MIN_SAMPLES, Dataset, Samples, Split, holds_pictures, split
from urna.errors import ParameterError
from urna.local import CachedObjective
from urna.privacy import Unit
from urna.progress import Steps
from urna.study.draft import labels_of, seen_of
from urna.study.prepare import Prepared, choose_objective
from urna.study.sources import gather, is_known
from urna.systems.vote import Rehearsal
from urna.systems.vote import rehearse as rehearse_votes

__all__ = ["rehearse"]

_PRETEND = 5  # clients of a rehearsal; were it to follow the voters' sizes, it would tell them


def rehearse(prepared: Prepared, cache: Path | None, progress: Steps) -> Rehearsal:
    """Evaluate a study's candidates on the public data that it names.

    Raises:
        ParameterError: There are no such data, they are the clients' own, or of another kind.
    """
    study = prepared.study
    with study.blaming("vote.rehearse"):
        public = _public(prepared)
        pretend = min(_PRETEND, len(public.train) // MIN_SAMPLES)
        parts = split(public, clients=pretend, how=Split.IID, seed=study.seed)
    chosen = choose_objective(study.objective, public, base=study.base)
    return rehearse_votes(
        prepared.candidates,
        CachedObjective(
            chosen.objective, cache or Path(), enabled=study.objective.cache and cache is not None
        ),
        parts,
        data=public.name,
        seed=study.seed,
        progress=lambda done, total: progress("rehearsing on public data", done, total),
    )


def _public(prepared: Prepared) -> Dataset:
    """Return public data, loaded as the clients' are."""
    study, voters = prepared.study, prepared.client_data.dataset
    source, by_record = study.vote.rehearse, study.privacy.relation.unit is Unit.RECORD
    asked = replace(study.data, source=source, client_column="", clients=2, split=Split.IID)
    if not (is_known(source) or study.data.hub):
        path = study.base / source
        owners = _owners(study.data.client_column, path)
        seen, _ = seen_of(replace(asked, client_column=owners, clients=0), base=study.base)
        # A folder's files are clients already; columns are coded as the clients' are.
        asked = replace(asked, client_column=owners, **({"clients": 0} | seen))
    else:
        asked = replace(
            asked, label="target", features=(), record_column="", classes=(), span=None, ranges={},
            categories={}, test="",
        )  # fmt: skip
    public = gather(asked, seed=study.seed, base=study.base, by_record=by_record).dataset
    if _digest(public.train) == _digest(voters.train):
        raise ParameterError(
            f"a rehearsal is on public data, and {source} is what the clients hold: name other "
            "data of the same kind"
        )
    if (public.classes is None) != (voters.classes is None):
        kinds = ("classes", "numbers")
        wanted, got = kinds if public.classes is None else kinds[::-1]
        raise ParameterError(
            f"a rehearsal is on data of the same kind: the clients predict {wanted}, {source} has "
            f"{got} to predict; name other data"
        )
    return replace(public, name=source)  # as it was typed: a file's stem may be a set's name


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
