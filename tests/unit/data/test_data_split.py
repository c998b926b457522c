import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from urna.data import MIN_SAMPLES, Dataset, Samples, Split, load, split, split_rows
from urna.errors import ParameterError, UnknownName

FALSE_ALARM = 1e-6  # how often a correct iid split would be called skewed on a fresh seed


def _samples(count: int, classes: int = 3, seed: int = 0) -> Samples:
    """Return samples whose first feature is their row number."""
    rng = np.random.default_rng(seed)
    features = np.column_stack([np.arange(count), rng.normal(size=(count, 2))])
    return Samples(features.astype(np.float32), rng.integers(0, classes, count))


def _dataset(samples: Samples, writers: npt.NDArray[np.integer] | None = None) -> Dataset:
    return Dataset("made up", samples, samples, classes=3, writers=writers)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Dataset, int, str, int]:
    clients = draw(st.integers(2, 8))
    count = draw(st.integers(MIN_SAMPLES * clients, 400))
    how = draw(st.sampled_from(["iid", "quantity", "feature"]))
    return _dataset(_samples(count)), clients, how, draw(st.integers(0, 2**32))


@settings(max_examples=80, deadline=None)
@given(case=_cases(), beta=st.floats(1e-3, 1e6), level=st.floats(0, 1))
def test_a_split_deals_every_row_once_and_starves_nobody(
    case: tuple[Dataset, int, str, int], beta: float, level: float
) -> None:
    dataset, clients, how, seed = case
    rows = split_rows(dataset, clients=clients, how=how, seed=seed, beta=beta, level=level)
    assert len(rows) == clients
    assert np.sort(np.concatenate(rows)).tolist() == list(range(len(dataset.train)))
    assert min(map(len, rows)) >= MIN_SAMPLES


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(2, 8), per_client=st.integers(60, 90), beta=st.floats(1, 1e6),
    classes=st.integers(2, 6), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_a_label_split_deals_every_row_once_and_starves_nobody(
    clients: int, per_client: int, beta: float, classes: int, seed: int
) -> None:
    samples = _samples(clients * per_client, classes)
    rows = split_rows(samples, clients=clients, how="dirichlet", seed=seed, beta=beta)
    assert len(rows) == clients
    assert np.sort(np.concatenate(rows)).tolist() == list(range(len(samples)))
    assert min(map(len, rows)) >= MIN_SAMPLES


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(MIN_SAMPLES, 30), min_size=2, max_size=12),
    data=st.data(),
    seed=st.integers(0, 2**32),
)
def test_a_writer_split_keeps_each_writer_at_one_client(
    sizes: list[int], data: st.DataObject, seed: int
) -> None:
    clients = data.draw(st.integers(2, len(sizes)))
    writers = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 7, sizes))
    dataset = _dataset(_samples(len(writers)), writers)
    rows = split_rows(dataset, clients=clients, how=Split.WRITER, seed=seed)
    assert np.sort(np.concatenate(rows)).tolist() == list(range(len(writers)))
    assert min(map(len, rows)) >= MIN_SAMPLES
    held = [set(writers[part].tolist()) for part in rows]
    assert sum(map(len, held)) == len(sizes)
    if clients == len(sizes):
        assert all(len(one) == 1 for one in held)


