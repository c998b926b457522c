"""Where a record goes: by its id alone, whatever else there is."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from urna.data import PUBLIC_SHARD_KEY, Samples, count_records, split_records
from urna.errors import ParameterError

KEY = bytes(range(32))
FALSE_ALARM = 1e-6  # how often an even hash would fail the check of evenness on a fresh key

Contents = list[float]
Rows = dict[str, Contents]
"""Each id's rows."""

PLACES = [[1.0, 3.0, 7.0, 11.0], [0.0, 4.0, 6.0, 9.0], [2.0, 5.0, 8.0, 10.0]]
NAMES = [[0.0, 2.0, 8.0, 11.0], [3.0, 7.0, 9.0, 1.0], [10.0, 6.0, 4.0, 5.0]]


def samples(rows: Rows, order: Callable[[int], npt.NDArray[np.integer]] = np.arange) -> Samples:
    values = [(name, value) for name, contents in rows.items() for value in contents]
    places = order(len(values))
    features = np.array([value for _, value in values], dtype=np.float64).reshape(-1, 1)
    ids = np.array([name for name, _ in values], dtype=np.str_)
    return Samples(features, np.zeros(len(values)), ids).take(places)


def contents(data: Samples, shards: int, key: bytes = KEY) -> list[Contents]:
    return [s.data.features[:, 0].tolist() for s in split_records(data, shards=shards, key=key)]


records = st.dictionaries(
    st.text("abcdefgh0123", min_size=1, max_size=4),
    st.lists(st.integers(0, 9).map(float), min_size=1, max_size=3),
    max_size=12,
)


@given(rows=records, shards=st.integers(1, 6))
def test_shards_are_disjoint_and_hold_every_row(rows: Rows, shards: int) -> None:
    parts = split_records(samples(rows), shards=shards, key=KEY)
    assert len(parts) == shards
    names = [[] if p.data.ids is None else p.data.ids.tolist() for p in parts]
    seen = [name for part in names for name in set(part)]
    assert sorted(seen) == sorted(rows)  # rows of one id stay together
    assert sum(len(part.data) for part in parts) == sum(map(len, rows.values()))
    assert [part.records for part in parts] == [len(set(part)) for part in names]
    assert count_records(samples(rows)) == len(rows)


