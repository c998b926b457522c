"""Sessions that are written down between two stages go on as if nothing had happened."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ProtocolError
from urna.protocols import secagg
from urna.protocols.secagg import ClientSession, Directory, Identity, Member, Stage, freeze, thaw
from urna.protocols.secagg.client import Advertised, Agreed, Finished, Masked, Shared
from urna.protocols.secagg.session import ClientState
from urna.protocols.secagg.transport import Letter
from urna.randomness import ScriptedSecrets

CLIENTS = 7
PLANS = {
    model: secagg.plan(
        clients=CLIENTS,
        dimension=3,
        colluders=1,
        dropouts=1,
        noise_variance=Fraction(30),
        server=model,
    )
    for model in secagg.ServerModel
}


class Sleeper:
    """A client whose process ends after every answer: only bytes are left of it."""

    def __init__(self, client: int, plan: secagg.Plan, *, sleeps: bool) -> None:
        keys = {c: Identity.draw(c, ScriptedSecrets(b"key %d" % c)) for c in range(CLIENTS)}
        directory = Directory({c: identity.public for c, identity in keys.items()})
        self.member = Member(client, plan, identity=keys[client], directory=directory)
        self._vector = np.array([client, -client, 7])
        self._source = ScriptedSecrets(b"client %d" % client)
        self._session = self._wake(None)
        self._sleeps = sleeps
        self.kept: list[tuple[ClientState, bytes]] = []

    def _wake(self, state: ClientState | None) -> ClientSession:
        return ClientSession(self.member, self._vector, self._source, state)

    def handle(self, data: bytes) -> bytes:
        answer = self._session.handle(data)
        state = self._session.state
        if not isinstance(state, Member | Finished):
            frozen = freeze(state)
            self.kept.append((state, frozen))
            if self._sleeps:
                self._session = self._wake(thaw(frozen, self.member))
        return answer


def play(model: secagg.ServerModel, *, sleeps: bool) -> tuple[secagg.Outcome, list[Sleeper], list]:
    plan = PLANS[model]
    parties = {c: Sleeper(c, plan, sleeps=sleeps) for c in range(CLIENTS)}
    said: list[list[Letter]] = []

    class Noted(secagg.MemoryTransport):
        def exchange(self, stage: Stage, letters: object) -> Iterator[Letter]:
            said.append(list(super().exchange(stage, letters)))  # type: ignore[arg-type]
            yield from said[-1]

    transport = Noted(parties, secagg.Faults(vanish={2: Stage.MASK}))
    keys = {c: party.member.identity for c, party in parties.items()}
    directory = Directory({c: i.public for c, i in keys.items() if i is not None})
    outcome = secagg.conduct(plan, transport, number=1, coin=bytes(32), directory=directory)
    return outcome, list(parties.values()), said


@pytest.mark.parametrize("model", list(secagg.ServerModel))
def test_a_client_that_sleeps_between_stages_says_the_same(model: secagg.ServerModel) -> None:
    awake, asleep = play(model, sleeps=False), play(model, sleeps=True)
    assert awake[2] == asleep[2]
    assert awake[0].total.tolist() == asleep[0].total.tolist()
    kinds = {type(state) for state, _ in asleep[1][0].kept}
    wanted = {Advertised, Shared, Masked}
    assert kinds == (wanted | {Agreed} if model is secagg.ServerModel.DISHONEST else wanted)


def states(
    model: secagg.ServerModel = secagg.ServerModel.DISHONEST,
) -> Iterator[tuple[Member, ClientState, bytes]]:
    sleeper = play(model, sleeps=True)[1][0]
    for state, frozen in sleeper.kept:
        yield sleeper.member, state, frozen


STATES = list(states())


@pytest.mark.parametrize("which", range(len(STATES)), ids=lambda i: type(STATES[i][1]).__name__)
def test_a_state_comes_back_as_it_was(which: int) -> None:
    member, state, frozen = STATES[which]
    again = thaw(frozen, member)
    assert again == state
    assert freeze(again) == frozen


@pytest.mark.parametrize("which", range(len(STATES)), ids=lambda i: type(STATES[i][1]).__name__)
def test_a_state_that_was_cut_is_refused(which: int) -> None:
    member, _, frozen = STATES[which]
    for end in range(0, len(frozen), 7):
        with pytest.raises(ProtocolError, match="cannot be read"):
            thaw(frozen[:end], member)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STATES), st.data())
def test_what_is_no_state_raises_the_protocols_error_only(
    kept: tuple[Member, ClientState, bytes], data: st.DataObject
) -> None:
    member, _, frozen = kept
    wrong = bytearray(frozen)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(wrong)))
        end = data.draw(st.integers(start, min(len(wrong), start + 40)))
        wrong[start:end] = data.draw(st.binary(max_size=40))
    try:
        thaw(bytes(wrong), member)
    except ProtocolError:
        return


def test_before_and_after_a_round_there_is_nothing_to_keep() -> None:
    member = STATES[0][0]
    for state in (member, Finished(bytes(32))):
        with pytest.raises(ProtocolError, match="no state to keep"):
            freeze(state)


def test_a_kept_state_holds_no_secret_that_is_not_needed_any_more() -> None:
    """After its vector is sent, a client needs none of its own keys and seeds."""
    by_kind = {type(state): (state, frozen) for _, state, frozen in STATES}
    shared, _ = by_kind[Shared]
    assert isinstance(shared, Shared)
    for later in (Masked, Agreed):
        frozen = by_kind[later][1]
        for secret in (
            shared.self_mask_seed,
            shared.mask_pair.private,
            shared.channel_pair.private,
            *shared.noise_seeds,
            *shared.receiving_keys.values(),
        ):
            assert secret not in frozen
