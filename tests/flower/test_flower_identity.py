"""Signed votes: keys, directories, and a server that lies."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

from flower_grid import LocalGrid
from flower_nodes import BUDGET, OPEN, QUICK, SPACE, federation, make_keys, node
from flwr.app import Message, RecordDict
from typer.testing import CliRunner

from urna.cli.app import app
from urna.errors import OutputError, ParameterError, ProtocolError, RoundAborted
from urna.flower import DirectoryFile, NodeKey, Policy, poll
from urna.flower.announcement import Announcement
from urna.flower.gathering import Federation
from urna.flower.identities import read_public_key, write_public_key
from urna.flower.messages import Kind, Letter, Reply
from urna.protocols.secagg.messages import UnmaskRequest, Void
from urna.protocols.secagg.wire import decode, encode
from urna.randomness import ScriptedSecrets
from urna.systems.vote import VoteSettings


def signed_federation(folder: Path, count: int) -> LocalGrid:
    make_keys(folder, count)
    policy = replace(
        OPEN,
        epsilon=30.0,  # a second vote would fit: what refuses it is not the budget
        key=folder / "0.key",
        directory=folder / "directory.toml",
        directory_required=True,
    )
    return federation(
        *(
            node(
                n,
                policy=replace(policy, key=folder / f"{n}.key", ledger=folder / f"{n}.ledger"),
            )
            for n in range(count)
        )
    )


@pytest.mark.parametrize("server", ["honest-but-curious", "dishonest"])
def test_a_signed_vote_says_that_nodes_checked_the_keys(tmp_path: Path, server: str) -> None:
    grid = signed_federation(tmp_path, 7)
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        server=server,
        settings=VoteSettings(votes=2),
        federation=Federation(directory=tmp_path / "directory.toml"),
    )
    assert result.took_part == 7
    assert "checked keys against their own directories" in str(result.privacy)
    trusted = {"honest-but-curious": "honest-but-curious", "dishonest": "not trusted with anything"}
    assert trusted[server] in str(result.privacy)
    assert "trusted to pass on keys" not in str(result.privacy)


def test_nodes_that_require_a_directory_refuse_a_vote_without_signatures(tmp_path: Path) -> None:
    with pytest.raises(RoundAborted, match="asks for keys from its directory"):
        poll(signed_federation(tmp_path, 4), SPACE, budget=BUDGET, settings=VoteSettings(votes=2))


def test_a_node_without_an_identity_refuses_a_signed_vote(tmp_path: Path) -> None:
    grid = signed_federation(tmp_path, 5)
    grid.nodes[1000] = node(0)
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        settings=VoteSettings(votes=2),
        federation=Federation(directory=tmp_path / "directory.toml"),
    )
    assert "no identity key" in result.lost[1000]


def test_a_node_without_a_ledger_refuses_a_signed_vote(tmp_path: Path) -> None:
    grid = signed_federation(tmp_path, 5)
    forgetful = replace(
        OPEN, forgets=True, key=tmp_path / "0.key", directory=tmp_path / "directory.toml"
    )
    grid.nodes[1000] = node(0, policy=forgetful)
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        settings=VoteSettings(votes=2),
        federation=Federation(directory=tmp_path / "directory.toml"),
    )
    assert "keeps no ledger" in result.lost[1000]


@pytest.mark.parametrize("server", ["honest-but-curious", "dishonest"])
def test_no_stage_is_answered_twice_on_one_old_state(tmp_path: Path, server: str) -> None:
    """What Flower allows: two messages of a node run at once, each on the same state.

    A server would gain two signed lists, two masked vectors, or both shares of a neighbour.
    """
    grid = signed_federation(tmp_path, 7)
    seen: list[tuple[RecordDict, Message]] = []

    def snapshot(message: Message) -> Message:
        if message.metadata.dst_node_id == 1000:
            seen.append((copy.deepcopy(grid.nodes[1000].state), message))
        return message

    grid.tamper = snapshot
    poll(
        grid,
        SPACE,
        budget=BUDGET,
        server=server,
        settings=VoteSettings(votes=2),
        federation=Federation(directory=tmp_path / "directory.toml"),
    )
    stages = [
        (state, m) for state, m in seen if Letter.read(m.content).kind in (Kind.BEGIN, Kind.STAGE)
    ]
    assert len(stages) == (5 if server == "dishonest" else 4)
    for state, message in stages:
        grid.nodes[1000].state = state
        (name,) = grid.push_messages([message])
        (reply,) = grid.pull_messages([name])
        assert "answered this" in Reply.read(reply.content).refused


@pytest.mark.parametrize("server", ["honest-but-curious", "dishonest"])
@pytest.mark.parametrize("first", ["reveal", "receipt"])
def test_a_node_reveals_shares_or_signs_a_receipt_and_never_both(
    tmp_path: Path, first: str, server: str
) -> None:
    grid = signed_federation(tmp_path, 7)
    said: list[Reply] = []

    def ask(body: bytes, state: RecordDict) -> None:
        grid.nodes[1000].state, grid.tamper = copy.deepcopy(state), lambda message: message
        letter = Message(Letter(Kind.STAGE, body).as_records(), 1000, "query.urna")
        (name,) = grid.push_messages([letter])
        (reply,) = grid.pull_messages([name])
        said.append(Reply.read(reply.content))

    def both(message: Message) -> Message:
        letter = Letter.read(message.content)
        if message.metadata.dst_node_id == 1000 and letter.kind is Kind.STAGE:
            plan = Announcement.read(grid.nodes[1000].letters[1].announcement).round_plan
            request = decode(letter.body, plan)
            if isinstance(request, UnmaskRequest):
                void, state = encode(Void(request.round_id), plan), grid.nodes[1000].state
                for body in [letter.body, void][:: 1 if first == "reveal" else -1]:
                    ask(body, state)
                said.append(Reply(body=encode(request, plan)))
        return message

    grid.tamper = both
    poll(
        grid,
        SPACE,
        budget=BUDGET,
        dropout=0.2,
        server=server,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK, directory=tmp_path / "directory.toml"),
    )
    answered, refused, _ = said
    assert answered.body
    assert not answered.refused
    assert "answered this stage of the round before" in refused.refused
    assert not refused.body


def test_a_policy_file_with_a_directory_requires_it(tmp_path: Path) -> None:
    make_keys(tmp_path, 1)
    text = "[privacy]\nepsilon = 1\ndelta = 1e-5\n[grant.vote]\n[identity]\nkey = '0.key'\n"
    path = tmp_path / "policy.toml"
    path.write_text(text + "directory = 'directory.toml'\n", encoding="utf-8")
    assert Policy.read(path).directory_required
    path.write_text(text + "directory = 'directory.toml'\nrequired = false\n", encoding="utf-8")
    assert not Policy.read(path).directory_required


def test_a_stranger_with_a_known_name_is_left_out(tmp_path: Path) -> None:
    grid = signed_federation(tmp_path, 5)
    (tmp_path / "thief").mkdir()
    thief = NodeKey.draw("site-0", ScriptedSecrets(b"thief"))
    thief.write(tmp_path / "thief" / "0.key")
    policy = replace(
        OPEN,
        key=tmp_path / "thief" / "0.key",
        directory=tmp_path / "directory.toml",
        ledger=tmp_path / "thief" / "ledger",
    )
    grid.nodes[1000] = node(0, policy=policy)
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        settings=VoteSettings(votes=2),
        federation=Federation(directory=tmp_path / "directory.toml"),
    )
    assert "not proven to be the one in the directory" in result.lost[1000]
    assert result.took_part == 4


def test_a_server_whose_directory_has_a_stranger_is_refused_by_all(tmp_path: Path) -> None:
    """The server's own copy vouches for nobody: each node asks its own."""
    grid = signed_federation(tmp_path, 5)
    stranger = NodeKey.draw("stranger", ScriptedSecrets(b"stranger"))
    stranger.write(tmp_path / "stranger.key")
    keys = DirectoryFile.read(tmp_path / "directory.toml").keys
    wide = DirectoryFile({**keys, "stranger": stranger.public})
    (tmp_path / "wide.toml").write_text(wide.as_toml())
    policy = replace(
        OPEN,
        key=tmp_path / "stranger.key",
        directory=tmp_path / "wide.toml",
        ledger=tmp_path / "stranger.ledger",
    )
    grid.nodes[900] = node(9, policy=policy)
    with pytest.raises(RoundAborted) as aborted:
        poll(
            grid,
            SPACE,
            budget=BUDGET,
            settings=VoteSettings(votes=2),
            federation=Federation(directory=wide, deadlines=QUICK),
        )
    assert len(aborted.value.lost) == 5