@pytest.mark.parametrize("how", list(Split))
def test_the_seed_alone_decides_the_split(how: Split) -> None:
    dataset = _dataset(_samples(300), np.arange(300) // 15)

    def rows(seed: int | np.random.Generator) -> list[list[int]]:
        parts = split_rows(dataset, clients=5, how=how, seed=seed, beta=5.0)
        return [part.tolist() for part in parts]

    assert rows(3) == rows(3) == rows(np.random.default_rng(3))
    assert rows(3) != rows(4)


def test_split_hands_out_the_rows_that_split_rows_names() -> None:
    samples = _samples(100)
    rows = split_rows(samples, clients=4, how="iid", seed=1)
    parts = split(samples, clients=4, how=Split.IID, seed=1)
    for part, named in zip(parts, rows, strict=True):
        assert part.features[:, 0].astype(int).tolist() == named.tolist()
        assert part.targets.tolist() == samples.targets[named].tolist()


def test_a_data_set_is_split_like_its_training_samples() -> None:
    dataset = load("wine")
    whole = split_rows(dataset, clients=3, how="dirichlet", beta=5.0, seed=0)
    train = split_rows(dataset.train, clients=3, how="dirichlet", beta=5.0, seed=0)
    assert [p.tolist() for p in whole] == [p.tolist() for p in train]


def test_the_readme_split_of_digits_over_60_clients_works() -> None:
    parts = split(load("digits").train, clients=60, how="dirichlet", beta=0.5, seed=0)
    assert len(parts) == 60
    assert sum(map(len, parts)) == 1438
    assert min(map(len, parts)) >= MIN_SAMPLES


def test_iid_portions_differ_by_one_sample_at_most() -> None:
    sizes = [len(p) for p in split_rows(_samples(103), clients=4, how="iid", seed=0)]
    assert sorted(sizes) == [25, 26, 26, 26]


def _labels_look_iid(parts: list[Samples], classes: int) -> bool:
    """Chi-square test that labels do not depend on the client."""
    table = np.stack([np.bincount(part.targets, minlength=classes) for part in parts])
    return bool(stats.chi2_contingency(table).pvalue > FALSE_ALARM)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("how", "beta", "iid"),
    [
        ("iid", 1.0, True),
        ("quantity", 5.0, True),
        ("dirichlet", 0.5, False),
        ("dirichlet", 5.0, False),
    ],
)
def test_label_skew_is_told_from_iid(how: str, beta: float, iid: bool) -> None:
    dataset = load("digits")
    parts = split(dataset, clients=10, how=how, beta=beta, seed=11)
    assert _labels_look_iid(parts, 10) == iid


@pytest.mark.statistical
@pytest.mark.parametrize(("beta", "right"), [(0.5, True), (2.0, False)])
def test_label_shares_have_the_variance_of_the_dirichlet_distribution(
    beta: float, right: bool
) -> None:
    # With n = 4 clients a share is Beta(0.5, 1.5), of variance (1/n)(1 - 1/n)/(n beta + 1) and
    # kurtosis 3, so its squared distance from the mean deviates by sqrt(2) times its own mean.
    # Over 400 splits × 10 labels five standard errors are 5 sqrt(2 / 4000) = 11.2 %: a right
    # split fails on one fresh seed in 1.7 million.
    samples = Samples(np.zeros((4000, 1)), np.arange(4000) % 10)
    rng = np.random.default_rng(5)
    clients, squares = 4, []
    for _ in range(400):
        parts = split(samples, clients=clients, how="dirichlet", beta=beta, seed=rng)
        shares = np.bincount(parts[0].targets, minlength=10) / 400
        squares += ((shares - 1 / clients) ** 2).tolist()
    wanted = (1 / clients) * (1 - 1 / clients) / (clients * 0.5 + 1)
    assert (abs(np.mean(squares) / wanted - 1) < 0.112) == right


def test_a_small_beta_makes_sizes_less_equal() -> None:
    samples = _samples(5000)

    def spread(beta: float) -> float:
        rows = split_rows(samples, clients=10, how="quantity", beta=beta, seed=2)
        return float(np.std([len(part) for part in rows]))

    assert spread(0.2) > 3 * spread(50.0)
    assert spread(1e6) < 10


def test_feature_skew_grows_with_its_level() -> None:
    dataset = load("digits")
    features = dataset.train.features.astype(np.float64)
    centred = features - features.mean(axis=0)
    principal = np.linalg.svd(centred, full_matrices=False)[2][0]  # the exact component

    def between(level: float) -> float:
        rows = split_rows(dataset, clients=10, how="feature", level=level, seed=0)
        means = [float((centred[part] @ principal).mean()) for part in rows]
        return float(np.var(means) / np.var(centred @ principal))

    none, some, full = between(0.0), between(0.6), between(1.0)
    assert none < 0.05  # iid: about clients / rows
    assert none < some < full
    assert full > 0.9  # fully ordered: hardly any variance is left inside a client


def test_feature_skew_of_constant_features_is_iid() -> None:
    rows = split_rows(Samples(np.ones((50, 3)), np.zeros(50)), clients=5, how="feature", seed=0)
    assert np.sort(np.concatenate(rows)).tolist() == list(range(50))
    assert rows[0].tolist() != list(range(10))


def test_small_writers_are_joined_until_everyone_has_enough() -> None:
    writers = np.repeat(np.arange(24), 5)  # 24 writers of 5 samples: pairs at least
    dataset = _dataset(_samples(120), writers)
    rows = split_rows(dataset, clients=12, how="writer", seed=0)
    assert [len(part) for part in rows] == [10] * 12


def test_a_writer_split_that_only_fits_largest_first_is_found() -> None:
    sizes = [10, 10, 5, 5]
    dataset = _dataset(_samples(30), np.repeat(np.arange(4), sizes))
    for seed in range(20):  # most random orders starve somebody
        rows = split_rows(dataset, clients=3, how="writer", seed=seed)
        assert sorted(map(len, rows)) == [10, 10, 10]


