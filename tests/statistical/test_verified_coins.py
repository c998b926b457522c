"""Clients' coins are fair whatever a client puts in: public bits see to it."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from urna.protocols.ballots import Announcement, CountPlan, Layout, Report, Voter, play, public_bits
from urna.protocols.ballots.codec import FastCodec
from urna.protocols.ballots.layout import Bits
from urna.protocols.ballots.report import Statement, seal_report
from urna.randomness import ScriptedSecrets, SecretSource

FALSE_ALARM = 1e-6  # how often fair coins would fail here on a fresh script


PLAN = CountPlan(Layout(300, 1, 2, (1,)), 4, 4, tossing=4)


def all_ones(voter: Voter, announcement: Announcement, secrets: SecretSource) -> Report:
    """Cast an empty ballot whose coins all say one: as much as a client can push."""
    layout = PLAN.layout
    coins = np.ones(layout.coin_bits, dtype=np.uint8)
    bits = layout.encode(np.zeros(layout.candidates, dtype=np.int64), coins)
    shards = FastCodec(layout).share(bits, secrets)
    return seal_report(voter.identity, announcement.statement, shards, secrets)


def noise(label: int) -> npt.NDArray[np.int64]:
    """The noise of four clients all of whose coins say one."""
    ballots = {client: np.zeros(300, dtype=np.int64) for client in range(4)}
    casting = dict.fromkeys(ballots, all_ones)
    played = play(ballots, PLAN, ScriptedSecrets(bytes([label])), casting=casting)
    assert played.refused == {}
    assert played.counted is not None
    return played.counted.total


def no_flips(seed: bytes, statement: Statement) -> Bits:
    plan = statement.plan
    return np.zeros((plan.tossing, plan.layout.coin_bits), dtype=np.uint8)


@pytest.mark.statistical
@pytest.mark.parametrize("fair", [True, False], ids=["public bits", "none"])
def test_coins_that_all_say_one_count_as_fair(fair: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fair:
        monkeypatch.setattr(public_bits, "flips", no_flips)
    drawn = np.concatenate([noise(label) for label in range(10)])
    # Four coins of plus or minus one: binomial, in steps of two.
    seen = np.bincount((drawn + 4) // 2, minlength=5)
    expected = len(drawn) * stats.binom.pmf(np.arange(5), 4, 0.5)
    assert (stats.chisquare(seen, expected).pvalue > FALSE_ALARM) == fair


@pytest.mark.statistical
def test_public_bits_are_fair_and_differ_with_every_half_and_verdict() -> None:
    played_bits = []
    for place in range(3):
        leader, helper, batch = (bytes([9 if k == place else k]) * 32 for k in range(3))
        seed = public_bits.public_seed(leader, helper, batch, (1, 2, 3))
        played_bits.append(np.unpackbits(np.frombuffer(seed, dtype=np.uint8)))
    other = public_bits.public_seed(bytes(32), bytes([1]) * 32, bytes([2]) * 32, (1, 2))
    played_bits.append(np.unpackbits(np.frombuffer(other, dtype=np.uint8)))
    for one in range(4):
        for two in range(one):
            assert 60 < np.count_nonzero(played_bits[one] != played_bits[two]) < 196
