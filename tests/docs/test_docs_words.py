"""Words that the field does not use stay out of what people read; its own are there."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from urna.cli.app import app

HOUSE = Path(__file__).parents[2]
REPLACED = (
    "secure summation",
    "electorate",
    "landscape",
    "made-up",
    "whoever",
    "held again",
    "in silence",
    "culprit",
    "spoiled",
)
STANDARD = {
    "docs/explanation/threat-model.md": ("threat model", "adversary", "malicious", "semi-honest"),
    "docs/glossary.md": ("secure aggregation", "subsampling", "sensitivity", "accountant"),
    "docs/officers.md": ("GDPR", "Art. 35(7)", "neighbouring relation"),
    "README.md": ("secure aggregation", "differential privacy", "cite"),
}


def pages() -> list[Path]:
    """Return README and the documentation, without decisions, measurements and what is made."""
    apart = ("decisions", "results", "generated")
    found = [page for page in (HOUSE / "docs").rglob("*.md") if not {*apart} & {*page.parts}]
    other = ("changelog.md", "evaluation.md")
    return [HOUSE / "README.md", *(page for page in found if page.name not in other)]


def prose(text: str) -> str:
    """Return a page without names of files and tests, which stay as they are."""
    return re.sub(r"`[^`\n]+`|\]\([^)]*\)", " ", text)


def helps(command: click.Command) -> Iterator[str]:
    """Return what a command and all below it say of themselves."""
    yield command.help or ""
    yield from (getattr(each, "help", None) or "" for each in command.params)
    for inner in getattr(command, "commands", {}).values():
        yield from helps(inner)


def replaced(text: str) -> list[str]:
    return [word for word in REPLACED if re.search(rf"\b{word}", text, flags=re.IGNORECASE)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOUSE)))
def test_replaced_words_stay_out_of_pages(page: Path) -> None:
    assert replaced(prose(page.read_text(encoding="utf-8"))) == []


def test_replaced_words_stay_out_of_commands_and_reports() -> None:
    assert [text for text in helps(typer.main.get_command(app)) if replaced(text)] == []
    templates = (HOUSE / "src" / "urna" / "report" / "templates").iterdir()
    assert [file.name for file in templates if replaced(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(("page", "words"), STANDARD.items(), ids=lambda each: str(each)[:40])
def test_standard_words_are_where_people_look_for_them(page: str, words: tuple[str, ...]) -> None:
    text = (HOUSE / page).read_text(encoding="utf-8").lower()
    assert [word for word in words if word.lower() not in text] == []


def test_a_replaced_word_would_be_found() -> None:
    assert replaced("Two electorates, whoever votes") == ["electorate", "whoever"]