def test_writers_too_small_for_so_many_clients_say_how_many_are_possible() -> None:
    writers = np.repeat(np.arange(4), [40, 40, 4, 4])
    with pytest.raises(ParameterError, match=r"4 writers .* to 3 clients; 2 clients are possible"):
        split(_dataset(_samples(88), writers), clients=3, how="writer", seed=0)


def test_more_clients_than_writers_say_how_many_are_possible() -> None:
    dataset = _dataset(_samples(100), np.arange(100) // 50)
    with pytest.raises(ParameterError, match=r"3 clients need as many writers.*at most 2 clients"):
        split(dataset, clients=3, how="writer", seed=0)


def test_a_writer_split_needs_a_data_set_that_names_its_writers() -> None:
    with pytest.raises(ParameterError, match="pass the data set, not its samples"):
        split(_samples(100), clients=2, how="writer", seed=0)
    with pytest.raises(ParameterError, match="'digits' does not say who made each sample"):
        split(load("digits"), clients=2, how="writer", seed=0)


def test_real_writers_make_539_clients(data_folder: object) -> None:
    dataset = load("mnist", folder=str(data_folder))
    assert dataset.writers is not None
    rows = split_rows(dataset, clients=539, how="writer", seed=0)
    assert all(len(np.unique(dataset.writers[part])) == 1 for part in rows)
    assert (min(map(len, rows)), max(map(len, rows))) == (19, 131)
    assert sum(map(len, rows)) == 60_000
    few = split_rows(dataset, clients=50, how="writer", seed=0)
    assert min(map(len, few)) > 1000


@pytest.mark.parametrize("clients", [1, 0, -3, True])
def test_fewer_than_two_clients_are_refused(clients: int) -> None:
    with pytest.raises(ParameterError, match="at least two clients"):
        split(_samples(100), clients=clients, how="iid", seed=0)


def test_half_a_client_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"clients must be a whole number, got 2\.5"):
        split(_samples(100), clients=2.5, how="iid", seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", list(Split))
def test_too_few_samples_say_how_many_clients_are_possible(how: Split) -> None:
    with pytest.raises(ParameterError, match=r"need 110 samples, got 109; at most 10 clients"):
        split(_dataset(_samples(109), np.arange(109)), clients=11, how=how, seed=0)
    with pytest.raises(ParameterError, match="need 20 samples, got 19; use more data"):
        split(_samples(19), clients=2, how=how, seed=0)


def test_a_label_skew_that_starves_somebody_says_what_would_be_possible() -> None:
    samples = _samples(600, classes=2)
    with pytest.raises(ParameterError, match=r"always left one with fewer; possible would be") as e:
        split(samples, clients=40, how="dirichlet", beta=0.1, seed=0)
    offers = str(e.value).split("would be ")[1].split(" or ")
    beta, clients = float(offers[0].split()[1]), int(offers[1].split()[0])
    assert len(split(samples, clients=40, how="dirichlet", beta=beta, seed=1)) == 40
    assert len(split(samples, clients=clients, how="dirichlet", beta=0.1, seed=1)) == clients


def test_real_targets_have_no_label_skew() -> None:
    with pytest.raises(ParameterError, match="label skew needs classes"):
        split(load("diabetes"), clients=3, how="dirichlet", seed=0)


@pytest.mark.parametrize("beta", [0.0, -1.0, np.nan, np.inf, 1e-9, 1e300])
@pytest.mark.parametrize("how", ["dirichlet", "quantity"])
def test_a_beta_out_of_range_is_refused(how: str, beta: float) -> None:
    with pytest.raises(ParameterError, match="beta must lie in"):
        split(_samples(100), clients=3, how=how, seed=0, beta=beta)


@pytest.mark.parametrize("level", [-0.1, 1.1, np.nan])
def test_a_level_out_of_range_is_refused(level: float) -> None:
    with pytest.raises(ParameterError, match=r"level must lie in 0\.\.1"):
        split(_samples(100), clients=3, how="feature", seed=0, level=level)


def test_an_unknown_split_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="unknown split 'dirchlet'; did you mean 'dirichlet'"):
        split(_samples(100), clients=3, how="dirchlet", seed=0)


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_a_seed_that_is_none_is_refused(seed: int) -> None:
    with pytest.raises(ParameterError, match="seed must be a whole number of at least 0"):
        split(_samples(100), clients=3, how="iid", seed=seed)
