"""Bad input gets one clear line and an exit code; nothing is computed, written or spent."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest
from commands import Command
from forks import environment

from urna.errors import OutputError
from urna.files import write_whole
from urna.privacy import Budget, Ledger

WRONG_USE = [
    ("plan --clients 100 --epsilon 0", "--epsilon is a number, above 0; got the number 0"),
    ("plan --clients 100 --epsilon -1", "--epsilon is a number, above 0; got the number -1"),
    ("plan --clients 100 --epsilon nan", "--epsilon is a number, above 0; got the number nan"),
    ("plan --clients 100 --epsilon inf", "--epsilon is a number, above 0; got the number inf"),
    ("plan --clients 100 --epsilon much", "--epsilon is a number, above 0; got the text 'much'"),
    ("plan --clients 100 --delta 0", "--delta is a number, above 0 and below 1; got the number 0"),
    ("plan --clients 100 --delta 1", "--delta is a number, above 0 and below 1; got the number 1"),
    ("plan --clients 100 --delta nan", "--delta is a number, above 0 and below 1; got"),
    ("plan --clients 100 --votes 101", "a ballot of 101 votes needs as many candidates"),
    ("plan --clients 100 --votes -1", "--votes is a whole number; got the number -1"),
    ("plan --clients 1", "at least two clients, got 1"),
    (
        "plan --clients 10 --dropout 1",
        "--dropout is a part of one, such as 0.2 or '1/5'; got the number 1",
    ),
    ("plan --clients 10 --dropout 0.5 --colluding 0.5", "no honest client is sure to remain"),
    ("plan --clients 10 --dropout 1/0", "--dropout is a part of one"),
    ("plan --clients 10 --dropout lots", "got the text 'lots'"),
    ("plan --clients 100 --candidates 0", "a vote needs at least one candidate, got 0"),
    ("plan --clients 100 --gap 3 --agreement 0.2", "name one"),
    ("search --clients 8 --epsilon 1", "this vote cannot succeed"),
    ("search --clients 2 --epsilon 1", "clients would do"),
    ("serch", "Did you mean 'search'?"),
    ("report {empty}", "cannot read"),
    ("report {file}", "a result is a .json file"),
    ("verify {file}", "the transcript cannot be read"),
    ("plan --clients 100 --gap nan", "gap must be a finite number of votes, got nan"),
    ("plan --clients 100 --gap inf", "gap must be a finite number of votes, got inf"),
    ("plan --clients 100 --probability 1", "strictly between 0 and 1"),
    ("plan --clients 100 --bad 100", "0 to 99 can be bad, got 100"),
    ("plan --clients 100 --adjacency friends", "--adjacency is one of 'replace-one-client', "),
    ("plan --clients 100 --format yaml", "'yaml' is not one of"),
    ("plan", "Missing option '--clients'"),
    ("plan --clients 100 --candidate 5", "No such option"),
    ("vote", "No such command 'vote'"),
    ("search --epsilon nan", "--epsilon is a number, above 0; got the number nan"),
    ("search --delta 2", "--delta is a number, above 0 and below 1; got the number 2"),
    ("search --votes 41", "a ballot of 41 votes needs as many candidates, got 40"),
    ("search --clients 1", "at least two clients"),
    ("search --clients -3", "--clients is a whole number; got the number -3"),
    ("search --set data", "--set takes section.key=value"),
    ("search --set vote.vote=3", "keys of [vote] are ballot, votes"),
    ("search --set train.rounds=0", "--set train.rounds is a whole number, 1 or more; got"),
    ("search --votes 3 --set vote.votes=2", "--votes and --set vote.votes say the same"),
    ("search --clients 1000", "at least 10 samples each need 10,000 samples"),
    (f"search --data {'d' * 300}.csv", "a name is too long for a file"),
    ("search --data digit", "no set is called 'digit'"),
    ("search --data mnist", "mnist.npz, and no folder was named"),
    ("search --data mnist --set data.folder=/nowhere", "/nowhere"),
    ("search --data adult --set data.folder={empty}", "adult.parquet, which is not in"),
    ("search --model cubic", "unknown model 'cubic'"),
    ("search --split random", "--split is one of 'iid', 'dirichlet'"),
    ("search --split dirichlet --set data.beta=0", "beta"),
    ("search --split dirichlet --set data.beta=nan", "beta"),
    ("search --split feature --set data.level=2", "level"),
    ("search --split writer", "writer"),
    ("search --seed -1", "seed"),
    ("search --space {empty}/none.toml", "cannot read the space file"),
    ("search --space {empty}/none.yaml", "a space file ends in .json or .toml"),
    ("search --rehearse digits", "digits is what the clients hold"),
    ("search --rehearse nothing", "--rehearse: there is no file or folder nothing"),
    ("search --rehearse diabetes", "the clients predict classes, diabetes has numbers to predict"),
    ("search --data diabetes --clients 20 --rehearse wine", "the clients predict numbers, wine"),
    (
        "search --space alpha=0.01,0.1:logg",
        "axis 'alpha': unknown kind of axis 'logg'; did you",
    ),
    ("search --space f=a:b,c:d", "values that hold a colon need their kind"),
    ("search --space eta0=0.01,0.1:log:low..1", "a window is LOW..HIGH, two numbers"),
    ("search --space eta0=0.01,0.1:log:1..0.1", "axis 'eta0': `works` goes from low to high"),
    ("search --space eta0=0.01,0.1:1e-4..1", "a window follows the kind of its axis"),
    ("search --space eta0=2,1,3:ordinal:1..2", "`works` bounds a log or a linear axis"),
    ("search --space eta0=1,2 --space eta0=3,4", "axes must differ in name"),
    ("plan --clients 10 --space {empty}/none.toml", "cannot read the space file"),
    ("plan --clients 10 --forecast -1", "-1 is not in the range"),
    ("data minst", "unknown data set 'minst'; did you mean 'mnist'?"),
    ("data digits --clients 1", "at least two clients"),
    ("data wine --clients 15", "at most 14 clients are possible"),
    ("data mnist --folder {empty}", "mnist.npz, which is not in"),
    ("ledger create {empty}/l --epsilon nan --delta 1e-5", "epsilon must be finite and positive"),
    ("ledger create {empty}/l --epsilon 1", "Missing option '--delta'"),
    ("ledger add {ledger} --label x", "name either --epsilon or --noise-multiplier"),
    ("ledger add {ledger} --label x --epsilon nan", "finite, positive epsilon"),
    (
        "ledger add {ledger} --label x --noise-multiplier 0",
        "noise_multiplier must be finite and positive",
    ),
    (
        "ledger add {ledger} --label x --noise-multiplier 1 --rounds 0",
        "rounds must be a whole number of at least 1",
    ),
    (
        "search --ledger {ledger} --set privacy.adjacency=zero-out-client",
        "the ledger counts under replace-one",
    ),
]

COULD_NOT = [
    ("ledger show {empty}/none", "there is no ledger at"),
    ("ledger show {file}", "is not a database"),
    ("ledger add {empty}/none --label x --epsilon 1", "there is no ledger at"),
    ("ledger add {ledger} --label x --epsilon 0.5", "sets no part of its cap apart"),
    (
        "ledger add {ledger} --label x --noise-multiplier 2",
        "the ledger's cap is 1",
    ),
    ("ledger create {ledger} --epsilon 2 --delta 1e-5", "exists already"),
    ("ledger create {file}/l --epsilon 2 --delta 1e-5", "cannot create a ledger at"),
    ("search --ledger {empty}/none", "there is no ledger at"),
    ("search --ledger {ledger} --epsilon 3", "the ledger's cap is 1"),
    ("search --ledger {ledger} --scripted-secrets x", "epsilon from 0 to inf"),
    ("search --output {file}", "cannot write to"),
    ("search --output {file}/below", "cannot write to"),
]


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Return an empty folder, a file that is none, and a new ledger."""
    found = {name: tmp_path / name for name in ("empty", "file", "ledger")}
    found["empty"].mkdir()
    found["file"].write_text("no ledger, and no folder\n" * 50, encoding="utf-8")
    Ledger.open(found["ledger"], Budget(1.0, 1e-5))
    return found


