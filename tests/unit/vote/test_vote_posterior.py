import functools
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from urna.errors import ParameterError
from urna.space import Axis, Space
from urna.systems.vote import ArgmaxDecoder, DecoderKind, NoisyVotes, PosteriorDecoder
from urna.systems.vote.decode import Decoder, credible_set
from urna.systems.vote.kernels import RANGES, describe_structure, families, unrelated
from urna.systems.vote.windows import usual_edges, windows_of

FALSE_ALARM = 1e-6  # how often a right decoder would fail a statistical test on a fresh seed

Array = npt.NDArray[np.float64]

SPACE = Space(lr=Axis.log_range(1e-4, 1.0, 9), momentum=[0.0, 0.5, 0.9], kind=["a", "b"])
RNG = functools.partial(np.random.default_rng)


def distances(space: Space) -> Array:
    """Return distances between candidates in axis steps, shape (axes, m, m)."""
    along = zip(space.axes.values(), space.places.T, strict=True)
    return np.stack([axis.steps()[np.ix_(places, places)] for axis, places in along])


def surface(rng: np.random.Generator, space: Space, reach: float, height: float) -> Array:
    """Draw true votes from a smooth prior over the space."""
    steps = distances(space)
    covariance = np.exp(-0.5 * (steps / reach) ** 2).prod(axis=0)
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(space)))
    return np.asarray(height * root @ rng.standard_normal(len(space)))


def winner(space: Space, votes: Array, std: float) -> int:
    return PosteriorDecoder().decode(NoisyVotes(space, votes, std, clients=100)).winner


def test_what_is_known_of_a_space_is_said_and_so_is_what_is_left_out() -> None:
    rates = Axis.log_range(1e-6, 10.0, 9)
    others = {name: list(range(9)) for name in ("a", "b")}
    many = Space(client_lr=rates, server_lr=rates, **others).subset(1600, RNG(0))
    for space, said in (
        (Space(kind=["a", "b", "c"]), "nothing: no candidate is nearer"),
        (Space(eta=rates), "neighbours along eta, and where eta may work"),
        (
            Space(lr=Axis.log(rates.values, works=(None, None)), b=[1, 2]),
            "neighbours along lr and b",
        ),
        (many, "neighbours along client_lr, server_lr, a and b, and where client_lr and server_lr"),
        (
            Space(lr=rates, **others, c=list(range(999))),
            "nothing; not neighbours along lr, a, b and c:",
        ),
    ):
        assert "; not ".join(filter(None, describe_structure(space))).startswith(said)
        assert bool(families(space)) != said.startswith("nothing")


def test_where_there_is_no_room_axes_of_few_windows_make_it() -> None:
    """Windows are merged, then dropped, where less than 16 combinations of ranges would be left."""
    axis = Axis.log_range(1e-6, 10.0, 8)
    windows = len(windows_of("lr", axis, axis.values))
    two = {"client_lr": axis, "x": Axis.log(axis.values, works=(1e-4, 1.0))}
    assert len(families(Space(**two))[0].shares) == windows * 4 * 16
    space = Space(client_lr=axis, server_lr=axis)  # windows² · 16 are too many
    merged = families(space)[0]
    assert len(merged.shares) == windows * 2 * 16
    assert merged.shares.sum() == pytest.approx(1.0)
    # A hill at the smallest rates, where nothing is expected to work, loses to a lower one.
    place = np.array([[axis.values.index(c[name]) for name in space.axes] for c in space])
    far = [((place - centre) ** 2).sum(axis=1) for centre in (0, 4)]
    votes = 45 * np.exp(-far[0] / 2) + 28 * np.exp(-far[1] / 2)
    assert set(space[winner(space, votes, 30.0)].values()) == {axis.values[4]}
    assert winner(Space(x=axis, y=axis), votes, 30.0) == 0


