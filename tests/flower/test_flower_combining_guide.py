"""Every block and command of the guide on combining is run as it stands."""

import re
from pathlib import Path
from shlex import split
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the guide's last blocks need Flower")

from commands import Command
from flower_grid import LocalGrid, Node

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide" / "combining.md"
POLICY = """
[privacy]
epsilon = 4.0
delta = 1e-5
[limits]
fewest_clients = 4
[grant.settings]
[grant.exact-settings]
"""


def test_every_block_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    nodes = {}
    for number in range(5):
        policy = tmp_path / f"{number}.toml"
        policy.write_text(POLICY, encoding="utf-8")
        config: dict[str, Any] = {"partition-id": number, "urna-policy": str(policy)}
        nodes[number] = Node(names["app"], config)
    grid = LocalGrid(nodes)
    names["main"](grid, None)
    names["encrypted_main"](grid, None)
    said = capsys.readouterr().out.splitlines()
    assert "DP" in said[1]
    assert "(4, 1e-05)-DP" in said[-2]
    assert said[-1].endswith("{}")


def test_every_command_works_as_it_stands(urna: Command, tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    lines = [split(line.strip()) for line in text.splitlines() if line.startswith("    urna ")]
    assert len(lines) == 5
    here = {name: tmp_path / name for name in ("combined", "combined.ledger")}
    for _, *arguments in lines:
        typed = [ROOT / a if a.startswith("examples/") else here.get(a, a) for a in arguments]
        done = urna(*typed)
        assert done.code == 0, done.stderr
    assert {path.name for path in (tmp_path / "combined").iterdir()} >= {
        "result.json",
        "report.html",
        "settings.svg",
        "comparison.json",
    }