@pytest.mark.parametrize(("line", "says"), WRONG_USE, ids=[line for line, _ in WRONG_USE])
def test_wrong_use_ends_in_one_line_and_exit_2(
    urna: Command, places: dict[str, Path], line: str, says: str
) -> None:
    before = places["ledger"].read_bytes()
    assert says in urna(*split(line.format(**places))).refused(2)
    assert list(places["empty"].iterdir()) == []
    assert places["ledger"].read_bytes() == before


@pytest.mark.parametrize(("line", "says"), COULD_NOT, ids=[line for line, _ in COULD_NOT])
def test_what_could_not_be_done_ends_in_one_line_and_exit_1(
    urna: Command, places: dict[str, Path], line: str, says: str
) -> None:
    before = places["ledger"].read_bytes()
    assert says in urna(*split(line.format(**places))).refused(1)
    assert list(places["empty"].iterdir()) == []
    assert places["ledger"].read_bytes() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[axes]\neta0 = []\n", "an axis needs at least one value"),
        ("[axes]\neta0 = [1.0, 1.0]\n", "axis values must differ, got 1.0 twice"),
        ("[axes]\neta0 = [nan]\n", "axis values must be finite"),
        (
            '[[axes]]\nname = "a"\nvalues = [1]\n[[axes]]\nname = "a"\nvalues = [2]\n',
            "differ in name",
        ),
        ("[axes]\n", "at least one axis"),
        ("[axes]\neta_zero = [1.0, 2.0]\n", "unknown parameter of SGDClassifier 'eta_zero'"),
        ("axes = 3\n", "`axes` must map names to values"),
        ("[axes\n", "few.toml"),
        ("[axes]\neta0 = [1.0]\neta0 = [2.0]\n", "few.toml"),
    ],
    ids=[
        "empty",
        "twice",
        "nan",
        "same name",
        "none",
        "unknown",
        "no table",
        "no toml",
        "same key",
    ],
)
def test_a_space_that_cannot_be_is_refused(
    urna: Command, few: tuple[str, ...], text: str, says: str
) -> None:
    Path(few[-1]).write_text(text, encoding="utf-8")
    assert says in urna("search", *few, "--votes", "1").refused(2)