@pytest.mark.parametrize(
    "space",
    [
        Space(lr=Axis.log_range(1e-9, 1e3, 600)).only(list(range(10))),
        Space(x=Axis.linear(list(range(1000)), works=(900, None))).only([3, 5, 9]),
        Space(n_neighbors=Axis.linear(list(range(1, 1001)))).only([500, 510, 520, 530]),
    ],
    ids=["rates", "declared", "neighbours"],
)
def test_windows_far_from_all_candidates_say_nothing(space: Space) -> None:
    axes = {f"x{i}": replace(a, works=(None, None)) for i, a in enumerate(space.axes.values())}
    unnamed = Space(**axes).only(list(space.chosen or ()))
    for named, flat in zip(families(space), families(unnamed), strict=True):
        assert np.array_equal(named.values, flat.values)
        assert named.shares.sum() == pytest.approx(1.0)
    votes = RNG(5).standard_normal(len(space))
    assert winner(space, votes, 3.0) == winner(unnamed, votes, 3.0)


def test_categories_by_the_thousand_are_not_compared() -> None:
    space = Space(o=[f"kind {i}" for i in range(1100)], p=[1, 2])
    assert families(space) == ()
    assert "neighbours along o and p: there are too many" in describe_structure(space)[1]


def test_a_name_of_any_length_is_looked_up_at_once() -> None:
    for name in ("_" * 1_000_000, "./" * 500_000, "__" * 500_000 + "C"):
        assert usual_edges(name, WIDE) == ((), ())


def test_a_subset_of_a_large_product_has_its_largest_eigenvectors() -> None:
    """They are found axis by axis: the same as if all products had been sorted."""
    axes = {f"x{i}": Axis.linear([0, 1, 3 + i / 10, 4 + i, 9, 11 + i]) for i in range(4)}
    space = Space(**axes).subset(40, RNG(0))
    values, vectors = np.ones(1), np.ones((len(space), 1))
    for i, axis in enumerate(axes.values()):
        value, vector = np.linalg.eigh(np.exp(-0.5 * (axis.steps() / RANGES[-1][0]) ** 2))
        values = np.multiply.outer(values, value).ravel()
        vectors = np.einsum("ca,cb->cab", vectors, vector[space.places[:, i]]).reshape(40, -1)
    largest = np.argsort(values)[-160:]
    one = families(space)[0].member(0)
    found = one.restore(one.values * np.stack([one.project(e)[0] for e in np.eye(40)]))
    expected = vectors[:, largest] * values[largest] @ vectors[:, largest].T
    assert np.allclose(found, expected, atol=1e-9)


def test_numbers_that_are_one_float_have_no_neighbours_apart() -> None:
    axis = Axis.log([10**20 + i for i in range(60)])
    assert winner(Space(C=axis), np.arange(60.0), 1.0) == 59


def test_what_was_declared_is_left_out_last() -> None:
    short = Axis.log([1e-6, 1e-2, 10.0])
    axes = {f"{name}_lr": short for name in "abcdefg"}
    said = Space(**axes | {"g_lr": Axis.log(short.values, works=(1e-4, 1.0))})
    told, left_out = describe_structure(said)
    assert left_out.endswith(" may work: there is no room")
    kept = told.split(", and where ")[1]
    assert "g_lr" in kept
    assert "a_lr" in left_out


@pytest.mark.parametrize("chosen", [False, True], ids=["grid", "subset"])
def test_priors_are_the_matrices_they_stand_for(chosen: bool) -> None:
    space = Space(x=Axis.linear([0.0, 1.0, 3.0]), y=[1, 2, 3, 4])
    space = space.subset(9, RNG(0)) if chosen else space
    rng = RNG(1)
    for family in families(space):
        for prior in (0, len(family.values) - 1):
            one = family.member(prior)
            matrix = one.restore(
                one.values * np.stack([one.project(e)[0] for e in np.eye(len(space))])
            )
            assert np.allclose(matrix, matrix.T, atol=1e-9)
            assert np.allclose(np.diag(matrix), 1.0, atol=1e-9)
        votes = rng.standard_normal(len(space))
        assert np.allclose(family.restore(family.project(votes))[0], len(family.values) * votes)


