"""Exact results over Flower: under the node's whole policy, and no more often than was granted."""

import copy
import itertools
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="combining over Flower needs Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import OPEN, Near, announced, make_keys
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

import urna.flower
import urna.flower.encrypted
import urna.flower.settings
from urna.errors import ParameterError, Refused, RoundAborted, RoundUnfinished
from urna.flower import Deadlines, Grant, Helper, NodeKey, Participant, Policy, Voter
from urna.flower.accounts import Claims
from urna.flower.announcement import server_statement
from urna.flower.encrypted import ENCRYPTED_ACTION, EncryptedParty, combine_encrypted
from urna.flower.exact import ExactAnnouncement
from urna.flower.identities import write_public_key
from urna.flower.messages import ACTION, Kind, Letter, Reply
from urna.flower.site import Mounted
from urna.flower.subjects import _READERS
from urna.protocols.secagg import ServerModel
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.combine import (
    Averaging,
    Clustering,
    Frame,
    LocalSearch,
    MeanSetting,
    Searches,
    Task,
    conduct,
)
from urna.systems.combine.letters import LetterKind as Stage
from urna.systems.combine.letters import PartyLetter, RunName, invitation, kind_of

GRID = np.array(list(itertools.product((0.01, 0.1, 1.0), (0.0, 0.5, 0.9))))
FRAME = Frame.of(
    Space(lr=Axis.log([0.01, 0.1, 1.0]), momentum=Axis.linear([0.0, 0.5, 0.9])), log=True
)
WAITS = Deadlines(gather=5.0, evaluate=20.0, stage=1.0)
GRANTS = {"exact-settings": Grant(names=("mean",))}
KEEPING = replace(OPEN, forgets=False, grants=GRANTS)
GRANTED = replace(OPEN, grants={"exact-settings": Grant(names=("mean",), most_runs=None)})
SERVER = NodeKey.draw("server", ScriptedSecrets(b"server"))


def search_of(number: int) -> LocalSearch:
    near = np.isclose(GRID, GRID[number % len(GRID)]).all(axis=1)
    return LocalSearch(GRID, np.where(near, 0.9, 0.2))


def load(context: Context) -> LocalSearch:
    return search_of(int(context.node_config["partition-id"]))


def member(number: int, policy: Policy | Path) -> Node:
    app = ClientApp()
    EncryptedParty(load, policy=policy).mount(app)
    return Node(app, {"partition-id": number})


def remembering(folder: Path, count: int, **changes: Any) -> LocalGrid:
    """Return nodes with ledgers of their own, whose owners granted an exact mean."""
    policy = replace(KEEPING, **changes)
    return LocalGrid(
        {100 + n: member(n, replace(policy, ledger=folder / f"{n}.ledger")) for n in range(count)}
    )


def signing(folder: Path, count: int, **changes: Any) -> LocalGrid:
    """Return nodes that ask for keys from their directory."""
    make_keys(folder, count)
    grid = remembering(folder, 0)
    for n in range(count):
        policy = replace(
            KEEPING,
            most_missing=0,
            ledger=folder / f"{n}.ledger",
            key=folder / f"{n}.key",
            directory=folder / "directory.toml",
            directory_required=True,
        )
        grid.nodes[100 + n] = member(n, replace(policy, **changes))
    return grid


def exact(parties: int = 3, threshold: int | None = None, **changes: Any) -> ExactAnnouncement:
    """Return what an honest server announces to nodes 0, 1, …, but for the changes."""
    task = Task(parties, threshold or parties, Averaging(FRAME))
    values: dict[str, Any] = {
        "nonce": OsSecrets().take(32),
        "issued": int(time.time()),
        "task": task,
        "signed": False,
        "names": tuple(str(n) for n in range(parties)),
    }
    return ExactAnnouncement(**(values | changes))


def letter_of(
    announcement: ExactAnnouncement,
    kind: Kind = Kind.STAGE,
    body: bytes = b"",
    key: NodeKey | None = None,
) -> Letter:
    data = announcement.as_bytes()
    signature = b"" if key is None else key.sign(server_statement(data, body))
    return Letter(kind, body, announcement=data, signature=signature)


def asked(node: Node, letter: Letter, action: str = ENCRYPTED_ACTION) -> Reply:
    """Return a node's answer to a letter of a server that may send anything."""
    grid = LocalGrid({1: node})
    (name,) = grid.push_messages([Message(letter.as_records(), 1, f"query.{action}")])
    (reply,) = grid.pull_messages([name])
    return Reply.read(reply.content)


