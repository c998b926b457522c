"""Verified ballots over Flower's messages: who is refused is named; nobody takes another's word."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

from cheating_helper import NO_POINTS, CheatingHelper
from flower_counts import (
    BUDGET,
    CAST,
    EXAMINE,
    HELP,
    HELPER,
    HELPING,
    SHORT,
    VOTERS,
    VOUCH,
    Change,
    again,
    answering,
    changing,
    held,
    policy_of,
    rewriting,
    signed,
    spent,
    stuffing,
)
from flower_grid import Node
from flower_nodes import SPACE, Near, announced, app_of, federation, node
from flower_tricks import Answer
from flwr.app import Context, Message, RecordDict

from urna.errors import (
    LedgerError,
    ParameterError,
    ProtocolError,
    RoundAborted,
    RoundFailed,
    RoundUnfinished,
)
from urna.flower import (
    DirectoryFile,
    Grant,
    Helper,
    NodeKey,
    Transcript,
    Voter,
    VoteSubject,
    poll,
)
from urna.flower.announcement import Announcement
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.transcript import Ending, sum_digest
from urna.privacy import Ledger
from urna.protocols.ballots import PublicParameters
from urna.protocols.ballots.helper import Confirmed, Examined, confirm
from urna.protocols.ballots.messages import (
    Confirmation,
    Verdict,
    decode_announcement,
    encode_announcement,
)
from urna.protocols.ballots.report import vouch_for
from urna.protocols.secagg.keys import KeyPair, sign_receipt
from urna.randomness import OsSecrets
from urna.systems.vote import Reveal, VoteSettings


def begins(*clients: int) -> Callable[[Letter], bool]:
    return lambda letter: letter.kind is Kind.BEGIN and letter.client in clients


def test_nodes_and_a_helper_open_the_winner_and_everybody_counts_it(quick_path: Path) -> None:
    grid = signed(quick_path)
    result = held(grid, quick_path, ledger=Ledger.open(quick_path / "server.ledger", BUDGET))
    assert result.best == {"lr": 0.4}
    assert (result.took_part, dict(result.lost), dict(result.faults)) == (VOTERS, {}, {})
    assert "together they could read every ballot" in str(result)
    assert "every ballot counted was verified" in str(result)
    assert [spent(quick_path, number) for number in range(VOTERS + 1)] == [8.0] * (VOTERS + 1)
    assert Ledger(quick_path / "server.ledger").spent().epsilon == 8.0
    assert all(not member.state for member in grid.nodes.values())


def test_voters_are_asked_once_and_the_helper_three_times(quick_path: Path) -> None:
    """After the gathering: vouch, cast, examine, confirm. A tally's nodes are asked four times."""
    grid = signed(quick_path)
    stages: list[str] = []
    held(grid, quick_path, progress=lambda at: stages.append(at.stage))
    kinds = [[letter.kind for letter in member.letters] for member in grid.nodes.values()]
    *voters, helper = ([k for k in some if k is not Kind.END] for some in kinds)
    assert voters == [[Kind.ANNOUNCE, Kind.BEGIN]] * VOTERS
    assert helper == [Kind.ANNOUNCE, Kind.BEGIN, Kind.STAGE, Kind.HELP]
    assert list(dict.fromkeys(stages)) == [
        "gathering",
        "opening the count",
        "computing and casting ballots",
        "examining ballots",
        "finding the winner",
    ]


def test_a_transcript_names_who_was_refused_and_digests_what_was_opened(quick_path: Path) -> None:
    grid = signed(quick_path, tricks={2: stuffing(quick_path, 2)})
    result = held(grid, quick_path, dropout=0.3, transcripts=quick_path / "transcripts")
    (kept,) = (quick_path / "transcripts").glob("*.json")
    found = Transcript.read(kept.read_bytes())
    assert found.sum_digest == sum_digest(result.total)
    assert found.faults == {"site-2": "its ballot is not valid: the proof fails"}
    assert set(found.survivors) == set(found.announcement.names) - {"site-2"}
    assert found.problems(directory=DirectoryFile.read(quick_path / "directory.toml")) == []


# --- clients that cheat, fail or are lost ---------------------------------------------------


def in_another_name(report: bytes) -> bytes:
    return report[:6] + (3).to_bytes(4, "big") + report[10:]


