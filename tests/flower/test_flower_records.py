"""Votes that protect single records: a node takes part only if its own policy says so."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import BUDGET, OPEN, QUICK, SPACE, federation, node
from flwr.app import Context
from grouped import grouped

from urna.data import PUBLIC_SHARD_KEY, Samples
from urna.errors import ParameterError, ProtocolError, Refused, RoundAborted
from urna.flower import Policy, VoteSubject, poll
from urna.flower.announcement import Announcement
from urna.flower.identities import kept_key
from urna.local import Losses, Progress
from urna.privacy import Adjacency, Budget, Ledger
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.space import Space
from urna.systems.vote import BallotShape, VoteResult, VoteSettings, search
from urna.tally import Run, Terms

RECORD = Adjacency.REPLACE_ONE_RECORD
BY_RECORD = replace(OPEN, relation=RECORD, smallest_shard=5)
TERMS: dict[str, Any] = {"budget": BUDGET, "votes": 2, "deadlines": QUICK}
SHARDED = TERMS | {"adjacency": RECORD, "shards": 4}

POLICY = """
[privacy]
epsilon = 9.0
delta = 1e-5
relation = "replace-one-record"

[limits]
fewest_clients = 4

[records]
smallest_shard = 5

[grant.vote]
"""


@dataclass
class NearMean:
    """Candidates near the mean of the rows are good. Remembers what it was given."""

    given: list[list[float]] = field(default_factory=list)

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        self.given.append(data.features[:, 0].tolist())
        return np.array([abs(c["lr"] - data.features.mean()) for c in space])


def rows(number: int, count: int = 40) -> Samples:
    values = np.linspace(0.1, 0.8, count) + 0.01 * number
    return Samples(values.reshape(-1, 1), np.zeros(count))


def site(number: int, *, count: int = 40, **settings: Any) -> Node:
    def data(context: Context) -> Samples:
        return rows(number, count)

    return node(number, **({"objective": NearMean(), "policy": BY_RECORD, "data": data} | settings))


def sites(first: Node, *, others: int = 4) -> LocalGrid:
    return federation(first, *(site(n) for n in range(1, others + 1)))


def refusal(policy: Policy, terms: dict[str, Any], **settings: Any) -> str:
    """Ask one node with this policy, beside four that accept; return its reason."""
    objective = NearMean()
    others = BY_RECORD if terms.get("adjacency") is RECORD else OPEN
    strict = site(0, policy=policy, objective=objective, **settings)
    grid = federation(strict, *(site(n, policy=others) for n in range(1, 5)))
    result = poll(grid, SPACE, dropout=0.2, **grouped(terms))
    assert objective.given == [], "a refusal comes before any training"
    assert result.took_part == 4
    return result.lost[1000]


def test_nodes_vote_shard_by_shard_and_the_result_says_so() -> None:
    objective = NearMean()
    result = poll(sites(site(0, objective=objective)), SPACE, **grouped(SHARDED))
    assert result.took_part == 5
    assert len(objective.given) == 4
    assert sorted(v for part in objective.given for v in part) == rows(0).features[:, 0].tolist()
    said = str(result.privacy)
    assert "replace-one-record (one record of one client replaced)" in said
    assert "A whole client is NOT protected at this epsilon" in said
    assert result.terms.shards == 4


def test_a_scripted_vote_is_the_in_memory_search_bit_for_bit() -> None:
    grid = federation(*(site(n, script="records") for n in range(5)))
    over_flower = poll(grid, SPACE, **grouped(SHARDED))
    in_memory: VoteResult = search(
        SPACE,
        NearMean(),
        [rows(n) for n in range(5)],
        budget=BUDGET,
        adjacency=RECORD,
        shards=4,
        colluding=0.1,
        settings=VoteSettings(votes=2, smallest_shard=5),
        run=Run(secrets=ScriptedSecrets(b"records")),
    )
    assert over_flower.votes.tolist() == in_memory.votes.tolist()
    assert over_flower.winner == in_memory.winner


def test_a_policy_accepts_clients_unless_it_names_records() -> None:
    reason = refusal(OPEN, SHARDED)
    assert "private under replace-one-record; this node asks for replace-one-client" in reason


def test_a_policy_that_names_records_takes_no_client_level_vote_silently() -> None:
    reason = refusal(BY_RECORD, TERMS)
    assert "private under replace-one-client; this node asks for replace-one-record" in reason


@pytest.mark.parametrize("shards", [1, 4])
def test_shards_smaller_than_the_policys_are_refused(shards: int) -> None:
    policy = replace(BY_RECORD, smallest_shard=40 // shards + 1)
    reason = refusal(policy, SHARDED | {"shards": shards})
    assert f"does not fill {shards} shards of {40 // shards + 1} records" in reason
    assert " 40" not in reason, "how many records there are stays at the node"


def test_data_that_is_not_made_of_records_is_refused() -> None:
    reason = refusal(BY_RECORD, SHARDED, data=lambda context: 0.4)
    assert "does not fill 4 shards" in reason


def test_a_server_cannot_ask_for_shards_under_a_promise_about_clients() -> None:
    with pytest.raises(ParameterError, match="adds up 4 contributions can move the sum by all"):
        poll(
            sites(site(0)), SPACE, **grouped(SHARDED | {"adjacency": Adjacency.REPLACE_ONE_CLIENT})
        )
    announced = Announcement.of(
        VoteSubject(SPACE, BallotShape.top_k(2, len(SPACE))),
        Terms.of(5, BUDGET, adjacency=RECORD, shards=4),
        nonce=bytes(32),
        issued=1,
        rounds=1,
        seconds=1.0,
        signed=False,
    )
    assert Announcement.read(announced.as_bytes()) == announced
    assert announced.plan.terms.shards == 4
    for field_, value in (("adjacency", "replace-one-client"), ("shards", 0), ("shards", 4.0)):
        mapping = json.loads(announced.as_bytes())
        mapping["terms"][field_] = value
        with pytest.raises(ProtocolError):
            Announcement.read(json.dumps(mapping, separators=(",", ":")).encode())


def test_the_coin_covers_the_shards() -> None:
    """Two nodes that were told different numbers of shards have no round in common."""
    grid = sites(site(0))
    poll(grid, SPACE, **grouped(SHARDED))
    announced = Announcement.read(grid.nodes[1000].letters[0].announcement)
    other = replace(announced, terms=replace(announced.terms, shards=5))
    assert other.coin(1) != announced.coin(1)


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"relation": RECORD}, "must name its `smallest_shard`"),
        ({"smallest_shard": 5}, "mean nothing under replace-one-client"),
        ({"shard_key": Path("k")}, "mean nothing under replace-one-client"),
        ({"relation": RECORD, "smallest_shard": 1}, "at least 2 records, got 1"),
        ({"relation": RECORD, "smallest_shard": 2.5}, "at least 2 records, got 2.5"),
    ],
    ids=["no smallest", "client with smallest", "client with key", "one", "half"],
)
def test_a_policy_says_all_or_nothing_about_records(terms: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        Policy(epsilon=1.0, delta=1e-5, **terms)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("smallest_shard = 5", "", "must name its `smallest_shard`"),
        ('relation = "replace-one-record"', "", "mean nothing under replace-one-client"),
        ("smallest_shard = 5", "shards = 5", "knows key, smallest_shard, got shards"),
    ],
    ids=["no smallest", "no relation", "unknown word"],
)
def test_a_policy_file_that_says_half_is_refused(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY.replace(before, after))
    with pytest.raises(ParameterError, match=says):
        Policy.read(file)


def test_a_node_keeps_its_split_and_its_ledger_over_rounds(tmp_path: Path) -> None:
    file, seen = tmp_path / "policy.toml", []
    file.write_text(POLICY)
    for _ in range(2):
        objective = NearMean()
        poll(
            sites(site(0, policy=file, objective=objective)),
            SPACE,
            **grouped(SHARDED | {"budget": Budget(0.5, 1e-6), "force": True}),
        )
        seen.append(objective.given)
    assert seen[0] == seen[1]
    key = tmp_path / "policy.shards"
    assert len(key.read_bytes()) == 32
    assert key.read_bytes() != PUBLIC_SHARD_KEY
    assert key.stat().st_mode & 0o777 == 0o600
    ledger = Ledger(tmp_path / "policy.ledger")
    assert ledger.adjacency is RECORD
    assert [e.label for e in ledger.entries()] == ["vote on 8 candidates, 4 shards"] * 2
    key.unlink()
    objective = NearMean()
    poll(
        sites(site(0, policy=file, objective=objective)),
        SPACE,
        **grouped(SHARDED | {"budget": Budget(0.5, 1e-6), "force": True}),
    )
    assert objective.given != seen[0], "another key is another split"


def test_a_ledger_of_clients_is_not_filled_with_records(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    Ledger.open(tmp_path / "policy.ledger", Budget(9.0, 1e-5))
    assert "ledger cannot be used" in refusal_of(file)
    assert Ledger(tmp_path / "policy.ledger").entries() == []


def refusal_of(file: Path) -> str:
    return poll(sites(site(0, policy=file)), SPACE, **grouped(SHARDED)).lost[1000]


def test_a_servers_ledger_of_clients_is_not_filled_with_records(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "server", Budget(9.0, 1e-5))
    with pytest.raises(ParameterError, match=r"under replace-one-client.*replace-one-record"):
        poll(sites(site(0)), SPACE, **grouped(SHARDED, ledger=ledger))
    assert ledger.entries() == []


def test_when_every_node_refuses_nothing_is_begun() -> None:
    grid = federation(*(site(n, policy=OPEN) for n in range(4)))
    with pytest.raises(RoundAborted) as aborted:
        poll(grid, SPACE, **grouped(SHARDED))
    assert len(aborted.value.lost) == 4


def test_a_key_of_shards_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "k"
    first = kept_key(path, OsSecrets())
    assert kept_key(path, OsSecrets()) == first
    assert [file.name for file in tmp_path.iterdir()] == ["k"]
    path.write_bytes(b"short")
    with pytest.raises(Refused, match="is damaged"):
        kept_key(path, OsSecrets())
    with pytest.raises(Refused, match="cannot be used"):
        kept_key(tmp_path / "nowhere" / "k", OsSecrets())
