"""Helpers that cheat in the base transfers, or leave a circuit that has started.

A helper that answers with half the offer would read the exact sum of all ballots. One that leaves
after it has the leader's transfers looks lost. Neither may get a selection for nothing.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cheating_helper import NO_POINTS, CheatingHelper
from grouped import grouped, tuned

from urna.data import Samples
from urna.errors import Exposing, LedgerError, ProtocolError, RoundUnfinished
from urna.privacy import Budget, Ledger, SelectionRelease
from urna.protocols.winner import Circuit, CircuitStage, answer, offer, run, transfer
from urna.protocols.winner.session import Answered
from urna.protocols.winner.transfer import COLUMNS, BaseSender
from urna.protocols.winner.wire import encode
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.space import Axis, Space
from urna.study import AverageStage, TrainStage
from urna.systems.average import Schema
from urna.systems.vote import Reveal, search

CIRCUIT = Circuit(SelectionRelease(4.0, 6, 3), 5)
SHARES = np.array([3, 31, 7], dtype=np.uint64)
BUDGET = Budget(4.0, 1e-5)
HELPER = "hospital-7"
WINNER = Reveal("winner", HELPER)
GARBLE = "urna.protocols.winner.session.garble"


def resent(answered: Answered, sent_offer: bytes, answers: bytes) -> bytes:
    """Return an answer with other points, authenticated as the honest one is."""
    base, session = answered.base, answered.session
    return encode(
        CircuitStage.ANSWER, CIRCUIT, session, sent_offer, base.shared_key, base.point, answers
    )


def test_half_the_offer_in_any_transfer_ends_the_session_before_bits_are_sent() -> None:
    """Whichever of the 128 it is, the leader sends no columns."""
    source = ScriptedSecrets(b"halves")
    offered, sent = offer(CIRCUIT, b"halves", source)
    answered, _ = answer(CIRCUIT, b"halves", sent, source)
    honest = answered.base.answers
    for place in range(COLUMNS):
        wrong = CheatingHelper([place]).answers(offered.base.offer, honest)
        assert wrong != honest
        with pytest.raises(ProtocolError, match="coincide"):
            transfer(offered, resent(answered, sent, wrong), SHARES, OsSecrets())
    again = resent(answered, sent, honest)
    assert transfer(offered, again, SHARES, OsSecrets())[1]


@pytest.mark.parametrize("name", NO_POINTS)
def test_what_is_no_point_is_refused_as_its_senders_deed(name: str) -> None:
    source = ScriptedSecrets(b"no point")
    offered, sent = offer(CIRCUIT, b"no point", source)
    answered, _ = answer(CIRCUIT, b"no point", sent, source)
    cheat = CheatingHelper([64], point=NO_POINTS[name])
    wrong = cheat.answers(offered.base.offer, answered.base.answers)
    with pytest.raises(Exposing, match="no point of the curve"):
        transfer(offered, resent(answered, sent, wrong), SHARES, OsSecrets())


def test_what_the_cheat_would_read_is_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the leader makes one seed of both, as half the offer once did, the totals show."""
    cheat = CheatingHelper([5, 77])
    honest = BaseSender.seeds

    def equal(self: BaseSender, session: bytes, answers: bytes) -> list[tuple[bytes, bytes]]:
        pairs = honest(self, session, answers)
        return [pair if at not in (5, 77) else pair[:1] * 2 for at, pair in enumerate(pairs)]

    monkeypatch.setattr(BaseSender, "seeds", equal)
    monkeypatch.setattr(GARBLE, cheat.leave)
    first, second = np.array([3, 31, 60], dtype=np.uint64), np.array([2, 2, 10], dtype=np.uint64)
    with pytest.raises(ProtocolError, match="lost"):
        run(
            CIRCUIT, first, second, context=b"", leader_source=OsSecrets(),
            helper_source=OsSecrets(),
        )  # fmt: skip
    assert cheat.totals == [[5, 33, 6]] * 2  # the last modulo 64


# --- votes: a selection that starts is charged, whoever ends it ------------------------------


def distance(candidate: dict[str, float], data: float) -> float:
    return abs(candidate["lr"] - data)


def voted(ledger: Ledger, reveal: Reveal = WINNER, **more: Any) -> Any:
    space = Space(lr=Axis.log([0.01, 0.1, 1.0]))
    return search(
        space, distance, [0.1] * 12, budget=BUDGET, **grouped(more, reveal=reveal, ledger=ledger)
    )


def verified(ledger: Ledger) -> Any:
    return voted(ledger, Reveal("winner", HELPER, verified=True))


def samples(count: int) -> list[Samples]:
    rng = np.random.default_rng(0)
    return [Samples(rng.normal(size=(16, 4)), rng.integers(2, size=16)) for _ in range(count)]


def averaged(ledger: Ledger) -> Any:
    return tuned(
        AverageStage(Schema(4, (0, 1))),
        samples(30),
        budget=BUDGET,
        space=Space(regularisation=[1e-5, 0.05]),
        reveal=WINNER,
        ledger=ledger,
        force=True,
    )


