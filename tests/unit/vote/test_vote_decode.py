import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate, stats
from scipy.special import ndtr

from urna.space import Space
from urna.systems.vote import ArgmaxDecoder, NoisyVotes, PosteriorDecoder
from urna.systems.vote.decode import Decoder, leading_probability

FALSE_ALARM = 1e-6  # how often a right probability would fail the calibration on a fresh seed

Votes = npt.NDArray[np.float64]


def decode(votes: list[float], std: float = 1.0, space: Space | None = None) -> tuple[int, float]:
    chosen = space or Space(x=list(range(len(votes))))
    decoded = ArgmaxDecoder().decode(NoisyVotes(chosen, np.array(votes), std, clients=10))
    return decoded.winner, decoded.confidence


def test_the_most_noisy_votes_win() -> None:
    assert decode([1.0, -3.0, 7.5, 7.25])[0] == 2


def test_equal_votes_are_not_decided_by_index() -> None:
    spaces = [Space(x=[0, 1, 2, 3], name=[f"space {n}"]) for n in range(60)]
    winners = [decode([5.0, 0.0, 5.0, 5.0], space=space)[0] for space in spaces]
    assert set(winners) == {0, 2, 3}
    again = [decode([5.0, 0.0, 5.0, 5.0], space=space)[0] for space in spaces]
    assert winners == again


@pytest.mark.parametrize("decoder", [ArgmaxDecoder(), PosteriorDecoder()], ids=lambda d: d.name)
def test_the_winner_alone_is_the_one_that_decoding_names(decoder: Decoder) -> None:
    rng = np.random.default_rng(0)
    space = Space(lr=[0.1, 0.01, 0.001, 0.0001], momentum=[0.0, 0.5, 0.9])
    for std in (0.0, 1.0, 8.0):
        tally = NoisyVotes(space, np.round(3 * rng.standard_normal(12)), std, clients=10)
        assert decoder.winner(tally) == decoder.decode(tally).winner


def test_a_tally_that_is_all_alike_is_a_guess() -> None:
    assert decode([3.0] * 8)[1] is None
    assert leading_probability(np.full(8, 3.0), 4.0, 0) == pytest.approx(1 / 8)


def test_one_candidate_leads_for_sure() -> None:
    assert decode([3.0]) == (0, 1.0)


def test_without_noise_the_tally_is_the_truth() -> None:
    assert decode([3.0, 4.0, 1.0], std=0.0) == (1, 1.0)
    assert decode([4.0, 4.0, 1.0, 4.0], std=0.0)[1] == pytest.approx(1 / 3)
    assert leading_probability(np.array([4.0, 4.0, 1.0]), 0.0, 2) == 0.0


def test_probabilities_of_leading_add_up_to_one() -> None:
    votes = np.array([12.0, 3.0, 9.5, 11.0, -4.0, 0.0])
    total = sum(leading_probability(votes, 3.0, i) for i in range(6))
    assert total == pytest.approx(1.0, abs=1e-9)


def test_more_votes_and_less_noise_make_a_leader_surer() -> None:
    others = [0.0, 1.0, 2.0, 3.0, 5.0, 8.0]
    sure = [leading_probability(np.array([lead, *others]), 2.0, 0) for lead in (8.0, 10.0, 14.0)]
    assert sure == sorted(sure)
    noisy = [leading_probability(np.array([12.0, *others]), std, 0) for std in (3.0, 2.0, 1.0)]
    assert noisy == sorted(noisy)