def test_the_winner_of_a_smooth_tally_is_found_where_argmax_fails() -> None:
    """Over 300 surfaces under strong noise; a decoder no better than argmax fails."""
    rng, better = RNG(2), []
    for _ in range(300):
        true = surface(rng, SPACE, reach=2.5, height=10.0)
        noisy = true + 15.0 * rng.standard_normal(len(SPACE))
        better.append(true[winner(SPACE, noisy, 15.0)] - true[np.argmax(noisy)])
    # One-sided test at the stated false-alarm rate that the mean gain is positive.
    gain = np.array(better)
    assert gain.mean() / (gain.std(ddof=1) / math.sqrt(len(gain))) > stats.norm.isf(FALSE_ALARM)


def test_weak_noise_makes_the_decoder_argmax() -> None:
    rng = RNG(3)
    for _ in range(20):
        votes = 30.0 * rng.random(len(SPACE))
        votes[rng.integers(len(SPACE))] = 40.0
        noisy = votes + 0.3 * rng.standard_normal(len(SPACE))
        assert winner(SPACE, noisy, 0.3) == int(np.argmax(noisy))


def two_hills(rates: list[float], name: str) -> tuple[Space, Array]:
    """Return votes with a hill at the smallest rates and a slightly lower one further up."""
    space = Space(**{name: Axis.log(rates), "momentum": [0.0, 0.5, 0.9]})
    place = {rate: i for i, rate in enumerate(sorted(rates))}
    heights = [
        30 * math.exp(-((place[c[name]] - 0) ** 2)) + 28 * math.exp(-((place[c[name]] - 6) ** 2))
        for c in space
    ]
    return space, np.array(heights)


@pytest.mark.parametrize("chosen", [False, True], ids=["grid", "subset"])
@pytest.mark.parametrize("order", [1, -1], ids=["rising", "falling"])
def test_a_learning_rate_is_expected_to_learn_nothing_at_its_small_end(
    order: int, chosen: bool
) -> None:
    rates = [10.0**e for e in range(-8, 1)][::order]
    for name, best in (("x", 1e-8), ("client_lr", 1e-2)):
        space, votes = two_hills(rates, name)
        if chosen:
            places = list(range(len(space) - 1))  # without the last: no longer a full grid
            space, votes = space.only(places), votes[places]
        assert space[winner(space, votes, 30.0)][name] == pytest.approx(best)


def test_where_an_axis_works_can_be_said_whatever_its_name() -> None:
    rates = [10.0**e for e in range(-8, 1)]
    said = {"c": (1e-4, None), "lr": (None, None)}
    for name, best in (("c", 1e-2), ("lr", 1e-8)):
        space, votes = two_hills(rates, name)
        momentum = space.axes["momentum"]
        declared = Space(**{name: Axis.log(rates, works=said[name]), "momentum": momentum})
        assert declared[winner(declared, votes, 30.0)][name] == pytest.approx(best)


def test_windows_lie_at_absolute_values_and_differ() -> None:
    axis = Axis.log_range(1e-8, 1.0, 9)
    found = windows_of("lr", axis, axis.values)
    assert sum(window.weight for window in found) == pytest.approx(1.0)
    windows = [window.expected for window in found]
    assert np.array_equal(windows[0], np.ones(9))
    assert all(np.abs(a - b).max() > 0.1 for i, a in enumerate(windows) for b in windows[:i])
    starts = {float(axis.values[int(np.argmax(window > 0.5))]) for window in windows}
    assert starts == {1e-8, 1e-4, 1e-3, 1e-2}
    narrow = Axis.log([0.02, 0.04, 0.08])  # inside every low edge: only the high one shows
    assert len(windows_of("lr", narrow, narrow.values)) <= 2


def test_under_weaker_noise_the_tally_decides_where_a_rate_learns() -> None:
    space, votes = two_hills([10.0**e for e in range(-8, 1)], "lr")
    assert space[winner(space, votes, 3.0)]["lr"] == pytest.approx(1e-8)


WIDE = Axis.log([1e-4, 1.0])