def test_a_stuffed_ballot_is_named_and_the_others_are_counted(quick_path: Path) -> None:
    grid = signed(quick_path, tricks={2: stuffing(quick_path, 2)})
    result = held(grid, quick_path, dropout=0.3)
    why = "site-2: its ballot is not valid: the proof fails"
    assert result.best == {"lr": 0.4}
    assert result.took_part == VOTERS - 1
    assert dict(result.faults) == dict(result.lost) == {998: why}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda report: report[:-1], "too short"),
        (lambda report: report[:-1] + bytes([report[-1] ^ 1]), "not signed by it"),
        (in_another_name, "in the name of client 3"),
        (lambda _: b"no report", "no message of a verified count"),
    ],
    ids=["short", "signature", "name", "garbage"],
)
def test_a_report_that_is_none_costs_its_sender_alone(
    quick_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    grid = signed(quick_path, tricks={2: rewriting(change)})
    result = held(grid, quick_path, dropout=0.3)
    assert result.took_part == VOTERS - 1
    # It may have been altered on the way: its sender is lost and not to blame.
    assert (list(result.lost), dict(result.faults)) == ([998], {})
    assert said in result.lost[998]


def test_too_many_invalid_ballots_open_nothing_and_are_named(quick_path: Path) -> None:
    grid = signed(quick_path, tricks={2: stuffing(quick_path, 2)})
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    with pytest.raises(RoundAborted, match="3 valid ballots are left") as aborted:
        held(grid, quick_path, ledger=ledger)
    assert aborted.value.faults == {998: "site-2: its ballot is not valid: the proof fails"}
    assert (ledger.spent().epsilon, spent(quick_path, VOTERS)) == (0.0, 0.0)


def test_lost_clients_are_named_and_too_many_open_nothing(quick_path: Path) -> None:
    grid = signed(quick_path, lost={2: {CAST: "silent"}, 3: {CAST: "crash"}})
    result = held(grid, quick_path, dropout=0.3, deadlines=SHORT)
    assert result.took_part == VOTERS - 2
    assert dict(result.lost) == {
        998: "site-2: did not answer in time (cast)",
        997: "site-3: refused: its ClientApp failed",
    }
    assert not result.faults


def test_fewer_reports_than_announced_open_nothing(quick_path: Path) -> None:
    grid = signed(quick_path, lost={2: {CAST: "silent"}})
    with pytest.raises(RoundAborted, match="3 valid ballots are left") as aborted:
        held(grid, quick_path, deadlines=SHORT)
    assert aborted.value.lost == {998: "site-2: did not answer in time (cast)"}
    assert spent(quick_path, 0) == 0.0  # the helper has signed that it will never count it


def test_data_that_fail_are_an_empty_ballot_in_silence(quick_path: Path) -> None:
    def broken(context: Context) -> float:
        raise ValueError("SECRET-OF-THE-NODE")

    grid = signed(quick_path)
    grid.nodes[998] = node(2, policy=policy_of(quick_path, 2), data=broken)
    result = held(grid, quick_path)
    assert (result.took_part, dict(result.lost), dict(result.faults)) == (VOTERS, {}, {})
    assert spent(quick_path, 2) == 8.0


# --- a helper that is lost, restarted, asked twice or lied to -------------------------------


@pytest.mark.parametrize("letter", [VOUCH, EXAMINE])
def test_a_lost_helper_aborts_before_anything_is_opened(quick_path: Path, letter: int) -> None:
    grid = signed(quick_path, lost={VOTERS: {letter: "silent"}})
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    with pytest.raises(RoundAborted, match=f"{HELPER} did not answer in time") as aborted:
        held(grid, quick_path, ledger=ledger, deadlines=SHORT)
    assert list(aborted.value.lost) == [HELPING]
    assert (ledger.spent().epsilon, spent(quick_path, VOTERS)) == (0.0, 0.0)
    assert spent(quick_path, 0) == (0.0 if letter == VOUCH else 8.0)


@pytest.mark.parametrize(
    ("letter", "failed", "cost"), [(EXAMINE, RoundAborted, 0.0), (HELP, RoundUnfinished, 8.0)]
)
def test_a_restarted_helper_answers_nothing(
    quick_path: Path, letter: int, failed: type[RoundFailed], cost: float
) -> None:
    grid = signed(quick_path, lost={VOTERS: {letter: "restart"}})
    with pytest.raises(failed, match="holds no state of a round"):
        held(grid, quick_path)
    assert [spent(quick_path, number) for number in range(VOTERS + 1)] == [cost] * VOTERS + [0.0]


def test_a_helper_that_is_lost_once_the_circuit_started_costs_the_vote(quick_path: Path) -> None:
    grid = signed(quick_path, lost={VOTERS: {HELP: "silent"}})
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match=f"{HELPER} did not answer in time") as unfinished:
        held(grid, quick_path, ledger=ledger, deadlines=SHORT)
    assert (list(unfinished.value.lost), unfinished.value.receipts) == ([HELPING], {})
    assert ledger.spent().epsilon == 8.0
    assert [spent(quick_path, number) for number in range(VOTERS)] == [8.0] * VOTERS


