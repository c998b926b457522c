"""Counts that go well, counts with a bad client, and letters that are not what was sent."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from verified_play import (
    CLIENTS,
    LEVELS,
    VICTIM,
    added,
    ballots_for,
    exact_sum,
    flipped,
    opened,
    run,
    with_bits,
    with_shards,
)

from urna.errors import ParameterError, ProtocolError, Refused, RoundAborted
from urna.protocols.ballots import (
    BallotClient,
    BallotLayout,
    CountPlan,
    HelperMember,
    PublicParameters,
    Report,
    VouchedStatement,
    cast,
    helper,
)
from urna.protocols.ballots import leader as leading
from urna.protocols.ballots.codec import Shards
from urna.protocols.ballots.messages import decode, encode
from urna.protocols.ballots.report import seal_report
from urna.protocols.secagg.keys import Directory, Identity
from urna.randomness import ScriptedSecrets

EVERYBODY = frozenset(range(CLIENTS))
INVALID = "its ballot is not valid: the proof fails"


def test_shares_of_honest_ballots_add_up_to_their_exact_sum() -> None:
    played = run(LEVELS)
    assert played.accepted == EVERYBODY
    assert played.refused == {}
    assert opened(played) == exact_sum(LEVELS, EVERYBODY)


def test_every_entry_of_a_share_altered_alone_is_refused_and_named() -> None:
    """Bits, blinds and quotient: nothing can be moved."""
    for place in range(LEVELS.codec.sizes[0] // 4):
        change = lambda s, at=place: added(s, at, 1)  # noqa: E731
        played = run(LEVELS, with_shards(LEVELS, change))
        assert played.refused == {VICTIM: INVALID}
        assert opened(played) == exact_sum(LEVELS, EVERYBODY - {VICTIM})


def test_a_vote_of_more_than_the_levels_is_refused() -> None:
    for place in range(LEVELS.layout.bits):
        for wrong in (2, 100, LEVELS.codec.modulus - 1):
            bits = np.zeros(LEVELS.layout.bits, dtype=np.int64)
            bits[place] = wrong
            assert run(LEVELS, with_bits(LEVELS, bits)).refused == {VICTIM: INVALID}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: replace(s, leader=s.leader[:-1]), "too short"),
        (lambda s: replace(s, helper=s.helper + b"\0"), "too long"),
    ],
    ids=["short", "long"],
)
def test_a_report_of_another_length_is_none(
    change: Callable[[Shards], Shards], reason: str
) -> None:
    """Its signature is not where it should be: it might have been cut on the way."""
    played = run(LEVELS, with_shards(LEVELS, change))
    assert played.refused == {}
    assert reason in played.lost[VICTIM]
    assert played.accepted == EVERYBODY - {VICTIM}


def test_a_share_that_is_none_is_refused() -> None:
    change = lambda s: replace(s, leader=b"\xff" * len(s.leader))  # noqa: E731
    played = run(LEVELS, with_shards(LEVELS, change))
    assert "for the leader is malformed" in played.refused[VICTIM]
    assert played.accepted == EVERYBODY - {VICTIM}


def other_box(
    voter: BallotClient, announcement: VouchedStatement, secrets: ScriptedSecrets
) -> Report:
    """Seal the helper's share with another key than the report shows, and sign it."""
    statement = announcement.statement
    other = replace(statement, helper_key=statement.leader_key)
    shards = LEVELS.codec.shard(ballots_for(LEVELS)[VICTIM], secrets)
    report = seal_report(voter.identity, other, shards, secrets)
    again = seal_report(voter.identity, statement, shards, secrets)
    mixed = replace(again, helper_box=report.helper_box)
    signed = mixed.part(0).signed(0, statement.digest)
    return replace(mixed, signature=voter.identity.sign(signed))


def test_a_box_that_the_helper_cannot_open_is_its_sender_s_fault() -> None:
    played = run(LEVELS, other_box)
    why = "the helper refuses it: its share for the helper cannot be opened"
    assert played.refused == {VICTIM: why}
    assert opened(played) == exact_sum(LEVELS, EVERYBODY - {VICTIM})


