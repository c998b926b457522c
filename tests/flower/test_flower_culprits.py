"""Nodes that break the protocol: named, left out, and nobody else pays for it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import LocalGrid
from flower_nodes import BUDGET, OPEN, SPACE, federation, make_keys, node
from flower_tricks import CAUGHT, TRICKS, Trick, bare, signing
from grouped import grouped

from urna.errors import InvalidSum, RoundAborted, RoundFailed, RoundUnfinished
from urna.flower import Deadlines, Policy, Transcript, poll
from urna.flower.identities import NodeKey
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import Plan
from urna.space import Space
from urna.systems.vote import VoteResult

PATIENT = Deadlines(gather=5.0, evaluate=5.0, stage=5.0)
CULPRIT = 3
SIGNED = ["unsigned", "signed", "dishonest"]
UNMASK, VOID = 4, 5


def policies(folder: Path, count: int, *, signed: bool = False) -> list[Policy]:
    """Return policies with ledgers that have room for many votes."""
    directory = folder / "directory.toml" if signed else None
    if signed:
        make_keys(folder, count)
    return [
        replace(
            OPEN,
            epsilon=30.0,
            forgets=False,
            ledger=folder / f"{n}.ledger",
            key=folder / f"{n}.key" if signed else None,
            directory=directory,
            transcripts=folder / f"{n}.transcripts",
        )
        for n in range(count)
    ]


def played(trick: Trick, folder: Path, how: str) -> dict[int, Trick]:
    """Return what the culprit plays: in signed votes it signs its lies."""
    if how != "unsigned":
        trick = signing(trick, NodeKey.read(folder / f"{CULPRIT}.key"))
    return {CULPRIT: trick}


def counted(folder: Path, nodes: Iterable[int]) -> set[tuple[int, int]]:
    """Return of the ledgers of some nodes how many entries count, and how many there are."""
    found = set()
    for n in nodes:
        file = folder / f"{n}.ledger"
        entries = Ledger(file).entries() if file.exists() else []
        found.add((sum(not entry.withdrawn for entry in entries), len(entries)))
    return found


def vote(grid: LocalGrid, folder: Path, how: str, **terms: Any) -> VoteResult:
    keys: dict[str, Any] = {}
    if how != "unsigned":
        keys = {"directory": folder / "directory.toml"}
    if how == "dishonest":
        keys["server"] = "dishonest"
    asked = {"budget": BUDGET, "votes": 2, "dropout": 0.25, "deadlines": PATIENT}
    return poll(grid, terms.pop("space", SPACE), **grouped(asked | keys | terms))


@pytest.mark.parametrize("how", SIGNED)
@pytest.mark.parametrize("name", TRICKS)
def test_who_plays_a_trick_is_named_and_nobody_pays_twice(
    tmp_path: Path, name: str, how: str
) -> None:
    allowed = policies(tmp_path, 8, signed=how != "unsigned")
    tricks = played(TRICKS[name], tmp_path, how)
    grid = federation(*(node(n, policy=allowed[n], trick=tricks.get(n)) for n in range(8)))
    result = vote(grid, tmp_path, how)
    assert result.faults.keys() == {1000 - CULPRIT}
    assert re.search(CAUGHT[name], result.faults[1000 - CULPRIT])
    in_the_sum = name in ("wrong shares", "unfit shares")  # found out when its vector was in
    assert result.took_part == (8 if in_the_sum else 7)
    honest = [n for n in range(8) if n != CULPRIT]
    assert {count for count, _ in counted(tmp_path, honest)} == {1}


@pytest.mark.parametrize("how", SIGNED)
@pytest.mark.parametrize("name", TRICKS)
def test_what_the_network_alters_is_nobodys_fault_in_a_signed_vote(
    tmp_path: Path, name: str, how: str
) -> None:
    """The same, done on the way: without the node's key nobody can sign what comes of it."""
    if name == "unfit shares":
        return  # nobody else could
    allowed = policies(tmp_path, 8, signed=how != "unsigned")
    tricks = {CULPRIT: TRICKS[name]}
    grid = federation(*(node(n, policy=allowed[n], trick=tricks.get(n)) for n in range(8)))
    result = vote(grid, tmp_path, how)
    if how == "unsigned":
        assert result.faults[1000 - CULPRIT].endswith("as it was sent or as it arrived")
        return
    assert result.faults == {}
    if name == "wrong shares":  # its vector was in by then
        assert (result.took_part, dict(result.lost)) == (8, {})
    else:
        assert "its message arrived altered" in result.lost[1000 - CULPRIT]


