"""Tables as people have them: what columns hold, and how files are written."""

from pathlib import Path

import numpy as np
import pytest

from urna.data import Coding, Columns, read_columns, read_tables
from urna.data.coding import as_texts
from urna.data.columns import ColumnKind, look_at_column, record_column_of
from urna.errors import ParameterError

ROWS = 120


def column(*cells: object) -> np.ndarray:
    return np.array(cells, dtype=object)


def repeated(*cells: str) -> np.ndarray:
    return column(*(cells[row % len(cells)] for row in range(ROWS)))


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("age", repeated("31", "?", "54.5", "NA", ""), ColumnKind.NUMBERS),
        ("smoker", repeated("yes", "No", "?"), ColumnKind.NUMBERS),
        ("smoker", repeated("0", "0.0", "1"), ColumnKind.NUMBERS),
        ("sex", repeated("F", "M"), ColumnKind.CATEGORIES),
        ("admission_type_id", repeated("1", "2", "3.0"), ColumnKind.CATEGORIES),
        ("encounter", column(*(str(70_001 + 3 * row) for row in range(ROWS))), ColumnKind.ID),
        ("patient_nbr", column(*(str(row // 4) for row in range(ROWS))), ColumnKind.ID),
        ("visitKey", column(*(f"k{row // 4}" for row in range(ROWS))), ColumnKind.ID),
        ("cost", column(*(f"{1.5 + row}" for row in range(ROWS))), ColumnKind.NUMBERS),
        ("doctor", column(*(f"Ann Who{row}" for row in range(ROWS))), ColumnKind.TEXTS),
        ("diagnosis", column(*(f"{row // 2}.1" for row in range(119)), "V57"), ColumnKind.TEXTS),
        ("admitted", repeated("2024-05-01", "2024-05-02 10:00"), ColumnKind.DATES),
        ("weight", repeated("?"), ColumnKind.EMPTY),
        ("ward", repeated("3", "3.0", ""), ColumnKind.CONSTANT),
    ],
)
def test_a_column_is_what_its_name_and_cells_say(
    name: str, cells: np.ndarray, kind: ColumnKind
) -> None:
    assert look_at_column(name, cells).kind is kind


def test_people_come_before_visits() -> None:
    people = column(*(str(row // 2) for row in range(ROWS)))
    visits = column(*(str(row) for row in range(ROWS)))
    some = column(*(str(row // 3) for row in range(ROWS)))
    columns = {"visit_id": visits, "bed_no": some, "patient_id": people}
    looks = {name: look_at_column(name, cells) for name, cells in columns.items()}
    assert record_column_of(looks) == "patient_id"
    del looks["patient_id"]
    assert record_column_of(looks) == "bed_no"
    assert record_column_of({}) is None


def test_a_range_leaves_out_the_outermost_values() -> None:
    values = column(*(str(50 + row % 41) for row in range(999)), "9999")
    assert look_at_column("weight", values).span == (50.0, 90.0)
    rare = column(*["0"] * 999, "1")
    assert look_at_column("rare", rare).span == (0.0, 1.0)


def test_one_value_has_one_text() -> None:
    cells = column("1", "1.0", "TRUE", "True", " NA", None, float("nan"), "01", "1.50")
    assert as_texts(cells).tolist() == ["1", "1", "true", "true", "", "", "", "01", "1.50"]
    coding = Coding({"b": (0, 1)}, {"a": ("1.0", "2")})
    assert coding.columns("a", column("1", "2.0", "?")).tolist() == [[1, 0], [0, 1], [0, 0]]
    assert coding.columns("b", column("yes", "FALSE", "")).tolist() == [[1], [-1], [0]]


@pytest.mark.parametrize(
    "held",
    [
        "größe;ort;target\n1,5;Köln;0\n-2;Bonn;1\n".encode(),
        "größe;ort;target\n1,5;Köln;0\n-2;Bonn;1\n".encode("latin-1"),
        "größe\tort\ttarget\r\n1.5\tKöln\t0\r\n-2\tBonn\t1\r\n".encode("utf-16"),
        "\ufeffgröße,ort,target\n1.5, Köln ,0\n-2,Bonn,1\n\n".encode(),
        "größe|ort|target\n1.5|Köln|0\n-2|Bonn|1\n".encode(),
    ],
    ids=["semicolons", "Latin-1", "tabs and UTF-16", "a mark and spaces", "bars"],
)
def test_files_as_offices_write_them(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(held)
    assert list(read_columns(file)) == ["größe", "ort", "target"]
    coding = Coding({"größe": (-2, 2)}, {"ort": ("Bonn", "Köln")})
    (read,) = read_tables(file, Columns(), coding=coding).clients
    assert read.features.tolist() == [[0.75, 0, 1], [-1, 1, 0]]
    assert read.targets.tolist() == [0, 1]


def test_a_row_of_another_length_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,target\n1,0\n2\n")
    with pytest.raises(ParameterError, match=r"rows\.csv:3: every row has 2 cells.*has 1"):
        read_columns(file)
