"""Clients that mask wrongly: nobody can name them, but what is opened is never taken for a sum."""

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from adversary_room import CURIOUS, DISHONEST, Liar, Room, Trick
from adversary_tricks import at, keys, off_curve

from urna.errors import InvalidSum
from urna.noise import IntVector
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import ServerModel
from urna.protocols.secagg.keys import mask_seed
from urna.protocols.secagg.masks import Words, add_mask, residues, subtract_mask
from urna.protocols.secagg.messages import MaskedVector, Message
from urna.systems.vote import Ballots, BallotShape
from urna.tally import Releases, Tallied, TallyPlan, Terms, plan_tally, tallied, to_grid

CLIENTS, CANDIDATES = 8, 40


@dataclass(frozen=True)
class Rounds:
    """Adds ballots up in a room with a liar."""

    plan: TallyPlan
    liars: dict[int, Trick]

    def add_up(self) -> Tallied:
        ended = Room(self.plan.round_plan, self.liars, vectors=self.ballots()).play()
        assert ended.outcome is not None
        assert ended.faults == set()
        return tallied(ended.outcome, self.plan)

    def ballots(self) -> dict[int, IntVector]:
        rng, ballot = np.random.default_rng(4), np.array([1] * 3 + [0] * (CANDIDATES - 3))
        return {c: to_grid(rng.permutation(ballot), self.plan) for c in range(CLIENTS)}


def planned(bits: int, model: ServerModel = CURIOUS) -> TallyPlan:
    terms = Terms.of(CLIENTS, Budget(2.0, 1e-5), dropout="1/8", colluding="1/8", server=model)
    return replace(plan_tally(terms, Ballots(BallotShape.top_k(3, CANDIDATES))), ring_bits=bits)


def words_of(liar: Liar, reply: Message) -> Words:
    assert isinstance(reply, MaskedVector)
    return np.frombuffer(reply.words, dtype=f"<u{liar.plan.ring_bits // 8}").copy()


def sends(reply: Message, words: Words) -> Message:
    assert isinstance(reply, MaskedVector)
    return replace(reply, words=words.astype(words.dtype.newbyteorder("<")).tobytes())


def no_masks(liar: Liar, reply: Message) -> Message:
    """Its vector as it is."""
    vector = liar.room.vectors[liar.client]
    return sends(reply, residues(vector, liar.plan.ring_bits))


def no_self_mask(liar: Liar, reply: Message) -> Message:
    assert liar.shared is not None
    words = words_of(liar, reply)
    subtract_mask(words, liar.shared.self_mask_seed)
    return sends(reply, words)


def one_mask_less(liar: Liar, reply: Message) -> Message:
    state = liar.shared
    assert state is not None
    words, peer = words_of(liar, reply), liar.room.neighbours(liar.client)[0]
    seed = mask_seed(state.mask_pair, state.mask_keys[peer], liar.round_id)
    (subtract_mask if liar.client < peer else add_mask)(words, seed)
    return sends(reply, words)


def another_self_mask(liar: Liar, reply: Message) -> Message:
    words = words_of(liar, reply)
    add_mask(words, liar.source.take(32))
    return sends(reply, words)


def nothing_but_zeros(liar: Liar, reply: Message) -> Message:
    return sends(reply, np.zeros_like(words_of(liar, reply)))


TRICKS = {
    "no masks at all": at(MaskedVector, no_masks),
    "no self-mask": at(MaskedVector, no_self_mask),
    "one mask less": at(MaskedVector, one_mask_less),
    "another self-mask": at(MaskedVector, another_self_mask),
    "zeros": at(MaskedVector, nothing_but_zeros),
    "a mask key that is nobody's": keys(mask_key=off_curve),
}


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("trick", TRICKS)
def test_a_sum_with_a_mask_left_in_it_is_spoiled(trick: str, bits: int, tmp_path: Path) -> None:
    """An entry lies where it may by chance in less than one of two cases, forty never."""
    plan = planned(bits)
    ledger = Ledger.open(tmp_path / "ledger", Budget(4.0, 1e-5))
    releases = Releases(plan, "a test", "Nobody", ledger=ledger)
    with pytest.raises(InvalidSum, match="not what the protocol asks for"):
        releases.release(Rounds(plan, {3: TRICKS[trick]}).add_up)
    # Whatever was opened was opened.
    assert ledger.spent().epsilon > 0


def test_against_a_dishonest_server_as_well(tmp_path: Path) -> None:
    plan = planned(32, DISHONEST)
    with pytest.raises(InvalidSum):
        Releases(plan, "a test", "Nobody").release(
            Rounds(plan, {5: TRICKS["no masks at all"]}).add_up
        )


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_an_honest_sum_is_not(bits: int) -> None:
    plan = planned(bits)
    rounds = Rounds(plan, {})
    released = Releases(plan, "a test", "Nobody").release(rounds.add_up)
    exact = np.sum(list(rounds.ballots().values()), axis=0)
    off = released.tallied.total - exact
    assert 0 < np.abs(off).max() < 8 * np.sqrt(float(released.tallied.noise_variance))


def test_a_vector_within_the_range_goes_unnoticed() -> None:
    """What no such check can see: a client that votes for everybody, twice."""

    def ballot_box_stuffing(liar: Liar, reply: Message) -> Message:
        words = words_of(liar, reply)
        words += np.asarray(2 * plan.scale, dtype=words.dtype)
        return sends(reply, words)

    plan = planned(32)
    trick = at(MaskedVector, ballot_box_stuffing)
    honest = Rounds(plan, {}).add_up()
    stuffed = Releases(plan, "a test", "Nobody").release(Rounds(plan, {3: trick}).add_up)
    assert (stuffed.tallied.total - honest.total).tolist() == [2 * plan.scale] * CANDIDATES
    assert stuffed.tallied.noise_variance > Fraction(0)
