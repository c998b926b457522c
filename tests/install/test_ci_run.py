"""What `.ci/run` does on a machine with a browser, and on one without."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / ".ci" / "run"
ROOT, SOMEBODY = 0, 1000
SKIPPED = "the tests of pages in a browser will be skipped"


def ci_run(folder: Path, *, user: int, tools: dict[str, str]) -> tuple[list[str], str]:
    """Run it where there are no tools but these; return what they were asked, and what it said."""
    folder.mkdir()
    for name in ("bash", "dirname", "cp"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    for name, script in ({"id": f"echo {user}", "make": 'echo make "$@" >> calls'} | tools).items():
        file = folder / name
        file.write_text(f'#!{folder}/bash\ncd "{folder}"\n{script}\n')
        file.chmod(0o755)
    done = subprocess.run(
        [RUN], env=os.environ | {"PATH": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return (folder / "calls").read_text().splitlines(), done.stderr


APT = 'echo apt-get "$1" >> calls; [ "$1" = update ] || cp id chromium'
BOTH = ["make check", "make test"]


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_that_is_there_is_left_alone(name: str, tmp_path: Path) -> None:
    calls, said = ci_run(tmp_path / "bin", user=ROOT, tools={name: "true", "apt-get": APT})
    assert (calls, said) == (BOTH, "")


def test_root_installs_a_browser_before_the_tests(tmp_path: Path) -> None:
    calls, said = ci_run(tmp_path / "bin", user=ROOT, tools={"apt-get": APT})
    assert calls == ["apt-get update", "apt-get install", *BOTH]
    assert SKIPPED not in said


@pytest.mark.parametrize(
    ("user", "tools"),
    [
        (SOMEBODY, {"apt-get": APT}),
        (ROOT, {}),
        (ROOT, {"apt-get": "exit 100"}),
        (ROOT, {"apt-get": "true"}),
    ],
    ids=["nobody's root", "no apt-get", "no network", "nothing installed"],
)
def test_without_a_browser_it_says_so_and_tests_the_rest(
    user: int, tools: dict[str, str], tmp_path: Path
) -> None:
    calls, said = ci_run(tmp_path / "bin", user=user, tools=tools)
    assert calls == BOTH
    assert SKIPPED in said
