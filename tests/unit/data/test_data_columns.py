"""Tables as people have them: what columns hold, and how files are written."""

import csv
from pathlib import Path

import numpy as np
import pytest

from urna.data import Coding, Columns, read_columns, read_tables, table_files
from urna.data.coding import (
    ColumnKind,
    as_texts,
    fault_of,
    look_at_column,
    places_of,
    record_column_of,
)
from urna.errors import DataMissing, ParameterError

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
        "größe\tort\ttarget\n1,5\tKöln\t0\n-2\tBonn\t1\n".encode(),
        ',größe,ort,target\n0,"1,5",Köln,0\n1,-2,Bonn,1\n'.encode(),
    ],
    ids=["semicolons", "Latin-1", "tabs, UTF-16", "mark, spaces", "bars", "commas", "row numbers"],
)
def test_files_as_offices_write_them(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(held)
    assert list(read_columns(file)) == ["größe", "ort", "target"]
    coding = Coding({"größe": (-2, 2)}, {"ort": ("Bonn", "Köln")})
    (read,) = read_tables(file, Columns(), coding=coding).clients
    assert read.features.tolist() == [[0.75, 0, 1], [-1, 1, 0]]
    assert read.targets.tolist() == [0, 1]


def test_a_comma_is_of_thousands_or_of_decimals(tmp_path: Path) -> None:
    file = tmp_path / "rows.CSV"
    file.write_text('a,b,c\n"1,234","0,5","1,2 mg"\n"5,678.5","0,125","3"\n"1,5","1,234","-"\n')
    read = {name: cells.tolist() for name, cells in read_columns(file).items()}
    assert read == {
        "a": ["1234", "5678.5", "1.5"],
        "b": ["0.5", "0.125", "1234"],
        "c": ["1,2 mg", "3", "-"],
    }
    file.write_text("a;b\n1.234,5;1,5\n0,125;1,234\n")
    cells = [cells.tolist() for cells in read_columns(file).values()]
    assert cells == [["1234.5", "0.125"], ["1.5", "1.234"]]


ODD = (
    "1,5",
    "1,234",
    "x,y",
    "n/a, see file",
    "",
    "NA",
    "1e999",
    'a "b"',
    "two\nlines",
    "é;|\t",
    "\0",
)
CODING = Coding({"age": (0, 5000)}, {"sex": ("fé", "m")})


def others(file: Path) -> list[bytes]:
    """Return the coded rows but for the last, bit by bit."""
    (read,) = read_tables(
        file, Columns(), texts=True, features=("age", "sex", "free"), coding=CODING
    ).clients
    return [read.features[:-1].tobytes(), "|".join(read.targets[:-1]).encode()]


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_a_cell_moves_no_other_row(tmp_path: Path, sign: str) -> None:
    rows = [
        ["age", "sex", "free", "target"],
        ["1,234", "fé", "0,5", "é"],
        ["2.345", "m", "1,234", "1.0"],
        ["12,5", "FÉ", "x,y", "?"],
    ]
    last = ["3,456", "m", "2", "1"]

    def written(row: list[str]) -> Path:
        with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=sign).writerows([*rows, row])
        return tmp_path / "rows.csv"

    expected = others(written(last))
    for place in range(len(last)):
        for cell in ODD:
            assert others(written([*last[:place], cell, *last[place + 1 :]])) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_a_byte_moves_no_other_row(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "rows.csv"
    text = 'age,sex,free,target\n"1,234",fé,1,é\n2,m,2,b\n3,mXm,3,c\n'.encode(encoding)
    file.write_bytes(text)
    expected = others(file)
    for byte in {*range(256)}.difference(b",\n\r"):
        file.write_bytes(text.replace(b"X", bytes([byte])))
        assert others(file) == expected, byte


def test_a_list_in_a_parquet_file_moves_no_other_row(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    read = []
    for last in ([3, 4], [3], None):
        columns = {"a": [1, 2], "b": [[1, 2], last], "target": [0, 1]}
        parquet.write_table(arrow.table(columns), tmp_path / "rows.parquet")
        read.append(read_tables(tmp_path / "rows.parquet", Columns()).clients[0].features[0])
    assert all(row.tobytes() == read[0].tobytes() for row in read)


def test_upper_and_lower_case_are_one_value_unless_both_are_named() -> None:
    cells = column("M", "m", "f", "?", "x")
    assert places_of(cells, ("f", "m")).tolist() == [1, 1, 0, -1, -1]
    assert places_of(cells, ("M", "m")).tolist() == [0, 1, -1, -1, -1]
    look = look_at_column("sex", repeated("M", "m", "m", "F", " f"))
    assert look.categories == ("F", "m")


def test_an_empty_cell_is_no_class_and_no_category() -> None:
    cells = column("NA", "", "?", "-", None, "EU", "eu")
    assert places_of(cells, ("NA", "EU")).tolist() == [-1, -1, -1, -1, -1, 1, 1]
    assert places_of(cells, ("EU", "?")).tolist() == [-1, -1, -1, -1, -1, 0, 0]


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (("NA", "EU"), "a cell 'NA' is an empty one"),
        (("m", " "), "a cell ' ' is an empty one"),
        (("1", "2", "1.0"), "'1' and '1.0' are one value"),
        (("True", "TRUE"), "'True' and 'TRUE' are one value"),
        (("a", "a "), "'a' and 'a ' are one value"),
        (("M", "m", "01", "1"), None),
    ],
)
def test_known_texts_can_be_told_apart(known: tuple[str, ...], says: str | None) -> None:
    fault = fault_of(known)
    assert (fault or "").startswith(says or "")
    assert (fault is None) == (says is None)


