"""Votes of which only the winner is opened, over Flower's messages: the helper is a node."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

from cheating_helper import NO_POINTS, CheatingHelper
from flower_grid import LocalGrid, Node
from flower_nodes import OPEN, QUICK, SPACE, Near, app_of, federation, make_keys, node
from flwr.app import Message
from grouped import grouped

from urna.errors import LedgerError, ProtocolError, RoundAborted, RoundUnfinished
from urna.flower import DirectoryFile, Grant, Helper, Transcript, Voter, poll
from urna.flower.leader import helped_by
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.policy import Policy
from urna.flower.transcript import Ending, sum_digest
from urna.privacy import Budget, Ledger, SelectionRelease
from urna.protocols.winner import Circuit, answer, offer, transfer
from urna.randomness import ScriptedSecrets
from urna.systems.vote import Reveal, VoteResult, VoteSettings

VOTERS = 6
HELPER = f"site-{VOTERS}"
BUDGET = Budget(8.0, 1e-5)
# Letters a helper gets: 0 the announcement, 1 advertise, 2 share, 3 mask, 4 unmask, 5 help.
MASK, UNMASK, HELP = 3, 4, 5


def policy_of(folder: Path, number: int, *trusted: str) -> Policy:
    return replace(
        OPEN,
        epsilon=20.0,
        key=folder / f"{number}.key",
        directory=folder / "directory.toml",
        ledger=folder / f"{number}.ledger",
        grants={"winner": Grant(names=trusted or (HELPER,))},
    )


def signed(
    folder: Path, faults: Mapping[int, str] | None = None, *, trusted: str = HELPER
) -> LocalGrid:
    """Six voters who agree, and a helper, all with keys and ledgers."""
    make_keys(folder, VOTERS + 1)
    voters = [
        node(n, policy=policy_of(folder, n, trusted), data=lambda _: 0.4) for n in range(VOTERS)
    ]
    helper = Helper(policy=policy_of(folder, VOTERS))
    return federation(*voters, Node(app_of(helper), {}, faults or {}))


def held(grid: LocalGrid, folder: Path, **more: object) -> VoteResult:
    settings: dict[str, object] = {"budget": BUDGET, "directory": folder / "directory.toml"}
    settings["reveal"] = Reveal("winner", HELPER)
    return poll(grid, SPACE, **grouped(settings | more))  # type: ignore[arg-type]


def test_nodes_and_a_helper_open_the_winner_and_everybody_counts_it(tmp_path: Path) -> None:
    grid = signed(tmp_path)
    result = held(grid, tmp_path, ledger=Ledger.open(tmp_path / "server.ledger", BUDGET))
    assert result.best == {"lr": 0.4}
    assert result.revealed.gap is not None
    assert result.took_part == VOTERS
    assert result.privacy.epsilon == 8.0
    assert f"and {HELPER} not colluding" in str(result)
    for number in range(VOTERS + 1):
        (entry,) = Ledger(tmp_path / f"{number}.ledger").entries()
        assert entry.cost.epsilon == 8.0
    assert Ledger(tmp_path / "server.ledger").spent().epsilon == 8.0
    assert "urna helper" not in grid.nodes[1000 - VOTERS].state


def test_a_transcript_holds_a_digest_of_what_was_opened_alone(tmp_path: Path) -> None:
    grid = signed(tmp_path)
    result = held(grid, tmp_path, transcripts=tmp_path / "transcripts")
    (kept,) = (tmp_path / "transcripts").glob("*.json")
    found = Transcript.read(kept.read_bytes())
    assert found.sum_digest == sum_digest(result.total)
    assert result.total.tolist()[0] == result.winner
    assert found.problems(directory=DirectoryFile.read(tmp_path / "directory.toml")) == []


def test_it_takes_the_helper_one_stage_more_than_a_tally(tmp_path: Path) -> None:
    grid = signed(tmp_path)
    held(grid, tmp_path)
    kinds = [[letter.kind for letter in member.letters] for member in grid.nodes.values()]
    *voters, helper = ([k for k in some if k is not Kind.END] for some in kinds)
    assert all(len(some) == HELP for some in voters)
    assert helper == [*voters[0], Kind.HELP]


@pytest.mark.parametrize("letter", [1, 2, MASK])
def test_a_lost_helper_aborts_before_anything_is_opened(tmp_path: Path, letter: int) -> None:
    grid = signed(tmp_path, {letter: "silent"})
    ledger = Ledger.open(tmp_path / "server.ledger", BUDGET)
    with pytest.raises(RoundAborted):
        held(grid, tmp_path, ledger=ledger, deadlines=replace(QUICK, evaluate=5.0, stage=1.0))
    assert ledger.spent().epsilon == 0.0


def charged(folder: Path) -> list[float]:
    """Return what a vote has cost every voter and the helper."""
    return [Ledger(folder / f"{number}.ledger").spent().epsilon for number in range(VOTERS + 1)]


def test_a_helper_that_is_lost_once_the_circuit_started_costs_the_vote(tmp_path: Path) -> None:
    """It may have read something in the server's transfers: nobody takes the charge back."""
    grid = signed(tmp_path, {HELP: "silent"})
    ledger = Ledger.open(tmp_path / "server.ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match="the vote counts") as unfinished:
        held(
            grid,
            tmp_path,
            ledger=ledger,
            deadlines=replace(QUICK, evaluate=5.0, stage=1.0),
            transcripts=tmp_path / "transcripts",
        )
    assert list(unfinished.value.lost) == [1000 - VOTERS]
    assert ledger.spent().epsilon == 8.0
    assert charged(tmp_path) == [8.0] * (VOTERS + 1)
    (kept,) = (tmp_path / "transcripts").glob("*.json")
    assert Transcript.read(kept.read_bytes()).ending is Ending.UNFINISHED


def test_a_helper_that_answers_with_half_the_offer_reads_nothing_and_the_vote_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheat = CheatingHelper([31]).installed(monkeypatch, "urna.flower.helper.garble")
    grid = signed(tmp_path)
    ledger = Ledger.open(tmp_path / "server.ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match="coincide") as unfinished:
        held(grid, tmp_path, ledger=ledger, transcripts=tmp_path / "transcripts")
    assert "show the leader's bits" in unfinished.value.faults[1000 - VOTERS]
    assert not unfinished.value.lost
    (kept,) = (tmp_path / "transcripts").glob("*.json")
    assert list(Transcript.read(kept.read_bytes()).faults) == [HELPER]
    assert (cheat.heard, cheat.totals) == ([], [])
    assert ledger.spent().epsilon == 8.0
    assert charged(tmp_path) == [8.0] * (VOTERS + 1)


@pytest.mark.parametrize("name", NO_POINTS)
def test_a_helper_that_signs_what_is_no_point_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheat = CheatingHelper([31], point=NO_POINTS[name])
    cheat.installed(monkeypatch, "urna.flower.helper.garble")
    with pytest.raises(RoundUnfinished) as unfinished:
        held(signed(tmp_path), tmp_path)
    assert "no point of the curve" in unfinished.value.faults[1000 - VOTERS]
    assert not unfinished.value.lost


def test_points_that_were_altered_on_the_way_blame_nobody() -> None:
    """Only what the helper wrote proves that it cheats."""
    circuit = Circuit(SelectionRelease(4.0, 6, 3), 5)
    source = ScriptedSecrets(b"altered")
    offered, sent = offer(circuit, b"", source)
    state, answered = answer(circuit, b"", sent, source)
    half = CheatingHelper([0]).answers(offered.base.offer, state.base.answers)
    altered = answered.replace(state.base.answers, half)
    assert altered != answered
    with (
        pytest.raises(RoundUnfinished, match="altered on its way") as unfinished,
        helped_by(7),
    ):
        transfer(offered, altered, np.zeros(3, dtype=np.uint64), source)
    assert (list(unfinished.value.lost), unfinished.value.faults) == ([7], {})


def test_a_vote_whose_circuit_started_is_not_held_again_under_its_id(tmp_path: Path) -> None:
    """The note is on disk before the server's transfers leave."""
    grid = signed(tmp_path)
    ledger, noted = Ledger.open(tmp_path / "server.ledger", BUDGET), list[tuple[Kind, bool]]()

    def interrupt(message: Message) -> Message:
        kind = Letter.read(message.content).kind
        noted.append((kind, any(entry.unfinished for entry in Ledger(ledger.path).entries())))
        if kind is Kind.HELP:
            raise KeyboardInterrupt
        return message

    grid.tamper = interrupt
    with pytest.raises(KeyboardInterrupt):
        held(grid, tmp_path, ledger=ledger, entry="vote")
    assert next(kind for kind, started in noted if started) is Kind.HELP
    asked = [len(member.letters) for member in grid.nodes.values()]
    with pytest.raises(LedgerError, match="was started, and no result of it was noted"):
        held(grid, tmp_path, ledger=ledger, entry="vote")
    assert [len(member.letters) for member in grid.nodes.values()] == asked
    assert ledger.spent().epsilon == 8.0


def test_an_answer_that_opens_nothing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an answer opens may say something about the sum: it is not tried again for free."""
    grid = signed(tmp_path)
    ledger = Ledger.open(tmp_path / "server.ledger", BUDGET)

    def garbled(*_: object) -> None:
        raise ProtocolError("a label is none of two")

    monkeypatch.setattr("urna.flower.leader.open_winner", garbled)
    with pytest.raises(RoundUnfinished, match="a label is none of two"):
        held(grid, tmp_path, ledger=ledger)
    assert ledger.spent().epsilon > 0.0


def test_a_restarted_helper_garbles_nothing(tmp_path: Path) -> None:
    grid = signed(tmp_path, {HELP: "restart"})
    with pytest.raises(RoundUnfinished, match="holds no state of a round"):
        held(grid, tmp_path)


def test_a_helper_garbles_once(tmp_path: Path) -> None:
    grid = signed(tmp_path)
    held(grid, tmp_path)
    helper = 1000 - VOTERS
    (asked,) = [each for each in grid.nodes[helper].letters if each.kind is Kind.HELP]
    (name,) = grid.push_messages([Message(asked.as_records(), helper, "query.urna")])
    (reply,) = grid.pull_messages([name])
    assert "holds no state" in Reply.read(reply.content).refused


def test_an_altered_request_to_the_helper_opens_nothing(tmp_path: Path) -> None:
    grid = signed(tmp_path)

    def tamper(message: Message) -> Message:
        letter = Letter.read(message.content)
        if letter.kind is Kind.HELP:
            body = bytearray(letter.body)
            body[500] ^= 1
            message.content = replace(letter, body=bytes(body)).as_records()
        return message

    grid.tamper = tamper
    with pytest.raises(RoundUnfinished, match="altered on its way"):
        held(grid, tmp_path)


def test_voters_refuse_a_helper_they_do_not_name(tmp_path: Path) -> None:
    grid = signed(tmp_path, trusted="somebody-else")
    with pytest.raises(RoundAborted, match="none of those this node grants by name"):
        held(grid, tmp_path)


def test_voters_refuse_a_helper_that_nobody_proves(tmp_path: Path) -> None:
    granted = replace(OPEN, grants={"winner": Grant(names=("h",))})
    voters = [node(n, policy=granted) for n in range(4)]
    helper = Node(app_of(Helper(policy=granted, name=lambda _: "h")), {})
    with pytest.raises(RoundAborted, match="nothing proves who the helper is"):
        poll(
            federation(*voters, helper),
            SPACE,
            budget=BUDGET,
            settings=VoteSettings(reveal=Reveal("winner", "h")),
        )


def test_voters_refuse_where_their_policy_names_no_helpers(tmp_path: Path) -> None:
    grid = signed(tmp_path)
    for number in range(VOTERS):
        policy = replace(policy_of(tmp_path, number), grants={"winner": Grant()})
        grid.nodes[1000 - number] = node(number, policy=policy)
    with pytest.raises(RoundAborted, match="does not name the helpers it trusts"):
        held(grid, tmp_path)


def test_without_the_helper_nothing_is_begun(tmp_path: Path) -> None:
    grid = signed(tmp_path, {0: "silent"})
    with pytest.raises(RoundAborted, match=f"the helper {HELPER} takes no part"):
        held(grid, tmp_path, deadlines=replace(QUICK, evaluate=5.0))
    assert not Ledger.open(tmp_path / "0.ledger", Budget(20.0, 1e-4)).entries()


def test_a_voters_app_is_a_helper_where_the_node_says_so(tmp_path: Path) -> None:
    grid = signed(tmp_path)
    voter: Voter[float] = Voter(Near(), lambda _: 0.4, policy=policy_of(tmp_path, VOTERS))
    grid.nodes[1000 - VOTERS] = Node(app_of(voter), {"urna-helper": True})
    assert held(grid, tmp_path).best == {"lr": 0.4}
