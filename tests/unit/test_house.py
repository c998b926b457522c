"""The rules of the house: what rooms offer, and which may import which."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import pytest
from forks import environment
from typer.main import get_command

import urna
from urna.cli.app import app
from urna.study.schema import SECTIONS, keys_of

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
    {"protocols.wire", "protocols.x25519"},
    {"protocols.he", "protocols.winner"},
    {"protocols.secagg"},
    {"protocols.ballots"},
    {"tally"},
    {"local"},
    {"systems.result"},
    {"systems.average", "systems.combine", "systems.train", "systems.vote"},
    {"forecast"},
    {"flower"},
    {"study"},
    {"report", "tracking"},
    {"cli"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
GROUPS = ("protocols", "systems")  # folders of rooms
OUTSIDE = {"__init__", "__main__", "testing", *GROUPS}  # fronts of the house; no room imports them
MAY_IMPORT = {
    "flwr": {"flower"},
    "jinja2": {"report"},
    "matplotlib": {"report"},
    "rich": {"cli"},
    "torch": {"local", "systems.train", "data"},
    "typer": {"cli"},
}
ONLY_FOR = {"forecast": {"study", "report", "cli"}}  # no search needs a forecast of searches
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}

# How large the house may be. Whoever makes it smaller lowers the limit; nobody raises one.
PROMISED = ("urna", "urna.flower", "urna.privacy", "urna.testing")
MOST_EXPORTED = 83  # names in the `__all__` of what is promised; the rest may be imported
MOST_DOUBLES = 0  # names that two public classes have
MOST_PARAMETERS: dict[str, int] = {}  # of public functions with more than twelve
MOST_OPTIONS = {"train": 25, "average": 25, "search": 25, "combine": 20}
CYCLES: set[tuple[str, ...]] = set()
MOST_LINES = {
    "__init__": 90,
    "__main__": 20,
    "cli": 2550,
    "conversion": 190,
    "data": 2080,
    "display": 100,
    "errors": 200,
    "files": 170,
    "flower": 7070,
    "forecast": 560,
    "local": 6280,
    "noise": 290,
    "privacy": 2600,
    "progress": 90,
    "protocols": 20,
    "protocols.ballots": 1880,
    "protocols.he": 2650,
    "protocols.secagg": 4250,
    "protocols.winner": 1360,
    "protocols.wire": 110,
    "protocols.x25519": 50,
    "randomness": 210,
    "report": 2550,
    "space": 560,
    "study": 5380,
    "systems": 20,
    "systems.average": 2660,
    "systems.combine": 3250,
    "systems.result": 140,
    "systems.train": 3000,
    "systems.vote": 3250,
    "tally": 3150,
    "testing": 570,
    "tracking": 120,
}
SPARE_LINES = 50  # what a limit of lines may be above what is there
PACKAGES = sorted(
    ["urna", *(m.name for m in pkgutil.walk_packages([str(SOURCE)], "urna.") if m.ispkg)]
)


def room(name: str) -> str:
    """Return the room that a module's name below `urna` lies in."""
    first, _, rest = name.partition(".")
    second = rest.partition(".")[0]
    return f"{first}.{second}" if first in GROUPS and second else first