def trained(ledger: Ledger) -> Any:
    torch = pytest.importorskip("torch", reason="these models are torch's")
    from urna.local import Recipe  # noqa: PLC0415 - needs torch to be of use
    from urna.systems.train import TorchLearner  # noqa: PLC0415

    recipe = Recipe(epochs=1, batch_size=8)
    learner = TorchLearner(lambda: torch.nn.Linear(4, 2), recipe, device="cpu")
    return tuned(
        TrainStage(learner, 2),
        [Samples(s.features.astype(np.float32), s.targets) for s in samples(20)],
        budget=BUDGET,
        reveal=WINNER,
        ledger=ledger,
        force=True,
    )


VOTES: dict[str, Callable[[Ledger], Any]] = {
    "search": voted,
    "verified": verified,
    "tuned average": averaged,
    "tuned training": trained,
}


def charged(ledger: Ledger) -> bool:
    """Say whether the one release of a ledger counts."""
    (entry,) = ledger.entries()
    return not entry.withdrawn and ledger.spent().epsilon > 0


@pytest.mark.parametrize("name", VOTES)
def test_a_helper_that_answers_with_half_the_offer_reads_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheat = CheatingHelper([9]).installed(monkeypatch, GARBLE)
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match="coincide"):
        VOTES[name](ledger)
    assert (cheat.heard, cheat.totals) == ([], [])
    assert charged(ledger)


@pytest.mark.parametrize("name", VOTES)
def test_a_helper_that_leaves_with_the_transfers_costs_the_vote(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheat = CheatingHelper()
    monkeypatch.setattr(GARBLE, cheat.leave)  # its base transfers are honest
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match="the vote counts: the helper is lost"):
        VOTES[name](ledger)
    assert len(cheat.heard) == 1
    assert charged(ledger)


@pytest.mark.parametrize("name", ["search", "verified"])
def test_a_selection_that_was_started_is_not_held_again_under_its_id(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a helper that leaves would have as many for one charge as the caller has patience."""
    ledger = Ledger.open(tmp_path / "ledger", Budget(8.0, 1e-5))
    with monkeypatch.context() as patched:
        patched.setattr(GARBLE, CheatingHelper().leave)
        with pytest.raises(RoundUnfinished):
            voted(ledger, Reveal("winner", HELPER, name == "verified"), entry="vote")
    with pytest.raises(LedgerError, match="revealed already"):
        voted(ledger, Reveal("winner", HELPER, name == "verified"), entry="vote")
    found = voted(ledger, Reveal("winner", HELPER, name == "verified"), entry="another")
    assert found.entry == "another"
    assert ledger.spent().epsilon == 8.0


@pytest.mark.parametrize("stage", ["open_winner", "conclude"])
@pytest.mark.parametrize("name", ["search", "verified"])
def test_a_party_that_leaves_later_costs_the_vote(
    name: str, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise ProtocolError("gone")

    monkeypatch.setattr(f"urna.protocols.winner.session.{stage}", leave)
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    with pytest.raises(RoundUnfinished, match="gone"):
        VOTES[name](ledger)
    assert charged(ledger)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
@pytest.mark.parametrize("name", ["search", "verified"])
def test_a_circuit_that_ends_in_any_error_is_not_started_again(
    name: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise error

    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    with monkeypatch.context() as patched:
        patched.setattr("urna.protocols.winner.session.open_winner", broken)
        with pytest.raises(error):
            voted(ledger, Reveal("winner", HELPER, name == "verified"), entry="vote")
    with pytest.raises(LedgerError, match="was started, and no result of it was noted"):
        voted(ledger, Reveal("winner", HELPER, name == "verified"), entry="vote")
    with pytest.raises(LedgerError, match="is not withdrawn"):
        ledger.withdraw("vote", reason="to have it back")
    assert charged(ledger)


KILLED = """
import os, sys
from urna import Reveal, Run, VoteSettings, search
from urna.privacy import Budget, Ledger
from urna.protocols.winner import session
from urna.space import Axis, Space

session.garble = lambda *_: os._exit(9)
search(
    Space(lr=Axis.log([0.01, 0.1, 1.0])), lambda candidate, data: abs(candidate["lr"] - data),
    [0.1] * 12, budget=Budget(4.0, 1e-5),
    settings=VoteSettings(
        reveal=Reveal("winner", "hospital-7", verified=sys.argv[2] == "verified")
    ),
    run=Run(ledger=Ledger(sys.argv[1]), entry="vote"),
)
"""


@pytest.mark.parametrize("name", ["search", "verified"])
def test_a_circuit_that_was_killed_is_not_started_again(name: str, tmp_path: Path) -> None:
    """The helper has the transfers of the process that was killed."""
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    command = [sys.executable, "-c", KILLED, str(ledger.path), name]
    assert subprocess.run(command, check=False).returncode == 9
    with pytest.raises(LedgerError, match="was started, and no result of it was noted"):
        voted(ledger, Reveal("winner", HELPER, name == "verified"), entry="vote")
    assert charged(ledger)


def test_of_two_processes_under_one_id_one_starts_a_circuit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one was let in before the first had started."""
    ledger, answers = Ledger.open(tmp_path / "ledger", BUDGET), list[str]()
    note = Ledger.note_started

    def late(self: Ledger, name: str, **more: Any) -> None:
        if not answers:
            answers.append("first")
            voted(Ledger(ledger.path), entry="vote")
        note(self, name, **more)

    monkeypatch.setattr(Ledger, "note_started", late)
    with pytest.raises(LedgerError, match="paid for once"):
        voted(ledger, entry="vote")
    assert charged(ledger)
