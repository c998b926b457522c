"""`urna combine`: every guarantee, what is written, and what is refused."""

import itertools
import json
import math
from pathlib import Path
from shlex import split
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import Command

from urna.privacy import Budget, Ledger
from urna.space import Axis, Space
from urna.systems.combine import Combination

PEAKS = [(0.1, 0.9)] * 5 + [(0.03, 0.6)] * 3 + [(0.1, 0.6)] * 2
GRID = list(itertools.product((0.01, 0.03, 0.1, 0.3), (0.0, 0.6, 0.9)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write ten clients' searches, and the federation's own, which is left out."""
    lines = ["client,lr,momentum,accuracy"]
    for client, (best, momentum) in enumerate(PEAKS):
        for lr, beside in GRID:
            away = 0.1 * abs(math.log10(lr / best)) + 0.2 * abs(beside - momentum)
            lines.append(f"{client},{lr},{beside},{0.9 - away - 0.002 * client:.4f}")
    for lr, beside in GRID:
        lines.append(f"-1,{lr},{beside},{0.9 - 0.1 * abs(lr - 0.1) - 0.1 * abs(beside - 0.9):.4f}")
    path = tmp_path / "searches.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """Write down what all clients searched."""
    axes = Space(lr=Axis.log([0.01, 0.03, 0.1, 0.3]), momentum=Axis.linear([0.0, 0.6, 0.9]))
    path = tmp_path / "space.toml"
    path.write_text(axes.as_toml(), encoding="utf-8")
    return path


def combined(urna: Command, table: Path, line: str) -> dict[str, Any]:
    return urna("combine", table, *split(line), "--format", "json").json()


def test_all_strategies_stand_beside_the_one_asked_for(urna: Command, table: Path) -> None:
    done = urna("combine", table, "--strategy", "median")
    assert done.code == 0
    marked = [line for line in done.stdout.splitlines() if line.startswith("→")]
    assert len(marked) == 1
    assert marked[0].split()[1] == "median"
    for name in ("dbscan", "trimmed mean", "mean of the best"):
        assert name in done.stdout
    assert "NOT PRIVATE" in done.stdout


def test_encrypted_clusters_are_those_in_the_clear(urna: Command, table: Path) -> None:
    clear = combined(urna, table, "--strategy federated-dbscan --no-compare")
    hidden = combined(urna, table, "--strategy dbscan --guarantee encryption --no-compare")
    assert hidden["setting"] == clear["setting"]
    assert hidden["clusters"] == clear["clusters"]
    assert hidden["points"] == []
    assert hidden["cost"]["bytes_per_party"] < 7.86e6
    assert [judged["strategy"] for judged in hidden["comparison"]] == [
        "federated dbscan, encryption"
    ]


def test_a_mean_of_which_six_must_help(urna: Command, table: Path) -> None:
    line = "--strategy mean --guarantee encryption --threshold 6 --no-compare"
    hidden = combined(urna, table, line)
    clear = combined(urna, table, "--strategy mean --no-compare")
    assert hidden["setting"] == clear["setting"]
    assert "any 6 of 10 parties" in " ".join(hidden["privacy"]["caveats"])


@pytest.mark.parametrize("guarantee", ["dp", "both"])
@pytest.mark.parametrize("strategy", ["mean", "top-mean", "vote"])
def test_what_has_noise_is_in_the_ledger_and_on_disk(
    urna: Command,
    table: Path,
    space: Path,
    tmp_path: Path,
    guarantee: str,
    strategy: str,
) -> None:
    path, out = tmp_path / "ledger", tmp_path / "out"
    Ledger.open(path, Budget(6.0, 1e-5))
    line = f"--strategy {strategy} --guarantee {guarantee} --epsilon 5 --space {space}"
    shown = combined(urna, table, f"{line} --ledger {path} --output {out}")
    assert shown["privacy"]["epsilon"] <= 5.0
    ledger = Ledger(path)
    assert len(list(ledger.entries())) == 1
    assert "changed since" not in urna("ledger", "show", path).stdout
    assert 0 < ledger.spent().epsilon <= 5.0
    kept = json.loads((out / "result.json").read_text(encoding="utf-8"))
    found = {key: value for key, value in kept.items() if key != "run"}
    assert Combination.read(kept).as_mapping() == found
    assert shown.items() >= found.items()
    assert kept["run"]["account"]["releases"] == 1
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Differentially private" in page
    ElementTree.parse(out / "settings.svg")
    # A second one would pass the cap, and leaves all as it is.
    before = path.read_bytes()
    again = urna("combine", table, *split(f"{line} --ledger {path} --output {out}/again"))
    assert "Nothing was released" in again.refused(1)
    assert path.read_bytes() == before
    assert json.loads((out / "result.json").read_text(encoding="utf-8")) == kept


def test_one_clients_settings_change_nothing_but_the_noise(
    urna: Command, table: Path, space: Path
) -> None:
    """Everything but noisy numbers is equal for neighbours, one of them beyond every axis."""
    shown = []
    for other in (table.read_text(), table.read_text() + "9,77.25,-3,0.99\n"):
        table.write_text(other, encoding="utf-8")
        for strategy in ("mean", "vote"):
            line = f"--strategy {strategy} --guarantee dp --epsilon 4 --space {space}"
            found = combined(urna, table, line)
            shown.append({k: found[k] for k in ("frame", "clients", "took_part", "comparison")})
            shown[-1]["comparison"] = [judged["strategy"] for judged in shown[-1]["comparison"]]
    assert shown[:2] == shown[2:]
    refused = urna("combine", table, "--strategy", "mean", "--guarantee", "dp").refused(2)
    assert "--space FILE.toml" in refused


def test_a_ledger_stands_beside_no_exact_comparison(
    urna: Command, table: Path, space: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ledger"
    Ledger.open(path, Budget(6.0, 1e-5))
    line = f"--strategy mean --guarantee dp --space {space} --ledger {path} --compare"
    assert "which no ledger counts" in urna("combine", table, *split(line)).refused(2)


def test_what_is_exact_has_no_place_in_a_ledger(urna: Command, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger.open(path, Budget(6.0, 1e-5))
    for guarantee in ("none", "encryption"):
        line = f"--strategy mean --guarantee {guarantee} --ledger {path}"
        assert "epsilon from 0 to inf" in urna("combine", table, *split(line)).refused(1)


def test_a_page_is_made_again_from_the_kept_result(
    urna: Command, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert urna("combine", table, "--no-compare", "--output", out).code == 0
    assert urna("report", out / "result.json", "--output", tmp_path / "again.html").code == 0
    page = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Nothing was hidden" in page


WRONG = [
    ("--strategy dbscann", "did you mean 'dbscan'?"),
    ("--strategy election", "federated-dbscan, vote"),
    ("--strategy anchored", "unknown strategy 'anchored'"),
    ("--strategy dbscan --guarantee dp", "Take mean, top-mean or vote"),
    ("--strategy median --guarantee encryption", "needs everybody's settings in one place"),
    ("--strategy vote --guarantee encryption", "a vote has noise"),
    ("--strategy vote --log-scale --guarantee dp", "vote averages nothing"),
    ("--where lr", "--where: a condition is COLUMN=VALUE"),
    ("--where colour=red", "has no column 'colour'"),
    ("--where client=77", "no row of searches.csv has client = 77"),
    ("--axes lr,batch", "has no column 'batch'"),
    ("--min-points 0", "--min-points is a whole number, 1 or more; got the number 0"),
    ("--strategy dbscan --min-points 1000", "lower min_points or widen the reach"),
    ("--cell 0.2", "counts in no cells"),
    ("--set combine.reach=0.2", "`reach` is of dbscan in the clear"),
    (
        "--strategy dbscan --guarantee encryption --set combine.by_rule=true",
        "`by_rule` is of dbscan in the clear",
    ),
    ("--cell 0 --guarantee encryption", "--cell is a number, above 0"),
    ("--strategy mean --threshold 3", "belong to the guarantee encryption"),
    (
        "--strategy mean --guarantee encryption --threshold 0",
        "--threshold is a whole number, 1 or more",
    ),
    ("--strategy mean --guarantee encryption --threshold 11", "must help to open, got 11"),
    (
        "--strategy mean --guarantee dp --epsilon 0",
        "--epsilon is a number, above 0; got the number 0",
    ),
]


@pytest.mark.parametrize(("line", "says"), WRONG, ids=[line for line, _ in WRONG])
def test_wrong_use_ends_in_one_line_and_nothing_is_written(
    urna: Command, table: Path, tmp_path: Path, line: str, says: str
) -> None:
    out = tmp_path / "out"
    assert says in urna("combine", table, *split(line), "--output", out).refused(2)
    assert not (out / "combination.json").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no row"),
        ("client,lr,accuracy\n", "holds no row"),
        ("who,lr,accuracy\n1,2,3\n", "has no column 'client'"),
        ("client,lr,accuracy\n0,fast,.9\n", "holds 'fast', which is no number"),
        ("client,lr,accuracy\n0,.1,good\n", "Leave the scores of runs that failed empty"),
        ("client,lr,accuracy\n0,.1\n", "line 2 of t.csv has not as many values as the head"),
        ("client,lr,accuracy\n-1,.1,.9\n", "only the federation's"),
        ("client,lr,accuracy\n1.5,.1,.9\n", "holds '1.5': clients are numbered 0, 1, 2"),
        ("client,lr,accuracy\n-2,.1,.9\n", "holds '-2': clients are numbered 0, 1, 2"),
        ("client,lr,accuracy\n0,.1,.9\n1,.1,90\n", "holds '90': a score is a fraction"),
        ("client,lr,accuracy\n0,.1,-.9\n", "holds '-.9': a score is a fraction"),
        ("client,lr,accuracy\n0,.1,\n1,.1,nan\n", "every run of every client failed"),
    ],
)
def test_tables_that_cannot_be_read_are_told(
    urna: Command, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    assert says in urna("combine", path).refused(2)


def test_a_client_without_a_usable_run_is_named_and_left_out(
    urna: Command, table: Path, tmp_path: Path
) -> None:
    kept = combined(urna, table, "--strategy mean --no-compare")
    failed = [line for line in table.read_text().splitlines() if not line.startswith("-1")][1:13]
    rows = "".join(f"12,{line.split(',')[1]},0,\n" for line in failed)
    table.write_text(table.read_text().replace("\n-1,", f"\n{rows}-1,", 1), encoding="utf-8")
    for line in ("--strategy mean", "--strategy mean --guarantee encryption"):
        done = urna("combine", table, *split(line))
        assert "client 12 has no run that ended in a score: it is left out" in done.stderr
        shown = combined(urna, table, f"{line} --no-compare")
        assert (shown["clients"], shown["took_part"]) == (11, 10)
        assert shown["lost"] == {"10": "has no run that ended in a score"}
        assert shown["setting"] == kept["setting"]


def test_one_party_alone_is_not_encrypted(urna: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("client,lr,accuracy\n0,.1,.9\n0,.2,.8\n", encoding="utf-8")
    refused = urna("combine", path, "--guarantee", "encryption").refused(2)
    assert "it takes 2 or more with a search of their own, and there is 1" in refused


def test_losses_are_no_accuracies(urna: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{c},{lr},{abs(math.log(lr / 0.1)) + c}" for c in range(4) for lr in (0.01, 0.1, 1.0)]
    path.write_text("client,lr,loss\n" + "\n".join(rows) + "\n", encoding="utf-8")
    losses = ("--score", "loss", "--strategy", "dbscan")
    assert "not losses" in urna("combine", path, *losses).refused(2)
    shown = combined(urna, path, "--score loss --strategy mean --log-scale")
    assert shown["setting"]["lr"] == pytest.approx(0.1)
    assert "dbscan" not in {judged["strategy"] for judged in shown["comparison"]}


def test_a_vote_runs_under_threshold_encryption(urna: Command, few: tuple[str, ...]) -> None:
    arguments = (
        "search",
        *few,
        "--set",
        "privacy.summation=encrypted",
        "--quiet",
        "--format",
        "json",
    )
    shown = urna(*arguments).json()
    assert shown["took_part"] == 12
    assert "threshold encryption" in " ".join(shown["privacy"]["caveats"])
    refused = urna(
        "search", *few, "--set", "privacy.summation=encrypted", "--set", "privacy.server=dishonest"
    ).refused(2)
    assert "trusts its server" in refused
