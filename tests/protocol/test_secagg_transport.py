"""Networks that delay, drop, repeat and reorder, and clients spread over processes."""

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_play import ballots, small_plan

from urna.errors import ParameterError, RoundAborted, RoundUnfinished
from urna.protocols import secagg
from urna.protocols.secagg import Faults, Stage
from urna.protocols.secagg.messages import Advertisement, Invitation, Refusal
from urna.protocols.secagg.run import conduct
from urna.protocols.secagg.transport import Letter
from urna.protocols.secagg.wire import decode, encode
from urna.randomness import ScriptedSecrets

FOUR = [Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.UNMASK]


def total_of(plan: secagg.Plan, survivors: Iterable[int]) -> list[int]:
    return np.sum([ballots(plan)[c] for c in survivors], axis=0).tolist()


@settings(max_examples=25, deadline=None)
@given(
    vanish=st.dictionaries(st.integers(0, 11), st.sampled_from(FOUR), max_size=2),
    late=st.dictionaries(st.integers(0, 11), st.sampled_from(FOUR), max_size=2),
    twice=st.frozensets(st.integers(0, 11)),
    shuffle=st.none() | st.integers(0, 9),
)
def test_a_bad_network_gives_the_exact_sum_or_an_abort(
    vanish: dict[int, Stage], late: dict[int, Stage], twice: frozenset[int], shuffle: int | None
) -> None:
    plan = small_plan()
    faults = Faults(vanish, late, twice, shuffle)
    try:
        outcome = secagg.run(ballots(plan), plan, ScriptedSecrets(b"n"), faults=faults)
    except (RoundAborted, RoundUnfinished):
        assert len(vanish.keys() | late.keys()) > plan.dropouts
    else:
        assert outcome.total.tolist() == total_of(plan, outcome.survivors)
        assert outcome.lost.keys() == vanish.keys() | late.keys()


def test_a_late_reply_is_a_dropout_and_does_no_harm_when_it_comes() -> None:
    plan = small_plan()
    faults = Faults(late={4: Stage.MASK})
    outcome = secagg.run(ballots(plan), plan, ScriptedSecrets(b"n"), faults=faults)
    assert outcome.lost[4] == secagg.LostClient(Stage.MASK, "did not answer in time")
    assert 4 not in outcome.survivors
    assert outcome.total.tolist() == total_of(plan, outcome.survivors)


class Stuttering:
    """A network that brings every reply again with those of the next stage, and before them."""

    client_seconds = own_seconds = 0.0

    def __init__(self, plan: secagg.Plan, faults: Faults, *, again: bool = True) -> None:
        sessions = {
            c: secagg.ClientSession(secagg.Member(c, plan), v, ScriptedSecrets(b"%d" % c))
            for c, v in ballots(plan).items()
        }
        self._inner = secagg.MemoryTransport(sessions, faults)
        self._again, self._before = again, list[Letter]()

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> list[Letter]:
        before, self._before = self._before, list(self._inner.exchange(stage, letters))
        return [*(before if self._again else []), *self._before]


def test_nobody_is_blamed_for_a_network_that_repeats_itself() -> None:
    plan = small_plan()
    outcome = conduct(plan, Stuttering(plan, Faults()), number=1, coin=bytes(32))
    assert outcome.total.tolist() == total_of(plan, range(12))
    assert (outcome.lost, outcome.faults) == ({}, {})


@pytest.mark.parametrize("stutters", [False, True], ids=["late", "late and twice"])
@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK], ids=lambda s: s.name)
def test_nobody_is_blamed_for_being_late_when_a_round_is_given_up(
    stage: Stage, stutters: bool
) -> None:
    """What comes late meets the question whether the round was forgotten."""
    plan = small_plan()
    faults = Faults(late=dict.fromkeys(range(plan.dropouts + 1), stage))
    network = Stuttering(plan, faults, again=stutters)
    with pytest.raises(RoundAborted) as aborted:
        conduct(plan, network, number=1, coin=bytes(32))
    assert aborted.value.faults == {}
    assert aborted.value.lost.keys() == set(range(plan.dropouts + 1))


def test_repeated_and_shuffled_letters_change_nothing() -> None:
    plan = small_plan(noise_variance=Fraction(100))
    plain = secagg.run(ballots(plan), plan, ScriptedSecrets(b"n"))
    faults = Faults(twice=frozenset(range(12)), shuffle=3)
    mixed = secagg.run(ballots(plan), plan, ScriptedSecrets(b"n"), faults=faults)
    np.testing.assert_array_equal(plain.total, mixed.total)
    assert not mixed.lost
    assert max(mixed.traffic.values()) > max(plain.traffic.values())


