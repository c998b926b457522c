"""Every command of the README works as it stands, in the order in which it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]


@pytest.mark.audit
def test_every_command_of_the_readme_works(tmp_path: Path) -> None:
    for folder in ("benchmarks", "examples"):  # as from the repository's root
        (tmp_path / folder).symlink_to(HOUSE / folder)
    text = (HOUSE / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^urna (.*)$", text, flags=re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        done = subprocess.run(
            [sys.executable, "-m", "urna", *line.partition(" #")[0].split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"urna {line}: {done.stderr}"
        assert done.stdout, line
    assert (tmp_path / "runs" / "first" / "report.html").exists()
