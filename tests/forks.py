"""Fresh processes without waiting for imports.

Starting Python and importing Urna takes seconds; forking from a process that has done both
takes milliseconds. A test that needs many processes (commands, ledgers under a kill) asks a
server for them. Each is a process of its own with its own output files, exit code and
signals; only its imports are inherited.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urna

__all__ = ["Child", "ForkServer", "environment"]

_CACHE = tempfile.TemporaryDirectory(prefix="urna-tests-")  # not the user's own


def environment(*folders: Path) -> dict[str, str]:
    """Return an environment in which Python finds the same Urna that this process uses."""
    paths = [Path(urna.__file__).parents[1], Path(__file__).parent, *folders]
    # One thread: a process with idle threads of a numerical library forks less safely.
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    cache = {"XDG_CACHE_HOME": _CACHE.name}
    return os.environ | single | cache | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


@dataclass(frozen=True, slots=True)
class Child:
    """A forked process and where its output goes."""

    server: "ForkServer"
    pid: int
    stdout: Path
    stderr: Path

    def send(self, number: int) -> None:
        """Send a signal. The server reaps a child only in `wait`, so the pid is its own."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Return the exit code; a negative one is the signal that ended the process."""
        code: int = self.server.ask({"wait": self.pid})["code"]
        return code


class ForkServer:
    """A process that has imported `modules` and forks on request."""

    def __init__(self, outputs: Path, *modules: str, folders: tuple[Path, ...] = ()) -> None:
        self._outputs = outputs
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(*folders),
        )

    def start(self, call: str, *arguments: object) -> Child:
        """Fork a process that calls `module:function` with plain arguments."""
        self._count += 1
        files = [self._outputs / f"{self._count}.{name}" for name in ("stdout", "stderr")]
        for file in files:
            file.touch()
        request = {"call": call, "arguments": arguments, "files": [str(f) for f in files]}
        return Child(self, self.ask(request)["pid"], *files)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request and return its answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the server has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the server."""
        self._process.communicate(timeout=60)


def serve(modules: list[str]) -> None:
    """Fork and reap as asked on stdin, until it is closed."""
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is the test run's
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        else:
            answer = {"pid": os.fork()}
            if answer["pid"] == 0:
                run(request)
        print(json.dumps(answer), flush=True)


def run(request: Mapping[str, Any]) -> None:
    """Be the forked process; never return."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(request["files"], start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    code: object = 0
    try:
        module, name = request["call"].split(":")
        getattr(importlib.import_module(module), name)(*request["arguments"])
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve(sys.argv[1:])