def test_every_byte_of_a_report_is_covered_by_its_signature() -> None:
    size = len(run_one_report(LEVELS))
    places = [6, 7, 9, 10, 41, 42, *range(60, size, max(1, size // 25)), size - 1]
    for place in places:
        played = run(LEVELS, tamper=flipped("report", place, VICTIM))
        assert played.accepted == EVERYBODY - {VICTIM}, place
        assert played.refused == {}, "nobody is to blame for what the network did"
        reasons = ("not signed by it", "in the name of")
        assert any(words in played.lost[VICTIM] for words in reasons), played.lost


def run_one_report(plan: CountPlan) -> bytes:
    """Return the victim's report as it travels."""
    found = []

    def tamper(kind: str, sender: int, data: bytes) -> list[bytes]:
        if kind == "report" and sender == VICTIM:
            found.append(data)
        return [data]

    run(plan, tamper=tamper)
    return found[0]


def test_a_report_that_comes_twice_counts_once() -> None:
    played = run(LEVELS, tamper=lambda kind, sender, data: [data] * (1 + (kind == "report")))
    assert played.refused == {}
    assert opened(played) == exact_sum(LEVELS, EVERYBODY)


def test_who_signs_two_reports_is_refused() -> None:
    def tamper(kind: str, sender: int, data: bytes) -> list[bytes]:
        return [data, second[0]] if kind == "report" and sender == VICTIM else [data]

    second: list[bytes] = []

    def casting(
        voter: BallotClient, announcement: VouchedStatement, secrets: ScriptedSecrets
    ) -> Report:
        ballot = ballots_for(LEVELS)[VICTIM]
        report, other = (cast(voter, announcement, ballot, secrets) for _ in range(2))
        second.append(encode(other))
        return report

    played = run(LEVELS, casting, tamper)
    assert played.refused == {VICTIM: "signed two different reports"}
    assert opened(played) == exact_sum(LEVELS, EVERYBODY - {VICTIM})


def test_another_client_s_report_is_refused_in_one_s_own_name() -> None:
    seen: list[bytes] = []

    def tamper(kind: str, sender: int, data: bytes) -> list[bytes]:
        if kind == "report" and sender == VICTIM - 1:
            seen.append(data)
        return [seen[0]] if kind == "report" and sender == VICTIM else [data]

    played = run(LEVELS, tamper=tamper)
    why = f"its report arrived altered: it is in the name of client {VICTIM - 1}"
    assert (played.refused, played.lost) == ({}, {VICTIM: why})


def test_a_report_of_an_earlier_count_is_refused() -> None:
    old = run_one_report(LEVELS)
    swap = lambda kind, who, data: [old if (kind, who) == ("report", VICTIM) else data]  # noqa: E731
    played = run(LEVELS, tamper=swap, label=b"a later count")
    assert played.refused == {}
    assert "not signed by it" in played.lost[VICTIM]


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_an_altered_copy_of_a_report_does_it_no_harm(first: bool) -> None:
    """Whoever sits on the way could otherwise have anybody refused, and named."""

    def tamper(kind: str, sender: int, data: bytes) -> list[bytes]:
        if (kind, sender) != ("report", VICTIM):
            return [data]
        wrong = data[:-1] + bytes([data[-1] ^ 1])
        return [wrong, data] if first else [data, wrong]

    played = run(LEVELS, tamper=tamper)
    assert (played.refused, played.lost) == ({}, {})
    assert opened(played) == exact_sum(LEVELS, EVERYBODY)


def test_clients_that_drop_out_are_missed_by_nobody() -> None:
    lost = {1, 5}
    played = run(LEVELS, tamper=lambda kind, sender, data: [] if sender in lost else [data])
    assert played.accepted == EVERYBODY - lost
    assert opened(played) == exact_sum(LEVELS, EVERYBODY - lost)


def test_too_few_valid_ballots_open_nothing_and_name_the_invalid_ones() -> None:
    plan = replace(LEVELS, least=CLIENTS)
    change = lambda s: added(s, 0, 1)  # noqa: E731
    with pytest.raises(RoundAborted, match="Nothing was opened") as error:
        run(plan, with_shards(plan, change))
    assert error.value.faults == {VICTIM: INVALID}
    with pytest.raises(RoundAborted, match="Nothing was opened"):
        run(plan, tamper=lambda kind, who, data: [] if who == VICTIM else [data])


KINDS = ["batch", "answers", "verdict", "confirmation"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_letter_between_the_two_ends_the_count(kind: str) -> None:
    with pytest.raises(RoundAborted, match=f"the {kind} did not"):
        run(LEVELS, tamper=lambda found, sender, data: [] if found == f"sealed {kind}" else [data])


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_altered_on_its_way_is_refused_and_blames_nobody(kind: str) -> None:
    for place in (0, 20, -1):
        with pytest.raises(ProtocolError, match=f"no {kind} of the other came") as error:
            run(LEVELS, tamper=flipped(f"sealed {kind}", place))
        assert not isinstance(error.value, RoundAborted)


def test_a_letter_of_an_earlier_count_or_another_kind_is_refused() -> None:
    seen: dict[str, bytes] = {}

    def note(kind: str, sender: int, data: bytes) -> list[bytes]:
        seen[kind] = data
        return [data]

    run(LEVELS, tamper=note)
    for kind in KINDS:
        for other in (f"sealed {kind}", "sealed batch", "sealed answers"):
            swap = {f"sealed {kind}": seen[other]}
            with pytest.raises(ProtocolError, match=f"no {kind} of the other came"):
                run(LEVELS, tamper=lambda k, _, data, s=swap: [s.get(k, data)], label=b"later")


HEAD, DIGEST = 6, 32


@pytest.mark.parametrize(
    ("kind", "place", "words"),
    [
        ("batch", 0, "no message"),
        ("batch", 4, "version"),
        ("batch", 5, "too long|too short|kind|expected|in order|entries|reason"),
        ("batch", HEAD, "another count"),
        ("answers", HEAD, "another batch"),
        ("verdict", HEAD, "another batch"),
        ("verdict", -1, "verdict on clients|in order"),
        ("confirmation", HEAD, "another batch"),
    ],
)
def test_an_altered_letter_between_the_two_ends_the_count(
    kind: str, place: int, words: str
) -> None:
    with pytest.raises(ProtocolError, match=words):
        run(LEVELS, tamper=flipped(kind, place))


@pytest.mark.parametrize("place", [40, 4 + 32 + 48, 4 + 32 + 48 + 32 + 63])
def test_an_altered_part_in_the_batch_is_the_leader_s_fault_and_not_the_client_s(
    place: int,
) -> None:
    part = 4 + 32 + 48 + 32 + 64  # number, key, box, digest of the other, signature
    at = HEAD + DIGEST + 4 + VICTIM * part + place
    with pytest.raises(ProtocolError, match="the leader passed on what is no report"):
        run(LEVELS, tamper=flipped("batch", at))


def test_altered_answers_refuse_that_report_only_if_both_see_the_same() -> None:
    at = HEAD + DIGEST + 4 + 4 + VICTIM * LEVELS.codec.sizes[2]
    with pytest.raises(ProtocolError, match=rf"verdict on clients \[{VICTIM}\]"):
        run(LEVELS, tamper=flipped("answers", at))


def test_a_leader_that_accepts_an_invalid_ballot_is_found_out() -> None:
    """The leader lists an invalid ballot as accepted: the helper opens nothing."""

    def tamper(kind: str, sender: int, data: bytes) -> list[bytes]:
        if kind != "verdict":
            return [data]
        verdict = decode(data, statement[0])
        assert isinstance(verdict, leading.Verdict)
        accepted = tuple(sorted({*verdict.accepted, VICTIM}))
        return [encode(replace(verdict, accepted=accepted))]

    statement = []

    def casting(
        voter: BallotClient, announcement: VouchedStatement, secrets: ScriptedSecrets
    ) -> Report:
        statement.append(announcement.statement)
        wrong = with_shards(LEVELS, lambda s: added(s, 0, 5))
        return wrong(voter, announcement, secrets)

    with pytest.raises(ProtocolError, match=rf"verdict on clients \[{VICTIM}\]"):
        run(LEVELS, casting, tamper)


class TestBeforeACount:
    secrets = ScriptedSecrets(b"before")
    identity = Identity.draw(99, secrets)
    voter = BallotClient(Identity.draw(1, secrets), identity.public, latest=4)
    member = HelperMember(identity, Directory({1: voter.identity.public}), least=4, latest=4)

    def announced(self, number: int = 5) -> VouchedStatement:
        prepared = leading.prepare(LEVELS, number=number, secrets=self.secrets)
        fresh = replace(self.member, latest=0)
        return helper.vouch(fresh, prepared.statement, self.secrets)[1]

    def test_a_client_casts_a_valid_ballot_once(self) -> None:
        ballot = np.array([0, 1, 2, 3, 0])
        assert cast(self.voter, self.announced(), ballot, self.secrets).client == 1
        with pytest.raises(ProtocolError, match="not new"):
            cast(self.voter, self.announced(4), ballot, self.secrets)
        with pytest.raises(ParameterError, match=r"0\.\.3"):
            cast(self.voter, self.announced(), ballot + 1, self.secrets)

    def test_a_client_refuses_a_statement_its_helper_has_not_signed(self) -> None:
        announcement = self.announced()
        ballot = np.zeros(5, dtype=np.int64)
        other = replace(announcement.statement, helper_key=bytes(31) + b"\x09")
        with pytest.raises(ProtocolError, match="not signed by the helper"):
            cast(self.voter, replace(announcement, statement=other), ballot, self.secrets)
        stranger = replace(self.voter, helper=Identity.draw(98, self.secrets).public)
        with pytest.raises(ProtocolError, match="not signed by the helper"):
            cast(stranger, announcement, ballot, self.secrets)
        nobody = replace(announcement, statement=replace(announcement.statement, helper_key=b""))
        with pytest.raises(ProtocolError, match="no helper"):
            cast(self.voter, nobody, ballot, self.secrets)

    def test_a_helper_refuses_an_old_count_and_too_small_a_batch(self) -> None:
        old = leading.prepare(LEVELS, number=4, secrets=self.secrets).statement
        with pytest.raises(Refused, match="not new"):
            helper.vouch(self.member, old, self.secrets)
        few = leading.prepare(replace(LEVELS, least=3), number=5, secrets=self.secrets).statement
        with pytest.raises(Refused, match="fewer than 4"):
            helper.vouch(self.member, few, self.secrets)

    def test_a_leader_refuses_a_helper_that_vouches_for_something_else(self) -> None:
        prepared = leading.prepare(LEVELS, number=5, secrets=self.secrets)
        other = leading.prepare(LEVELS, number=6, secrets=self.secrets)
        _, announcement = helper.vouch(self.member, other.statement, self.secrets)
        with pytest.raises(ProtocolError, match="another statement"):
            leading.open_count(prepared, announcement, self.identity.public)


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 1},
        {"least": CLIENTS + 1},
        {"clients": 1 << 21},
        {"clients": 1 << 20, "layout": BallotLayout(5, 1 << 12)},
    ],
)
def test_plans_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        replace(LEVELS, **wrong)  # type: ignore[arg-type]


def test_a_statement_with_another_proof_is_refused() -> None:
    statement = leading.prepare(LEVELS, number=1, secrets=ScriptedSecrets(b"codec")).statement
    assert PublicParameters.read(statement.encode()) == statement
    with pytest.raises(ProtocolError, match="urna-bits, the statement says 'prio3-sum-vec'"):
        PublicParameters.read(statement.encode().replace(b"urna-bits", b"prio3-sum-vec"))