def test_two_candidates_agree_with_the_integral() -> None:
    votes, std = np.array([9.0, 2.0]), 3.0

    def weight(trust: float) -> float:
        squares = 7.0**2 / 2 / std**2  # around the mean, in units of the noise
        return math.sqrt(1 - trust) * math.exp(-squares * (1 - trust) / 2)

    def ahead(trust: float) -> float:
        # The posterior gap is normal with mean trust·7 and variance 2·trust·std².
        return weight(trust) * float(ndtr(math.sqrt(trust) * 7.0 / math.sqrt(2 * std**2)))

    expected = integrate.quad(ahead, 0, 1)[0] / integrate.quad(weight, 0, 1)[0]
    assert leading_probability(votes, std, 0) == pytest.approx(expected, abs=1e-3)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "candidates",
    [2, pytest.param(4, marks=pytest.mark.audit), pytest.param(15, marks=pytest.mark.audit)],
)
def test_confidence_holds_on_average_over_unknown_spreads(candidates: int) -> None:
    """False-alarm rate about a millionth: 4.9 standard errors of a mean of 4,000 outcomes.

    The same check rejects the answer that takes every noisy vote at its word.
    """
    rng, claimed, naive, led = np.random.default_rng(7), [], [], []
    for _ in range(4_000):
        trust = rng.uniform()
        spread = math.sqrt(trust / (1 - trust))
        true = rng.normal(0.0, spread, candidates)
        noisy = true + rng.normal(0.0, 1.0, candidates)
        winner = int(noisy.argmax())
        claimed.append(leading_probability(noisy, 1.0, winner))
        naive.append(without_shrinkage(noisy, 1.0, winner))
        led.append(true.argmax() == winner)
    limit = 4.9 * math.sqrt(0.25 / len(led))
    assert abs(float(np.mean(claimed)) - float(np.mean(led))) < limit
    assert abs(float(np.mean(naive)) - float(np.mean(led))) > limit


def without_shrinkage(votes: Votes, std: float, candidate: int) -> float:
    """The overconfident answer: take every noisy vote at its word."""
    gaps = (votes[candidate] - np.delete(votes, candidate)) / std
    z = np.linspace(-9, 9, 301)
    return float(np.trapezoid(stats.norm.pdf(z) * np.prod(ndtr(gaps[:, None] + z), axis=0), z))


def elections(noise: float, count: int) -> list[tuple[Votes, int, bool]]:
    """Return noisy tallies of true votes N(0, 1), their winners, and whether these truly lead."""
    rng = np.random.default_rng(7)
    held = []
    for _ in range(count):
        true = rng.normal(size=40)
        noisy = true + noise * rng.normal(size=40)
        winner = int(noisy.argmax())
        held.append((noisy, winner, bool(true.argmax() == winner)))
    return held


# The spread of the true votes is itself estimated from 40 entries. Where it drowns in the
# noise it is often estimated as nothing, and the answer is then 1/40 where 1/10 is true.
SLACK = 0.07


def calibrated(predicted: Votes, led: npt.NDArray[np.bool_]) -> bool:
    """Tell whether leaders lead as often as predicted, overall and in tenths.

    If every prediction is within `SLACK` of the truth, the number of true leaders among n is
    within n·SLACK + t of its prediction but for a probability of 2·exp(−2t²/n) (Hoeffding).
    """
    tenth = np.clip((predicted * 10).astype(int), 0, 9)
    groups = [np.full(len(led), True), *(tenth == number for number in np.unique(tenth))]
    for inside in groups:
        n = int(inside.sum())
        beyond = abs(led[inside].sum() - predicted[inside].sum()) - SLACK * n
        if beyond > 0 and len(groups) * 2 * math.exp(-2 * beyond**2 / n) < FALSE_ALARM:
            return False
    return True


@pytest.mark.statistical
@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0])
def test_leaders_lead_as_often_as_they_are_said_to(noise: float) -> None:
    held = elections(noise, 500)
    predicted = np.array([leading_probability(v, noise, w) for v, w, _ in held])
    assert calibrated(predicted, np.array([leads for *_, leads in held]))


@pytest.mark.statistical
def test_the_calibration_notices_a_probability_without_shrinkage() -> None:
    held = elections(2.0, 1_200)
    predicted = np.array([without_shrinkage(v, 2.0, w) for v, w, _ in held])
    assert not calibrated(predicted, np.array([leads for *_, leads in held]))
