"""Every block of the guide runs as it stands: Python in order, commands by the command line."""

import contextlib
import io
import re
from pathlib import Path
from shlex import split
from typing import Any

import pytest
from typer.testing import CliRunner

from urna.cli.app import app

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "one-message.md"


@pytest.mark.timeout(300)
def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr", reason="the guide's last block is about Flower")
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|console)\n(.*?)```", text, flags=re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "console"}
    names: dict[str, Any] = {}
    printed = io.StringIO()
    for kind, block in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(block, "one-message.md", "exec"), names)
            continue
        for line in block.strip().splitlines():
            program, command, *arguments = split(line.removeprefix("$ "))
            assert program == "urna"
            done = CliRunner().invoke(app, [command, *arguments])
            assert done.exit_code == 0, (line, done.output, done.exception)
    assert "replace-one-record" in printed.getvalue()
    assert {"model.npz", "README.md", "result.json", "report.html"} <= {
        path.name for path in (tmp_path / "model").iterdir()
    }
    assert callable(names["main"])
