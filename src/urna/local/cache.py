"""Local losses kept on disk, so that a second run costs nothing.

After a dropout, or under another budget or ballot, a client needs the same losses again.
They are found by a digest of all that decides them: the data, the space, the objective, the
seed, and the versions of the libraries that compute.

Guarantee:
    A file is written whole or not at all; a damaged one counts as absent. Losses are used
    again only if every ingredient above is the same. The code of `urna.local` is one of them,
    engine included, so what a fixed fault computed is not served; its `Speed` is none.

Assumes:
    What the objective does follows from its own fields, its functions' code and constants,
    and the source files those come from. Where a function reads something else (a file, an
    environment variable, a package edited in place), give a `label` and change it.

The files hold one client's losses in the clear, readable by their owner only. They belong
on the client's own disk and nowhere else.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import inspect
import json
import sys
import sysconfig
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from urna.data import Samples
from urna.errors import OutputError, ParameterError
from urna.files import write_whole
from urna.local.objective import (
    Losses,
    Objective,
    Progress,
    check_objective,
)
from urna.space import Space

__all__ = ["CachedObjective", "data_fingerprint", "objective_identity"]

_FORMAT = "urna losses 1"
_LIBRARIES = ("numpy", "scikit-learn", "torch", "xgboost", "lightgbm")
_DEPTH = 12


@dataclass(frozen=True, slots=True)
class CachedObjective:
    """Remember another objective's losses in a folder.

    Args:
        objective: What computes losses when they are not there.
        folder: Where to keep them; made when needed.
        label: Anything the code does not show; see the module's text.
        enabled: False computes anew and stores nothing (`--no-cache`).
    """

    objective: Objective[Samples]
    folder: Path
    label: str = ""
    enabled: bool = True

    def check(self, space: Space) -> None:
        """Let the objective refuse a space that it cannot judge."""
        check_objective(self.objective, space)

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the losses, from the folder where they are there already."""
        if not self.enabled:
            return self.objective.losses(data, space, seed=seed, progress=progress)
        path = self.path(data, space, seed=seed)
        found = _read(path, len(space))
        if found is None:
            found = self.objective.losses(data, space, seed=seed, progress=progress)
            if not np.isnan(found).all():  # else it could not be evaluated
                _write(path, found)
        elif progress is not None:
            progress(len(space), len(space))
        return found

    def path(self, data: Samples, space: Space, *, seed: int) -> Path:
        """Return where the losses of exactly this computation are kept."""
        ingredients = [
            _FORMAT,
            data_fingerprint(data),
            space.fingerprint,
            objective_identity(self.objective),
            _own_code(),
            str(seed),
            self.label,
            *(f"{name} {_version(name)}" for name in _LIBRARIES),
        ]
        digest = hashlib.sha256("\0".join(ingredients).encode()).hexdigest()
        return Path(self.folder) / f"{digest}.json"


def data_fingerprint(data: Samples) -> str:
    """Return a digest of one client's rows: values, types, shapes and order."""
    digest = hashlib.sha256()
    for table in (data.features, data.targets):
        if hasattr(table, "columns"):  # a pandas DataFrame
            digest.update(repr([(name, str(table[name].dtype)) for name in table]).encode())
            arrays = [np.asarray(table[name]) for name in table]
        else:
            arrays = [np.asarray(table)]
        for array in arrays:
            plain = array.astype(str) if array.dtype == object else array
            digest.update(f"{plain.dtype.str} {plain.shape} ".encode())
            digest.update(np.ascontiguousarray(plain).view(np.uint8).data)
    return digest.hexdigest()


