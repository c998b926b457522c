"""Several processes on one ledger, and processes that are killed."""

import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from forks import Child, ForkServer

from urna.privacy import Budget, Cover, GaussianRelease, Ledger


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Return a server that forks processes which have imported Urna."""
    server = ForkServer(
        tmp_path_factory.mktemp("outputs"), "ledger_workers", folders=(Path(__file__).parent,)
    )
    yield server
    server.close()


def printed(child: Child) -> list[str]:
    return child.stdout.read_text(encoding="utf-8").splitlines()


def entered(path: Path) -> list[str]:
    return [entry.id for entry in Ledger(path).entries()]


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    return str(verdict)


def test_two_processes_never_pass_the_cap_together(tmp_path: Path, processes: ForkServer) -> None:
    path = tmp_path / "ledger"
    cap = Budget(0.75, 1e-9)
    Ledger.open(path, cap)
    seventh = 7**0.5 / Cover(cap).mu * (1 + 1e-9)
    both = [
        processes.start("ledger_workers:enter_many", str(path), name, 6, seventh) for name in "ab"
    ]
    assert [child.wait() for child in both] == [0, 0]
    told = [name for child in both for name in printed(child)]
    assert len(told) == 7
    assert sorted(entered(path)) == sorted(told)
    assert Ledger(path).spent().epsilon <= 0.75
    assert integrity(path) == "ok"


def test_two_processes_lose_nothing_where_there_is_room(
    tmp_path: Path, processes: ForkServer
) -> None:
    path = tmp_path / "ledger"
    Ledger.open(path, Budget(10.0, 1e-9))
    both = [processes.start("ledger_workers:enter_many", str(path), name, 20, 9.0) for name in "ab"]
    assert [child.wait() for child in both] == [0, 0]
    assert sorted(entered(path)) == sorted(
        f"{name}-{number}" for name in "ab" for number in range(20)
    )


def test_two_processes_with_the_same_ids_count_each_once(
    tmp_path: Path, processes: ForkServer
) -> None:
    path = tmp_path / "ledger"
    Ledger.open(path, Budget(10.0, 1e-9))
    both = [
        processes.start("ledger_workers:enter_many", str(path), "same", 15, 9.0) for _ in range(2)
    ]
    assert [child.wait() for child in both] == [0, 0]
    assert [printed(child) for child in both] == [[f"same-{number}" for number in range(15)]] * 2
    assert sorted(entered(path)) == sorted(f"same-{number}" for number in range(15))


def test_of_processes_that_create_a_ledger_one_wins(tmp_path: Path, processes: ForkServer) -> None:
    for turn in range(8):
        path = tmp_path / f"{turn}" / "ledger"
        path.parent.mkdir()
        caps = [1.0, 1.0, 2.0, 2.0]
        children = [processes.start("ledger_workers:open_new", str(path), cap) for cap in caps]
        codes = [child.wait() for child in children]
        cap = Ledger(path).cap.epsilon
        # Those that asked for the winner's cap opened it; the others were refused by name.
        assert codes == [0 if asked == cap else 1 for asked in caps]
        refused = next(child for child, code in zip(children, codes, strict=True) if code)
        assert "A cap is for life" in refused.stderr.read_text(encoding="utf-8")
        assert list(path.parent.iterdir()) == [path]


def kill_over_and_over(path: Path, processes: ForkServer, *, kills: int, seed: int) -> int:
    """Kill processes that enter releases; check the ledger after each; return what was entered."""
    Ledger.open(path, Budget(100.0, 1e-9))
    moments = random.Random(seed)
    told: set[str] = set()
    for turn in range(kills):
        child = processes.start("ledger_workers:enter_forever", str(path), f"{turn}")
        while not printed(child):
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.03))
        child.send(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        names = printed(child)
        told.update(names)
        there = entered(path)  # reading is what recovers from an entry that was cut short
        assert len(there) == len(set(there))
        assert told <= set(there)
        # Entered and not told: at most the one under way.
        untold = [name for name in there if name.startswith(f"{turn}-") and name not in names]
        assert untold in ([], [f"{turn}-{len(names)}"])
        told.update(untold)
        assert integrity(path) == "ok"
    assert sorted(entered(path)) == sorted(told)
    Ledger(path).charge(GaussianRelease(1e3), label="after all kills", id="after")
    assert entered(path)[-1] == "after"
    return len(told)


def test_a_kill_at_any_moment_loses_and_doubles_nothing(
    tmp_path: Path, processes: ForkServer
) -> None:
    assert kill_over_and_over(tmp_path / "ledger", processes, kills=20, seed=1) >= 20


@pytest.mark.audit
def test_two_hundred_kills_lose_and_double_nothing(tmp_path: Path, processes: ForkServer) -> None:
    for file in range(8):  # entering slows down as a ledger grows, so several ledgers
        assert kill_over_and_over(tmp_path / f"{file}", processes, kills=25, seed=file) >= 25
