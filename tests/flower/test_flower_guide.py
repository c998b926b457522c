"""Every block of the guides to Flower is run as it stands, against nodes with their policies."""

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import LocalGrid, Node
from flwr.clientapp import ClientApp

from urna.flower import DirectoryFile, NodeKey, Policy, Transcript
from urna.privacy import Ledger
from urna.randomness import OsSecrets

HOUSE = Path(__file__).resolve().parents[2]
GUIDES = [
    HOUSE / "docs" / "guide" / name
    for name in ("add-a-vote.md", "policy.md", "deploy.md", "flower.md")
]
NODES = 40


def blocks(*pages: Path) -> list[tuple[str, str]]:
    """Return the pages' blocks of TOML and Python, in order, each with its language."""
    text = "".join(page.read_text(encoding="utf-8") for page in pages or GUIDES)
    return re.findall(r"```(toml|python)\n(.*?)```", text, flags=re.DOTALL)


def federation(folder: Path, policy: str, app: ClientApp) -> LocalGrid:
    """Return nodes that run an app, each with keys and a policy in its own folder."""
    folder.mkdir()
    keys = [NodeKey.draw(f"site-{n}", OsSecrets()) for n in range(NODES)]
    directory = DirectoryFile({key.name: key.public for key in keys}).as_toml()
    Path("directory.toml").write_text(directory)
    nodes = {}
    for number, key in enumerate(keys):
        home = folder / str(number)
        home.mkdir()
        key.write(home / "site.key")
        (home / "directory.toml").write_text(directory)
        (home / "policy.toml").write_text(policy)
        config: dict[str, Any] = {"partition-id": number, "urna-policy": str(home / "policy.toml")}
        nodes[1000 + number] = Node(app, config)
    return LocalGrid(nodes)


def test_every_block_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    NodeKey.draw("server", OsSecrets()).write(Path("server.key"))
    names: dict[str, Any] = {}
    policy, held = "", 0
    for number, (language, block) in enumerate(blocks()):
        if language == "toml":
            policy = block
            continue
        names.pop("main", None)
        exec(compile(block, f"block {number}", "exec"), names)
        if "main" in names:
            grid = federation(tmp_path / f"nodes-{number}", policy, names["app"])
            names["main"](grid, None)
            held += 1
            counted = [
                Ledger(file).entries() for file in tmp_path.glob(f"nodes-{number}/*/*.ledger")
            ]
            assert len(counted) == NODES, block
            assert all(len(entries) == 1 for entries in counted), "one entry in every ledger"
    printed = capsys.readouterr().out
    assert held == 4
    assert printed.startswith("{'lr': ")
    assert "Epsilon is that of 3 rounds together" in printed
    assert "private sum: opening the sum, 40 of 40 answered" in printed
    (kept,) = Path("transcripts").iterdir()
    assert (
        Transcript.read(kept.read_bytes()).problems(
            server_key=NodeKey.read(Path("server.key")).public
        )
        == []
    )


@pytest.mark.parametrize("block", [b for language, b in blocks() if language == "toml"])
def test_every_policy_of_the_guide_is_one(block: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(block)
    assert Policy.read(file).grants


def test_the_guides_longest_policy_says_all_that_can_be_said(tmp_path: Path) -> None:
    longest = max((block for language, block in blocks() if language == "toml"), key=len)
    said = set(re.findall(r"^([a-z_]+) = ", longest, flags=re.MULTILINE))
    named = {"epsilon", "delta", "relation", "data", "ledger", "fewest_clients", "most_clients",
             "largest_dropout", "least_colluding", "most_colluders", "most_missing", "most_bytes",
             "most_entries", "most_rounds", "names", "smallest_shard", "key", "model", "directory",
             "required", "folder", "most_runs", "fewest_in_cluster",
             "reports_failures"}  # fmt: skip
    assert said == named
