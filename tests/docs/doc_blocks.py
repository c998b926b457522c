"""The blocks of README and docs: found, and run as a reader would run them.

A comment right above a block says when it is not simply run:

    <!-- run: audit -->         only by `make audit`: it takes long
    <!-- run: file NAME -->     written to a file of this name, for the blocks below it
    <!-- run: no: REASON -->    not here, and why

and one in a page's first line says who else runs all its blocks of Python and TOML:

    <!-- blocks run by tests/flower/test_flower_guide.py -->

or that a reader has been through another page before:

    <!-- after docs/tutorial/own-data.md -->
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forks import environment

__all__ = ["HOUSE", "PAGES", "SHELL", "Block", "Reader", "blocks", "read_before", "run_by"]

HOUSE = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(HOUSE))
    for path in (
        HOUSE / "README.md",
        HOUSE / "CONTRIBUTING.md",
        *(HOUSE / "examples").glob("*/README.md"),
        *(HOUSE / "docs").rglob("*.md"),
    )
    if "generated" not in path.parts
)
SHELL = ("sh", "console")

_FENCE = re.compile(
    r"(?:^<!-- run: (?P<run>[^\n]+?) -->\n\n?)?"
    r"^(?P<fence>```+|:::+)(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=fence)[ ]*$",
    flags=re.DOTALL | re.MULTILINE,
)
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "SPHINXOPTS": "",
}
_LOCAL_PORTS = ("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "FLWR_LOCAL_CONTROL_API_PORT")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    run: str

    @property
    def place(self) -> str:
        """Where a reader finds it."""
        return f"{self.page}:{self.line}"

    @property
    def long(self) -> bool:
        """Whether it is run by `make audit` alone."""
        return self.run.startswith("audit")

    @property
    def script(self) -> str:
        """A block of commands without prompts, and without what they printed."""
        if self.language != "console":
            return self.text
        lines = self.text.splitlines()
        return "\n".join(line[2:] for line in lines if line.startswith(("$ ", "> ")))


def blocks(page: str) -> list[Block]:
    """Return a page's blocks, in order."""
    text = (HOUSE / page).read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("fence")) + 1,
            found["language"].strip(),
            found["text"],
            found["run"] or "",
        )
        for found in _FENCE.finditer(text)
    ]


def run_by(page: str) -> str:
    """Return the test that a page's first line names for its Python and TOML, if it does."""
    text = (HOUSE / page).read_text(encoding="utf-8")
    found = re.match(r"<!-- blocks run by (\S+) -->\n", text)
    return found[1] if found else ""


def read_before(page: str) -> str:
    """Return the page that a page's first line says comes before it, if it does."""
    text = (HOUSE / page).read_text(encoding="utf-8")
    found = re.match(r"<!-- after (\S+) -->\n", text)
    return found[1] if found else ""


class Reader:
    """Runs blocks one after the other in one folder, as somebody who reads a page does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, Any] = {"__name__": "page"}
        self._mark = f"URNA_DOCS_READER={uuid.uuid4().hex}"
        # `flwr run` asks whatever SuperLink listens where it expects its own; not another reader's.
        ports = zip(_LOCAL_PORTS, _free_ports(len(_LOCAL_PORTS)), strict=True)
        self._ports = {name: str(port) for name, port in ports}
        for name in ("benchmarks", "examples", "Makefile", "tools", "README.md", "docs"):
            (folder / name).symlink_to(HOUSE / name)  # as from the repository's root
        programs = folder / ".programs"
        programs.mkdir()
        for name, call in {
            "urna": f"{sys.executable} -m urna",
            "python": sys.executable,
        }.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
            (programs / name).chmod(0o755)

    def read(self, block: Block) -> bool:
        """Do what a block says and return whether it asks for anything; raise where it fails."""
        if block.run.startswith("no: "):
            return False
        if block.run.startswith("file "):
            file = self._folder / block.run.removeprefix("file ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, block.page, "exec"), self._names)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language in SHELL:
            self._type(block)
        else:
            return False
        return True

    def _type(self, block: Block) -> None:
        home = {"HOME": str(self._folder), "FLWR_HOME": str(self._folder / ".flwr")}
        beside = Path(sys.executable).parent  # Flower's tools look for each other there
        path = os.pathsep.join(
            [str(self._folder / ".programs"), str(beside), os.environ.get("PATH", "")]
        )
        name, _, value = self._mark.partition("=")
        # `make` is asked what it would do: its targets are the work of many minutes.
        done = subprocess.run(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                f'make() {{ command make -n "$@"; }}\n{block.script}',
            ],
            cwd=self._folder,
            env=environment() | _QUIET | self._ports | home | {"PATH": path, name: value},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{block.place} ended with {done.returncode}:\n{done.stderr}")

    def close(self) -> None:
        """End what commands have left running, by process id.

        A process shows no environment while it starts another program, so one look is not enough.
        """
        quiet = 0
        while quiet < 3:
            quiet = 0 if self._kill_marked() else quiet + 1
            time.sleep(0.1)

    def _kill_marked(self) -> bool:
        found = False
        for entry in Path("/proc").iterdir():
            try:
                marked = self._mark.encode() in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if marked:
                found = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]
