"""A study in a real Flower federation: the app it needs, and one call that runs it.

`flwr run` carries the app to the SuperLink and the nodes. The app holds the study file and two
lines for each side; everything else is Urna's, which is installed there.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from urna.errors import OutputError, ParameterError, ProtocolError
from urna.files import check_folder, write_whole
from urna.study.file import Study

__all__ = ["run_in_federation", "write_app"]

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "urna-study"
version = "1.0.0"
description = "A study by secret ballot, written by `urna run`."
license = "Apache-2.0"
dependencies = ["urna[flower,train]"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "urna"

[tool.flwr.app.components]
serverapp = "study_app.server_app:app"
clientapp = "study_app.client_app:app"

[tool.flwr.app.config]
folder = ""  # where results are written, on the SuperLink's machine
base = ""    # the folder that the study's paths are relative to, there
"""

_CLIENT = '''\
"""The nodes' part: their rows and their policy are named by their own configuration.

    flower-supernode ... --node-config 'urna-data="rows.csv" urna-policy="policy.toml"'
"""

from pathlib import Path

from flwr.clientapp import ClientApp

from urna.study.node import node_of

app = ClientApp()
node_of(Path(__file__).with_name("study.toml")).mount(app)
'''

_SERVER = '''\
"""The server's part: vote, then what follows; results on this machine."""

from pathlib import Path

from flwr.serverapp import ServerApp

import urna
from urna.study.serve import serve_study

app = ServerApp()


@app.main()
def main(grid, context):
    """Hold the study."""
    folder = Path(str(context.run_config["folder"]))
    base = Path(str(context.run_config["base"]))
    study = Path(__file__).with_name("study.toml")
    serve_study(grid, study, folder, base=base, version=urna.__version__)
'''

_SEE = "the log of its ServerApp says why"


def write_app(study: Study, folder: Path) -> Path:
    """Write the Flower app of a study, and return its folder.

    A file of one's own that the objective names travels in the app; a module that it names must
    be installed on the nodes.

    Raises:
        OutputError: It cannot be written.
    """
    inner = folder / "study_app"
    check_folder(inner)
    write_whole(folder / "pyproject.toml", _PROJECT)
    write_whole(inner / "__init__.py", '"""A study, as an app."""\n')
    write_whole(inner / "client_app.py", _CLIENT)
    write_whole(inner / "server_app.py", _SERVER)
    write_whole(inner / "study.toml", study.text)
    where = study.objective.model.rpartition(":")[0]
    if where.endswith(".py"):
        own = study.base / where
        target = inner / where
        if not own.is_file() or not target.resolve().is_relative_to(inner.resolve()):
            raise study.error(
                "objective.model", f"{where} must be a file in the study's folder, to travel"
            )
        check_folder(target.parent)
        shutil.copyfile(own, target)
    return folder


def run_in_federation(study: Study, *, say: Callable[[str], None]) -> None:
    """Run a study's app on its federation and wait until it ends.

    The ServerApp writes the results into the study's folder, on the machine of the SuperLink:
    this one, or one that shares the folder. A run goes on when this process is killed; run again
    to see what came of it.

    Args:
        study: The study, which names a federation.
        say: Called with each line of the app's log.

    Raises:
        ParameterError: Flower is not there.
        ProtocolError: The app ended without results; the last line of its log is told.
    """
    tool = _flwr()
    app = write_app(study, study.folder / "app")
    config = f'folder="{study.folder.resolve()}" base="{study.base.resolve()}"'
    command = [tool, "run", str(app), study.engine.federation, "--stream", "--run-config", config]
    last = ""
    for line in _lines(command):
        said = line.partition("urna.errors.")[2]  # what the app itself refused, where it did
        last = said.partition(": ")[2] or last
        say(line)
    if not (study.folder / "result.json").exists():
        raise ProtocolError(
            f"the federation {study.engine.federation!r} gave no result: {last or _SEE}"
        )


def _lines(command: list[str]) -> Iterator[str]:
    try:
        with subprocess.Popen(  # noqa: S603 - our own arguments
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout or ():
                yield line.rstrip()
    except OSError as error:
        raise OutputError(f"cannot start {command[0]}: {error.strerror}") from error


def _flwr() -> str:
    beside = Path(sys.executable).parent / "flwr"
    found = str(beside) if beside.exists() else shutil.which("flwr")
    if found is None:
        raise ParameterError("a federation is run by Flower's `flwr`: pip install 'urna[flower]'")
    return found