@pytest.mark.parametrize("how", SIGNED)
def test_an_attempt_that_was_aborted_is_withdrawn_by_each_nodes_own_rule(
    tmp_path: Path, how: str
) -> None:
    """Of many nodes some sent their vectors before others could complain."""
    size = 40
    allowed = policies(tmp_path, size, signed=how != "unsigned")
    tricks = played(TRICKS["garbage bundles"], tmp_path, how)
    grid = federation(*(node(n, policy=allowed[n], trick=tricks.get(n)) for n in range(size)))
    result = vote(grid, tmp_path, how)
    assert result.took_part == size - 1
    honest = [n for n in range(size) if n != CULPRIT]
    assert counted(tmp_path, honest) == {(1, 1), (1, 2)}
    kept = [file for n in honest for file in allowed[n].transcripts.iterdir()]  # type: ignore[union-attr]
    endings = [str(Transcript.read(file.read_bytes()).ending) for file in kept]
    assert sorted(endings) == ["released"] * (size - 1) + ["void"] * (size - 1)


def test_twenty_votes_with_a_random_trick_each_all_finish(tmp_path: Path) -> None:
    rng, size = np.random.default_rng(7), 10
    allowed = policies(tmp_path, size)
    culprits: list[int] = []
    for _ in range(20):
        culprit, name = int(rng.integers(size)), str(rng.choice(list(TRICKS)))
        culprits.append(culprit)
        tricks = {culprit: TRICKS[name]}
        grid = federation(*(node(n, policy=allowed[n], trick=tricks.get(n)) for n in range(size)))
        result = vote(grid, tmp_path, "unsigned", budget=Budget(1.0, 1e-6), force=True)
        assert result.faults.keys() == {1000 - culprit}
    for n in range(size):
        ((paid, _),) = counted(tmp_path, [n])
        assert 20 - culprits.count(n) <= paid <= 21


def test_whoever_stays_away_on_purpose_costs_no_more_than_the_round(tmp_path: Path) -> None:
    """Nodes that vanish while the sum is opened: it counts, unless receipts close it."""
    for where, faults in {
        "receipts": {UNMASK: "silent"},
        "silence": {UNMASK: "silent", VOID: "silent"},
    }.items():
        folder = tmp_path / where
        folder.mkdir()
        allowed = policies(folder, 12)
        quick = Deadlines(gather=0.5, evaluate=0.5, stage=0.5)
        grid = federation(
            *(node(n, policy=allowed[n], faults=faults if n > 1 else {}) for n in range(12))
        )
        kind: type[RoundFailed] = RoundAborted if where == "receipts" else RoundUnfinished
        with pytest.raises(kind) as failed:
            vote(grid, folder, "unsigned", deadlines=quick)
        assert len(failed.value.lost) == 10
        count = 0 if where == "receipts" else 1
        assert counted(folder, range(12)) == {(count, 1)}


def zeros(plan: Plan) -> Any:
    return np.zeros(plan.dimension, dtype=np.int64)


def ones(plan: Plan) -> Any:
    return np.ones(plan.dimension, dtype=np.int64)


@pytest.mark.parametrize("vector", [zeros, ones])
@pytest.mark.parametrize("how", SIGNED)
def test_a_vector_without_masks_spoils_the_sum_which_counts_and_is_not_read(
    tmp_path: Path, how: str, vector: Callable[[Plan], Any]
) -> None:
    allowed = policies(tmp_path, 8, signed=how != "unsigned")
    tricks = played(bare(vector), tmp_path, how)
    grid = federation(*(node(n, policy=allowed[n], trick=tricks.get(n)) for n in range(8)))
    ledger = Ledger.open(tmp_path / "server.ledger", Budget(30.0, 1e-4))
    results: list[VoteResult] = []
    wide = Space(lr=[n / 100 for n in range(40)])
    with pytest.raises(InvalidSum, match="somebody's vector or masks"):
        vote(
            grid,
            tmp_path,
            how,
            space=wide,
            keep=results.append,
            ledger=ledger,
            transcripts=tmp_path / "transcripts",
        )
    assert results == [], "it is never decoded"
    assert counted(tmp_path, range(8)) == {(1, 1)}
    assert [entry.withdrawn for entry in ledger.entries()] == [False]
    (file,) = (tmp_path / "transcripts").iterdir()
    assert str(Transcript.read(file.read_bytes()).ending) == "spoiled"
