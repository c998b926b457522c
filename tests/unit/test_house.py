"""The rules of the house: what rooms offer, and which may import which."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from forks import environment

import urna

SOURCE = Path(urna.__file__).parent

# Lowest first; rooms of one level do not import each other.
LEVELS = (
    {"errors"},
    {"display", "files", "progress"},
    {"randomness"},
    {"space"},
    {"conversion"},
    {"data"},
    {"privacy"},
    {"noise"},
    {"he", "hidden"},
    {"secagg"},
    {"verified"},
    {"tally"},
    {"local"},
    {"average", "combine", "train", "vote"},
    {"forecast"},
    {"flower"},
    {"study"},
    {"report", "tracking"},
    {"cli"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
OUTSIDE = {"__init__", "__main__", "testing"}  # fronts of the house; no room imports them
MAY_IMPORT = {
    "flwr": {"flower"},
    "jinja2": {"report"},
    "matplotlib": {"report"},
    "rich": {"cli"},
    "torch": {"local", "train", "average", "data"},
    "typer": {"cli"},
}
ONLY_FOR = {"forecast": {"study", "report", "cli"}}  # no search needs a forecast of searches
FILES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(
    ["urna", *(m.name for m in pkgutil.walk_packages([str(SOURCE)], "urna.") if m.ispkg)]
)


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    """Return the full names of the modules a file imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "urna":  # a room by its name: `from urna import he`
                found |= {f"urna.{alias.name}" for alias in node.names}
            else:
                found.add(node.module or "")
    return found


def faults(room: str, tree: ast.AST) -> list[str]:
    """Return the imports of a file that a room of this name may not have."""
    found = []
    for name in sorted(imports(tree)):
        top, _, rest = name.partition(".")
        if top in MAY_IMPORT and room not in MAY_IMPORT[top]:
            found.append(name)
        if top == "urna" and room not in OUTSIDE and room != "cli":
            other = rest.split(".")[0]
            below = LEVEL.get(other, len(LEVELS)) < LEVEL[room]
            if other != room and not (below and room in ONLY_FOR.get(other, {room})):
                found.append(name)
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_what_a_package_offers_is_sorted_and_there(name: str) -> None:
    package = importlib.import_module(name)
    offered = list(package.__all__)
    # Constants first, then classes, then functions, each in order: what ruff calls sorted.
    kinds = [0 if n.isupper() else 1 if n[0].isupper() else 2 for n in offered]
    assert [n for _, n in sorted(zip(kinds, offered, strict=True))] == offered
    assert [n for n in offered if not hasattr(package, n)] == []


def test_the_walk_finds_the_house() -> None:
    assert {"urna.cli", "urna.privacy", "urna.tally", "urna.vote"} <= set(PACKAGES)
    assert {room_of(file) for file in FILES} - OUTSIDE <= LEVEL.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_point_downwards(file: Path) -> None:
    assert faults(room_of(file), ast.parse(file.read_text(encoding="utf-8"))) == []


def test_the_engine_of_local_search_knows_no_objective() -> None:
    inside = SOURCE / "local" / "engine"
    known = {f"urna.local.{name}" for name in ("holdout", "racing", "recipe", "speed")}
    for file in sorted(inside.rglob("*.py")):
        outside = {
            name
            for name in imports(ast.parse(file.read_text(encoding="utf-8")))
            if name.startswith("urna.local") and not name.startswith("urna.local.engine")
        }
        assert outside <= known, file.name


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("privacy", "from urna.vote import plan"),
        ("tally", "import urna.local.estimator"),
        ("vote", "from urna.train import fit"),
        ("noise", "import urna"),
        ("space", "from urna.testing import ScriptedSecrets"),
        ("noise", "from urna import tally"),
        ("noise", "from urna import search"),
        ("vote", "import torch.nn"),
        ("local", "import flwr"),
        ("vote", "from urna.forecast import forecast"),
        ("report", "from rich.table import Table"),
        ("files", "from urna.privacy import Ledger"),
        ("errors", "import urna.files"),
        ("local", "from urna.forecast.votes import forecast"),
        ("vote", "import urna.forecast"),
        ("tally", "from urna.forecast import stand_in"),
        ("secagg", "from urna.tally import Terms"),
        ("flower", "from urna.forecast.openings import Openings"),
    ],
)
def test_an_import_that_points_upwards_would_be_found(room: str, line: str) -> None:
    assert len(faults(room, ast.parse(f"def later():\n    {line}\n"))) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_nothing_draws_from_a_global_generator(file: Path) -> None:
    assert global_draws(ast.parse(file.read_text(encoding="utf-8"))) == []


def global_draws(tree: ast.AST) -> list[str]:
    """Return uses of global generators, and generators made without a seed."""
    of_numpy = {"Generator", "SeedSequence", "default_rng"}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name) if name not in of_numpy:
                wrong = ast.unparse(owner) in ("np.random", "numpy.random")
            case ast.Call(func=function, args=[]):
                wrong = ast.unparse(function).endswith("default_rng")
            case _:
                wrong = False
        found += [ast.unparse(node)] if wrong else []
    return found + sorted(imports(tree) & {"random"})


@pytest.mark.parametrize(
    "line",
    [
        "np.random.seed(0)",
        "numpy.random.normal(size=3)",
        "np.random.default_rng()",
        "import random",
    ],
)
def test_a_global_generator_would_be_found(line: str) -> None:
    assert len(global_draws(ast.parse(line))) == 1


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("files", "from urna.errors import OutputError"),
        ("forecast", "from urna.vote import plan"),
        ("report", "from urna.forecast import stand_in"),
        ("cli", "import urna.forecast"),
        ("vote", "import urna.vote.plan"),
        ("tally", "from urna.files import write_json"),
    ],
)
def test_an_import_that_points_downwards_is_none_of_them(room: str, line: str) -> None:
    assert faults(room, ast.parse(line)) == []


def test_importing_urna_imports_neither_torch_nor_flower_nor_the_command_line() -> None:
    code = (
        "import json, sys, urna, urna.local, urna.data; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules}))); "
        "print('urna.cli' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    names, command_line = done.stdout.splitlines()
    loaded = set(json.loads(names))
    assert {"urna", "numpy"} <= loaded
    assert not loaded & {"sklearn", "dp_accounting"}, "heavy packages are imported on first use"
    assert not loaded & {"torch", "flwr", "typer", "rich", "pytest", "mlxtend", "datasets"}
    assert not loaded & {"jinja2", "matplotlib"}, "only who draws a page needs them"
    assert command_line == "False"
