"""The node decides: its policy, its ledger, what it keeps to itself."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

from flower_grid import LocalGrid
from flower_nodes import BUDGET, OPEN, QUICK, SPACE, Near, announced, federation, node
from grouped import grouped

from urna.errors import ParameterError, Refused, RoundAborted, RoundUnfinished
from urna.flower import Grant, NodeKey, Policy, Statistic, poll
from urna.flower.accounts import NodeAccount
from urna.flower.gathering import Federation
from urna.flower.identities import write_public_key
from urna.privacy import Adjacency, Budget, Ledger
from urna.protocols.secagg import ServerModel
from urna.randomness import ScriptedSecrets
from urna.space import Space
from urna.systems.vote import VoteSettings
from urna.tally import BoundedVector, Run

POLICY = """
[privacy]
epsilon = 9.0
delta = 1e-5
data = "ward 7"

[limits]
fewest_clients = 4
largest_dropout = 0.3

[grant.vote]
most_entries = 20
"""


def refusal(policy: Policy, **asked: Any) -> str:
    """Ask one node with this policy, beside four open ones; return its reason."""
    objective = Near()
    strict = node(0, policy=policy, objective=objective)
    grid = federation(strict, *(node(n) for n in range(1, 5)))
    terms: Mapping[str, Any] = {"budget": BUDGET, "votes": 2, "deadlines": QUICK} | asked
    result = poll(grid, terms.pop("space", SPACE), **grouped(terms))  # type: ignore[attr-defined]
    assert objective.calls == 0, "a refusal comes before any training"
    assert len(strict.letters) == 1
    return result.lost[1000].removeprefix("refused: ")


@pytest.mark.parametrize(
    ("limits", "asked", "reason"),
    [
        ({"epsilon": 7.0}, {}, "more privacy than this node allows"),
        ({"delta": 1e-6}, {}, "more privacy than this node allows"),
        ({"fewest_clients": 6}, {}, "with 5 clients in it; this node asks for 6"),
        ({"largest_dropout": 0.1}, {"dropout": 0.2}, "dropout of 0.2"),
        ({"least_colluding": 0.2}, {}, "counted out as colluding"),
        ({"grants": {"vote": Grant(7)}}, {}, "8 entries are announced; this node allows 7"),
        ({"relation": Adjacency.ZERO_OUT_CLIENT}, {}, "replace-one-client"),
        ({"server_key": bytes(32)}, {}, "not signed by the server this node trusts"),
        ({"server_model": ServerModel.DISHONEST}, {}, "trusts its server"),
    ],
    ids=lambda value: next(iter(value), "nothing") if isinstance(value, dict) else None,
)
def test_a_request_outside_the_policy_is_refused_before_any_training(
    limits: dict[str, Any], asked: dict[str, Any], reason: str
) -> None:
    assert reason in refusal(replace(OPEN, **limits), **asked)


def test_a_node_without_a_policy_takes_part_in_nothing() -> None:
    grid = federation(*(node(n, policy=None if n == 0 else OPEN) for n in range(4)))
    result = poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    assert "has no policy" in result.lost[1000]


def test_a_nodes_own_configuration_names_its_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY.replace("most_entries = 20", "most_entries = 2"))
    member = node(0, policy=OPEN)
    member.config["urna-policy"] = str(file)
    result = poll(federation(member, *(node(n) for n in range(1, 4))), SPACE, budget=BUDGET)
    assert "this node allows 2" in result.lost[1000]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        (POLICY + "[grant.vote]\n", "twice"),  # TOML declares a section once
        (POLICY.replace("epsilon", "epsillon"), "epsillon"),
        ("\x00", "no TOML file"),
    ],
    ids=["none", "section twice", "word", "no TOML"],
)
def test_a_policy_that_cannot_be_read_refuses_and_tells_why_to_the_nodes_own_log_alone(
    text: str | None, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret-project" / "policy.toml"
    if text is not None:
        file.parent.mkdir()
        file.write_text(text)
    others = [node(n) for n in range(1, 4)]
    result = poll(federation(node(0, policy=file), *others), SPACE, budget=BUDGET)
    said = "refused: this node's policy cannot be read; its own log says why"
    assert result.lost[1000] == said
    (told,) = {r.getMessage() for r in caplog.records if r.levelname == "ERROR"}
    assert told.startswith("this node takes part in nothing: ")
    assert str(file) in told
    assert why in told


def test_a_policy_that_is_not_there_is_named_by_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=f"^cannot read the policy {tmp_path}/none.toml: No"):
        Policy.read("none.toml")


def test_the_space_a_node_votes_on_can_be_fixed() -> None:
    other = Space(lr=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9])
    grid = federation(node(0, space=other), node(1, space=SPACE), *(node(n) for n in (2, 3)))
    result = poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    assert "not the one this node votes on" in result.lost[1000]
    assert result.took_part == 3


def one_ledger(folder: Path) -> tuple[LocalGrid, Path]:
    file = folder / "policy.toml"
    file.write_text(POLICY)
    grid = federation(node(0, policy=file), *(node(n) for n in range(1, 5)))
    return grid, folder / "policy.ledger"


def test_the_nodes_ledger_counts_what_was_released_over_its_lifetime(tmp_path: Path) -> None:
    grid, file = one_ledger(tmp_path)
    poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    ledger = Ledger(file)
    assert ledger.subject == "ward 7"
    assert len(ledger.entries()) == 1
    assert 7 < ledger.spent().epsilon <= 8
    again, _ = one_ledger(tmp_path)
    result = poll(again, SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    assert result.lost == {
        1000: "refused: what is left of this node's privacy budget is too little"
    }
    assert len(ledger.entries()) == 1
    third, _ = one_ledger(tmp_path)
    assert (
        poll(
            third,
            SPACE,
            budget=Budget(0.3, 1e-6),
            settings=VoteSettings(votes=2),
            run=Run(force=True),
        ).took_part
        == 5
    )
    assert len(ledger.entries()) == 2


@pytest.mark.parametrize(("stage", "counted"), [(1, 0), (2, 0), (3, 0), (4, 1)])
def test_the_ledger_counts_only_once_the_ballot_leaves(
    tmp_path: Path, stage: int, counted: int
) -> None:
    """A vote that never reached the node's mask stage released nothing of it."""
    grid, file = one_ledger(tmp_path)
    grid.nodes[1000].faults = {stage: "silent"}
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        dropout=0.2,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    assert result.took_part == 4 + counted
    entries = Ledger(file).entries() if file.exists() else []
    assert len(entries) == counted
    assert all(not entry.withdrawn for entry in entries)


