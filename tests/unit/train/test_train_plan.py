"""Plans of trainings: the least noise, and what cannot work is said before anything starts."""

import math

import pytest

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, gaussian_epsilon
from urna.protocols.secagg import NoisePlan, Removal
from urna.systems.train import (
    Clip,
    Sampling,
    Settings,
    TrainPlan,
    plan_training,
)
from urna.systems.train.settings import SHORT

MNIST = Budget(6.0, 1e-3)


def test_noise_is_hardly_more_than_the_gaussian_mechanism_needs() -> None:
    planned = plan_training(539, 25_450, budget=MNIST, rounds=80)
    # Replacing a client moves the sum by twice the clip norm.
    mu = 2 * math.sqrt(80) / planned.noise_multiplier
    assert 0.98 * 6.0 < gaussian_epsilon(mu, 1e-3) <= 6.0
    assert planned.tally.whole_epsilon <= 6.0
    assert planned.rounding_excess < 0.005


@pytest.mark.parametrize(
    ("clients", "parameters", "options", "message"),
    [
        (20, 200_000, {}, "times as long as the longest way"),
        (10, 100, {"dropout": 0.6, "colluding": 0.4}, "honest"),
    ],
    ids=["hopeless", "nobody honest"],
)
def test_a_plan_that_cannot_work_says_so(
    clients: int, parameters: int, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        plan_training(
            clients,
            parameters,
            budget=Budget(1.0, 1e-5),
            rounds=10,
            **options,  # type: ignore[arg-type]
        ).check_hopeful()


def test_cohorts_count_only_the_rounds_of_one_client() -> None:
    everyone = plan_training(100, 1000, budget=MNIST, rounds=50)
    cohorts = Settings(sampling=Sampling.of("cohorts", "0.1"))
    tenth = plan_training(100, 1000, budget=MNIST, rounds=50, settings=cohorts)
    assert (everyone.counted, tenth.counted) == (50, 5)
    assert tenth.noise_multiplier == pytest.approx(
        everyone.noise_multiplier / math.sqrt(10), rel=0.01
    )


def test_no_member_of_a_cohort_comes_more_often_than_it_is_counted() -> None:
    cohorts = Sampling.of("cohorts", "0.3")
    for clients in (7, 10, 23):
        times = dict.fromkeys(range(clients), 0)
        for number in range(1, 40):
            for member in cohorts.members(number, clients, seed=4):
                times[member] += 1
            assert max(times.values()) <= cohorts.counts(number, clients)


def test_poisson_sampling_needs_less_noise() -> None:
    how = Settings(sampling=Sampling.of("poisson", "0.1"))
    plain = plan_training(100, 1000, budget=MNIST, rounds=50)
    sampled = plan_training(100, 1000, budget=MNIST, rounds=50, settings=how)
    assert sampled.noise_multiplier < plain.noise_multiplier / 2


def test_single_records_are_protected_only_where_their_gradients_are_clipped() -> None:
    with pytest.raises(ParameterError, match="record_clip"):
        plan_training(
            10, 100, budget=MNIST, rounds=5, adjacency=Adjacency.REPLACE_ONE_RECORD, shards=1
        )
    how = Settings(clip=10.0, record_clip=1.0)
    records = plan_training(
        10, 100, budget=MNIST, rounds=5, settings=how, adjacency=Adjacency.REPLACE_ONE_RECORD
    )
    clients = plan_training(10, 100, budget=MNIST, rounds=5, settings=Settings(clip=10.0))
    # One record moves a tenth of what a whole client moves.
    assert records.noise_multiplier == pytest.approx(clients.noise_multiplier / 10, rel=0.05)


def test_what_a_plan_proves_for_a_whole_client_is_that_of_all_rounds() -> None:
    planned = plan_training(
        40,
        2,
        budget=MNIST,
        rounds=20,
        settings=Settings(clip=1.0, record_clip=0.25),
        adjacency=Adjacency.REPLACE_ONE_RECORD,
    )
    proven = planned.as_mapping()["whole_client_epsilon"]
    assert proven == planned.tally.whole_client_over(20) > 3 * planned.tally.whole_client_over(1)


@pytest.mark.parametrize("removal", [Removal.PRECISE, Removal.APPROXIMATE])
@pytest.mark.parametrize("tolerated", [1, 3, 8])
def test_noise_left_is_the_target_for_every_number_of_dropouts(
    removal: Removal, tolerated: int
) -> None:
    target = plan_training(20, 50, budget=MNIST, rounds=5, dropout=0.4).tally.release
    assert target is not None
    plan = NoisePlan(removal, target.variance, 20, 0, tolerated)
    for lost in range(tolerated + 1):
        ratio = plan.honest_left(lost) / plan.target
        assert ratio == 1 if removal is Removal.PRECISE else 1 <= ratio <= 1 + 1 / (20 - tolerated)


def test_a_clip_norm_stays_finite_however_fast_it_follows() -> None:
    clip, norm = Clip(0.1, 0.5, rate=5000.0), 0.1
    for _ in range(100):
        norm = clip.after(norm, {SHORT: 0.0})
    assert norm == 1e12
    for _ in range(100):
        norm = clip.after(norm, {SHORT: 1.0})
    assert norm == 1e-12


def real_epsilon(planned: TrainPlan, colluders: int) -> float:
    """Return what one client really loses where so many others of each of its sums collude.

    By the noise that a round leaves, less that of the colluders, and by the Gaussian's own
    curve: no number of honest clients that the plan holds enters.
    """
    tally, clients = planned.tally, planned.terms.clients
    noise, release = tally.round_plan.noise, tally.release
    assert noise is not None
    assert release is not None
    hidden = float(noise.left(0)) * (clients - colluders)
    mu = release.sensitivity.l2 * math.sqrt(planned.counted / hidden)
    return gaussian_epsilon(mu, planned.terms.budget.delta)


@pytest.mark.parametrize(
    ("clients", "part", "colluding", "all_of_them"),
    [(100, "0.2", "0.1", 10), (60, "0.5", "1/4", 15), (30, "0.2", "0.1", 3), (7, "0.5", "0.01", 1)],
)
def test_epsilon_covers_a_client_whose_cohort_holds_all_who_collude(
    clients: int, part: str, colluding: str, all_of_them: int
) -> None:
    how = Settings(sampling=Sampling.of("cohorts", part))
    planned = plan_training(
        clients, 50, budget=Budget(1.0, 1e-5), rounds=20, settings=how, colluding=colluding
    )
    assert 0.99 < real_epsilon(planned, all_of_them) <= planned.tally.whole_epsilon <= 1.0
    assert planned.terms.colluders == planned.as_mapping()["colluders"] == all_of_them
    # One more than planned is not covered, so the figure above is no accident.
    assert real_epsilon(planned, all_of_them + 1) > 1.0


def test_a_cohort_that_may_hold_but_one_honest_client_is_refused() -> None:
    small = Settings(sampling=Sampling.of("cohorts", "0.1"))
    with pytest.raises(ParameterError, match="9 of the 10 in one cohort"):
        plan_training(100, 50, budget=Budget(1.0, 1e-5), rounds=20, settings=small, colluding="0.1")
    with pytest.raises(ParameterError, match="99 of the 100 in one cohort"):
        plan_training(
            1000, 50, budget=Budget(1.0, 1e-5), rounds=20, settings=small, colluding="0.1"
        )
    alone = plan_training(100, 50, budget=Budget(1.0, 1e-5), rounds=20, settings=small)
    assert (alone.terms.clients, alone.terms.colluders) == (10, 0)


def test_everyone_and_lots_count_out_the_same_part_of_all_clients() -> None:
    for sampling in (Sampling(), Sampling.of("poisson", "0.1"), Sampling.of("cohorts", "0.99999")):
        planned = plan_training(
            40,
            50,
            budget=MNIST,
            rounds=5,
            settings=Settings(sampling=sampling),
            colluding="0.1",
        )
        assert (planned.terms.clients, planned.terms.colluders) == (40, 4)