def other_space(letter: Letter) -> Letter:
    return replace(letter, announcement=letter.announcement.replace(b"0.8", b"0.9"))


def more_epsilon(letter: Letter) -> Letter:
    return replace(
        letter, announcement=letter.announcement.replace(b'"epsilon":8.0', b'"epsilon":9.0')
    )


def other_names(letter: Letter) -> Letter:
    swapped = letter.announcement.replace(b'"site-3","site-4"', b'"site-4","site-3"')
    return replace(letter, announcement=swapped)


def other_number(letter: Letter) -> Letter:
    return replace(letter, client=1) if letter.client == 0 else letter


def far_ahead(letter: Letter) -> Letter:
    announced = Announcement.read(letter.announcement)
    later = replace(announced, issued=announced.issued + 10**9)
    return replace(letter, announcement=later.as_bytes())


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (other_space, "its fingerprint names"),
        (more_epsilon, "another round than this client|coin is not the one"),
        (other_names, "coin is not the one"),
        (far_ahead, "not of about this node's time"),
        (other_number, "belongs to another name"),
    ],
)
def test_a_server_that_tells_one_node_something_else_loses_it(
    tmp_path: Path, lie: Callable[[Letter], Letter], reason: str
) -> None:
    grid = signed_federation(tmp_path, 5)

    def tamper(message: Message) -> Message:
        letter = Letter.read(message.content)
        if message.metadata.dst_node_id == 1000 and letter.client == 0:
            message.content = lie(letter).as_records()
        return message

    grid.tamper = tamper
    with pytest.raises(RoundAborted, match=reason) as aborted:
        poll(
            grid,
            SPACE,
            budget=BUDGET,
            settings=VoteSettings(votes=2),
            federation=Federation(directory=tmp_path / "directory.toml"),
        )
    assert aborted.value.lost.keys() == {1000}


