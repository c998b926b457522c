"""The reference: a page for every package, from docstrings, and one for every command.

Written into `docs/reference/generated` whenever the site is built, and never kept.
"""

import importlib
import pkgutil
import re
import shutil
from pathlib import Path
from typing import Any

import click
import typer
from typer.cli import get_docs_for_click

import urna

__all__ = ["PROMISED", "command_pages", "keep_bars", "package_page", "public_packages", "setup"]

PROMISED = ("urna", "urna.flower", "urna.privacy", "urna.testing")


def public_packages() -> list[str]:
    """Return the packages that offer something, those in groups of packages included."""
    groups = ("urna.protocols", "urna.systems")
    found = ["urna"]
    listed = list(pkgutil.iter_modules(urna.__path__, "urna."))
    for group in groups:
        listed += pkgutil.iter_modules(importlib.import_module(group).__path__, f"{group}.")
    for module in listed:
        if module.name in ("urna.__main__", "urna.cli"):
            continue  # the commands have a page of their own
        if getattr(importlib.import_module(module.name), "__all__", None):
            found.append(module.name)
    return sorted(found)


def package_page(name: str) -> str:
    """Return a package's page: its docstring, and everything it offers with its own."""
    title = f"``{name}``"
    again = "   :no-index:\n" if name == "urna" else ""  # what it offers has a page elsewhere
    return f"{title}\n{'=' * len(title)}\n\n.. automodule:: {name}\n{again}"


def command_pages() -> dict[str, str]:
    """Return a page for each command, by its name, as `urna NAME --help` has it."""
    from urna.cli.app import app  # noqa: PLC0415 - only a build of the site needs it

    group = typer.main.get_command(app)
    if not isinstance(group, click.Group):
        raise TypeError("urna has commands")
    _say_whole_sentences(group)
    return {
        name: get_docs_for_click(
            obj=command, ctx=typer.Context(command, info_name=name), name=f"urna {name}"
        )
        for name, command in sorted(group.commands.items())
    }


def _say_whole_sentences(command: click.Command) -> None:
    """Let lists of commands show each one's first line, which click would cut short."""
    if command.help:
        command.short_help = command.help.strip().splitlines()[0]
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _say_whole_sentences(inner)


def keep_bars(lines: list[str]) -> list[str]:
    """Return a docstring's lines with |x| as it stands: reStructuredText would replace it."""
    code = re.compile(r"(`+[^`]*`+)")
    return [
        line
        if line.lstrip().startswith((">>>", "..."))
        else "".join(
            part if part.startswith("`") else part.replace("|", r"\|") for part in code.split(line)
        )
        for line in lines
    ]


def _process(*event: Any) -> None:  # noqa: ANN401 - Sphinx's own objects
    lines = event[-1]
    lines[:] = keep_bars(lines)


def setup(app: Any) -> dict[str, bool]:  # noqa: ANN401 - Sphinx's own object
    """Write the pages before Sphinx looks for sources."""
    app.connect("autodoc-process-docstring", _process)
    folder = Path(app.srcdir) / "reference" / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in public_packages():
        kind = "" if name in PROMISED else "internal-"
        (folder / f"{kind}{name}.rst").write_text(package_page(name), encoding="utf-8")
    for name, text in command_pages().items():
        (folder / f"command-{name}.md").write_text(text, encoding="utf-8")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