def test_what_is_in_a_folder_of_tables(tmp_path: Path) -> None:
    for name in ("b.CSV", "a.tsv", "README.md", ".a.csv", "~$c.csv", "x.xlsx"):
        (tmp_path / name).write_text("age,target\n1,0\n")
    assert [file.name for file in table_files(tmp_path)] == ["a.tsv", "b.CSV"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataMissing, match=r"a spreadsheet can be saved as \.csv"):
        table_files(tmp_path / "empty")


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ("", "is empty"),
        ("age,target\n", "has columns and no rows"),
        ("age,age,target\n1,2,0\n", "'age' is there 2 times"),
    ],
)
def test_a_file_without_rows_or_names_is_refused(tmp_path: Path, held: str, says: str) -> None:
    (tmp_path / "h.csv").write_text(held)
    with pytest.raises(ParameterError, match=rf"h\.csv .*{says}"):
        read_columns(tmp_path / "h.csv")


def test_a_client_without_rows_is_told_its_owner_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("age,sex,target\n20,f,0\n")
    (tmp_path / "b.csv").write_text("age,sex,target\n")
    coding = Coding({"age": (0, 100)}, {"sex": ("f", "m")})
    for texts in (False, True):
        read = read_tables(tmp_path, Columns(), texts=texts, coding=coding)
        assert [one.features.shape for one in read.clients] == [(1, 3), (0, 3)]
    assert "b.csv has columns and no rows" in caplog.records[0].getMessage()
    assert len(read_tables(tmp_path / "b.csv", Columns(), coding=coding).clients[0]) == 0
    with pytest.raises(ParameterError, match=r"b\.csv has columns and no rows"):
        read_tables(tmp_path / "b.csv", Columns(client="sex"), features=("age",))


def test_an_owner_is_told_of_columns_of_little_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "h.csv").write_text("chol,sex,age,target\n?,f,40,0\n5.2,x,50,1\n210,y,?,1\n")
    coding = Coding({"chol": (100, 400), "age": (0, 100)}, {"sex": ("F", "M")})
    read_tables(tmp_path / "h.csv", Columns(), coding=coding)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "h.csv: only 1 of 3 cells of 'chol' are numbers from 100 to 400" in told[0]
    assert "only 1 of 3 cells of 'sex' are among its 2 categories" in told[1]


def test_a_row_of_another_length_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,target\n1,0\n2\n")
    with pytest.raises(ParameterError, match=r"rows\.csv:3: every row has 2 cells.*has 1"):
        read_columns(file)
