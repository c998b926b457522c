"""A server that asks for what it should not: refused by what a policy says when it says little."""

import copy
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import Node
from flower_nodes import Near, announced, app_of, ask, begin, make_keys, node
from flwr.app import Context, RecordDict

from urna.errors import ParameterError, Refused
from urna.flower import Grant, NodeKey, Participant, Policy, Statistic, Statistics, VoteSubject
from urna.flower.accounts import KEPT_SECONDS, Claims
from urna.flower.announcement import Announcement, server_statement
from urna.flower.messages import Kind, Letter
from urna.flower.site import recall
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import Member, thaw
from urna.protocols.secagg.client import Advertised
from urna.protocols.secagg.messages import Void
from urna.protocols.secagg.wire import decode, encode
from urna.randomness import ScriptedSecrets
from urna.space import Space
from urna.systems.vote import BallotShape
from urna.tally import BoundedVector

DEFAULT = Policy(epsilon=10.0, delta=1e-4, ledger=Path("unused"))
NAMES = tuple(str(n) for n in range(20))
TWO_SECONDS = 2.0


@pytest.fixture(autouse=True)
def _imported() -> None:
    """Plan a sum, so that no test waits for imports."""
    announced().round_plan  # noqa: B018


def refusal(policy: Policy, announcement: Announcement, signature: bytes = b"") -> str:
    with pytest.raises(Refused) as refused:
        policy.read_announcement(announcement.as_bytes(), signature)
    return str(refused.value)


def strict(folder: Path, **limits: Any) -> tuple[Node, Near, Policy]:
    """Return a node with a default policy and a ledger, and its objective."""
    objective = Near()
    policy = replace(DEFAULT, ledger=folder / "ledger", **limits)
    return node(0, policy=policy, objective=objective), objective, policy


def test_what_a_default_policy_accepts() -> None:
    """The other tests refuse for their own reasons."""
    accepted = announced()
    assert DEFAULT.read_announcement(accepted.as_bytes(), b"") == accepted


# Who takes part


def signed_policy(folder: Path, count: int, **limits: Any) -> Policy:
    make_keys(folder, count)
    return replace(DEFAULT, key=folder / "0.key", directory=folder / "directory.toml", **limits)


def sites(*numbers: int) -> tuple[str, ...]:
    return tuple(f"site-{n}" for n in numbers)


def test_an_electorate_that_the_server_picked_is_refused(tmp_path: Path) -> None:
    """Of 50 in the directory nine collude, and the server invites them and the victim."""
    policy = signed_policy(tmp_path, 50)
    picked = announced(names=sites(0, *range(41, 50)), signed=True)
    assert "1 clients are counted out as colluding; this node asks for 5" in refusal(policy, picked)
    # Counting out as many as collude does not help: who was left out is seen as well.
    cautious = announced(names=sites(0, *range(41, 50)), signed=True, colluding=0.5)
    assert "40 of this node's directory are left out; it allows 0" in refusal(policy, cautious)
    everybody = announced(names=sites(*range(50)), signed=True)
    assert policy.read_announcement(everybody.as_bytes(), b"") == everybody


def test_those_who_collude_are_counted_among_all_who_were_invited() -> None:
    """Where few of the invited take part, all who collude may be among them."""
    invited = announced(clients=50)
    few = invited.with_names(sites(*range(12)))
    assert (invited.terms.colluders, few.terms.colluders) == (5, 5)
    assert few.plan.release is not None
    assert few.plan.release.shares == 12 - 5
    assert DEFAULT.read_announcement(few.as_bytes(), b"") == few


@pytest.mark.parametrize(("missing", "accepted"), [(0, True), (2, True), (3, False)])
def test_a_policy_says_how_many_of_its_directory_may_be_left_out(
    tmp_path: Path, missing: int, accepted: bool
) -> None:
    policy = signed_policy(tmp_path, 20, most_missing=2)
    asked = announced(names=sites(*range(20 - missing)), signed=True, colluding=0.2)
    if accepted:
        assert policy.read_announcement(asked.as_bytes(), b"") == asked
    else:
        assert "3 of this node's directory are left out; it allows 2" in refusal(policy, asked)


def test_the_fewest_clients_are_those_who_may_be_left_in_the_end() -> None:
    assert refusal(DEFAULT, announced(clients=12, dropout=0.25)) == (
        "the sum may be opened with 9 clients in it; this node asks for 10 or more"
    )
    DEFAULT.read_announcement(announced(clients=13, dropout=0.2).as_bytes(), b"")