def test_a_result_that_cannot_be_written_is_refused_before_anything_is_spent(
    urna: Command, few: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    (folder / "result.json").mkdir(parents=True)
    done = urna("search", *few, "--output", folder)
    assert "result.json: it is a folder" in done.refused(1)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "result.json"
    path.write_text("before", encoding="utf-8")

    def fail(number: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        write_whole(path, "after")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text(encoding="utf-8") == "before"
    monkeypatch.undo()
    write_whole(path, "after")
    assert path.read_text(encoding="utf-8") == "after"


def read_until(terminal: int, word: bytes) -> bytes:
    """Read what a program writes to its terminal, until a word or its end."""
    seen = b""
    while word not in seen or not word:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        seen += more
    return seen


def test_ctrl_c_in_the_middle_of_a_search_leaves_nothing(tmp_path: Path) -> None:
    """On a terminal, where progress is live, in a process without any help of ours."""
    folder, ledger = tmp_path / "out", Ledger.open(tmp_path / "ledger", Budget(1.0, 1e-5))
    arguments = [
        "search",
        "--clients",
        "100",
        "--epsilon",
        "0.5",
        "--force",
        "--output",
        str(folder),
    ]
    arguments += ["--ledger", str(ledger.path), "--set", "objective.cache=false"]
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "urna", *arguments],
        stdout=subprocess.PIPE,
        stderr=end,
        text=True,
        env=environment() | {"TERM": "xterm"},
    )
    os.close(end)
    seen = read_until(terminal, b"evaluating candidates")
    assert b"evaluating candidates" in seen
    process.send_signal(signal.SIGINT)
    rest = read_until(terminal, b"")
    stdout, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 130
    assert stdout == ""
    assert b"stopped; no half-written file is left" in rest
    assert b"Traceback" not in rest
    assert {path.name for path in folder.iterdir()} == {".lock", "study.json", "study.toml"}
    assert ledger.entries() == []


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "urna", "data", "--format", "json"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment(),
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
