"""`urna average`: tables of all kinds, one model, everything kept, bad input before anything."""

import csv
import json
from pathlib import Path
from shlex import split

import numpy as np
import pytest
from commands import Command

from urna.data import Columns, Samples, read_tables
from urna.errors import DataMissing, ParameterError
from urna.privacy import Adjacency, Budget, Ledger
from urna.systems.average import ModelResult, load_model

CENTRES = np.array([[3.0, 0, 0], [0, 3, 0], [0, 0, 3]])
NAMES = np.array(["ant", "bee", "cow"])
QUICK = split("--set privacy.summation=clear --quiet --unit record --epsilon 8 --output")


def samples(seed: int, records: int = 20) -> Samples:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=records)
    return Samples(CENTRES[y] + 0.4 * rng.normal(size=(records, 3)), y)


def write_csv(path: Path, rows: list[list[object]], header: str = "a,b,c,target") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


def table(seed: int) -> list[list[object]]:
    made = samples(seed)
    return [[*x, NAMES[y]] for x, y in zip(made.features.tolist(), made.targets, strict=True)]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "clients"
    folder.mkdir()
    for client in range(8):
        write_csv(folder / f"{client}.csv", table(client))
    return folder


def test_a_folder_of_tables_becomes_a_model_with_everything_about_it(
    urna: Command, tables: Path, tmp_path: Path
) -> None:
    out, test = tmp_path / "out", write_csv(tmp_path / "test.csv", table(99))
    done = urna(
        "average",
        "--data",
        str(tables),
        "--classes",
        "ant,bee,cow",
        "--test",
        str(test),
        *QUICK,
        out,
    )
    assert done.code == 0, done.stderr
    for part in (
        "pooled moments",
        "Selected automatically",
        "accuracy",
        "replace-one-record",
        "8 of 8",
    ):
        assert part in done.stdout
    model = load_model(out / "model.npz")
    assert list(model.classes_) == ["ant", "bee", "cow"]
    assert model.predict(CENTRES).tolist() == ["ant", "bee", "cow"]
    assert "privacy:" in (out / "MODEL_CARD.md").read_text()
    page = (out / "report.html").read_text()
    assert "One message, one model" in page
    assert "replace-one-record" in page
    again = urna("report", out, "--output", tmp_path / "again.html")
    assert again.code == 0, again.stderr
    assert "One message, one model" in (tmp_path / "again.html").read_text()
    assert json.loads((out / "result.json").read_text())["kind"] == "model"


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_other_files_give_the_same_model(
    urna: Command, tables: Path, tmp_path: Path, suffix: str
) -> None:
    folder = tmp_path / suffix
    folder.mkdir()
    for client in range(8):
        made = samples(client)
        if suffix == "npz":
            np.savez(folder / f"{client}.npz", x=made.features, y=NAMES[made.targets])
        else:
            arrow = pytest.importorskip("pyarrow")
            parquet = pytest.importorskip("pyarrow.parquet")
            columns = dict(zip("abc", made.features.T.tolist(), strict=True))
            columns["target"] = NAMES[made.targets].tolist()
            parquet.write_table(arrow.table(columns), folder / f"{client}.parquet")
    common = split("--classes ant,bee,cow --scripted-secrets same --format json")
    plain = ("--set", 'data.features=["a", "b", "c"]')  # as they are: a matrix has no ranges
    one, other = (
        urna(
            "average", "--data", where, *common, *(() if where.name == "npz" else plain), *QUICK,
            tmp_path / f"o {where.name}",
        ).json()
        for where in (tables, folder)
    )  # fmt: skip
    assert np.allclose(one["weights"], other["weights"])
    assert one["privacy"]["epsilon"] is None