@pytest.mark.parametrize(
    ("name", "axis", "known"),
    [
        ("lr", WIDE, True),
        ("server.learning_rate", WIDE, True),
        ("learning_rate_init", WIDE, True),
        ("learningRate", WIDE, True),
        ("eta0", WIDE, True),
        ("svc__C", WIDE, True),
        ("model.C", WIDE, True),
        ("optimizer.weight_decay", WIDE, True),
        ("client lr", WIDE, True),
        ("weight_decay", WIDE, True),
        ("reg_lambda", WIDE, True),
        ("n_neighbors", Axis.ordinal([1, 9]), True),
        ("c", WIDE, False),
        ("beta", WIDE, False),
        ("lr_decay", WIDE, False),
        ("min_lr", WIDE, False),
        ("opt__min_lr", WIDE, False),
        ("model.max_lr", WIDE, False),
        ("min.lr", WIDE, False),
        ("warmup.lr", WIDE, False),
        ("min_eta0", WIDE, False),
        ("sched/final/eta0", WIDE, False),
        ("mixup_alpha", WIDE, False),
        ("alpha", Axis.linear([0.0, 1.0]), False),
        ("lr", Axis.ordinal([1e-4, 1e-1]), False),
    ],
)
def test_what_everybody_knows_goes_by_name_and_scale(name: str, axis: Axis, known: bool) -> None:
    assert any(usual_edges(name, axis)) is known


def test_a_prefix_leaves_a_name_its_edges() -> None:
    for name in ("client_eta0", "opt.eta0", "ETA0"):
        assert usual_edges(name, WIDE) == usual_edges("eta0", WIDE)
    assert usual_edges("client_eta", WIDE) == usual_edges("lr", WIDE)


def test_rates_for_fine_tuning_may_be_small() -> None:
    """On an axis that ends at 10⁻³ its name hides nobody: what leads a little there, wins."""
    axis = Axis.log([1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3])
    assert usual_edges("lr", axis)[0] == ()
    assert usual_edges("lr", Axis.log([1e-6, 1e-1]))[0] == (1e-4, 1e-3)
    votes = np.repeat(20 * np.exp(-0.5 * (np.arange(7) - 2.0) ** 2), 4)
    space = Space(lr=axis, epochs=[1, 2, 3, 4])
    assert space[winner(space, votes, 40.0)]["lr"] == 1e-5


def test_the_page_prints_the_table_of_names_as_it_is() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "ballots-and-decoding.md"
    table = page.read_text(encoding="utf-8").split("### What names say")[1].split("\n## ")[0]
    plain = table.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")).replace("10-", "1e-")
    seen = 0
    for row in re.findall(r"^\| (.*`.*) \|(.*)\|(.*)\|$", plain, flags=re.MULTILINE):
        lows, highs = (tuple(float(x) for x in cell.split(",") if x.strip()) for cell in row[1:])
        axis = WIDE if "(log)" in row[0] else Axis.ordinal([1, 100])
        for name in re.findall(r"`(.*?)`", row[0]):
            assert usual_edges(name, axis) == (lows, highs), name
            seen += 1
    assert seen == 23


@pytest.mark.parametrize(
    ("name", "axis", "doubtful"),
    [
        ("C", Axis.log_range(1e-4, 1e4, 9), 1e-4),
        ("alpha", Axis.log_range(1e-4, 1e4, 9), 1e4),
        ("n_neighbors", Axis.ordinal([1, 3, 5, 9, 15, 25, 40]), 40),
        ("n_neighbors", Axis.ordinal([40, 25, 15, 9, 5, 3, 1]), 40),
        ("max_features", Axis.linear([0.05, 0.2, 0.5, 1.0]), 0.05),
    ],
)
def test_less_is_expected_where_an_axis_seldom_works(
    name: str, axis: Axis, doubtful: float
) -> None:
    found = windows_of(name, axis, axis.values)
    expected = np.asarray(sum(window.weight * window.expected for window in found))
    assert np.array_equal(found[0].expected, np.ones(len(axis.values)))
    assert found[0].weight >= 0.25
    assert axis.values[int(np.argmin(expected))] == doubtful
    assert expected.min() < 0.8
    assert expected.max() > 0.95
    listed = [axis.values[2], axis.values[0]]  # as candidates that were listed are
    seen = [tuple(window.expected.round(9)) for window in windows_of(name, axis, listed)]
    assert set(seen) <= {tuple(window.expected[[2, 0]].round(9)) for window in found}


