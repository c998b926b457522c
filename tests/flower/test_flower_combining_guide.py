"""Every block of the guide on combining is run as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the guide's last blocks need Flower")

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
names = ["mean"]
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
