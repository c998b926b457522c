"""The site: a reference that leaves nothing out, and a build without warnings."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer
from forks import environment
from generated_reference import command_pages, keep_bars, package_page, public_packages

from urna.cli.app import app

HOUSE = Path(__file__).parents[2]


def commands(command: click.Command, name: str) -> list[str]:
    """Return the full names of a command and of all below it."""
    below = command.commands.items() if isinstance(command, click.Group) else ()
    return [name, *(found for word, inner in below for found in commands(inner, f"{name} {word}"))]


def test_every_command_has_a_page_in_the_reference() -> None:
    pages = command_pages()
    names = commands(typer.main.get_command(app), "urna")[1:]
    assert {"urna search", "urna ledger create", "urna policy make"} <= set(names)
    assert [name for name in names if f"`{name}" not in pages[name.split()[1]]] == []
    assert "--epsilon" in pages["search"]
    assert "# `urna search`" in pages["search"]


def test_every_public_package_is_in_the_reference() -> None:
    source = HOUSE / "src"
    packages = {path.parent for path in (source / "urna").rglob("__init__.py")}
    names = {".".join(path.relative_to(source).parts) for path in packages}
    inner = {name for name in names if name.startswith("urna.local.")}
    groups = {"urna.cli", "urna.protocols", "urna.systems"}
    assert names - groups - inner == {name for name in public_packages() if name in names}
    assert ".. automodule:: urna.systems.vote\n" in package_page("urna.systems.vote")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("Largest |x| of all.", r"Largest \|x\| of all."),
        ("An `int | None`.", "An `int | None`."),
        (">>> 1 | 2", ">>> 1 | 2"),
    ],
)
def test_bars_are_kept_as_they_stand(line: str, kept: str) -> None:
    assert keep_bars([line]) == [kept]


@pytest.mark.audit
@pytest.mark.timeout(900)
def test_the_site_is_built_without_a_warning_and_asks_nobody(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the site is built with the extra urna[docs]")
    call = [sys.executable, "-m", "sphinx", "-q", "-W", HOUSE / "docs", tmp_path]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for fetched in (
            '<script src="http',
            'rel="stylesheet" type="text/css" href="http',
            "@import",
        ):
            assert fetched not in text, f"{page.name} would ask the network"