def invited(announcement: ExactAnnouncement, party: int = 0) -> Letter:
    """Return the letter with which a run begins for a party."""
    task = announcement.task
    run = RunName(task, announcement.digest)
    return letter_of(announcement, body=invitation(run, party))


def stages(node: Node) -> list[str]:
    return [letter.kind for letter in node.letters]


def test_two_nodes_reveal_nothing_to_an_unsigned_server(tmp_path: Path) -> None:
    make_keys(tmp_path, 12)
    policies = []
    for number in range(2):
        file = tmp_path / f"{number}.toml"
        file.write_text(
            "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n[limits]\nfewest_clients = 10\n"
            f'[server]\nkey = "{write_public_key(SERVER.public)}"\n'
            f'[identity]\nkey = "{number}.key"\ndirectory = "directory.toml"\nrequired = true\n'
            '[grant.exact-settings]\nnames = ["mean"]\n',
            encoding="utf-8",
        )
        policies.append(file)
    grid = LocalGrid({100 + n: member(n, policies[n]) for n in range(2)})
    with pytest.raises(RoundAborted) as failed:
        combine_encrypted(grid, FRAME, "mean", wait_for=2, deadlines=WAITS)
    assert all("not signed by the server" in why for why in failed.value.lost.values())
    with pytest.raises(RoundAborted) as failed:
        combine_encrypted(grid, FRAME, "mean", wait_for=2, deadlines=WAITS, server_key=SERVER)
    assert all("this node asks for 10 or more" in why for why in failed.value.lost.values())
    # Nobody was asked for a key, let alone for a ciphertext.
    assert all(set(stages(node)) == {"announce"} for node in grid.nodes.values())
    # Nor does a server come further that asks nobody whether they take part.
    for key in (None, SERVER):
        run = exact(2)
        reply = asked(grid.nodes[100], letter_of(run, body=invited(run).body, key=key))
        assert ("not signed by the server" in reply.refused) == (key is None)
        assert reply.refused
        assert not reply.body


