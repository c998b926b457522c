"""Everybody's data, from files of one's own."""

from pathlib import Path

import numpy as np
import pytest

from urna.data import Coding, read_pictures
from urna.data.shards import split_records
from urna.errors import DataMissing, ParameterError
from urna.study.draft import check_draft, draft_study, find_data
from urna.study.schema import DataPart, Follow
from urna.study.sources import blank_data, gather, gather_one

CSV = "age,sex,outcome\n20,F,well\n90,M,ill\n,F,ill\nx,Z,gone\n"
SAID = {
    "label": "outcome",
    "classes": ("well", "ill"),
    "ranges": {"age": (0, 100)},
    "categories": {"sex": ("F", "M")},
}


def part(**more: object) -> DataPart:
    return DataPart(**(SAID | more))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wards").mkdir()
    for name in ("a", "b"):
        (tmp_path / "wards" / f"{name}.csv").write_text(CSV)
    return tmp_path


def test_a_folder_of_tables_is_read_by_public_facts(folder: Path) -> None:
    found = gather(part(source="wards"), seed=0, base=folder)
    assert found.names == ["a", "b"]
    assert found.clients[0].features.tolist() == pytest.approx(
        np.array([[-0.6, 1, 0], [0.8, 0, 1], [0, 1, 0]])
    )
    assert found.clients[0].targets.tolist() == [0, 1, 1]  # nobody has the class "gone"
    assert (found.dataset.classes, found.labels) == (2, ("well", "ill"))
    alone = gather_one(part(source="wards"), folder / "wards" / "a.csv")
    assert alone.features.tolist() == found.clients[0].features.tolist()
    assert blank_data(part(source="nowhere"), 3).dataset.train.features.shape == (0, 3)


def test_what_data_hold_decides_nothing_by_itself(folder: Path) -> None:
    unsaid = DataPart(source="wards", label="outcome")
    with pytest.raises(ParameterError, match=r"would say classes = \['gone', 'ill', 'well'\]"):
        gather(unsaid, seed=0, base=folder)
    with pytest.raises(ParameterError, match="has no column 'result'"):
        gather(part(source="wards", label="result"), seed=0, base=folder)
    with pytest.raises(DataMissing, match="there is no file or folder"):
        gather(part(source="none"), seed=0, base=folder)
    with pytest.raises(ParameterError, match="the files hold 2 clients"):
        gather(part(source="wards", clients=7), seed=0, base=folder)
    with pytest.raises(ParameterError, match="holds one pool of 3 rows"):
        gather(part(source="wards/a.csv"), seed=0, base=folder)


