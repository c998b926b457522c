"""Run a study where its engine says: in this process, in Flower's simulation or in a federation.

`flwr run` carries an app to the SuperLink and the nodes of a federation. The app holds the study
file and two lines for each side; everything else is Urna's, which is installed there.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from urna.errors import OutputError, ParameterError, ProtocolError
from urna.files import check_folder, write_whole
from urna.study.file import Study
from urna.study.journal import Journal
from urna.study.prepare import prepare
from urna.study.run import Hooks, StudyOutcome, StudyRun, files_in, opened, outcome_of, run_stages

__all__ = ["run_in_federation", "run_study", "write_app"]

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
from urna.study.server import serve_study

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


def run_study(
    study: Study, *, version: str, cache: Path | None = None, hooks: Hooks | None = None
) -> StudyOutcome:
    """Run a study, or go on with one that was interrupted.

    Guarantee:
        Everything that is released is together (epsilon, delta)-DP for the study's budget under
        its relation, and is counted in the study's ledger before it happens, once, however often
        the run was killed. A result is on disk before it is shown.

    Assumes:
        A process that was killed between opening a sum and writing it down has shown it to
        nobody: it was in this process alone. Results are read from the folder. Its ledger is
        the one that counted before, not an older copy.

    Args:
        study: The study.
        version: Of Urna, for the journal.
        cache: Where local losses are kept on this machine; None keeps none.
        hooks: Who is told what.

    Raises:
        ParameterError: The study cannot be run, the plan is hopeless, or the folder holds
            another study. Nothing was spent.
        BudgetExceeded: A ledger has no room. Nothing was released.
        LedgerError: The ledger knows of a result that the folder does not hold: the folder is a
            copy, or an older one. Nothing was released.
    """
    told = hooks or Hooks()
    if not study.engine.federation:
        kind = _simulated(study) if study.engine.kind == "flower" else StudyRun
        return run_stages(
            study, version, lambda journal: kind(prepare(study), journal, told, cache)
        )
    with opened(study, version) as journal:
        if (found := outcome_of(journal)) is not None:
            return found
    # Not held any longer: the ServerApp that the federation starts holds the folder.
    run_in_federation(study, say=told.say)
    journal = Journal.open(study, version)
    journal.check()
    found = outcome_of(journal)
    if found is None:
        raise ParameterError(f"the study in {journal.folder} is not finished: run it again")
    # The server had nobody to draw the page.
    told.page(study.folder / "report.html", found, study.title or study.path.stem)
    return replace(found, files=files_in(journal.folder), again=False)


def _simulated(study: Study) -> type[StudyRun]:
    """Return what holds the stages in Flower's simulation."""
    # Read when Flower and Ray are first imported, so not at the top of a file.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares a warning
    try:
        from urna.study.server import SimulatedRun  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise study.error(
            "engine.kind", "the Flower engine needs Flower: pip install 'urna[flower]'"
        ) from error
    return SimulatedRun


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