def room_of(file: Path) -> str:
    return room(".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))


def imports(tree: ast.AST) -> set[str]:
    """Return the full names of the modules a file imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "urna":  # a room by its name: `from urna.protocols import he`
                found |= {f"urna.{alias.name}" for alias in node.names}
            else:
                found.add(node.module or "")
    return found


def faults(own: str, tree: ast.AST) -> list[str]:
    """Return the imports of a file that a room of this name may not have."""
    found = []
    for name in sorted(imports(tree)):
        top, _, rest = name.partition(".")
        if top in MAY_IMPORT and own not in MAY_IMPORT[top]:
            found.append(name)
        if top == "urna" and own not in OUTSIDE and own != "cli":
            other = room(rest)
            below = LEVEL.get(other, len(LEVELS)) < LEVEL[own]
            if other != own and not (below and own in ONLY_FOR.get(other, {own})):
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
    assert {"urna.cli", "urna.privacy", "urna.tally", "urna.systems.vote"} <= set(PACKAGES)
    assert {room_of(file) for file in FILES} - OUTSIDE <= LEVEL.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_point_downwards(file: Path) -> None:
    assert faults(room_of(file), ast.parse(file.read_text(encoding="utf-8"))) == []


def test_the_engine_of_local_search_knows_no_objective() -> None:
    inside = SOURCE / "local" / "engine"
    known = {f"urna.local.{name}" for name in ("generators", "holdout", "recipe")}
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
        ("privacy", "from urna.systems.vote import plan"),
        ("tally", "import urna.local.functions"),
        ("systems.vote", "from urna.systems.train import fit"),
        ("noise", "import urna"),
        ("space", "from urna.testing import ScriptedSecrets"),
        ("noise", "from urna import tally"),
        ("noise", "from urna import search"),
        ("systems.vote", "import torch.nn"),
        ("local", "import flwr"),
        ("systems.vote", "from urna.forecast import forecast"),
        ("report", "from rich.table import Table"),
        ("files", "from urna.privacy import Ledger"),
        ("errors", "import urna.files"),
        ("local", "from urna.forecast.votes import forecast"),
        ("systems.vote", "import urna.forecast"),
        ("tally", "from urna.forecast import stand_in"),
        ("protocols.secagg", "from urna.tally import Terms"),
        ("flower", "from urna.forecast.votes import Openings"),
    ],
)
def test_an_import_that_points_upwards_would_be_found(room: str, line: str) -> None:
    assert len(faults(room, ast.parse(f"def later():\n    {line}\n"))) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_nothing_draws_from_a_global_generator(file: Path) -> None:
    if file == SOURCE / "local" / "generators.py":  # it sets them for strangers' code
        return
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
        ("forecast", "from urna.systems.vote import plan"),
        ("report", "from urna.forecast import stand_in"),
        ("cli", "import urna.forecast"),
        ("systems.vote", "import urna.systems.vote.plan"),
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


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def cycles(imported: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """Return the sets of files that import each other, directly or by way of others."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        rest = [start]
        while rest:
            fresh = imported[rest.pop()] - seen
            seen |= fresh
            rest += fresh
        return seen

    ways = {name: reached(name) for name in imported}
    together = {
        name: tuple(sorted(other for other in ways[name] if name in ways[other]))
        for name in imported
        if name in ways[name]
    }
    return set(together.values())


def imported_files() -> dict[str, set[str]]:
    """Return which files of the house each of them imports, wherever in it."""
    names = {module_of(file) for file in FILES}
    found: dict[str, set[str]] = {}
    for file, tree in TREES.items():
        own = found.setdefault(module_of(file), set())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                own |= {alias.name for alias in node.names} & names
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    inside = f"{node.module}.{alias.name}"
                    own |= {inside if inside in names else node.module or ""} & names
        own.discard(module_of(file))
    return found


def test_no_files_import_each_other() -> None:
    assert cycles(imported_files()) == CYCLES


def test_a_cycle_of_imports_would_be_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert cycles(edges) == {("a", "b", "c")}


def test_no_more_names_are_offered_than_before() -> None:
    offered = sum(len(importlib.import_module(name).__all__) for name in PROMISED)
    assert offered == MOST_EXPORTED


def test_no_more_public_classes_share_a_name_than_before() -> None:
    names = [
        node.name
        for tree in TREES.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sum(count > 1 for count in Counter(names).values()) == MOST_DOUBLES


def test_public_functions_take_no_more_parameters_than_before() -> None:
    found: dict[str, int] = {}
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                count = len(node.args.args) + len(node.args.kwonlyargs)
                name = f"{file.relative_to(SOURCE)}:{node.name}"
                if count > 12 and not name.startswith("cli/"):
                    found[name] = max(count, found.get(name, 0))
    assert found == MOST_PARAMETERS


def test_commands_have_no_more_options_than_before() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    counts = {
        name: sum(isinstance(one, click.Option) for one in commands[name].params)
        for name in MOST_OPTIONS
    }
    assert counts == MOST_OPTIONS


def test_defaults_of_a_studys_keys_are_written_in_the_schema_alone() -> None:
    keys = [entry for section in SECTIONS for entry in keys_of(section).values()]
    known = {entry.option for entry in keys if entry.default != ""}

    def again(command: click.Command, path: str) -> list[str]:
        found = []
        for name, inner in getattr(command, "commands", {}).items():
            found += again(inner, f"{path} {name}")
        for option in command.params:
            if isinstance(option, click.Option) and option.default is not None:
                found += [f"{path} {name}" for name in option.opts if name in known]
        return found

    other = ("urna ledger", "urna policy", "urna init --force")  # not of studies
    found = again(get_command(app), "urna")
    assert [each for each in found if not each.startswith(other)] == []


def test_packages_have_no_more_lines_than_before() -> None:
    lines: Counter[str] = Counter()
    for file in FILES:
        lines[room_of(file)] += file.read_text(encoding="utf-8").count("\n")
    slack = {room: MOST_LINES.get(room, 0) - count for room, count in lines.items()}
    outside = {room: spare for room, spare in slack.items() if not 0 <= spare <= SPARE_LINES}
    assert outside == {}, "below 0: make it smaller; above: lower its limit"


WRITES_TO_LEDGERS = {
    "charge": {
        "cli/ledger.py",
        "flower/accounts.py",
        "tally/slot.py",
        "testing/mechanism.py",
    },
    "note_result": {"study/journal.py"},
    "note_revealed": {"tally/slot.py"},
    "note_started": {"tally/slot.py"},
}
"""A node's account charges for what it answers; a command declares what was released elsewhere;
a contract suite has ledgers of its own."""


def test_what_is_released_is_charged_and_noted_in_one_place() -> None:
    found: dict[str, set[str]] = {name: set() for name in WRITES_TO_LEDGERS}
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            on_itself = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
            if isinstance(node, ast.Attribute) and node.attr in found and not on_itself:
                found[node.attr].add(str(file.relative_to(SOURCE)))
    assert found == WRITES_TO_LEDGERS