@pytest.mark.parametrize("kind", [Kind.ANNOUNCE, Kind.STAGE])
@pytest.mark.parametrize(
    ("limits", "changes", "reason"),
    [
        ({"fewest_clients": 4}, {}, "with 3 clients in it; this node asks for 4"),
        ({"fewest_clients": 3}, {"threshold": 2}, "with 2 clients in it; this node asks for 3"),
        ({"most_clients": 2}, {}, "3 clients are invited; this node allows 2"),
        ({"largest_dropout": 0.3}, {"threshold": 2}, "a dropout of 0.333333 is allowed for"),
        ({"least_colluding": 0.5}, {"threshold": 2}, "this node asks for 0.5"),
        ({"most_colluders": 2}, {"threshold": 2}, "1 clients are counted out as colluding"),
        ({"most_bytes": 100}, {}, "longer than the 100 bytes"),
        ({"server_key": bytes(32)}, {}, "not signed by the server this node trusts"),
        ({"server_model": ServerModel.DISHONEST}, {}, "trusts its server"),
        ({"forgets": False}, {}, "keeps no ledger"),
        ({}, {"signed": True}, "has no identity key and no directory"),
        ({}, {"issued": 1_000_000}, "not of about this node's time"),
        ({"grants": {}}, {}, "has no [grant.exact-settings]"),
        ({"grants": {"exact-settings": Grant(names=())}}, {}, "does not grant it by name"),
        ({"grants": GRANTS}, {}, "keeps no ledger to count it in"),
        (
            {"grants": {"exact-settings": Grant(names=("dbscan",))}},
            {},
            "does not grant it by name",
        ),
        (
            {"grants": {"exact-settings": Grant(2, names=("mean",), most_runs=None)}},
            {},
            "3 entries are announced; this node allows 2",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_an_exact_result_outside_the_policy_is_refused(
    limits: dict[str, Any], changes: dict[str, Any], reason: str, kind: Kind
) -> None:
    node = member(0, replace(GRANTED, **limits) if limits else GRANTED)
    announcement = exact(**changes)
    letter = replace(invited(announcement), kind=kind)
    reply = asked(node, letter)
    assert reason in reply.refused
    assert not reply.body
    assert not node.state
    # Within the policy the same letter is answered.
    if not changes:
        fine = asked(member(0, GRANTED), letter)
        assert not fine.refused


@pytest.mark.parametrize("kind", [Kind.ANNOUNCE, Kind.STAGE])
def test_no_cluster_is_opened_of_fewer_clients_than_the_node_asks_for(kind: Kind) -> None:
    """However many take part: the sums of each cluster are opened by themselves."""

    def refused(min_points: int, letter: Kind = kind, **granted: int) -> str:
        task = Task(10, 10, Clustering(FRAME, min_points=min_points))
        grant = Grant(names=("dbscan",), most_runs=None, **granted)
        policy = replace(OPEN, fewest_clients=10, grants={"exact-settings": grant})
        announcement = exact(10, task=task)
        reply = asked(member(0, policy), replace(invited(announcement), kind=letter))
        assert not (reply.refused and reply.body)
        return reply.refused

    assert "clusters of 2 clients may be opened; this node asks for 4 or more" in refused(2)
    assert "clusters of 3 clients may be opened; this node asks for 4 or more" in refused(3)
    assert "this node asks for 6 or more" in refused(5, fewest_in_cluster=6)
    assert not refused(4, Kind.ANNOUNCE)
    assert not refused(2, Kind.ANNOUNCE, fewest_in_cluster=2)


def test_a_mean_is_opened_of_all_and_no_cluster() -> None:
    """What binds it is `fewest_clients`."""
    assert exact(3).fewest_in_result == 3
    assert not asked(member(0, GRANTED), invited(exact(3))).refused


def test_a_node_without_a_ledger_counts_nothing_and_grants_no_number() -> None:
    """Every new run would be its first."""
    for most_runs in (1, 5):
        grant = Grant(names=("mean",), most_runs=most_runs)
        node = member(0, replace(OPEN, grants={"exact-settings": grant}))
        for _ in range(2):
            reply = asked(node, invited(exact()))
            assert "keeps no ledger to count it in" in reply.refused
            assert not reply.body


def test_a_directory_is_the_nodes_own(tmp_path: Path) -> None:
    grid = signing(tmp_path, 5)
    names = tuple(f"site-{n}" for n in range(5))
    for changes, reason in (
        ({}, "asks for keys from its directory"),
        ({"signed": True, "parties": 4, "names": names[:4]}, "1 of this node's directory are left"),
        (
            {"signed": True, "parties": 6, "names": (*names, "stranger")},
            "1 who take part are not in this node's directory",
        ),
        (
            {"signed": True, "names": ("x", *names[1:]), "parties": 5},
            "1 of this node's directory are left out",
        ),
    ):
        reply = asked(grid.nodes[100], invited(exact(**({"parties": 5, "names": names} | changes))))
        assert reason in reply.refused
        assert not reply.body
    fine = asked(grid.nodes[100], invited(exact(5, signed=True, names=names)))
    assert kind_of(fine.body, 1 << 40) is Stage.KEY_SHARES


def test_a_node_takes_no_others_place() -> None:
    run = exact(names=("7", "8", "9"))
    assert "not among those" in asked(member(0, GRANTED), invited(run)).refused
    reply = asked(member(0, GRANTED), invited(exact(), 1))
    assert kind_of(reply.body, 1 << 40) is Stage.REFUSAL
    assert b"not to the run and the place" in reply.body


def test_signed_runs_find_what_is_found_in_the_clear(tmp_path: Path) -> None:
    grid = signing(tmp_path, 4)
    result = combine_encrypted(
        grid,
        FRAME,
        "mean",
        directory=tmp_path / "directory.toml",
        server_key=SERVER,
        wait_for=4,
        deadlines=WAITS,
    )
    clear = MeanSetting().combine(Searches(FRAME, tuple(search_of(n) for n in range(4))))
    assert result.setting == clear.setting
    assert result.lost == {}
    assert all(len(Claims(tmp_path / f"{n}.ledger.answered").runs) == 1 for n in range(4))


@pytest.mark.parametrize(
    "forged",
    ["unsigned", "announcement alone", "another body", "another run", "another key"],
)
def test_a_node_that_trusts_a_server_answers_no_letter_of_anybody_else(forged: str) -> None:
    """Whoever sits between has the announcement, and its signature."""
    node, run = member(0, replace(GRANTED, server_key=SERVER.public)), exact()
    body, rogue = invited(run).body, NodeKey.draw("rogue", ScriptedSecrets(b"rogue"))
    signatures = {
        "unsigned": b"",
        "announcement alone": letter_of(run, key=SERVER).signature,
        "another body": letter_of(run, body=b"another", key=SERVER).signature,
        "another run": letter_of(exact(), body=body, key=SERVER).signature,
        "another key": letter_of(run, body=body, key=rogue).signature,
    }
    letter = replace(letter_of(run, body=body), signature=signatures[forged])
    reply = asked(node, letter)
    assert reply.refused == "the letter is not signed by the server this node trusts"
    assert not reply.body
    assert not node.state
    assert asked(node, letter_of(run, body=body, key=SERVER)).body


def test_nodes_that_trust_a_server_take_part_with_it(tmp_path: Path) -> None:
    grid = remembering(tmp_path, 3, server_key=SERVER.public)
    clear = MeanSetting().combine(Searches(FRAME, tuple(search_of(n) for n in range(3))))
    assert run_of(grid, 100, 101, 102, server_key=SERVER).setting == clear.setting


def test_a_party_of_the_servers_own_in_a_nodes_place_gets_no_ciphertext(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node itself says that it takes part; the keys are another's, under a key of its own."""
    monkeypatch.setattr(urna.flower.encrypted, "_Verifier", lambda *_: None)  # it does not look
    grid = signing(tmp_path, 3)
    own = tmp_path / "own"
    own.mkdir()
    rogue = NodeKey.draw("site-1", ScriptedSecrets(b"rogue"))
    rogue.write(own / "1.key")
    lines = (tmp_path / "directory.toml").read_text().splitlines()
    lines = [rogue.public_line if line.startswith('"site-1"') else line for line in lines]
    (own / "directory.toml").write_text("\n".join(lines), encoding="utf-8")
    policy = replace(
        KEEPING,
        ledger=own / "ledger",
        key=own / "1.key",
        directory=own / "directory.toml",
    )
    genuine, stand_in = grid.nodes[101].app, EncryptedParty(load, policy=policy)
    between = ClientApp()

    @between.query(ENCRYPTED_ACTION)
    def answer(message: Message, context: Context) -> Message:
        if Letter.read(message.content).kind is Kind.ANNOUNCE:
            return genuine(message, context)
        return stand_in.handle(message, context)

    grid.nodes[101].app = between
    with pytest.raises(RoundAborted) as failed:
        run_of(grid, 100, 101, 102, directory=tmp_path / "directory.toml")
    assert "is not signed by it" in failed.value.lost[100]
    assert "is not signed by it" in failed.value.lost[102]
    assert not any(Claims(tmp_path / f"{n}.ledger.answered").runs for n in (0, 2))


@pytest.mark.parametrize("stage", range(1, 5))
def test_a_bit_flipped_on_the_way_costs_its_sender_alone_its_place(
    tmp_path: Path, stage: int
) -> None:
    """At each stage: two letters about keys, one with a ciphertext, one that helps to open."""
    grid = signing(tmp_path, 4, most_missing=1)
    genuine, between, seen = grid.nodes[101].app, ClientApp(), list[int]()

    @between.query(ENCRYPTED_ACTION)
    def answer(message: Message, context: Context) -> Message:
        reply = genuine(message, context)
        if Letter.read(message.content).kind is not Kind.STAGE:
            return reply
        seen.append(1)
        if len(seen) == stage:
            wrong = bytearray(Reply.read(reply.content).body)
            wrong[len(wrong) // 2] ^= 4
            changed = replace(Reply.read(reply.content), body=bytes(wrong))
            reply.content = changed.as_records()
        return reply

    grid.nodes[101].app = between
    result = run_of(grid, 100, 101, 102, 103, threshold=3, directory=tmp_path / "directory.toml")
    assert len(seen) >= stage
    there = (0, 1, 2, 3) if stage == 4 else (0, 2, 3)  # its vector was in before
    clear = MeanSetting().combine(Searches(FRAME, tuple(search_of(n) for n in there)))
    assert result.setting == clear.setting
    assert set(result.lost) == (set() if stage == 4 else {101})
    assert all("its letter arrived altered" in why for why in result.lost.values())


def run_of(grid: LocalGrid, *nodes: int, **more: Any) -> Any:
    return combine_encrypted(
        LocalGrid({node: grid.nodes[node] for node in nodes}),
        FRAME,
        "mean",
        wait_for=len(nodes),
        deadlines=WAITS,
        **more,
    )


def test_two_runs_among_different_nodes_cannot_be_subtracted(tmp_path: Path) -> None:
    grid = remembering(tmp_path, 3)
    run_of(grid, 100, 101, 102)
    with pytest.raises(RoundAborted) as failed:
        run_of(grid, 100, 101)
    assert set(failed.value.lost) == {100, 101}
    assert all("has taken part in 1 exact results" in w for w in failed.value.lost.values())
    # Restarted nodes, with nothing but their files, still know.
    again = remembering(tmp_path, 3)
    with pytest.raises(RoundAborted, match="0 of 2 nodes take part"):
        run_of(again, 101, 102)
    reply = asked(again.nodes[100], invited(exact(2)))
    assert "its policy grants 1" in reply.refused
    assert not reply.body


def test_an_owner_can_grant_another(tmp_path: Path) -> None:
    grid = remembering(tmp_path, 3, grants={"exact-settings": Grant(names=("mean",), most_runs=2)})
    run_of(grid, 100, 101, 102)
    run_of(grid, 100, 101)
    with pytest.raises(RoundAborted, match="1 of 2 nodes take part"):
        run_of(grid, 100, 102)


@pytest.mark.parametrize(("letter", "counted"), [(1, 0), (2, 0), (3, 1), (4, 1)])
def test_a_run_counts_once_a_node_is_asked_for_a_ciphertext_and_not_before(
    tmp_path: Path, letter: int, counted: int
) -> None:
    """Letters are the announcement, two about keys, one for a ciphertext, one to open."""
    grid = remembering(tmp_path, 3)
    grid.nodes[101].faults = dict.fromkeys(range(letter, 20), "silent")
    with pytest.raises((RoundAborted, RoundUnfinished)):
        run_of(grid, 100, 101, 102, threshold=3)
    assert len(Claims(tmp_path / "0.ledger.answered").runs) == counted


def state_before(
    node: Node, announcement: ExactAnnouncement, stage: str
) -> tuple[RecordDict, bytes]:
    """Return a node's state before a stage of a run, and the letter that comes then."""
    states: list[tuple[RecordDict, bytes]] = []
    others = {n: member(n, GRANTED) for n in (1, 2)}

    class Stop(Exception):
        pass

    class Transport:
        def exchange(self, doing: str, letters: Any) -> dict[int, bytes]:
            if stage in doing:
                states.append((node.state, letters[0]))
                raise Stop
            return {
                place: asked(
                    node if place == 0 else others[place], letter_of(announcement, body=body)
                ).body
                for place, body in letters.items()
            }

    with pytest.raises(Stop):
        conduct(RunName(announcement.task, announcement.digest), Transport())
    return states[0]


@pytest.mark.parametrize("stage", ["finishing keys", "encrypting", "opening"])
def test_of_two_messages_on_the_same_old_state_one_is_answered(tmp_path: Path, stage: str) -> None:
    """Flower may run a node's messages at the same time, each on the state before both."""
    policy = replace(KEEPING, ledger=tmp_path / "0.ledger")
    announcement = exact()
    state, body = state_before(member(0, policy), announcement, stage)
    answers: list[Reply] = []

    def answer() -> None:
        node = member(0, policy)
        node.state = copy.deepcopy(state)
        answers.append(asked(node, letter_of(announcement, body=body)))

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bool(reply.body) for reply in answers) == [False, True]
    assert "answered this stage" in next(reply.refused for reply in answers if not reply.body)


def test_an_announced_run_is_begun_once(tmp_path: Path) -> None:
    policy = replace(KEEPING, ledger=tmp_path / "0.ledger")
    announcement = exact()
    node = member(0, policy)
    first, again = (asked(node, invited(announcement)).body for _ in range(2))
    assert kind_of(first, len(first)) is Stage.KEY_SHARES
    assert kind_of(again, len(again)) is Stage.REFUSAL
    restarted = member(0, policy)  # it knows nothing of the run but what its ledger's file says
    assert "answered this stage" in asked(restarted, invited(announcement)).refused


def test_runs_at_the_same_time_pass_no_number(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "claims")
    refused: list[int] = []

    def count(number: int) -> None:
        try:
            claims.count_run(bytes([number]), 3)
        except Refused:
            refused.append(number)

    threads = [threading.Thread(target=count, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = claims.runs
    assert len(counted) == 3
    assert len(refused) == 5
    # The same run counts once, and is never refused.
    for name in counted:
        claims.count_run(bytes.fromhex(name), 3)
    assert claims.runs == counted


def test_what_is_counted_outlives_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims(tmp_path / "claims")
    claims.count_run(b"run", 1)
    claims.claim(b"coin", "stage")
    monkeypatch.setattr("time.time", lambda: 1e12)
    claims.claim(b"another", "stage")
    assert not claims.claimed(b"coin", "stage")
    assert claims.runs == {b"run".hex()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grant.exact-settings]", "must name what may be opened exactly"),
        ('[grant.exact-settings]\nnames = ["mean"]\nmost_runs = 0', "one run"),
        ("[grant.vote]\nmost_runs = 2", "counts exact results"),
        ("[grant.vote]\nfewest_in_cluster = 5", "is about exact results"),
        ('[grant.exact-settings]\nnames = ["dbscan"]\nfewest_in_cluster = 1', "2 or more"),
    ],
)
def test_exact_results_are_granted_by_name_and_number(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f"[privacy]\nepsilon = 1.0\ndelta = 1e-5\n{text}\n", encoding="utf-8")
    with pytest.raises(ParameterError, match=re.escape(message)):
        Policy.read(file)


# Every message a node answers, by its type and its kind.

STRICT = replace(
    OPEN,
    fewest_clients=50,
    grants={
        kind: Grant(names=("mean",) if kind == "exact-settings" else None)
        for kind in [*_READERS, "exact-settings"]
    },
)
NAMES = tuple(str(number) for number in range(20))


def test_every_type_of_message_is_in_the_test_below() -> None:
    types, mounted = set(), set()
    for file in Path(urna.flower.__file__).parent.glob("*.py"):
        text = file.read_text("utf-8")
        types |= set(re.findall(r"^([A-Z_]*ACTION) = ", text, re.MULTILINE))
        mounted |= set(re.findall(r"\.(?:query|train|evaluate)\(([A-Za-z_.]+)\)", text))
    assert types == {"ACTION", "ENCRYPTED_ACTION"}
    assert mounted == {"ACTION", "self._action"}
    assert set(Kind) == {Kind.ANNOUNCE, Kind.BEGIN, Kind.STAGE, Kind.HELP, Kind.END}
    assert {"vote", "winner", "verified", "update", "average", "settings", "statistic"} == set(
        _READERS
    )


def requests() -> Iterator[Any]:
    """Yield every request: message type, participant, letter."""
    for kind in sorted(_READERS):
        final = replace(announced(names=NAMES), kind=kind)
        for letter in (
            Letter(Kind.ANNOUNCE, announcement=final.as_bytes()),
            Letter(Kind.BEGIN, b"x", final.as_bytes(), client=0, number=1),
            Letter(Kind.STAGE, b"x", final.as_bytes(), client=0, number=1),
            Letter(Kind.HELP, b"x", client=0, number=1),
            Letter(Kind.HELP, b"x", final.as_bytes(), client=0, number=1),
        ):
            for participant in (Participant, Helper):
                case = f"{ACTION}-{kind}-{letter.kind}-{participant.__name__}"
                yield pytest.param(ACTION, participant, letter, id=case)
    run = exact(20)
    task = run.task
    bodies = {
        "invite": invitation(RunName(task, run.digest), 0),
        **{
            stage.name.lower(): PartyLetter(stage).encode(RunName(task, run.digest).binding)
            for stage in (Stage.KEY_SUMS, Stage.GIVE, Stage.OPEN, Stage.END)
        },
    }
    for kind in Kind:
        for name, body in bodies.items():
            case = f"{ENCRYPTED_ACTION}-{kind}-{name}"
            yield pytest.param(
                ENCRYPTED_ACTION, EncryptedParty, letter_of(run, kind, body), id=case
            )


@pytest.mark.parametrize(("action", "participant", "letter"), list(requests()))
def test_no_message_gets_anything_out_of_a_node_beyond_its_policy(
    action: str, participant: type[Mounted], letter: Letter
) -> None:
    app, objective = ClientApp(), Near()
    if participant is EncryptedParty:
        EncryptedParty(load, policy=STRICT).mount(app)
    elif participant is Helper:
        Helper(policy=STRICT).mount(app)
    else:
        Voter(objective, lambda _: 0.5, policy=STRICT).mount(app)
    node = Node(app, {"partition-id": 0})
    reply = asked(node, letter, action)
    assert reply.refused
    assert not reply.body
    assert not reply.proof
    assert not reply.beside
    assert not node.state
    assert objective.calls == 0
    judged = {ACTION: {Kind.ANNOUNCE, Kind.BEGIN}, ENCRYPTED_ACTION: {Kind.ANNOUNCE, Kind.STAGE}}
    if letter.kind in judged[action]:
        assert "this node asks for 50 or more" in reply.refused
