"""Objects of somebody's own, by name: `module:name`, or `FILE.py:name`."""

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from urna.errors import ParameterError

__all__ = ["named_object", "said_in_one_line"]


def named_object(name: str, *, base: Path | None = None) -> Any:  # noqa: ANN401 - anybody's own
    """Return what a name stands for.

    Running this runs the module: it is somebody's own code.

    Args:
        name: `package.module:name`, or `FILE.py:name`.
        base: The folder that files are relative to, and in which modules are looked for first;
            the current one by default.

    Raises:
        ParameterError: There is no such module or file, it cannot be loaded, or it holds no such
            name.

    Example:
        >>> named_object("math:sqrt")(4.0)
        2.0
    """
    where, _, wanted = name.rpartition(":")
    if not where or not wanted:
        raise ParameterError(f"a name is written module:name or FILE.py:name, got {name!r}")
    folder = base or Path.cwd()
    if where.endswith(".py") or "/" in where:
        module = _of_file(folder / where, where, wanted)
    else:
        module = _of_module(where, wanted, folder)
    if not hasattr(module, wanted):
        if where.endswith(".py"):
            raise ParameterError(f"{where} holds no function {wanted!r}")
        near = difflib.get_close_matches(wanted, dir(module), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ParameterError(f"the module {where} holds no {wanted!r}{hint}")
    return getattr(module, wanted)


def said_in_one_line(error: BaseException) -> str:
    """Return an error of somebody else's in one line."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _of_file(path: Path, written: str, wanted: str) -> Any:  # noqa: ANN401 - a module
    if not path.is_file():
        raise ParameterError(f"there is no file {written} to take the model {wanted!r} from")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ParameterError(f"{written} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a stranger's file raises
        raise ParameterError(f"{written} cannot be loaded: {said_in_one_line(error)}") from error
    return module


def _of_module(where: str, wanted: str, folder: Path) -> Any:  # noqa: ANN401 - a module
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or where
        raise ParameterError(
            f"there is no module {missing!r} to take {wanted!r} from: install the package that has "
            f"it, or put {missing.replace('.', '/')}.py beside the study"
        ) from error
    except (Exception, SystemExit) as error:  # as above
        raise ParameterError(f"{where} cannot be loaded: {said_in_one_line(error)}") from error
    finally:
        sys.path.remove(str(folder))