def test_a_count_whose_circuit_started_is_not_held_again_under_its_id(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    grid = signed(quick_path)
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    monkeypatch.setattr("urna.flower.leader.open_winner", interrupted)
    with pytest.raises(KeyboardInterrupt):
        held(grid, quick_path, ledger=ledger, entry="vote")
    with pytest.raises(LedgerError, match="was started, and no result of it was noted"):
        held(grid, quick_path, ledger=ledger, entry="vote")
    assert ledger.spent().epsilon == 8.0


def test_a_helper_that_has_the_transfers_cannot_take_the_charge_back(quick_path: Path) -> None:
    """It keeps what it was sent, looks lost, and would sign that it never confirms."""
    heard: list[bytes] = []

    def trick(answer: Answer, letter: Letter, context: Context) -> Reply:
        if letter.kind is not Kind.HELP:
            return answer(letter, context)
        if not letter.announcement:
            heard.append(letter.beside)
            return Reply.refusal("the helper is lost")
        final = Announcement.read(letter.announcement)
        coin = final.coin(letter.number, letter.inputs)
        identity = NodeKey.read(quick_path / f"{VOTERS}.key").identity(letter.client)
        return Reply(sign_receipt(identity, final.round_id(letter.number, coin)))

    grid = signed(quick_path, tricks={VOTERS: trick})
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match="the helper is lost"):
        held(grid, quick_path, ledger=ledger, transcripts=quick_path / "transcripts")
    assert len(heard) == 1
    assert not [at for at in grid.nodes[HELPING].letters if at.kind is Kind.HELP and not at.body]
    assert ledger.spent().epsilon == 8.0
    assert [spent(quick_path, number) for number in range(VOTERS)] == [8.0] * VOTERS
    (kept,) = (quick_path / "transcripts").glob("*.json")
    found, policy = Transcript.read(kept.read_bytes()), policy_of(quick_path, 0)
    receipt = sign_receipt(NodeKey.read(quick_path / f"{VOTERS}.key").identity(0), found.round_id)
    assert found.ending is Ending.UNFINISHED
    assert not replace(found, receipts={HELPER: receipt}).void_for("site-0", policy)


def test_a_helper_that_answers_with_half_the_offer_reads_nothing_and_the_vote_counts(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheat = CheatingHelper([127]).installed(monkeypatch, "urna.flower.helper.garble")
    grid = signed(quick_path)
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match="coincide"):
        held(grid, quick_path, ledger=ledger)
    assert (cheat.heard, cheat.totals) == ([], [])
    assert ledger.spent().epsilon == 8.0
    assert [spent(quick_path, number) for number in range(VOTERS)] == [8.0] * VOTERS


