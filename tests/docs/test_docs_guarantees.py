"""The table of guarantees names proofs and tests that are there."""

import re
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
PAGE = HOUSE / "docs" / "guarantees.md"


def rows() -> list[list[str]]:
    """Return the cells of the table: guarantee, assumption, proof, test."""
    table = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1:]]


def is_there(test: str) -> bool:
    """Return whether `folder/file.py::test_name` names a test of ours."""
    file, _, name = test.partition("::")
    path = HOUSE / "tests" / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


def test_the_table_has_a_proof_and_a_test_for_every_guarantee() -> None:
    assert len(rows()) > 20
    for row in rows():
        assert len(row) == 4, row
        guarantee, _, proof, tests = row
        assert re.search(r"`[\w/]+\.py`|\]\(", proof), guarantee
        assert "::test_" in tests, guarantee


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_what_a_row_names_is_there(row: list[str]) -> None:
    for file in re.findall(r"`([\w/]+\.py)`", row[2]):
        assert (HOUSE / "src" / "urna" / file).is_file(), file
    for test in re.findall(r"`([\w/]+\.py::\w+)`", row[3]):
        assert is_there(test), test


def test_a_test_that_is_not_there_would_be_found() -> None:
    assert is_there("docs/test_docs_guarantees.py::test_what_a_row_names_is_there")
    assert not is_there("docs/test_docs_guarantees.py::test_what_a_row_names")
    assert not is_there("docs/nowhere.py::test_what_a_row_names_is_there")