@pytest.mark.parametrize(
    "axis",
    [
        Axis.ordinal([1, 25, 3]),  # in no order
        Axis.of([5, 25, None]),
        Axis.categorical(["few", "many"]),
        Axis.ordinal([1, 10**400]),
        Axis.linear([3]),
    ],
    ids=str,
)
def test_a_name_says_nothing_where_numbers_have_no_place(axis: Axis) -> None:
    (window,) = windows_of("n_neighbors", axis, axis.values)
    assert np.array_equal(window.expected, np.ones(len(axis.values)))


@pytest.mark.parametrize(
    "sizes",
    [
        (1000, 1, 0),
        (20, 20, 1000),
        pytest.param((30, 30, 3000), marks=pytest.mark.audit),
        (9, 8, 30),
    ],
    ids=["long axis", "subset", "large subset", "small subset"],
)
def test_neither_a_name_nor_size_takes_structure_away(sizes: tuple[int, int, int]) -> None:
    long, wide, chosen = sizes
    other = {f"x{i}": list(range(wide)) for i in range(2)} if wide > 1 else {}
    for name in ("x", "lr"):
        space = Space(**{name: Axis.log_range(1e-8, 1.0, long), **other})
        space = space.subset(chosen, RNG(0)) if chosen else space
        assert min(len(family.values) for family in families(space)) >= 4


@pytest.mark.audit
@pytest.mark.parametrize("long", [True, False], ids=["long axis", "large subset"])
def test_structure_helps_on_long_axes_and_large_subsets(long: bool) -> None:
    """As above on spaces too large for exact matrices; argmax fails, and so would no structure."""
    space = Space(x=list(range(1000)))
    reach = 60.0
    if not long:
        space, reach = Space(**{n: list(range(10)) for n in "abc"}).subset(700, RNG(0)), 3.0
    rng, better = RNG(12), []
    root = np.linalg.cholesky(
        np.exp(-0.5 * (distances(space) / reach) ** 2).prod(axis=0) + 1e-6 * np.eye(len(space))
    )
    for _ in range(60):
        true = 10.0 * root @ rng.standard_normal(len(space))
        noisy = true + 15.0 * rng.standard_normal(len(space))
        better.append(true[winner(space, noisy, 15.0)] - true[np.argmax(noisy)])
    gain = np.array(better)
    # One-sided test at the stated false-alarm rate that the mean gain is positive.
    assert gain.mean() / (gain.std(ddof=1) / math.sqrt(len(gain))) > stats.t.isf(FALSE_ALARM, 59)


def test_draws_beyond_the_kept_eigenvectors_have_the_right_variance() -> None:
    """Posterior draws of a truncated prior, against the posterior of its own matrix."""
    space = Space(x=list(range(300)))
    one = families(space)[0].member(0)
    assert one.rest > 0
    vectors = one.vectors[0][0]
    structured = (vectors * one.values[0, :-1]) @ vectors.T
    prior = 4.0 * (0.7 * structured + 0.3 * np.eye(300))
    total = 4.0 * (0.7 * one.values + 0.3) + 2.0
    gains = np.repeat(1 - 2.0 / total, 4000, axis=0)
    votes = RNG(3).standard_normal(300)
    shrink = prior @ np.linalg.inv(prior + 2.0 * np.eye(300))
    drawn = one.drawn(votes, gains, 2.0, RNG(4))
    deviation = np.sqrt(np.diag(prior - shrink @ prior))
    # Largest of 300 normals beyond six deviations: below 1e-6.
    assert np.abs((drawn.mean(axis=0) - shrink @ votes) / deviation).max() < 6 / math.sqrt(4000)
    assert np.abs(drawn.std(axis=0) / deviation - 1).max() < 6 / math.sqrt(8000)
    assert np.allclose(one.shrunk(votes, gains[:1]), shrink @ votes)


def test_without_structure_nothing_is_lost_to_argmax_under_weak_noise() -> None:
    """Lonely peaks anywhere on the grid: what argmax finds, the decoder finds."""
    rng, lost = RNG(4), 0
    for _ in range(100):
        votes = np.zeros(len(SPACE))
        votes[rng.integers(len(SPACE))] = 60.0
        noisy = votes + 6.0 * rng.standard_normal(len(SPACE))
        right = int(np.argmax(votes))
        lost += (int(np.argmax(noisy)) == right) and winner(SPACE, noisy, 6.0) != right
    assert lost == 0