def test_colluders_can_be_counted_in_all_and_not_as_a_part() -> None:
    policy = replace(DEFAULT, most_colluders=4, least_colluding=0)
    assert "2 clients are counted out as colluding; this node asks for 4, however few" in refusal(
        policy, announced(clients=20)
    )
    policy.read_announcement(announced(clients=40).as_bytes(), b"")
    policy.read_announcement(announced(clients=20, colluding=0.2).as_bytes(), b"")


def test_a_vote_of_three_with_two_who_do_not_exist_is_refused() -> None:
    assert "with 3 clients in it" in refusal(DEFAULT, announced(clients=3, colluding=0.5))
    trusting = announced(clients=20, colluding=0)
    assert "a part of 0 is counted out as colluding; this node asks for 0.1" in refusal(
        DEFAULT, trusting
    )


def test_a_node_without_a_ledger_says_so_or_refuses() -> None:
    silent = Policy(epsilon=10.0, delta=1e-4)
    assert "does not say that it forgets" in refusal(silent, announced())
    replace(silent, forgets=True).read_announcement(announced().as_bytes(), b"")


# What is summed


def statistic(name: str = "devices", entries: int = 3, **changes: Any) -> Announcement:
    return announced(Statistic(name, BoundedVector(entries, 1)), **changes)


@pytest.mark.parametrize(
    ("grants", "asked", "reason"),
    [
        ({"vote": Grant()}, statistic(), "no part in sums of the kind statistic"),
        ({}, announced(), "no part in sums of the kind vote"),
        ({"statistic": Grant(2)}, statistic(), "3 entries are announced; this node allows 2"),
        ({"statistic": Grant()}, statistic(rounds=2), "2 rounds are announced"),
        ({"statistic": Grant(names=("ages",))}, statistic(), "none of those this node grants"),
        ({"vote": Grant(names=("ages",))}, announced(), "none of those this node grants"),
    ],
    ids=["kind", "nothing", "entries", "rounds", "name", "no name"],
)
def test_what_is_not_granted_is_refused(
    grants: dict[str, Grant], asked: Announcement, reason: str
) -> None:
    assert reason in refusal(replace(DEFAULT, grants=grants), asked)


def test_what_is_granted_by_name_and_size_is_accepted() -> None:
    policy = replace(DEFAULT, grants={"statistic": Grant(3, 5, ("devices", "ages"))})
    for asked in (statistic(), statistic("ages", rounds=5)):
        assert policy.read_announcement(asked.as_bytes(), b"") == asked