@pytest.mark.parametrize("name", NO_POINTS)
def test_a_helper_that_signs_what_is_no_point_is_named(
    name: str, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheat = CheatingHelper([127], point=NO_POINTS[name])
    cheat.installed(monkeypatch, "urna.flower.helper.garble")
    with pytest.raises(RoundUnfinished) as unfinished:
        held(signed(quick_path), quick_path)
    assert "no point of the curve" in unfinished.value.faults[HELPING]
    assert not unfinished.value.lost


NO_KEYS = {
    "top bit": lambda key: key[:-1] + bytes([key[-1] | 128]),
    "not reduced": lambda _: (2**255 - 10).to_bytes(32, "little"),
    "small order": lambda _: (1).to_bytes(32, "little"),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_a_helper_that_signs_a_key_on_which_nothing_can_be_agreed_is_named(
    name: str, quick_path: Path
) -> None:
    def forge(reply: Reply) -> Reply:
        statement = decode_announcement(reply.body).statement
        key = NodeKey.read(quick_path / f"{VOTERS}.key").identity(0)
        bare = replace(statement, helper_key=b"")
        wrong = vouch_for(bare, NO_KEYS[name](statement.helper_key), key)
        return replace(reply, body=encode_announcement(wrong))

    grid = signed(quick_path, tricks={VOTERS: answering(Kind.BEGIN, forge)})
    with pytest.raises(RoundAborted) as aborted:
        held(grid, quick_path, transcripts=quick_path / "transcripts")
    assert "the helper's key cannot be used" in aborted.value.faults[HELPING]
    assert not aborted.value.lost
    (kept,) = (quick_path / "transcripts").glob("*.json")
    assert list(Transcript.read(kept.read_bytes()).faults) == [HELPER]


@pytest.mark.parametrize("letter", [VOUCH, EXAMINE, HELP])
def test_a_helper_answers_each_letter_once_even_on_its_old_state(
    quick_path: Path, letter: int
) -> None:
    """Flower may run two messages of a node at once, each on the same state."""
    grid = signed(quick_path)
    helper = grid.nodes[HELPING]
    states: dict[int, RecordDict] = {}
    push = grid._deliver

    def deliver(message: Message) -> None:
        states.setdefault(len(helper.letters), RecordDict(dict(helper.state.items())))
        push(message)

    grid._deliver = deliver  # type: ignore[method-assign]
    held(grid, quick_path)
    asked = helper.letters[letter]
    if letter != VOUCH:
        assert "holds no state" in again(grid, HELPING, asked).refused
    helper.state = states[letter]
    assert "answered this stage of the round before" in again(grid, HELPING, asked).refused


def test_a_helper_confirms_a_count_or_gives_it_up_and_never_both(quick_path: Path) -> None:
    grid = signed(quick_path, lost={VOTERS: {HELP: "silent", HELP + 1: "silent"}})
    with pytest.raises(RoundUnfinished):
        held(grid, quick_path, deadlines=SHORT)
    helper = grid.nodes[HELPING]
    confirm, state = helper.letters[HELP], RecordDict(dict(helper.state.items()))
    give_up = replace(helper.letters[VOUCH], kind=Kind.HELP, body=b"")
    assert len(again(grid, HELPING, give_up).body) == 64
    assert "holds no state" in again(grid, HELPING, confirm).refused
    helper.state = state
    assert "answered this stage of the round before" in again(grid, HELPING, confirm).refused
    assert "answered this stage of the round before" in again(grid, HELPING, give_up).refused


def lengthened(letter: Letter) -> Letter:
    return replace(letter, beside=letter.beside + b"?")


def test_what_was_confirmed_is_not_given_up_and_voters_count_it(quick_path: Path) -> None:
    grid = signed(quick_path)
    altered = changing(grid, lambda at: at.kind is Kind.HELP and bool(at.body), lengthened)
    with pytest.raises(RoundUnfinished, match="altered on its") as unfinished:
        held(grid, quick_path)
    assert (len(altered), unfinished.value.receipts) == (1, {})
    assert spent(quick_path, 0) == spent(quick_path, VOTERS) == 8.0


def test_only_the_helpers_own_receipt_voids_a_count(quick_path: Path) -> None:
    """Not those of all others, who hold nothing with which it is opened."""
    grid = signed(quick_path, tricks={2: stuffing(quick_path, 2)})
    with pytest.raises(RoundAborted):
        held(grid, quick_path, transcripts=quick_path / "transcripts")
    (kept,) = (quick_path / "transcripts").glob("*.json")
    void, policy = Transcript.read(kept.read_bytes()), policy_of(quick_path, 0)
    assert set(void.receipts) == {HELPER}
    assert void.void_for("site-0", policy)
    assert not replace(void, receipts={}).void_for("site-0", policy)
    assert not replace(void, receipts={HELPER: bytes(64)}).void_for("site-0", policy)
    keys = [NodeKey.read(quick_path / f"{number}.key") for number in range(VOTERS)]
    others = {key.name: sign_receipt(key.identity(0), void.round_id) for key in keys}
    forged = replace(void, receipts=others)
    assert forged.problems(directory=policy.directory_file()) == []
    assert not forged.void_for("site-0", policy)


def test_a_voter_casts_once(quick_path: Path) -> None:
    grid = signed(quick_path)
    held(grid, quick_path)
    asked = grid.nodes[1000].letters[CAST]
    assert "answered this stage of the round before" in again(grid, 1000, asked).refused


def flipped(data: bytes, at: int = 300) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


ALTERED: Mapping[str, tuple[Kind, Change, str]] = {
    "batch": (Kind.STAGE, lambda at: replace(at, body=flipped(at.body)), "no batch of the other"),
    "offer": (Kind.STAGE, lambda at: replace(at, beside=flipped(at.beside, 90)), "no winner"),
    "no offer": (Kind.STAGE, lambda at: replace(at, beside=b""), "OFFER has"),
    "verdict": (Kind.HELP, lambda at: replace(at, body=flipped(at.body, 30)), "no verdict"),
    "transfer": (Kind.HELP, lambda at: replace(at, beside=flipped(at.beside)), "altered on its"),
    "no transfer": (Kind.HELP, lambda at: replace(at, beside=b""), "altered on its"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_letter_to_the_helper_opens_nothing_and_blames_no_voter(
    quick_path: Path, name: str
) -> None:
    kind, change, said = ALTERED[name]
    grid = signed(quick_path)
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    altered = changing(grid, lambda at: at.kind is kind and bool(at.beside), change)
    started = kind is Kind.HELP
    with pytest.raises(RoundUnfinished if started else RoundAborted, match=said) as failed:
        held(grid, quick_path, ledger=ledger)
    assert len(altered) == 1
    assert (list(failed.value.lost), failed.value.faults) == ([HELPING], {})
    assert ledger.spent().epsilon == (8.0 if started else 0.0)


@pytest.mark.parametrize(
    ("kind", "change", "counts"),
    [
        (Kind.BEGIN, lambda at: replace(at, body=flipped(at.body, 3)), False),
        (Kind.STAGE, lambda at: replace(at, body=flipped(at.body)), False),
        (Kind.STAGE, lambda at: replace(at, beside=flipped(at.beside)), True),
        (Kind.HELP, lambda at: replace(at, body=flipped(at.body, 30)), True),
        (Kind.HELP, lambda at: replace(at, beside=flipped(at.beside)), True),
    ],
    ids=["vouching", "answers", "answer", "opening", "circuit"],
)
def test_an_altered_answer_of_the_helper_opens_nothing_and_counts_once_the_circuit_started(
    quick_path: Path, kind: Kind, change: Callable[[Reply], Reply], counts: bool
) -> None:
    grid = signed(quick_path, tricks={VOTERS: answering(kind, change)})
    ledger = Ledger.open(quick_path / "server.ledger", BUDGET)
    with pytest.raises(RoundUnfinished if counts else RoundAborted) as failed:
        held(grid, quick_path, ledger=ledger)
    assert (list(failed.value.lost), failed.value.faults) == ([HELPING], {})
    assert ledger.spent().epsilon == (8.0 if counts else 0.0)


def test_a_helper_that_confirms_another_batch_is_not_believed(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirmed(examined: Examined, verdict: Verdict) -> tuple[Confirmed, Confirmation]:
        state, _ = confirm(examined, verdict)
        return state, Confirmation(bytes(32))

    monkeypatch.setattr("urna.protocols.ballots.helper.confirm", confirmed)
    with pytest.raises(RoundUnfinished, match="confirmed another batch") as unfinished:
        held(signed(quick_path), quick_path)
    assert list(unfinished.value.faults) == [HELPING]


def test_only_a_verified_count_is_given_up(quick_path: Path) -> None:
    grid = signed(quick_path, limits={VOTERS: {"grants": {"winner": Grant(names=(HELPER,))}}})
    names = tuple(f"site-{number}" for number in range(VOTERS + 1))
    masked = VoteSubject(SPACE, reveal=Reveal("winner", HELPER))
    final = announced(masked, names=names, signed=True, budget=BUDGET)
    letter = Letter(Kind.HELP, announcement=final.as_bytes(), client=VOTERS, number=1)
    assert "only a verified count is given up" in again(grid, HELPING, letter).refused


def test_the_helper_itself_insists_on_the_fewest_ballots(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urna.protocols.ballots.leader.check_enough", lambda *_: None)
    grid = signed(quick_path, lost={2: {CAST: "crash"}})
    with pytest.raises(RoundAborted, match="3 valid ballots are left; the statement asks for 4"):
        held(grid, quick_path)
    assert spent(quick_path, VOTERS) == 0.0


def test_the_helper_itself_decides_on_every_ballot(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urna.protocols.ballots.leader.judge", lambda _, kept, answers: tuple(kept))
    grid = signed(quick_path, tricks={2: stuffing(quick_path, 2)})
    with pytest.raises(RoundUnfinished, match=r"verdict on clients \[2\] is not what follows"):
        held(grid, quick_path)
    assert spent(quick_path, VOTERS) == 0.0


def test_a_helper_that_asks_for_more_ballots_does_not_vouch(quick_path: Path) -> None:
    grid = signed(quick_path, limits={VOTERS: {"fewest_clients": VOTERS + 1}})
    with pytest.raises(RoundAborted, match="opens nothing with fewer than 5 valid ballots"):
        held(grid, quick_path)
    assert spent(quick_path, 0) == 0.0


# --- a server that lies ---------------------------------------------------------------------

Forge = Callable[[PublicParameters], PublicParameters]


def plan_with(**changes: Any) -> Forge:
    return lambda statement: replace(statement, plan=replace(statement.plan, **changes))


def layout_with(**changes: Any) -> Forge:
    def forge(statement: PublicParameters) -> PublicParameters:
        return plan_with(layout=replace(statement.plan.layout, **changes))(statement)

    return forge


FORGED: Mapping[str, Forge] = {
    "least": plan_with(least=3),
    "clients": plan_with(clients=5),
    "candidates": layout_with(candidates=9),
    "levels": layout_with(levels=7),
    "session": lambda statement: replace(statement, session=bytes(32)),
    "number": lambda statement: replace(statement, number=2),
}


def vouched_by(folder: Path, number: int, forge: Forge) -> Change:
    """Put another statement in the place of the one announced, signed by somebody."""

    def change(letter: Letter) -> Letter:
        forged = forge(decode_announcement(letter.body).statement)
        identity = NodeKey.read(folder / f"{number}.key").identity(number)
        signed_again = vouch_for(forged, forged.helper_key, identity)
        return replace(letter, body=encode_announcement(signed_again))

    return change


def test_a_voter_refuses_a_statement_that_is_not_the_one_announced(quick_path: Path) -> None:
    """Also if the helper itself has signed it; the right one it answers all the same."""
    grid = signed(quick_path, lost={1: {CAST: "silent"}})
    held(grid, quick_path, dropout=0.3, deadlines=SHORT)
    honest = grid.nodes[999].letters[CAST]
    for name, forge in FORGED.items():
        refused = again(grid, 999, vouched_by(quick_path, VOTERS, forge)(honest)).refused
        assert refused.startswith("the statement"), name
    for forge in (lambda statement: statement, with_own_key):
        refused = again(grid, 999, vouched_by(quick_path, 0, forge)(honest)).refused
        assert refused == "the statement is not signed by the helper that is known"
    assert spent(quick_path, 1) == 0.0
    assert again(grid, 999, honest).body
    assert spent(quick_path, 1) == 8.0


def with_own_key(statement: PublicParameters) -> PublicParameters:
    return replace(statement, helper_key=KeyPair.draw(OsSecrets()).public)


def test_a_voter_reads_the_helpers_key_in_its_own_directory(quick_path: Path) -> None:
    own = quick_path / "own.toml"
    grid = signed(quick_path, limits={1: {"directory": own}})
    other = NodeKey.draw(HELPER, OsSecrets())
    keys = DirectoryFile.read(quick_path / "directory.toml").keys
    own.write_text(DirectoryFile({**keys, HELPER: other.public}).as_toml(), encoding="utf-8")
    result = held(grid, quick_path, dropout=0.3)
    assert "not signed by the helper that is known" in result.lost[999]


def test_a_voter_refuses_the_statement_of_an_earlier_vote(quick_path: Path) -> None:
    grid = signed(quick_path, limits={n: {"epsilon": 50.0} for n in range(VOTERS + 1)})
    held(grid, quick_path)
    (earlier,) = [at for at in grid.nodes[999].letters if at.kind is Kind.BEGIN]
    changing(grid, begins(1), lambda letter: replace(letter, body=earlier.body))
    result = held(grid, quick_path, dropout=0.3)
    assert "refused: the statement is one of another announcement" in result.lost[999]


def test_the_helper_vouches_for_nothing_but_what_was_announced(quick_path: Path) -> None:
    grid = signed(quick_path, lost={VOTERS: {VOUCH: "silent"}})
    with pytest.raises(RoundAborted):
        held(grid, quick_path, deadlines=SHORT)
    honest = grid.nodes[HELPING].letters[VOUCH]
    statement = PublicParameters.read(honest.body)
    for name, forge in FORGED.items():
        forged = replace(honest, body=forge(statement).encode())
        assert again(grid, HELPING, forged).refused.startswith("the statement"), name
    assert "cannot be read" in again(grid, HELPING, replace(honest, body=b"{}")).refused
    assert decode_announcement(again(grid, HELPING, honest).body).statement.helper_key


def test_one_announcement_has_one_count(quick_path: Path) -> None:
    """Neither the helper vouches for a second statement, nor does a voter cast in it."""
    grid = signed(quick_path)
    held(grid, quick_path)
    first = grid.nodes[HELPING].letters[VOUCH]
    mine = KeyPair.draw(OsSecrets()).public
    second = replace(PublicParameters.read(first.body), leader_key=mine)
    refused = again(grid, HELPING, replace(first, body=second.encode())).refused
    assert "answered this stage of the round before" in refused
    cast = grid.nodes[1000].letters[CAST]
    change = vouched_by(quick_path, VOTERS, lambda old: replace(old, leader_key=mine))
    refused = again(grid, 1000, change(cast)).refused
    assert "answered this stage of the round before" in refused


def test_a_voter_holds_the_announcement_against_the_names_it_was_told(quick_path: Path) -> None:
    """Two nodes that were told different things have no count in common."""
    grid = signed(quick_path)

    def change(letter: Letter) -> Letter:
        said = Announcement.read(letter.announcement)
        return replace(letter, announcement=replace(said, names=said.names[::-1]).as_bytes())

    changing(grid, begins(2), change)  # the one in the middle keeps its number
    result = held(grid, quick_path, dropout=0.3)
    assert "the statement is one of another announcement" in result.lost[998]


# --- policies and wrong use -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"grants": {"winner": Grant(names=(HELPER,))}}, "no part in sums of the kind verified"),
        ({"grants": {"verified": Grant(names=("another",))}}, "none of those this node grants"),
        ({"grants": {"verified": Grant()}}, "does not name the helpers it trusts"),
        ({"grants": {"verified": Grant(names=(HELPER,), most_entries=3)}}, "8 entries"),
        ({"fewest_clients": VOTERS}, "may be opened with"),
        ({"epsilon": 7.0}, "costs more privacy"),
    ],
    ids=["kind", "helper", "nameless", "entries", "fewest", "epsilon"],
)
def test_a_voters_own_policy_decides(
    quick_path: Path, limits: Mapping[str, Any], said: str
) -> None:
    grid = signed(quick_path, limits=dict.fromkeys(range(VOTERS), limits))
    with pytest.raises(RoundAborted, match=said):
        held(grid, quick_path, dropout=0.3)


@pytest.mark.parametrize(("number", "said"), [(0, "is not signed"), (VOTERS, "this vote is not")])
def test_neither_voter_nor_helper_takes_part_in_a_count_that_is_not_signed(
    quick_path: Path, number: int, said: str
) -> None:
    grid = signed(quick_path)
    subject = VoteSubject(SPACE, reveal=Reveal("winner", HELPER, verified=True))
    names = tuple(f"site-{number}" for number in range(VOTERS + 1))
    if number == VOTERS:
        helper = Helper(policy=policy_of(quick_path, VOTERS), name=lambda _: HELPER)
        grid.nodes[HELPING] = Node(app_of(helper))
    offered = announced(subject, names=names, signed=False, budget=BUDGET)
    letter = Letter(Kind.ANNOUNCE, announcement=offered.as_bytes())
    assert said in again(grid, 1000 - number, letter).refused


def test_a_vote_with_another_proof_is_not_read() -> None:
    subject = VoteSubject(SPACE, reveal=Reveal("winner", HELPER, verified=True))
    said = subject.as_mapping()
    assert VoteSubject.read(said, kind="verified") == subject
    with pytest.raises(ProtocolError, match="urna-bits, the announcement says 'prio3-sum-vec'"):
        VoteSubject.read({**said, "codec": "prio3-sum-vec"}, kind="verified")


def test_a_voters_full_ledger_refuses(quick_path: Path) -> None:
    grid = signed(quick_path, limits={1: {"epsilon": 8.5}})
    held(grid, quick_path)
    result = held(grid, quick_path, dropout=0.25)
    assert "privacy budget is too little" in result.lost[999]
    assert spent(quick_path, 1) == 8.0


def test_a_voters_app_is_a_helper_where_the_node_says_so(quick_path: Path) -> None:
    grid = signed(quick_path)
    voter: Voter[float] = Voter(Near(), lambda _: 0.4, policy=policy_of(quick_path, VOTERS))
    grid.nodes[HELPING] = Node(app_of(voter), {"urna-helper": True})
    assert held(grid, quick_path).best == {"lr": 0.4}


def test_verified_ballots_need_a_directory(quick_path: Path) -> None:
    grid = federation(node(0))
    with pytest.raises(ParameterError, match="name a directory of identity keys"):
        poll(
            grid,
            SPACE,
            budget=BUDGET,
            settings=VoteSettings(reveal=Reveal("winner", "h", verified=True)),
        )


DAY = 86_400.0


def test_a_count_that_was_given_up_is_never_confirmed(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lying server keeps the verdict back, has the count given up, and sends the verdict later.

    It has the helper's old state as well: Flower keeps one for each series of runs.
    """
    grid = signed(quick_path)
    kept: dict[str, Any] = {}

    def hold_back(message: Message) -> Message:
        letter = Letter.read(message.content)
        if letter.kind is Kind.HELP and letter.body:
            kept["letter"], kept["state"] = letter, dict(grid.nodes[HELPING].state)
            message.content = Letter(Kind.STAGE, b"").as_records()
        return message

    grid.tamper = hold_back
    with pytest.raises(RoundUnfinished):
        held(grid, quick_path, transcripts=quick_path / "transcripts")
    assert [spent(quick_path, number) for number in range(VOTERS)] == [8.0] * VOTERS
    grid.tamper = lambda message: message
    give_up = replace(grid.nodes[HELPING].letters[VOUCH], kind=Kind.HELP, body=b"")
    receipts = {HELPER: again(grid, HELPING, give_up).body}
    (kept_file,) = (quick_path / "transcripts").glob("*.json")
    told = replace(
        Transcript.read(kept_file.read_bytes()), ending=Ending.VOID, lost={}, receipts=receipts
    )
    for number in range(VOTERS):
        again(grid, 1000 - number, Letter(Kind.END, told.as_bytes()))
    assert [spent(quick_path, number) for number in range(VOTERS)] == [0.0] * VOTERS
    now = time.time
    for later in (0.0, 0.9 * DAY, 4.1 * DAY):  # claims are kept for four days
        monkeypatch.setattr(time, "time", lambda later=later: now() + later)
        grid.nodes[HELPING].state = RecordDict(dict(kept["state"]))
        assert not again(grid, HELPING, kept["letter"]).body


def test_no_second_batch_is_examined_however_late(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = signed(quick_path)
    kept: dict[str, Any] = {}

    def hold_back(message: Message) -> Message:
        letter = Letter.read(message.content)
        if letter.kind is Kind.STAGE and letter.body:
            kept["stage"], kept["before"] = letter, dict(grid.nodes[HELPING].state)
        if letter.kind is Kind.HELP and letter.body:
            kept["after"] = dict(grid.nodes[HELPING].state)
            message.content = Letter(Kind.END, b"").as_records()
        return message

    grid.tamper = hold_back
    with pytest.raises(RoundUnfinished):
        held(grid, quick_path)
    grid.tamper = lambda message: message
    now = time.time
    for later in (0.0, 4.1 * DAY):
        monkeypatch.setattr(time, "time", lambda later=later: now() + later)
        for state in ("before", "after"):
            grid.nodes[HELPING].state = RecordDict(dict(kept[state]))
            assert not again(grid, HELPING, kept["stage"]).body
