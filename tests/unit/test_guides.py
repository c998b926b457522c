"""Every Python block of every guide runs as it stands; those that need
Flower's nodes have tests of their own."""

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="some of the blocks are PyTorch's")

FOLDER = Path(__file__).parents[2] / "docs" / "guide"
OWN = {"combining.md", "flower.md", "one-message.md", "training.md"}  # have tests of their own
GUIDES = sorted(path.name for path in FOLDER.glob("*.md") if path.name not in OWN)


def blocks(name: str) -> list[str]:
    """Return a guide's blocks of Python, in order."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", [name for name in GUIDES if blocks(name)])
def test_every_block_of_a_guide_runs_as_it_stands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # a cache's usual place
    names: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(blocks(name)):
        exec(compile(block, f"{name}, block {number}", "exec"), names)


def test_links_of_all_pages_lead_somewhere() -> None:
    missing, links = [], 0
    for page in (*FOLDER.parent.rglob("*.md"), *FOLDER.parents[1].glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            links += 1
            if not (page.parent / link).exists():
                missing.append(f"{page.name}: {link}")
    assert links > 30
    assert missing == []