def test_a_policy_file_grants_by_kind(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    head = "[privacy]\nepsilon = 1\ndelta = 1e-5\n"
    file.write_text(f'{head}[grant.statistic]\nmost_entries = 7\nnames = ["devices"]\n')
    assert Policy.read(file).grants == {"statistic": Grant(7, 1, ("devices",))}
    for wrong, says in (("", "grants nothing"), ("[grant]\nvote = 3", "the policy"),
                        ("[grant.vote]\nmost_entries = 0", "at least one entry"),
                        ("[grant.vote]\nmost = 1", "got most")):  # fmt: skip
        file.write_text(head + wrong)
        with pytest.raises(ParameterError, match=says):
            Policy.read(file)


def test_a_kind_that_nobody_knows_is_refused() -> None:
    mapping = json.loads(announced().as_bytes()) | {"kind": "raid"}
    data = json.dumps(mapping, separators=(",", ":")).encode()
    with pytest.raises(Refused, match="no part in sums of the kind raid"):
        DEFAULT.read_announcement(data, b"")


# How much it takes to find out


def written(**changes: Any) -> bytes:
    """Return an announcement with some values in the place of others, however deep."""
    mapping: Any = json.loads(announced().as_bytes())
    for path, value in changes.items():
        *way, last = path.split("__")
        inner = mapping
        for step in way:
            inner = inner[int(step)] if step.isdecimal() else inner[step]
        inner[last] = value
    return json.dumps(mapping, separators=(",", ":")).encode()


def many_names() -> bytes:
    return announced(names=[str(n) for n in range(50_000)]).as_bytes()


def many_candidates() -> bytes:
    space = Space(a=list(range(10_000)))
    return announced(VoteSubject(space, BallotShape.ranked(1000.0, 10_000))).as_bytes()


@pytest.mark.parametrize(
    "hostile",
    [
        lambda: b"[" * 4_000_000,
        lambda: b'{"version":3' + b" " * 3_999_999,
        lambda: b"[" * 999_999,
        lambda: written(subject__space__axes__0__values=[0.1] * 87_000),
        lambda: written(subject__space__axes__0__values=[0.1] * 10_000),
        lambda: written(
            subject__space={
                "axes": [{"name": "a", "kind": "ordinal", "values": [0.5] * 87_000}],
                "chosen": [0],
            }
        ),
        lambda: written(
            subject__space__axes=[
                {"name": f"a{n}", "kind": "ordinal", "values": [1]} for n in range(20_000)
            ]
        ),
        lambda: written(terms__clients=50_000),
        many_names,
        lambda: written(terms__dropout="1e-1000000000"),
        lambda: written(terms__colluding="1e-1000000000"),
        lambda: written(terms__epsilon=1e-300, terms__delta=1e-30),
        lambda: written(terms__delta=1e-300),
        lambda: written(subject__ballot__weights=[10**4000]),
        lambda: written(subject__ballot__weights=[2**62]),
        lambda: written(rounds=10**9),
        lambda: written(seconds=1e300),
    ],
    ids=["4 MB", "4 MB of spaces", "deep", "350 kB of one value", "10,000 of one value",
         "350 kB behind a choice", "20,000 axes", "50,000 clients", "50,000 names", "exponent",
         "colluding exponent", "no epsilon", "no delta", "4,000 digits", "62 bits", "rounds",
         "seconds"],
)  # fmt: skip
def test_what_is_too_much_is_refused_at_once(tmp_path: Path, hostile: Callable[[], bytes]) -> None:
    data = hostile()
    member, objective, _ = strict(tmp_path)
    start = time.process_time()
    reply = ask(member, Letter(Kind.ANNOUNCE, announcement=data))
    assert time.process_time() - start < TWO_SECONDS
    assert reply.refused
    assert "failed" not in reply.refused, "it is refused and not an error"
    assert objective.calls == 0


@pytest.mark.parametrize(
    "large",
    [
        many_candidates,
        lambda: announced(clients=10_000, dropout=0.5).as_bytes(),
        lambda: announced(clients=9_999, dropout="1/3", colluding="1/3").as_bytes(),
    ],
    ids=["10,000 candidates", "10,000 clients", "odd parts"],
)
def test_what_is_large_and_allowed_is_planned_at_once(
    tmp_path: Path, large: Callable[[], bytes]
) -> None:
    data, (member, _, _) = large(), strict(tmp_path)
    start = time.process_time()
    assert ask(member, Letter(Kind.ANNOUNCE, announcement=data)).refused == ""
    assert time.process_time() - start < TWO_SECONDS


def test_a_wrong_signature_is_seen_before_anything_is_parsed() -> None:
    key, other = (NodeKey.draw("server", ScriptedSecrets(label)) for label in (b"1", b"2"))
    policy, asked = replace(DEFAULT, server_key=key.public), announced()
    data = asked.as_bytes()
    with patch.object(Announcement, "read", side_effect=AssertionError("parsed")):
        for signature in (b"", bytes(64), other.sign(server_statement(data)), key.sign(data)):
            assert "not signed by the server" in refusal(policy, asked, signature)
    assert policy.read_announcement(data, key.sign(server_statement(data))) == asked


# Time, repetition and old letters


DAY = 86_400


@pytest.mark.parametrize(("ahead", "accepted"), [(-DAY - 60, False), (-3600, True), (0, True),
                                                 (DAY - 60, True), (DAY + 60, False)])  # fmt: skip
def test_a_node_answers_what_is_of_about_its_own_time(ahead: int, accepted: bool) -> None:
    asked = announced(issued=int(time.time()) + ahead)
    if accepted:
        assert DEFAULT.read_announcement(asked.as_bytes(), b"") == asked
    else:
        assert "not of about this node's time" in refusal(DEFAULT, asked)


def test_a_clock_a_day_ahead_locks_nobody_out(tmp_path: Path) -> None:
    """A node keeps no highest number: an announcement of tomorrow changes nothing today."""
    member, objective, _ = strict(tmp_path)
    tomorrow = announced(names=NAMES, issued=int(time.time()) + DAY - 60)
    assert ask(member, begin(tomorrow)).body
    today = announced(names=NAMES)
    reply = ask(member, begin(today))
    assert reply.body, reply.refused
    assert objective.calls == 2


def test_a_letter_that_begins_twice_changes_nothing(tmp_path: Path) -> None:
    member, objective, _ = strict(tmp_path)
    first = begin(announced(names=NAMES))
    assert ask(member, first).body
    state = copy.deepcopy(member.state)
    assert "answered this stage of the round before" in ask(member, first).refused
    assert member.state == state, "what it holds of the round is still there"
    assert objective.calls == 1


@pytest.mark.parametrize("rounds", [1, 5])
def test_a_round_is_begun_once_whatever_it_starts_from(tmp_path: Path, rounds: int) -> None:
    """Each start has a coin of its own; a series would count two of them as one round."""
    subject = Statistic("devices", BoundedVector(3, 1))
    policy = replace(
        DEFAULT, ledger=tmp_path / "ledger", grants={"statistic": Grant(most_rounds=5)}
    )
    app = app_of(Participant([Statistics({"devices": lambda _: [0, 1, 0]})], policy=policy))
    member = Node(app, {"partition-id": 0})
    asked = announced(subject, names=NAMES, rounds=rounds)
    assert ask(member, begin(asked, inputs=b"one model")).body
    assert "before" in ask(member, begin(asked, inputs=b"another")).refused


def test_an_old_announcement_is_not_answered_again_after_its_time(tmp_path: Path) -> None:
    member, _, _ = strict(tmp_path)
    letter = begin(announced(names=NAMES))
    assert ask(member, letter).body
    later = time.time() + KEPT_SECONDS + 1
    with patch("time.time", return_value=later):
        # The claim has gone by then, and the announcement's time has passed long before.
        assert "what this node held of a round is too old" in ask(member, letter).refused
        assert "not of about this node's time" in ask(member, letter).refused


def test_claims_expire_and_are_exclusive_until_then(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "claims")
    claims.claim(b"coin", "stage")
    with pytest.raises(Refused, match="before"):
        claims.claim(b"coin", "stage")
    claims.claim(b"coin", "other stage")
    claims.claim(b"other coin", "stage")
    assert claims.claimed(b"coin", "stage")
    assert not claims.claimed(b"third coin", "stage")
    assert not Claims(tmp_path / "none").claimed(b"coin", "stage")
    with patch("time.time", return_value=time.time() + KEPT_SECONDS + 1):
        claims.claim(b"new coin", "stage")
    assert not claims.claimed(b"coin", "stage"), "the file does not grow for ever"


def test_two_letters_on_one_old_state_let_one_answer_out(tmp_path: Path) -> None:
    """Flower may run two messages of a node at the same time: both begin with the same state."""
    member, _, _ = strict(tmp_path)
    final = announced(names=NAMES)
    assert ask(member, begin(final)).body
    before, round_id = copy.deepcopy(member.state), round_id_of(member, final)
    forget = Letter(Kind.STAGE, encode(Void(round_id), final.round_plan))
    assert ask(member, forget).body
    member.state = before
    assert "answered this stage of the round before" in ask(member, forget).refused


def round_id_of(member: Node, final: Announcement) -> bytes:
    held = recall(Context(0, 0, {}, member.state, {}))
    state = thaw(held.state, Member(0, final.round_plan))
    assert isinstance(state, Advertised)
    return state.round_id


# What is asked before anything is computed


def full_ledger(folder: Path) -> None:
    ledger = Ledger.open(folder / "ledger", Budget(10.0, 1e-4))
    plan = announced(budget=Budget(10.0, 1e-5)).plan
    assert plan.release is not None
    ledger.charge(plan.release, label="before")


def broken_ledger(folder: Path) -> None:
    (folder / "ledger").write_text("no ledger")


def full_disk(folder: Path) -> None:
    (folder / "ledger.answered").mkdir()  # nothing can be written there


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (full_ledger, "budget is too little"),
        (broken_ledger, "ledger cannot be used"),
        (full_disk, "cannot note that it answers"),
    ],
)
def test_the_ledger_and_the_disk_are_asked_before_anything_is_trained(
    tmp_path: Path, prepare: Callable[[Path], None], reason: str
) -> None:
    member, objective, _ = strict(tmp_path)
    prepare(tmp_path)
    assert reason in ask(member, begin(announced(names=NAMES))).refused
    assert objective.calls == 0
    assert member.state == RecordDict()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"number": 0}, "the series has 1 rounds"),
        ({"number": 2}, "the series has 1 rounds"),
        ({"client": 1}, "belongs to another name"),
        ({"client": 20}, "not among those who take part"),
        ({"client": -1}, "not among those who take part"),
    ],
    ids=str,
)
def test_numbers_are_checked_before_anything_is_trained(
    tmp_path: Path, change: dict[str, int], reason: str
) -> None:
    member, objective, _ = strict(tmp_path)
    letter = replace(begin(announced(names=NAMES)), **change)  # type: ignore[arg-type]
    assert reason in ask(member, letter).refused
    assert objective.calls == 0


def test_another_invitation_than_was_announced_spends_nothing(tmp_path: Path) -> None:
    member, _, _ = strict(tmp_path)
    final = announced(names=NAMES)
    other = begin(announced(names=NAMES))
    reply = ask(member, replace(begin(final), body=other.body))
    assert "coin is not the one this client holds" in str(decode(reply.body, final.round_plan))
    assert Ledger(tmp_path / "ledger").entries() == []
