"""What people install: the wheel, the source archive, the images, the local federation."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from shlex import split

import pytest
from forks import environment

import urna

pytest.importorskip("build", reason="wheels are built by `build`, with the extra urna[dist]")

HOUSE = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build what `make dist` builds; return the folder."""
    folder = tmp_path_factory.mktemp("dist")
    call = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(HOUSE)]
    subprocess.run(call, check=True, capture_output=True)
    return folder


def wheel(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


def test_the_version_is_the_same_wherever_it_stands() -> None:
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    changes = (HOUSE / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)
    assert urna.__version__ == project["version"] == released[0]
    assert released == sorted(released, reverse=True)


def test_the_wheel_holds_every_file_of_the_source(built: Path) -> None:
    source = HOUSE / "src"
    files = {
        str(path.relative_to(source))
        for path in (source / "urna").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = set(zipfile.ZipFile(wheel(built)).namelist())
    assert {name for name in held if ".dist-info/" not in name} == files
    assert "urna/py.typed" in held, "types are for those who install it, too"


def test_the_wheel_brings_the_command(built: Path) -> None:
    archive = zipfile.ZipFile(wheel(built))
    (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "urna = urna.cli:main" in archive.read(points).decode()


def test_the_source_archive_can_be_tested_and_documented(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "docs/conf.py", "README.md", "LICENSE"} <= held
    assert {"tests/install/test_install.py", "tools/setup.sh", "conftest.py"} <= held
    assert not [name for name in held if name.startswith(("docs/reference/generated", "build/"))]


def pythons(version: str) -> list[Path]:
    """Return the interpreters of a version that are here and run."""
    named = shutil.which(f"python{version}")
    kept = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")
    found = [Path(named)] if named else []
    for python in [*found, *kept]:
        said = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.startswith(f"Python {version}."):
            return [python]
    return []


@pytest.mark.audit
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_alone_holds_a_vote(version: str, built: Path, tmp_path: Path) -> None:
    found = pythons(version)
    if not found:
        pytest.skip(f"Python {version} is not here")
    subprocess.run([found[0], "-m", "venv", tmp_path / "bare"], check=True)
    bare = tmp_path / "bare" / "bin"
    pins = HOUSE / "constraints.txt"
    subprocess.run(
        [bare / "python", "-m", "pip", "install", "-q", "-c", pins, wheel(built)], check=True
    )
    kept = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
    vote = split("search --data digits --clients 60 --epsilon 2 --output first")
    done = subprocess.run(
        [bare / "urna", *vote], cwd=tmp_path, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "1e-05)-DP, replace-one-client" in done.stdout
    assert (tmp_path / "first" / "report.html").exists()


class TestContainers:
    """The images cannot be built in a test; what can be checked without is."""

    text = (HOUSE / "Containerfile").read_text()

    def test_a_linter_has_nothing_to_say(self) -> None:
        linter = Path(sys.executable).parent / "hadolint"
        if not linter.exists():
            pytest.skip("hadolint is not here")
        done = subprocess.run([linter, HOUSE / "Containerfile"], capture_output=True, check=False)
        assert done.returncode == 0, done.stdout

    def test_no_image_runs_as_root_or_unwatched(self) -> None:
        base, *images = re.split(r"^FROM urna AS (?:server|node)$", self.text, flags=re.MULTILINE)
        assert len(images) == 2
        assert re.findall(r"^USER (\d+)$", base, flags=re.MULTILINE) == ["10001"]
        assert not any("USER" in image for image in images)
        assert "HEALTHCHECK" in base

    def test_what_is_copied_is_there(self) -> None:
        copied = re.findall(r"^COPY (?!--from)(.*) \S+$", self.text, flags=re.MULTILINE)
        names = [name for line in copied for name in line.split()]
        assert len(names) > 4
        assert [name for name in names if not (HOUSE / name).exists()] == []

    @pytest.mark.parametrize("tool", ["flower-superlink", "flower-supernode"])
    def test_flower_knows_every_option(self, tool: str) -> None:
        yaml = pytest.importorskip("yaml", reason="compose.yaml is read by PyYAML")
        pytest.importorskip("flwr", reason="the images run Flower")
        here = Path(sys.executable).parent / tool
        known = subprocess.run([here, "--help"], capture_output=True, text=True, check=True).stdout
        services = yaml.safe_load((HOUSE / "compose.yaml").read_text())["services"]
        target = {"flower-superlink": "server", "flower-supernode": "node"}[tool]
        used = set(re.findall(r"--[a-z-]+", self.text.split(f"FROM urna AS {target}\n")[1]))
        for service in services.values():
            if service["build"]["target"] == target:
                used |= {option.partition("=")[0] for option in service["command"]}
        assert len(used) >= 5
        assert [option for option in sorted(used) if option not in known] == []

    def test_what_compose_mounts_is_what_start_prepares(self, tmp_path: Path) -> None:
        yaml = pytest.importorskip("yaml", reason="compose.yaml is read by PyYAML")
        pytest.importorskip("flwr", reason="a federation is Flower's")
        start = HOUSE / "examples" / "deployment" / "start.py"
        folder = tmp_path / "federation"
        call = [sys.executable, start, "--prepare", "--folder", folder]
        subprocess.run(call, check=True, env=environment(), capture_output=True)
        services = yaml.safe_load((HOUSE / "compose.yaml").read_text())["services"]
        for service in services.values():
            places = dict(volume.split(":")[1::-1] for volume in service["volumes"])
            for option in service["command"]:
                for named in re.findall(r"/(?:federation|site|ca)[^\s\"]*", option):
                    mount = max((m for m in places if named.startswith(m)), key=len)
                    file = tmp_path / places[mount] / named.removeprefix(mount).lstrip("/")
                    assert file.exists(), f"{option} in {service}"
        again = subprocess.run(call, env=environment(), capture_output=True, text=True, check=False)
        assert again.returncode == 2
        assert "exists already" in again.stderr