@functools.cache
def _own_code() -> str:
    """Return a digest of all of `urna.local`: a change to any of it may change losses."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder).as_posix()} ".encode() + file.read_bytes())
    return digest.hexdigest()


def objective_identity(objective: object) -> str:
    """Return a digest of everything an objective is made of.

    Raises:
        ParameterError: It holds something whose identity cannot be told.
    """
    seen: set[int] = set()
    text = json.dumps(_describe(objective, seen, 0), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _describe(thing: Any, seen: set[int], depth: int) -> Any:  # noqa: ANN401, PLR0911, PLR0912 - a line per kind
    if thing is None or isinstance(thing, bool | int | str):
        return repr(thing)
    if isinstance(thing, float):
        return thing.hex()
    if isinstance(thing, enum.Enum):
        return [_name(type(thing)), thing.name]
    if depth > _DEPTH or id(thing) in seen:
        return "seen before"
    seen.add(id(thing))
    inner = functools.partial(_describe, seen=seen, depth=depth + 1)
    if isinstance(thing, list | tuple):
        return [type(thing).__name__, *map(inner, thing)]
    if isinstance(thing, set | frozenset):
        return ["set", *sorted(json.dumps(inner(item)) for item in thing)]
    if isinstance(thing, dict):
        return ["dict", *sorted([json.dumps(inner(k)), inner(v)] for k, v in thing.items())]
    if isinstance(thing, np.ndarray | np.generic):
        array = np.ascontiguousarray(thing)
        return ["array", array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(thing, Path):
        return ["path", str(thing)]
    if isinstance(thing, functools.partial):
        return ["partial", inner(thing.func), inner(thing.args), inner(thing.keywords)]
    if isinstance(thing, types.FunctionType):
        return _describe_function(thing, inner)
    if isinstance(thing, types.MethodType):
        return ["method", inner(thing.__func__), inner(thing.__self__)]
    if isinstance(thing, type | types.BuiltinFunctionType | types.ModuleType):
        return [_name(thing), _source_digest(thing)]
    if dataclasses.is_dataclass(thing):
        compared = [f.name for f in dataclasses.fields(thing) if f.compare]
        parts = {name: inner(getattr(thing, name)) for name in compared}
        return [_name(type(thing)), _source_digest(type(thing)), parts]
    if hasattr(thing, "get_params"):  # a scikit-learn estimator
        parts = {k: inner(v) for k, v in thing.get_params(deep=False).items()}
        return [_name(type(thing)), _source_digest(type(thing)), parts]
    if hasattr(thing, "__dict__"):
        return [_name(type(thing)), _source_digest(type(thing)), inner(vars(thing))]
    raise ParameterError(
        f"the cache cannot tell one {type(thing).__name__} from another; make the objective of "
        "functions, classes, numbers, texts and arrays, or switch the cache off"
    )


def _describe_function(function: types.FunctionType, inner: Any) -> Any:  # noqa: ANN401
    """Return a function's code, defaults, closure and the globals it names."""
    reached = {}
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name)
        if value is not None and not _installed(value):
            reached[name] = inner(value)
    closure = [inner(cell.cell_contents) for cell in function.__closure__ or ()]
    return [
        _name(function),
        _code(function.__code__),
        inner(function.__defaults__),
        inner(function.__kwdefaults__),
        closure,
        reached,
        _source_digest(function),
    ]


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _code(code: types.CodeType) -> list[Any]:
    constants = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def _name(thing: Any) -> str:  # noqa: ANN401
    module = getattr(thing, "__module__", None) or type(thing).__module__
    return f"{module}.{getattr(thing, '__qualname__', getattr(thing, '__name__', ''))}"


def _installed(thing: Any) -> bool:  # noqa: ANN401
    """Whether a thing comes with Python or an installed package: a version speaks for it."""
    source = _source(thing)
    if source is None:
        return isinstance(thing, types.ModuleType | types.BuiltinFunctionType | type)
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(source.is_relative_to(place) for place in places if place)


def _source(thing: Any) -> Path | None:  # noqa: ANN401
    with contextlib.suppress(TypeError, OSError):
        file = inspect.getsourcefile(thing)
        if file is not None and Path(file).exists():
            return Path(file).resolve()
    return None


def _source_digest(thing: Any) -> str:  # noqa: ANN401
    """Return a digest of the file a thing is written in; helpers beside it count as well."""
    source = _source(thing)
    if source is None or _installed(thing):
        module = sys.modules.get((getattr(thing, "__module__", None) or "").split(".")[0])
        return str(getattr(module, "__version__", ""))
    return hashlib.sha256(source.read_bytes()).hexdigest()


@functools.cache
def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _read(path: Path, candidates: int) -> Losses | None:
    """Return stored losses, or None where there are none that can be trusted."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        losses = np.array([float.fromhex(text) for text in entry["losses"]])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = entry.get("format") == _FORMAT and losses.shape == (candidates,)
    return losses if whole else None


def _write(path: Path, losses: Losses) -> None:
    """Write a file whole: readers see all of it or none."""
    entry = {"format": _FORMAT, "losses": [float(value).hex() for value in losses]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps(entry), mode=0o600)
    except (OSError, OutputError) as error:
        raise OutputError(
            f"the cache folder cannot be written ({error}); name another or switch the cache off"
        ) from error
