"""Every block of the guide to training is run as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="training over Flower needs Flower")

from flower_grid import LocalGrid, Node

from urna.privacy import Ledger

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "training.md"
NODES = 20


def test_every_block_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    text = GUIDE.read_text(encoding="utf-8")
    for language, block in re.findall(r"```(toml|python)\n(.*?)```", text, flags=re.DOTALL):
        if language == "toml":
            policy = block
            continue
        names.pop("main", None)
        exec(compile(block, GUIDE.name, "exec"), names)
        if "main" not in names:
            continue
        nodes = {}
        for number in range(NODES):
            home = tmp_path / str(number)
            home.mkdir()
            (home / "policy.toml").write_text(policy)
            config: dict[str, Any] = {
                "partition-id": number,
                "urna-policy": str(home / "policy.toml"),
            }
            nodes[1000 + number] = Node(names["app"], config)
        names["main"](LocalGrid(nodes), None)
        counted = [Ledger(file).entries() for file in tmp_path.glob("*/*.ledger")]
        assert [entries[0].rounds for entries in counted] == [4] * NODES
    printed = capsys.readouterr().out
    assert "all planned rounds were held" in printed
    assert "Epsilon is that of 4 rounds together" in printed
    assert "±" in printed