def test_one_file_of_all_clients_and_a_regression(urna: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows: list[list[object]] = []
    for client in range(6):
        for _ in range(30):
            x = rng.normal(size=2)
            rows.append([f"site {client}", *x.tolist(), float(x[0] / np.linalg.norm(x))])
    file = write_csv(tmp_path / "all.csv", rows, "site,a,b,y")
    arguments = split("--client-column site --label y --span=-1,1 --format json")
    found = urna("average", "--data", file, *arguments, *QUICK, tmp_path / "o").json()
    assert found["took_part"] == 6
    assert found["learner"]["kind"] == "moments"
    dealt = split("--client-column site --label y --span=-1,1 --clients 5")
    assert "leave `clients` out" in urna("average", "--data", file, *dealt).refused(2)


def test_tuning_first_costs_no_more_than_asked_for(
    urna: Command, tables: Path, tmp_path: Path
) -> None:
    Ledger.open(tmp_path / "l", Budget(3.0, 1e-5), adjacency=Adjacency.REPLACE_ONE_RECORD)
    common = split(
        "--tune --set vote.force=true --classes ant,bee,cow --unit record --epsilon 3 --quiet "
        "--set privacy.summation=clear"
    )
    done = urna(
        "average", "--data", tables, *common, "--ledger", tmp_path / "l", "--output", tmp_path / "o"
    )
    assert done.code == 0, done.stderr
    assert "Tuned by a private vote" in done.stdout
    ledger = Ledger(tmp_path / "l")
    assert len(ledger.entries()) == 2
    assert 2.5 < ledger.spent().epsilon <= 3
    assert json.loads((tmp_path / "o" / "vote.json").read_text())["kind"] == "vote"
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert result["privacy"]["epsilon"] == pytest.approx(ledger.spent().epsilon, rel=1e-3)


def test_settings_are_voted_on_where_whole_clients_are_protected(
    urna: Command, tables: Path, tmp_path: Path
) -> None:
    common = split(
        "--tune --set vote.force=true --classes ant,bee,cow --epsilon 60 --quiet "
        "--set privacy.summation=clear"
    )
    done = urna("average", "--data", tables, *common, "--output", tmp_path / "o")
    assert done.code == 0, done.stderr
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert result["privacy"]["unit"] == "client"
    assert result["tuned"]["candidates"] == 12


def test_a_model_is_kept_whatever_the_test_data_do(
    urna: Command, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["--classes", "ant,bee,cow", "--test"]
    blank = write_csv(tmp_path / "blank.csv", [[1, 2, 3, ""], [3, 0, 0, "ant"]])
    done = urna(
        "average", "--data", tables, *common, blank, "--format", "json", *QUICK, tmp_path / "o"
    )
    assert done.json()["measured"] == {"accuracy": 1.0, "baseline": 1.0}
    values = tmp_path / "values"
    values.mkdir()
    for place in range(4):
        rows: list[list[object]] = [[n, place, 1, n + place] for n in range(9)]
        write_csv(values / f"{place}.csv", rows)
    far = write_csv(tmp_path / "far.csv", [[1, 2, 3, ""], [1, 2, 3, 1e300], [1, 2, 3, 4]])
    spanned = ["--span", "0,12", "--format", "json", "--test", far]
    found = urna("average", "--data", values, *spanned, *QUICK, tmp_path / "v").json()
    assert load_model(tmp_path / "v" / "model.npz").measured == found["measured"]

    def broken(*_: object) -> float:
        raise ArithmeticError("scoring failed")

    monkeypatch.setattr(ModelResult, "score", broken)
    urna("average", "--data", tables, *common, blank, *QUICK, tmp_path / "k")
    assert load_model(tmp_path / "k" / "model.npz").took_part == 8
    assert (tmp_path / "k" / "MODEL_CARD.md").exists()


def test_candidates_that_are_no_numbers_are_one_line(
    urna: Command, tables: Path, tmp_path: Path
) -> None:
    space = tmp_path / "space.toml"
    space.write_text('[axes]\nregularisation = ["low", "high"]')
    asked = ["--classes", "ant,bee", "--tune", "--space", space]
    assert "regularisation is a number" in urna("average", "--data", tables, *asked).refused(2)


def test_a_known_set_needs_no_classes_and_clients_are_protected_by_default(urna: Command) -> None:
    done = urna(
        "average",
        *split("--data digits --clients 20 --set privacy.summation=clear --quiet --learner svm"),
    )
    assert done.code == 0, done.stderr
    assert "replace-one-client" in done.stdout


WRONG = [
    ("{tables} --classes ant,bee --span 0,1", "name `classes` or a `span`, not both"),
    ("{tables} --classes ant", "two or more different"),
    ("{tables} --span 1", "--span is a list of 2 numbers; got the list [1]"),
    ("{tables} --span 3,1", "--span: a span is two numbers, the smaller first"),
    ("{tables} --classes ant,bee --label weight", "has no column 'weight'"),
    ("{tables} --classes ant,bee --tune --learner moments", "no settings to vote on"),
    ("{tables} --classes ant,bee --regularisation 0 --learner svm", "is a number, above 0"),
    ("{tables} --classes ant,bee --learner forest", "--learner is one of 'auto', 'moments'"),
    ("{tables} --classes ant,bee --set average.intercept=2", "intercept"),
    ("{tables} --classes ant,bee --set privacy.group=3", "leave `group` out"),
    ("{tables} --classes ant,bee --space clip=1,2", "add --tune"),
    ("digits --classes 0..9", "leave `classes` out"),
    ("{tables} --classes ant,bee --set average.clip=0 --learner svm", "is a number, above 0"),
    ("{tables} --classes ant,bee --test {tables}", "is a folder"),
    ("{tables} --classes ant,bee --test {empty}", "no row with a target"),
    ("{tables} --classes ant,bee --test {narrow}", "has no column"),
    ("{tables}/0.csv --classes ant,bee", "2 clients with at least 10 samples each need 20"),
    ("{tables} --classes 9..0", "smallest first"),
    ("{tables} --classes 0..999999999", "2 to 100,000"),
    ("{tables} --classes 0..1" + 20 * "0", "two or more different"),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG)
def test_wrong_use_is_one_line_and_nothing_is_spent(
    urna: Command, tables: Path, tmp_path: Path, arguments: str, says: str
) -> None:
    files = {
        "empty": write_csv(tmp_path / "empty.csv", [["1", "2", "3", ""]]),
        "narrow": write_csv(tmp_path / "narrow.csv", [["1", "2", "ant"]], "a,b,target"),
    }
    arguments = arguments.format(tables=tables, **files)
    assert says in urna("average", "--data", *split(arguments)).refused(2)


def test_what_is_not_there_is_one_line(urna: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, says in (("empty", "holds no .csv"), ("none.csv", "there is no file")):
        line = urna("average", "--data", tmp_path / name, "--classes", "a,b").refused(2)
        assert says in line


def test_tables_complain_of_forms_and_never_of_cells(tmp_path: Path) -> None:
    odd = write_csv(tmp_path / "odd.csv", [["x", "", "1e999", "cow"], ["1", "2", "3", ""]])
    (read,) = read_tables(odd, Columns(), texts=True).clients
    assert np.isnan(read.features[0, :2]).all()
    assert read.features[0, 2] == np.inf
    (values,) = read_tables(odd, Columns(), texts=False).clients
    assert np.isnan(values.targets).all()
    with pytest.raises(ParameterError, match="4 cells"):
        read_tables(write_csv(tmp_path / "r.csv", [[1, 2, 3]]), Columns())
    with pytest.raises(ParameterError, match="different names"):
        read_tables(write_csv(tmp_path / "h.csv", [], "a,a,target"), Columns())
    (tmp_path / "b.npz").write_bytes(b"no archive")
    with pytest.raises(ParameterError, match="cannot be read"):
        read_tables(tmp_path / "b.npz", Columns())
    with pytest.raises(DataMissing):
        read_tables(tmp_path / "absent.csv", Columns())
    with pytest.raises(ParameterError, match="got"):
        read_tables(tmp_path / "x.txt", Columns())