def test_workers_play_the_same_round() -> None:
    plan = small_plan(noise_variance=Fraction(100))
    dropouts = {3: Stage.MASK, 4: Stage.UNMASK}
    here = secagg.run(ballots(plan), plan, ScriptedSecrets(b"w"), dropouts=dropouts)
    spread = secagg.run(ballots(plan), plan, ScriptedSecrets(b"w"), dropouts=dropouts, workers=2)
    np.testing.assert_array_equal(here.total, spread.total)
    assert (here.survivors, here.lost, here.traffic) == (
        spread.survivors,
        spread.lost,
        spread.traffic,
    )
    assert spread.client_seconds > 0


def test_clients_without_a_vector_are_lost() -> None:
    plan = small_plan()
    vectors = {c: v for c, v in ballots(plan).items() if c not in (2, 5)}
    outcome = secagg.run(vectors, plan, ScriptedSecrets(b"v"))
    assert outcome.lost.keys() == {2, 5}
    assert outcome.total.tolist() == total_of(plan, outcome.survivors)


def test_dropouts_and_faults_are_not_given_together() -> None:
    plan = small_plan()
    with pytest.raises(ParameterError, match="not both"):
        secagg.run(ballots(plan), plan, ScriptedSecrets(b""), dropouts={}, faults=Faults())


class Hostile:
    """Clients that send whatever they like."""

    client_seconds = own_seconds = 0.0

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> list[Letter]:
        return [(client, answer) for client, _ in letters for answer in self._answers] + [
            (99, b"from nobody")
        ]


@pytest.mark.parametrize(
    "answers", [[], [b""], [b"URNA"], [bytes(10_000)], [b"x" * 20, b"y" * 30]], ids=len
)
def test_a_server_survives_any_bytes(answers: list[bytes]) -> None:
    with pytest.raises(RoundAborted, match="0 of 12 clients are left"):
        conduct(small_plan(), Hostile(answers), number=1, coin=bytes(32))


def test_a_refusal_says_why_to_the_server() -> None:
    plan = small_plan()
    sessions = {
        c: secagg.ClientSession(
            secagg.Member(c, plan, latest_round=9 if c == 2 else 0), v, ScriptedSecrets(b"%d" % c)
        )
        for c, v in ballots(plan).items()
    }
    outcome = conduct(plan, secagg.MemoryTransport(sessions), number=5, coin=bytes(32))
    assert outcome.lost[2].stage is Stage.ADVERTISE
    assert outcome.lost[2].reason.startswith("refused: round 5 is not after round 9")
    assert sessions[1].latest_round == 5
    assert sessions[2].latest_round == 9


def test_a_wrong_signature_costs_the_server_one_client() -> None:
    plan = small_plan(server="dishonest")
    source = ScriptedSecrets(b"identities")
    identities = {c: secagg.Identity.draw(c, source) for c in range(plan.clients)}
    directory = secagg.Directory({c: identity.public for c, identity in identities.items()})
    sessions = {
        c: secagg.ClientSession(
            secagg.Member(c, plan, identity=identities[c], directory=directory), v, source
        )
        for c, v in ballots(plan).items()
    }

    class Scribbler:
        """A client that signs another pair of lists than it was asked to."""

        def handle(self, data: bytes) -> bytes:
            answer = sessions[3].handle(data)
            return answer if answer[5] != 8 else answer[:-1] + bytes([answer[-1] ^ 1])

    parties = {**sessions, 3: Scribbler()}
    outcome = conduct(
        plan, secagg.MemoryTransport(parties), number=1, coin=bytes(32), directory=directory
    )
    assert outcome.lost.keys() == {3}
    assert outcome.lost[3].stage is Stage.AGREE
    assert outcome.total.tolist() == total_of(plan, range(12))


def test_against_a_dishonest_server_a_round_needs_a_directory() -> None:
    """Without it nobody could tell whose fault a bundle without a signature is."""
    plan = small_plan(server="dishonest")
    with pytest.raises(ParameterError, match="needs a directory"):
        conduct(plan, Hostile([]), number=1, coin=bytes(32))


def test_a_wrong_invitation_costs_a_client_nothing() -> None:
    plan = small_plan()
    session = secagg.ClientSession(secagg.Member(1, plan), ballots(plan)[1], ScriptedSecrets(b"1"))
    right = Invitation(1, bytes(32), plan.digest)
    wrong = Invitation(0, bytes(32), plan.digest)
    assert isinstance(decode(session.handle(encode(wrong, plan)), plan), Refusal)
    assert isinstance(decode(session.handle(encode(right, plan)), plan), Advertisement)