def test_a_client_without_rows_does_not_refuse_the_study(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty = folder / "wards" / "b.csv"
    empty.write_text("age,sex,outcome\n")
    found = gather(part(source="wards"), seed=0, base=folder)
    assert [len(client) for client in found.clients] == [3, 0]
    assert gather_one(part(source="wards"), empty, by_record=True).features.shape == (0, 3)
    assert "b.csv has columns and no rows" in caplog.text
    for more in ({"clients": 2}, {"client_column": "sex"}):
        with pytest.raises(ParameterError, match=r"b\.csv has columns and no rows"):
            gather(part(source="wards/b.csv", **more), seed=0, base=folder)


def test_one_file_is_dealt_out_or_says_whose_a_row_is(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n % 3},{n % 2}\n" for n in range(60))
    (tmp_path / "all.csv").write_text("x,home,y\n" + rows)
    said = {"source": "all.csv", "label": "y", "classes": (0, 1)}
    dealt = gather(DataPart(**said, clients=4), seed=0, base=tmp_path)  # type: ignore[arg-type]
    assert [len(one) for one in dealt.clients] == [15] * 4
    owned = gather(DataPart(**said, client_column="home"), seed=0, base=tmp_path)  # type: ignore[arg-type]
    assert owned.names == ["0", "1", "2"]
    assert owned.clients[1].features[:, 0].tolist() == list(range(1, 60, 3))


def test_pictures_in_class_folders(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for home in ("north", "south"):
        for name, grey in (("dark", 0), ("light", 255)):
            (tmp_path / home / name).mkdir(parents=True)
            for number in range(2):
                image.new("L", (6, 4), grey).save(tmp_path / home / name / f"{number}.png")
    clients, names, classes = read_pictures(tmp_path, size=(2, 3))
    assert (names, classes) == (["north", "south"], ("dark", "light"))
    assert clients[0].features.tolist() == [[0.0] * 6] * 2 + [[1.0] * 6] * 2
    assert clients[0].targets.tolist() == [0, 0, 1, 1]
    found = gather(DataPart(source=".", picture=(2, 3), colour=True), seed=0, base=tmp_path)
    assert found.dataset.shape == (3, 2, 3)
    assert found.clients[1].features.shape == (4, 18)
    draft = draft_study(DataPart(source="."), base=tmp_path)
    assert draft.values["data"]["classes"] == ["dark", "light"]
    (tmp_path / "north" / "dark" / "0.png").write_text("no picture")
    with pytest.raises(ParameterError, match="is no picture that can be read"):
        read_pictures(tmp_path, size=(2, 3))


def test_a_draft_looks_at_the_data(folder: Path) -> None:
    assert find_data(folder) is None
    assert find_data(folder / "wards") == "."
    said = draft_study(DataPart(source="wards"), base=folder).values
    assert said["data"]["classes"] == ["gone", "ill", "well"]
    assert said["data"]["ranges"] == {"age": [20.0, 90.0]}
    assert said["data"]["categories"] == {"sex": ["F", "M", "Z"]}
    assert said["privacy"]["unit"] == "record"
    with pytest.raises(ParameterError, match="has no column 'end'"):
        draft_study(DataPart(source="wards", label="end"), base=folder)
    (folder / "wards" / "zz.csv").write_text("age,outcome,bed\n1,well,2\n")
    (folder / "wards" / "notes.xlsx").write_text("no table")
    draft = draft_study(DataPart(source="wards"), base=folder)
    assert draft.values["data"]["features"] == ["age"]  # that all files have
    assert "Left out: bed (not in every file), sex (not in every file)." in draft.notes
    assert "Not read, because they are no tables: notes.xlsx." in draft.notes
    (folder / "wards" / "zz.csv").write_text("age,sex\n1,F\n")
    with pytest.raises(ParameterError, match=r"zz\.csv has no column 'outcome'; it has age, sex"):
        draft_study(DataPart(source="wards", label="outcome"), base=folder)


@pytest.mark.parametrize(
    ("ranges", "categories", "message"),
    [
        ({"a": (1, 1)}, {}, "two numbers, the smaller first"),
        ({"a": (1, "x")}, {}, "two numbers, the smaller first"),
        ({}, {"a": ()}, "a list of different texts"),
        ({}, {"a": ("x", "x")}, "a list of different texts"),
        ({"a": (0, 1)}, {"a": ("x",)}, "a range or categories, not both"),
    ],
)
def test_a_coding_that_cannot_be(ranges: object, categories: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Coding(ranges, categories)  # type: ignore[arg-type]


def test_one_record_of_another_class_moves_one_shard_alone(tmp_path: Path) -> None:
    """A row that was left out would move all rows behind it to other shards."""
    key = bytes(range(32))

    def shards(first: str, *, by_record: bool) -> list[list[list[float]]]:
        rows = [first, *("well" if i % 3 else "ill" for i in range(39))]
        lines = [f"{i},F,{label}" for i, label in enumerate(rows)]
        file = tmp_path / "rows.csv"
        file.write_text("age,sex,outcome\n" + "\n".join(lines) + "\n")
        data = gather_one(part(source=""), file, by_record=by_record)
        return [
            np.column_stack([shard.data.features, shard.data.targets]).tolist()
            for shard in split_records(data, shards=4, key=key)
        ]

    def moved(*, by_record: bool) -> int:
        known, other = (shards(label, by_record=by_record) for label in ("ill", "gone"))
        assert not by_record or sum(map(len, known)) == sum(map(len, other))
        return sum(one != two for one, two in zip(known, other, strict=True))

    assert moved(by_record=True) <= 1
    assert moved(by_record=False) > 1  # which is why rows are kept


def test_targets_of_no_number_are_kept_where_records_are_protected(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("age,sex,outcome\n20,F,1.5\n30,M,x\n")
    said = part(source="", classes=(), span=(0.0, 2.0))
    assert gather_one(said, file, by_record=True).targets.tolist() == [1.5, 0.0]
    assert gather_one(said, file).targets.tolist() == [1.5]


def test_rows_of_one_record_stay_together(tmp_path: Path) -> None:
    rows = "".join(f"{n % 40},{n},{n % 2}\n" for n in range(160))
    (tmp_path / "all.csv").write_text("patient,x,y\n" + rows)
    said = {"label": "y", "classes": (0, 1), "features": ("x",), "record_column": "patient"}
    found = gather(DataPart(source="all.csv", clients=4, **said), seed=0, base=tmp_path)  # type: ignore[arg-type]
    homes = [set(np.asarray(one.ids).tolist()) for one in found.clients]
    assert [len(one) for one in found.clients] == [40] * 4
    assert sum(map(len, homes)) == len(set.union(*homes)) == 40


def write(folder: Path, name: str, header: str, *rows: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join([header, *rows]) + "\n")


def test_a_draft_protects_people_and_says_so(tmp_path: Path) -> None:
    for home in range(3):
        rows = (f"{home}{n // 4:03},{n % 50},{n % 3 // 2}" for n in range(160))
        write(tmp_path / "d", f"{home}.csv", "patient_id,age,ill", *rows)
    draft = draft_study(DataPart(source="d"), base=tmp_path)
    data = draft.values["data"]
    assert (data["label"], data["record_column"], data["features"]) == (
        "ill",
        "patient_id",
        ["age"],
    )
    assert draft.values["privacy"]["unit"] == "record"
    assert "vote" not in draft.values
    assert any("rows of one 'patient_id' are protected" in note for note in draft.notes)
    assert any("'ill' is predicted, a guess" in note for note in draft.notes)
    rows_alone = draft_study(DataPart(source="d"), base=tmp_path, people=False)
    assert "record_column" not in rows_alone.values["data"]
    assert rows_alone.values["data"]["features"] == ["age"]  # an id is never a feature


def test_a_label_that_teaches_nothing_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / "d", f"{name}.csv", "age,ill,note", *(f"{n},1,?" for n in range(30)))
    for label, held in (("ill", "one class alone, '1'"), ("note", "nothing")):
        with pytest.raises(ParameterError, match=f"'{label}' holds {held}, so there is nothing"):
            draft_study(DataPart(source="d", label=label), base=tmp_path)


def test_labels_of_another_case_are_one_class_and_lost_rows_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, ill in (("a", "Ill"), ("b", "ill "), ("c", "ILL")):
        rows = (f"{n},{(ill, 'well')[n % 2] if n else '?'}" for n in range(20 + (ill == "Ill")))
        write(tmp_path / "d", f"{name}.csv", "age,outcome", *rows)
    draft = draft_study(DataPart(source="d"), base=tmp_path)
    assert len(draft.values["data"]["classes"]) == 2
    planned = check_draft(draft, tmp_path / "study.toml")
    assert planned.clients == 3
    assert "c: 1 of 20 rows have no target that the study knows" in caplog.text
    found = gather(planned.study.data, seed=0, base=tmp_path)
    assert [np.bincount(one.targets).tolist() for one in found.clients] == [
        [10, 10],
        [9, 10],
        [9, 10],
    ]


def test_a_label_that_somebody_names_is_not_guessed(tmp_path: Path) -> None:
    write(tmp_path / "d", "a.csv", "age,ill", *(f"{n},{n % 2}" for n in range(40)))
    said = DataPart(source="d", label="target")
    assert draft_study(said, base=tmp_path).values["data"]["label"] == "ill"
    with pytest.raises(ParameterError, match=r"a\.csv has no column 'target'; it has age, ill"):
        draft_study(said, base=tmp_path, guess=False)


@pytest.mark.parametrize("files", [2, 3, 5, 8, 10])
@pytest.mark.parametrize("follow", [None, Follow.NOTHING, Follow.AVERAGE, Follow.TRAIN])
def test_what_is_drafted_can_be_planned(tmp_path: Path, files: int, follow: Follow | None) -> None:
    for home in range(files):
        rows = (f"{n * 7 % 50},{'?' if n % 5 else 'no'},{n % 2}" for n in range(120 + home))
        write(tmp_path / "d", f"{home}.csv", "age,smoker,target", *rows)
    draft = draft_study(DataPart(source="d"), base=tmp_path, follow=follow)
    planned = check_draft(draft, tmp_path / "study.toml")
    assert planned.clients == files
    assert (planned.vote is None) == (follow is not Follow.NOTHING)
    with pytest.raises(ParameterError) as refused:
        check_draft(
            draft_study(DataPart(source="d"), base=tmp_path, follow=Follow.COMBINE),
            tmp_path / "study.toml",
        )
    assert "study.toml" not in str(refused.value)  # which is not there