def test_relabelling_categories_changes_nothing() -> None:
    rng = RNG(5)
    other = Space(lr=SPACE.axes["lr"], momentum=SPACE.axes["momentum"], kind=["b", "a"])
    places = np.arange(len(SPACE)).reshape(9, 3, 2)[:, :, ::-1].ravel()
    for _ in range(10):
        votes = surface(rng, SPACE, 2.0, 10.0) + 5.0 * rng.standard_normal(len(SPACE))
        assert places[winner(other, votes[places], 5.0)] == winner(SPACE, votes, 5.0)


def test_the_order_of_axes_and_of_their_values_changes_nothing() -> None:
    rng = RNG(6)
    backwards = Axis.log(SPACE.axes["lr"].values[::-1])
    other = Space(kind=SPACE.axes["kind"], lr=backwards, momentum=SPACE.axes["momentum"])
    grid = np.arange(len(SPACE)).reshape(9, 3, 2)
    places = np.moveaxis(grid[::-1], 2, 0).ravel()
    assert other[5] == SPACE[int(places[5])]
    for _ in range(10):
        votes = surface(rng, SPACE, 2.0, 10.0) + 5.0 * rng.standard_normal(len(SPACE))
        assert places[winner(other, votes[places], 5.0)] == winner(SPACE, votes, 5.0)


def test_the_unit_of_votes_and_their_mean_change_nothing() -> None:
    rng = RNG(7)
    votes = surface(rng, SPACE, 2.0, 10.0) + 5.0 * rng.standard_normal(len(SPACE))
    other = NoisyVotes(SPACE, 7 * votes, 35.0, clients=100, norm=7 * math.sqrt(5))
    assert PosteriorDecoder().winner(other) == winner(SPACE, votes + 100.0, 5.0)


def coverage(
    decoder: PosteriorDecoder | ArgmaxDecoder, smooth: bool, draws: int
) -> tuple[int, int]:
    """Count sets, and those that hold the true leader."""
    rng, held, told = RNG(8), 0, 0
    for _ in range(draws):
        true = surface(rng, SPACE, 1.5, 10.0) if smooth else 10.0 * rng.standard_normal(len(SPACE))
        votes = true + 4.0 * rng.standard_normal(len(SPACE))
        decoded = decoder.decode(NoisyVotes(SPACE, votes, 4.0, clients=100))
        told += decoded.confidence is not None
        held += decoded.confidence is not None and int(np.argmax(true)) in (
            decoded.winner,
            *decoded.near_ties,
        )
    return held, told


@pytest.mark.audit
@pytest.mark.parametrize("smooth", [True, False], ids=["smooth", "rough"])
def test_the_credible_set_holds_the_leader_as_often_as_it_says(smooth: bool) -> None:
    """Coverage of at least 90 % within its binomial error; a set for 30 % is caught."""
    held, told = coverage(PosteriorDecoder(level=0.9), smooth, 200)
    assert told > 100
    assert held >= stats.binom.ppf(FALSE_ALARM, told, 0.9)
    held, told = coverage(PosteriorDecoder(level=0.3), smooth, 300)
    assert held < stats.binom.ppf(FALSE_ALARM, told, 0.9)


@pytest.mark.audit
def test_confidence_is_calibrated_on_surfaces_of_the_prior() -> None:
    """Right winners are as many as summed confidences say, within a tenth and six deviations.

    Twice the odds are caught.
    """
    rng, right, said = RNG(9), 0, []
    for _ in range(300):
        true = surface(rng, SPACE, 1.5, 20.0)
        votes = true + 6.0 * rng.standard_normal(len(SPACE))
        decoded = PosteriorDecoder().decode(NoisyVotes(SPACE, votes, 6.0, clients=100))
        if decoded.confidence is not None:
            right += decoded.winner == int(np.argmax(true))
            said.append(decoded.confidence)
    sure = np.array(said)
    assert len(sure) > 150

    def is_calibrated(stated: Array) -> bool:
        deviation = math.sqrt(float((stated * (1 - stated)).sum()))
        return abs(right - stated.sum()) < 0.1 * len(stated) + 6 * deviation

    assert is_calibrated(sure)
    assert not is_calibrated(sure**4)