def test_an_announcement_reads_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    grid = signed_federation(tmp_path, 4)
    poll(
        grid,
        SPACE,
        budget=BUDGET,
        settings=VoteSettings(votes=2),
        federation=Federation(directory=tmp_path / "directory.toml"),
    )
    data = grid.nodes[1000].letters[1].announcement
    assert Announcement.read(data).names == ("site-0", "site-1", "site-2", "site-3")
    for wrong in (b"", b"[]", b"{}", data + b" ", data.replace(b'"version":3', b'"version":2'),
                  data.replace(b'"clients":4', b'"clients":3'),
                  data.replace(b'"clients":4', b'"clients":true'),
                  data.replace(b'"dropout":"0"', b'"dropout":"NaN"'),
                  data.replace(b"site-1", b"../../1")):  # fmt: skip
        with pytest.raises(ProtocolError):
            Announcement.read(wrong)


def test_keys_are_made_collected_and_shown_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    for name in ("alpha", "beta"):
        made = run.invoke(app, ["keys", "make", name])
        assert made.exit_code == 0
        assert "private" not in made.stdout
        (tmp_path / f"{name}.pub").write_text(made.stdout.splitlines()[-1] + "\n")
        assert (tmp_path / f"{name}.key").stat().st_mode & 0o777 == 0o600
    collected = run.invoke(
        app, ["keys", "collect", "alpha.pub", "beta.key", "--output", "directory.toml"]
    )
    assert collected.exit_code == 0
    directory = DirectoryFile.read(tmp_path / "directory.toml")
    assert directory.keys == {
        name: NodeKey.read(tmp_path / f"{name}.key").public for name in ("alpha", "beta")
    }
    shown = run.invoke(app, ["keys", "show", "directory.toml"])
    assert collected.stdout.split("fingerprint ")[1] == shown.stdout.split("fingerprint: ")[1]


def test_two_keys_under_one_name_are_not_collected(tmp_path: Path) -> None:
    for folder, label in (("a", b"1"), ("b", b"2")):
        (tmp_path / folder).mkdir()
        NodeKey.draw("alpha", ScriptedSecrets(label)).write(tmp_path / folder / "key")
    done = CliRunner().invoke(
        app, ["keys", "collect", str(tmp_path / "a/key"), str(tmp_path / "b/key"), "--output",
              str(tmp_path / "directory.toml")]
    )  # fmt: skip
    assert isinstance(done.exception, ParameterError)
    assert not (tmp_path / "directory.toml").exists()


def test_a_key_is_never_overwritten_nor_read_when_others_can(tmp_path: Path) -> None:
    key = NodeKey.draw("alpha", ScriptedSecrets(b"1"))
    key.write(tmp_path / "key")
    with pytest.raises(OutputError, match="never overwritten"):
        key.write(tmp_path / "key")
    assert repr(key).count("b'") == 1  # the public half alone
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(ParameterError, match="owner alone"):
        NodeKey.read(tmp_path / "key")


def test_the_policy_of_an_identity_names_both_files() -> None:
    with pytest.raises(ParameterError, match="together"):
        Policy(epsilon=1.0, delta=1e-5, key=Path("a.key"))


def test_a_key_that_is_written_otherwise_or_signs_anything_stands_in_no_file(
    tmp_path: Path,
) -> None:
    """Two names with one key are refused by comparing bytes, so a key has one encoding."""
    (key,) = make_keys(tmp_path, 1)
    above = (2**255 - 19 + 3).to_bytes(32, "little")
    for wrong in (bytes(32), b"\x01" + bytes(31), above):
        with pytest.raises(ParameterError, match="the key of 'site-1': an identity key is not"):
            DirectoryFile({"site-0": key.public, "site-1": wrong})
        with pytest.raises(ParameterError, match="not one that Ed25519 makes"):
            read_public_key(write_public_key(wrong))
    assert read_public_key(write_public_key(key.public)) == key.public
