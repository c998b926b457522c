"""A rehearsal informs a vote, and the tally decides how far it is believed."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from grouped import grouped

from urna.data import Samples
from urna.errors import ParameterError
from urna.privacy import Budget
from urna.randomness import ScriptedSecrets
from urna.report import page
from urna.space import Axis, Space
from urna.systems.vote import (
    ArgmaxDecoder,
    NoisyVotes,
    PosteriorDecoder,
    Rehearsal,
    VoteResult,
    VoteSettings,
    rehearse,
    search,
)
from urna.systems.vote.decode import USELESS
from urna.systems.vote.plan import relative_noise
from urna.systems.vote.settings import FEWEST, choose_ballot
from urna.tally import Run

Array = npt.NDArray[np.float64]

GRID = Space(x=Axis.linear_range(0.0, 1.0, 12), y=[1, 2, 3])
BUDGET = Budget(1.0, 1e-5)


def loss(candidate: dict[str, float], best: float) -> float:
    """Lowest where x is the number the data hold."""
    return abs(candidate["x"] - best) + 0.01 * candidate["y"]


def rehearsed(best: float, pretend: int = 3) -> Rehearsal:
    losses = np.array([[loss(c, best) for c in GRID]] * pretend)
    return Rehearsal(GRID, losses, "public numbers", "ab" * 32)


def tally_of(rng: np.random.Generator, best: float, noise: float, clients: int = 40) -> NoisyVotes:
    """Return the tally of clients that all agree."""
    shape = choose_ballot(None, candidates=len(GRID), noise=noise)
    norm = shape.norm / shape.vote
    std = noise * clients * norm
    votes = clients * rehearsed(best).expected(shape, GRID) + std * rng.standard_normal(len(GRID))
    return NoisyVotes(GRID, votes, std, clients, norm)


def decoder_for(best: float, noise: float) -> PosteriorDecoder:
    shape = choose_ballot(None, candidates=len(GRID), noise=noise)
    decoder = rehearsed(best).decoder(shape, GRID, PosteriorDecoder())
    assert isinstance(decoder, PosteriorDecoder)
    return decoder


def misses(winners: list[int], best: float) -> float:
    return float(np.mean([abs(GRID[w]["x"] - best) for w in winners]))


def test_a_right_rehearsal_helps_and_a_wrong_one_is_found_out() -> None:
    """Fixed seed; differences are many times their errors."""
    rng = np.random.default_rng(0)
    for noise, worse in ((0.5, 0.35), (0.15, 0.1)):
        tallies = [tally_of(rng, 0.9, noise) for _ in range(60)]
        alone = misses([PosteriorDecoder().winner(t) for t in tallies], 0.9)
        right = misses([decoder_for(0.9, noise).winner(t) for t in tallies], 0.9)
        wrong = misses([decoder_for(0.1, noise).winner(t) for t in tallies], 0.9)
        assert right <= alone
        assert right < 0.03
        assert wrong <= alone + worse


def test_the_tally_says_how_far_a_rehearsal_is_right() -> None:
    rng = np.random.default_rng(1)
    tallies = [tally_of(rng, 0.9, 0.1) for _ in range(20)]
    right = [decoder_for(0.9, 0.1).trust(t) or 0.0 for t in tallies]
    wrong = [decoder_for(0.1, 0.1).trust(t) or 0.0 for t in tallies]
    assert min(right) > 1 - USELESS
    assert np.mean(right) > 0.9
    assert np.mean(wrong) < 0.05


def test_a_tally_that_is_all_noise_leaves_the_rehearsal_as_it_was() -> None:
    rng = np.random.default_rng(2)
    tally = tally_of(rng, 0.9, 300.0)
    assert decoder_for(0.1, 300.0).trust(tally) == pytest.approx(1 - USELESS, abs=0.02)
    assert GRID[decoder_for(0.1, 300.0).winner(tally)]["x"] == pytest.approx(0.1, abs=0.06)


def test_where_noise_is_weak_the_vote_speaks_for_itself() -> None:
    tally = tally_of(np.random.default_rng(3), 0.9, 0.01)
    decoder = decoder_for(0.1, 0.01)
    assert decoder.winner(tally) == PosteriorDecoder().winner(tally)
    assert decoder.decode(tally) == PosteriorDecoder().decode(tally)
    assert decoder.trust(tally) is None


def test_a_decoded_winner_is_the_winner_and_leads_with_its_probability() -> None:
    rng = np.random.default_rng(4)
    for _ in range(5):
        tally = tally_of(rng, 0.5, 0.3)
        decoded = decoder_for(0.6, 0.3).decode(tally)
        assert decoded.winner == decoder_for(0.6, 0.3).winner(tally)
        assert decoded == decoder_for(0.6, 0.3).decode(tally)
        assert decoded.confidence is None or 0 < decoded.confidence <= 1
        assert decoded.winner not in decoded.near_ties


@pytest.mark.statistical
def test_the_set_holds_the_leader_as_often_as_it_says_where_the_rehearsal_is_right() -> None:
    """False alarm below 1e-4: of all sets of 90 % at least 80 % hold the leader."""
    rng = np.random.default_rng(5)
    held = told = 0
    for _ in range(200):
        best = float(rng.uniform(0, 1))
        shape = choose_ballot(None, candidates=len(GRID), noise=0.3)
        truth = int(rehearsed(best).expected(shape, GRID).argmax())
        decoded = decoder_for(best, 0.3).decode(tally_of(rng, best, 0.3))
        told += decoded.confidence is not None
        held += decoded.confidence is not None and truth in (decoded.winner, *decoded.near_ties)
    assert told > 100
    assert held >= 0.8 * told


def test_a_shortlist_is_asked_only_where_noise_is_strong() -> None:
    rehearsal = rehearsed(0.9)
    assert rehearsal.shortlist(0.1) == GRID
    short = rehearsal.shortlist(1.0)
    assert len(short) == 9
    assert min(c["x"] for c in short) > 0.7
    small = Space(x=list(range(FEWEST)))
    assert Rehearsal(small, np.arange(8.0)[None], "d", "").shortlist(9.0) == small


def test_candidates_that_failed_in_the_rehearsal_come_last() -> None:
    losses = np.array([np.arange(36.0)])
    losses[0, :5] = np.nan
    short = Rehearsal(GRID, losses, "d", "").shortlist(1.0)
    assert list(short) == [GRID[place] for place in range(5, 14)]


def test_expected_votes_are_those_of_the_candidates_asked() -> None:
    rehearsal = rehearsed(0.9)
    short = rehearsal.shortlist(1.0)
    shape = choose_ballot("top-k", candidates=len(short), noise=1.0, votes=1)
    expected = rehearsal.expected(shape, short)
    assert expected.sum() == pytest.approx(1.0)
    assert short[int(expected.argmax())] == min(GRID, key=lambda c: loss(c, 0.9))


def test_argmax_expects_nothing() -> None:
    shape = choose_ballot(None, candidates=len(GRID), noise=1.0)
    argmax = ArgmaxDecoder()
    assert rehearsed(0.5).decoder(shape, GRID, argmax) is argmax


def found(rehearsal: Rehearsal | None, epsilon: float, best: float = 0.9) -> VoteResult:
    return search(
        GRID,
        loss,
        [best] * 12,
        budget=Budget(epsilon, 1e-5),
        settings=VoteSettings(rehearsal=rehearsal),
        run=Run(secrets=ScriptedSecrets(b"rehearsal"), force=True),
    )


def test_a_search_votes_on_the_shortlist_and_says_so() -> None:
    result = found(rehearsed(0.9), 1.0)
    assert relative_noise(Budget(1.0, 1e-5), 12) > 0.3
    assert len(result.space) == len(result.votes) == 9
    assert result.decoder == "posterior, rehearsed"
    said = result.rehearsal
    assert said is not None
    assert (said["data"], said["sha256"], said["public"]) == ("public numbers", "ab" * 32, True)
    assert (said["candidates"], said["voted_on"], said["pretend_clients"]) == (36, 9, 3)
    assert 0 < said["trust"] < 1
    assert "rehearsed on public numbers" in str(result)
    assert "9 of 36 candidates voted on, the other 27 could not win; right" in str(result)
    sure = replace(result, confidence=0.5)
    assert sure.certainty.endswith("50.0 % among the 9 of 36 that were voted on")
    assert "assumes that public numbers (SHA-256 abababababab…)" in str(result.privacy)
    assert VoteResult.read(json.loads(result.as_json())).rehearsal == said
    with pytest.raises(ParameterError, match="cannot be read"):
        VoteResult.read(result.as_mapping() | {"rehearsal": {"data": "no counts"}})


def test_a_rehearsal_decides_what_the_tally_cannot() -> None:
    """A vote that is refused by itself is held with a rehearsal, if its decoder heeds one."""
    asked = {"budget": Budget(0.1, 1e-5), "secrets": ScriptedSecrets(b"hopeless")}

    def hold(**more: Any) -> VoteResult:
        return search(GRID, loss, [0.9] * 10, **grouped(asked, **more))

    with pytest.raises(ParameterError, match="this vote cannot succeed"):
        hold()
    held = hold(rehearsal=rehearsed(0.9))
    assert isinstance(held, VoteResult)
    assert held.space != GRID
    assert "the rehearsal's choice: the tally alone could not have named even a" in str(held)
    assert "The rehearsal decided this" in page(held, title="t")
    assert (held.confidence, held.credible_set) == (
        None,
        (held.winner,),
    )  # a rehearsal's word is no odds
    assert "unanimous" not in str(found(rehearsed(0.1), 100.0))
    with pytest.raises(ParameterError, match="this vote cannot succeed"):
        hold(rehearsal=rehearsed(0.9), decoder=ArgmaxDecoder())
    unheeded = hold(rehearsal=rehearsed(0.9), decoder=ArgmaxDecoder(), force=True)
    assert isinstance(unheeded, VoteResult)
    assert not unheeded.by_rehearsal


def test_a_search_with_little_noise_votes_on_all() -> None:
    result = found(rehearsed(0.1), 100.0)
    assert result.space == GRID
    assert result.best == found(None, 100.0).best
    assert "could not win" not in str(result)
    assert result.among == ""
    assert result.rehearsal is not None
    assert result.rehearsal["trust"] is None


def test_results_of_before_are_read() -> None:
    result = found(None, 1.0)
    mapping = result.as_mapping()
    assert mapping.pop("rehearsal") is None
    assert VoteResult.read(mapping).rehearsal is None
    assert "rehears" not in str(result)


def test_what_is_kept_before_the_winner_is_weighed_names_the_rehearsal() -> None:
    kept: list[VoteResult] = []
    search(
        GRID,
        loss,
        [0.9] * 12,
        budget=BUDGET,
        settings=VoteSettings(rehearsal=rehearsed(0.9)),
        run=Run(secrets=ScriptedSecrets(b"kept"), force=True, keep=kept.append),
    )
    (result,) = kept
    assert result.rehearsal is not None
    assert result.rehearsal["trust"] is None
    assert "public numbers" in str(result.privacy)


def test_another_space_is_refused() -> None:
    other = replace(rehearsed(0.9), space=Space(x=list(range(36))))
    with pytest.raises(ParameterError, match="rehearsal was of other candidates"):
        found(other, 1.0)


def test_rehearsing_evaluates_every_candidate_on_every_pretend_client() -> None:
    told: list[tuple[int, int]] = []
    done = rehearse(
        GRID, loss, [0.2, 0.3], data="two numbers", progress=lambda *step: told.append(step)
    )
    assert done.losses.shape == (2, 36)
    assert done.losses[1].tolist() == [loss(c, 0.3) for c in GRID]
    assert done.data == "two numbers"
    assert told[-1] == (72, 72)


def test_a_digest_tells_data_apart() -> None:
    rows = [Samples(np.full((4, 2), float(i)), np.zeros(4)) for i in range(2)]

    def flat(candidate: dict[str, float], data: Samples) -> float:
        return float(candidate["x"])

    first, again, other = (
        rehearse(GRID, flat, [part], data="d").digest for part in (rows[0], rows[0], rows[1])
    )
    assert first == again != other
    numbers = [rehearse(GRID, loss, [best], data="d").digest for best in (0.1, 0.2)]
    assert len(set(numbers)) == 2


def test_a_rehearsal_that_says_nothing_is_refused() -> None:
    with pytest.raises(ParameterError, match="no candidate has a finite loss on d"):
        Rehearsal(GRID, np.full((2, 36), np.nan), "d", "")
    with pytest.raises(ParameterError, match=r"losses of the shape \(pretend clients, 36\)"):
        Rehearsal(GRID, np.zeros((2, 35)), "d", "")
    with pytest.raises(ParameterError, match="at least one pretend client"):
        rehearse(GRID, loss, [], data="d")
