"""How long anything took stands in no result, page, card or line that a command prints."""

import json
import shutil
from pathlib import Path

import pytest
from cli_studies import STUDY
from commands import Done
from forks import ForkServer

TIMES = ("second", "duration", "elapsed", "took_s", "measured", "cpu", "timing")
SEARCHES = "client,lr,momentum,accuracy\n" + "".join(
    f"{client},{rate},{momentum},{0.9 - abs(client - 2) / 10 - rate - momentum / 10}\n"
    for client in range(5)
    for rate in (0.01, 0.1, 0.3)
    for momentum in (0.0, 0.9)
)
COMMANDS = {
    "search": "search {few} --votes 1 --output {out}",
    "winner": "search {few} --opens winner --helper lab --output {out}",
    "train": "train --data digits --clients 8 --rounds 2 --epsilon 30 --force --output {out}",
    "train in chunks": "train --data digits --clients 4 --rounds 2 "
    "--epsilon 30 --force --set privacy.summation=pipelined --output {out}",
    "average": "average --data digits --clients 8 --epsilon 20 --unit record --output {out}",
    "combine": "combine {searches} --guarantee encryption --strategy mean --output {out}",
    "study": "run {study}",
}
SLOW = ("winner", "train in chunks", "average")  # tested again in an audit


def run(commands: ForkServer, folder: Path, speed: str, line: str) -> tuple[Done, dict[str, bytes]]:
    """Run a command under a clock; return what it printed and wrote, and clear the folder."""
    folder.mkdir()
    places = {"out": folder / "results", "study": folder / "study.toml"}
    places |= {"few": folder / "few.toml", "searches": folder / "searches.csv"}
    few = "--data digits --clients 12 --epsilon 0.5 --delta 1e-3 --force --space"
    places["few"].write_text('[axes]\neta0 = { kind = "log", values = [1e-6, 1e-2, 100.0] }\n')
    places["searches"].write_text(SEARCHES)
    places["study"].write_text(f'{STUDY}[output]\nfolder = "results"\n')
    text = {name: str(path) for name, path in places.items()}
    text["few"] = f"{few} {text['few']}"
    child = commands.start("cli_commands:clocked", speed, *line.format(**text).split())
    code = child.wait()
    printed = Done(code, *(o.read_text(encoding="utf-8") for o in (child.stdout, child.stderr)))
    written = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "results").rglob("*"))
        # A ledger stays with its owner, and tells when everything was entered.
        if path.is_file() and not path.name.startswith("ledger") and path.name != ".lock"
    }
    shutil.rmtree(folder)
    return printed, written


def fields(values: object) -> set[str]:
    """Return the names of all fields, wherever they are."""
    if isinstance(values, dict):
        return {*map(str, values), *(name for each in values.values() for name in fields(each))}
    return {name for each in values for name in fields(each)} if isinstance(values, list) else set()


@pytest.mark.apart
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.audit] if k in SLOW else []) for k in COMMANDS],
)
def test_nothing_that_is_kept_or_printed_tells_how_long_clients_took(
    commands: ForkServer, tmp_path: Path, kind: str
) -> None:
    """The same secrets under two clocks: every byte is the same, dates included."""
    slow, fast = (run(commands, tmp_path / "here", speed, COMMANDS[kind]) for speed in ("1", "5"))
    assert slow[0].code == 0, slow[0].stderr
    assert {name for name, data in slow[1].items() if data != fast[1].get(name)} == set()
    assert slow[1].keys() == fast[1].keys() >= {"results/result.json", "results/report.html"}
    result = json.loads(slow[1]["results/result.json"])
    found = {name for name in fields(result) if any(time in name for time in TIMES)}
    assert found <= {"client_seconds_per_round", "server_seconds_per_round", "measured"}
    assert slow[0] == fast[0]