@pytest.mark.parametrize("decoder", [PosteriorDecoder(), ArgmaxDecoder()], ids=lambda d: d.name)
def test_one_of_two_is_called_ahead_only_where_noise_cannot_explain_it(decoder: Decoder) -> None:
    pair = Space(o=["a", "b"])
    for lead, told in ((0.5, False), (20.0, False), (150.0, False), (300.0, True)):
        found = decoder.decode(NoisyVotes(pair, np.array([lead, 0.0]), 98.0, clients=100))
        assert found.winner == 0
        assert (found.confidence is not None) is told


def test_more_candidates_than_draws_can_meet_cannot_be_told_apart() -> None:
    space = Space(x=list(range(90)), y=list(range(100)))
    votes = RNG(3).standard_normal(9000) * math.hypot(1.0, 10.0)
    found = PosteriorDecoder().decode(NoisyVotes(space, votes, 10.0, clients=100))
    assert (found.confidence, found.near_ties) == (None, ())


def test_a_tally_that_is_all_noise_cannot_tell() -> None:
    votes = 20.0 * RNG(11).standard_normal(len(SPACE))
    decoded = PosteriorDecoder().decode(NoisyVotes(SPACE, votes, 20.0, clients=100))
    assert decoded.confidence is None
    assert decoded.near_ties == ()


def test_the_same_tally_is_always_read_the_same_way() -> None:
    votes = surface(RNG(10), SPACE, 2.0, 10.0)
    tally = NoisyVotes(SPACE, votes, 5.0, clients=100)
    assert PosteriorDecoder().decode(tally) == PosteriorDecoder().decode(tally)


@pytest.mark.parametrize("decoder", list(DecoderKind))
def test_no_noise_and_equal_votes_are_decided_as_by_argmax(decoder: DecoderKind) -> None:
    for votes, std in ((np.array([1.0, 3.0, 2.0]), 0.0), (np.full(3, 2.0), 4.0)):
        tally = NoisyVotes(Space(x=[1, 2, 3]), votes, std, clients=9)
        assert decoder.build().decode(tally).winner == ArgmaxDecoder().decode(tally).winner


def test_spaces_without_axes_to_compare_along_have_no_structure() -> None:
    assert families(Space(x=[1])) == ()
    assert unrelated(3).project(np.arange(3.0)).tolist() == [[0.0, 1.0, 2.0]]


def test_many_axes_and_large_grids_get_fewer_priors() -> None:
    wide = Space(**{f"x{i}": [0, 1] for i in range(10)})
    assert 1 < len(families(wide)[0].values) <= 256
    long = Space(x=list(range(200)), y=list(range(200)))
    assert families(long)[0].values.size <= 1 << 22


def test_names_alone_and_spaces_too_large_for_memory_have_no_structure() -> None:
    assert families(Space(x=[f"name {i}" for i in range(50)])) == ()
    assert families(Space(x=list(range(1_000_000)))) == ()


@pytest.mark.parametrize("decoder", list(DecoderKind))
def test_a_very_large_tally_is_read_in_little_memory(decoder: DecoderKind) -> None:
    votes = np.random.default_rng(1).standard_normal(20_000)
    votes[77] = 30.0
    space = Space(x=list(range(20_000)))
    decoded = decoder.build().decode(NoisyVotes(space, votes, 1.0, clients=100))
    assert decoded.winner == 77
    assert 0 <= decoded.confidence <= 1


def test_near_ties_are_the_smallest_set_of_the_level() -> None:
    leading = np.array([0.2, 0.5, 0.3])
    assert credible_set(leading, 1, 0.5) == ()
    assert credible_set(leading, 1, 0.8) == (2,)
    assert credible_set(leading, 0, 0.9) == (1, 2)


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_a_level_is_a_probability(level: float) -> None:
    with pytest.raises(ParameterError, match="between 0 and 1"):
        PosteriorDecoder(level=level)