def test_a_round_that_is_aborted_after_the_ballot_left_stays_counted(tmp_path: Path) -> None:
    grid, file = one_ledger(tmp_path)
    for member in list(grid.nodes.values())[1:]:
        member.faults = {4: "silent"}
    with pytest.raises(RoundUnfinished) as unfinished:
        poll(
            grid,
            SPACE,
            budget=BUDGET,
            dropout=0.2,
            settings=VoteSettings(votes=2),
            federation=Federation(deadlines=QUICK),
        )
    assert unfinished.value.lost.keys() == {999, 998, 997, 996}
    # The node cannot know that nobody opened the sum: what was sent is counted.
    assert Ledger(file).spent().epsilon > 7


def test_a_round_answered_before_is_not_answered_again(tmp_path: Path) -> None:
    grid, file = one_ledger(tmp_path)
    poll(grid, SPACE, budget=Budget(0.3, 1e-6), settings=VoteSettings(votes=2), run=Run(force=True))
    old = [letter for letter in grid.nodes[1000].letters if letter.announcement][-1]
    replayed = grid.sent[[m.metadata.dst_node_id for m in grid.sent].index(1000)]
    replayed.content = old.as_records()
    grid.push_messages([replayed])
    answer = grid.replies[replayed.metadata.message_id].content["urna"]
    assert "answered this stage of the round before" in answer["refused"]
    assert len(Ledger(file).entries()) == 1