@given(
    rows=records,
    name=st.text("abcdefgh0123", min_size=1, max_size=4),
    other=st.lists(st.integers(10, 19).map(float), max_size=3),
    shards=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_one_records_content_changes_one_shard(
    rows: Rows, name: str, other: Contents, shards: int, seed: int
) -> None:
    """Replaced, added or taken out, and with all rows in another order."""
    changed = {**rows, name: other}
    moved = samples(changed, np.random.default_rng(seed).permutation)
    before, after = contents(samples(rows), shards), contents(moved, shards)
    # Rows of one id are one record, whose own order belongs to its content.
    sorted_rows = [sorted(part) for part in after]
    differ = [n for n in range(shards) if sorted(before[n]) != sorted_rows[n]]
    assert len(differ) <= 1


@given(rows=records, shards=st.integers(1, 6), seed=st.integers(0, 99))
def test_where_rows_stand_does_not_matter(rows: Rows, shards: int, seed: int) -> None:
    single = {name: values[:1] for name, values in rows.items()}
    shuffled = samples(single, np.random.default_rng(seed).permutation)
    assert contents(shuffled, shards) == contents(samples(single), shards)


def by_rank(values: Contents, shards: int) -> list[Contents]:
    """A wrong split: portions of the sorted content."""
    return [part.tolist() for part in np.array_split(np.sort(values), shards)]


def by_place(values: Contents, shards: int) -> list[Contents]:
    return contents(Samples(np.array(values).reshape(-1, 1), np.zeros(len(values))), shards)


@pytest.mark.parametrize(("split", "right"), [(by_place, True), (by_rank, False)])
def test_a_replaced_row_changes_one_shard(
    split: Callable[[Contents, int], list[Contents]], right: bool
) -> None:
    """By brute force: every row of twelve, every content; a split by content is caught."""
    values = [float(n * 7 % 12) for n in range(12)]
    before, most = split(values, 4), 0
    for place in range(12):
        for other in np.arange(-1.0, 13.0, 0.5).tolist():
            after = split([*values[:place], other, *values[place + 1 :]], 4)
            most = max(most, sum(a != b for a, b in zip(before, after, strict=True)))
    assert (most == 1) == right


@given(rows=st.integers(0, 60), more=st.integers(0, 30), shards=st.integers(1, 9))
def test_rows_added_at_the_end_move_nobody(rows: int, more: int, shards: int) -> None:
    whole = by_place(list(np.arange(float(rows + more))), shards)
    part = by_place(list(np.arange(float(rows))), shards)
    assert [[value for value in shard if value < rows] for shard in whole] == part
    sizes = [len(shard) for shard in part]
    assert max(sizes) - min(sizes) <= 1


def test_the_key_decides_and_stays() -> None:
    data = Samples(np.arange(40.0).reshape(-1, 1), np.zeros(40), np.arange(40))
    for rows in (data, Samples(data.features, data.targets)):
        assert contents(rows, 5) == contents(rows, 5)
        assert contents(rows, 5) != contents(rows, 5, PUBLIC_SHARD_KEY)


def test_a_place_has_its_shard_for_good() -> None:
    """A later version that dealt records out anew would mix two splits over its rounds."""
    data = Samples(np.arange(12.0).reshape(-1, 1), np.zeros(12))
    named = Samples(data.features, data.targets, np.array([f"patient {n}" for n in range(12)]))
    assert contents(data, 3) == PLACES
    assert contents(named, 3) == NAMES


@pytest.mark.parametrize("shards", [2, 7, 20])
def test_hashed_ids_fall_evenly(shards: int) -> None:
    data = Samples(np.zeros((5_000, 1)), np.zeros(5_000), np.arange(5_000))
    sizes = [shard.records for shard in split_records(data, shards=shards, key=KEY)]
    assert stats.chisquare(sizes).pvalue > FALSE_ALARM
    lopsided = [sizes[0] + sizes[1], *sizes[2:], 0]
    assert stats.chisquare(lopsided).pvalue < FALSE_ALARM


def test_ids_of_different_kinds_are_different_records() -> None:
    mixed = np.array([1, "1", b"1"], dtype=object)
    data = Samples(np.zeros((3, 1)), np.zeros(3), mixed)
    assert count_records(data) == 3
    assert sum(s.records for s in split_records(data, shards=2, key=KEY)) == 3


def test_ids_travel_with_their_rows() -> None:
    data = Samples(np.zeros((3, 1)), np.arange(3), np.array(["a", "b", "c"]))
    taken = data.take(np.array([2, 0]))
    assert taken.ids is not None
    assert taken.ids.tolist() == ["c", "a"]
    with pytest.raises(ParameterError, match="3 rows needs one id, got ids of shape"):
        Samples(np.zeros((3, 1)), np.arange(3), np.array(["a", "b"]))


@pytest.mark.parametrize(
    ("data", "settings", "says"),
    [
        (Samples(np.zeros((2, 1)), np.zeros(2), np.array([0.5, 1.5])), {}, "integers or texts"),
        (Samples(np.zeros((2, 1)), np.zeros(2), np.array([True, False])), {}, "got bool"),
        (Samples(np.zeros((2, 1)), np.zeros(2)), {"shards": 0}, "at least 1, got 0"),
        (Samples(np.zeros((2, 1)), np.zeros(2)), {"key": b"short"}, "32 bytes, got 5"),
        (3.5, {}, "float has not"),
    ],
    ids=["float ids", "bool ids", "no shards", "short key", "no records"],
)
def test_what_cannot_be_split_is_refused(
    data: Samples, settings: dict[str, int], says: str
) -> None:
    with pytest.raises(ParameterError, match=says):
        split_records(data, **({"shards": 2} | settings))  # type: ignore[arg-type]