@pytest.mark.parametrize("rounds", [1, 5])
def test_a_round_that_is_counted_is_not_counted_again(rounds: int, tmp_path: Path) -> None:
    """Where somebody has deleted the file of claims: two masked vectors would count once."""
    account = NodeAccount(tmp_path / "ledger", Budget(20.0, 1e-3), Adjacency.REPLACE_ONE_CLIENT)
    subject = Statistic("devices", BoundedVector(3, 1))
    announcement = announced(subject, rounds=rounds)
    for number in range(1, rounds + 1):
        coin = announcement.coin(number, b"")
        account.count(announcement, number, coin, private=True)
        with pytest.raises(Refused, match="answered this round before"):
            account.count(announcement, number, coin, private=True)
    (entry,) = Ledger(tmp_path / "ledger").entries()
    assert entry.rounds == (None if rounds == 1 else rounds)


def test_scripted_secrets_never_pass_a_ledger(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    grid = federation(node(0, policy=file, script="x"), *(node(n) for n in range(1, 5)))
    assert (
        "too little" in poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=2)).lost[1000]
    )


def test_a_broken_ledger_refuses_without_naming_the_file(tmp_path: Path) -> None:
    grid, file = one_ledger(tmp_path)
    file.write_text("not a ledger")
    result = poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    assert result.lost[1000] == "refused: this node's ledger cannot be used"


def test_a_server_key_in_the_policy_accepts_that_server_alone(tmp_path: Path) -> None:
    key = NodeKey.draw("server", ScriptedSecrets(b"server"))
    file = tmp_path / "policy.toml"
    file.write_text(POLICY + f'[server]\nkey = "{write_public_key(key.public)}"\n')
    policy = replace(Policy.read(file), ledger=None, forgets=True)
    grid = federation(*(node(n, policy=policy) for n in range(4)))
    with pytest.raises(RoundAborted, match="not signed by the server"):
        poll(
            grid,
            SPACE,
            budget=Budget(0.3, 1e-6),
            settings=VoteSettings(votes=2),
            run=Run(force=True),
        )
    other = NodeKey.draw("server", ScriptedSecrets(b"other"))
    with pytest.raises(RoundAborted, match="not signed by the server"):
        poll(
            grid,
            SPACE,
            budget=Budget(0.3, 1e-6),
            settings=VoteSettings(votes=2),
            federation=Federation(server_key=other),
            run=Run(force=True),
        )
    assert (
        poll(
            grid,
            SPACE,
            budget=Budget(0.3, 1e-6),
            settings=VoteSettings(votes=2),
            federation=Federation(server_key=key),
            run=Run(force=True),
        ).took_part
        == 4
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[privacy]\nepsilon = 1.0", "must name `epsilon` and `delta`"),
        (
            POLICY + "[secrets]\na = 1",
            r"sections are privacy, .* grant\.KIND",
        ),
        (POLICY.replace("epsilon", "epsilom", 1), "epsilom"),
        (POLICY.replace("= 9.0", "= -1"), "epsilon must be finite and positive"),
        (POLICY.replace("= 4", "= 1"), "2 clients or more"),
        (POLICY + '[server]\nkey = "short"', "public key"),
        (POLICY + '[identity]\nkey = "a.key"', "used together"),
        (POLICY + "[identity]\nrequired = true", "must name one"),
        ("[privacy", "no TOML file"),
    ],
)
def test_a_policy_with_mistakes_is_not_read(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(ParameterError, match=message):
        Policy.read(file)


def test_a_policy_file_keeps_its_ledger_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    policy = Policy.read(file)
    assert policy.ledger == tmp_path / "policy.ledger"
    assert (policy.epsilon, policy.fewest_clients) == (9.0, 4)
    assert policy.grants == {"vote": Grant(most_entries=20)}
