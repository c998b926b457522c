import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from urna.errors import ParameterError, UnknownName
from urna.space import Axis, AxisKind, Space

# Texts a file can hold: everything but lone surrogates, with TOML's troublemakers in reach.
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["\x7f", "\x00", "😀", '"', "\\", "\u2028", "self", "axes"]
)
_numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
_scalars = _numbers | _texts | st.booleans() | st.none()
_any = _scalars | st.lists(_scalars, max_size=3).map(tuple)
_positive = st.integers(1, 10**20) | st.floats(1e-300, 1e300)


@st.composite
def _axes(draw: st.DrawFn) -> Axis:
    kind = draw(st.sampled_from(AxisKind))
    values = {
        AxisKind.LOG: _positive,
        AxisKind.LINEAR: _numbers,
        AxisKind.ORDINAL: _any,
        AxisKind.CATEGORICAL: _any,
    }[kind]
    drawn: list[Any] = draw(st.lists(values, min_size=1, max_size=5, unique=True))
    return Axis(kind, tuple(drawn))


@st.composite
def _spaces(draw: st.DrawFn) -> Space:
    space = Space(**draw(st.dictionaries(_texts, _axes(), min_size=1, max_size=3)))
    if draw(st.booleans()):
        count = draw(st.integers(1, len(space)))
        return space.subset(count, np.random.default_rng(draw(st.integers(0, 9))))
    return space


# Order and kinds.


def test_the_last_axis_runs_fastest() -> None:
    space = Space(a=[1, 2], b=["x", "y", "z"])
    assert [(c["a"], c["b"]) for c in space] == [
        (1, "x"), (1, "y"), (1, "z"), (2, "x"), (2, "y"), (2, "z"),
    ]  # fmt: skip


@given(space=_spaces())
def test_a_space_is_the_sequence_of_its_candidates(space: Space) -> None:
    listed = list(space)
    assert len(listed) == len(space)
    assert listed == [space[i] for i in range(len(space))] == space[:]
    assert space[-1] == listed[-1]
    assert all(list(c) == list(space.axes) for c in listed)
    assert len({json.dumps(c) for c in listed}) == len(listed)


def test_slices_give_lists_of_candidates() -> None:
    assert Space(a=[1, 2, 3])[::2] == [{"a": 1}, {"a": 3}]


@pytest.mark.parametrize("index", [3, -4, 10**9])
def test_a_candidate_out_of_range_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match=f"candidate {index} of 3"):
        Space(a=[1, 2, 3])[index]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], AxisKind.ORDINAL),
        (np.array([0.1, 0.2]), AxisKind.ORDINAL),
        (range(3), AxisKind.ORDINAL),
        (["sgd", "adam"], AxisKind.CATEGORICAL),
        ([True, False], AxisKind.CATEGORICAL),
        ([1, "x"], AxisKind.CATEGORICAL),
        ([2, 4, None], AxisKind.ORDINAL),
        ([None, 0.1], AxisKind.ORDINAL),
        ([2, None, 4], AxisKind.CATEGORICAL),
        ([None, "l2"], AxisKind.CATEGORICAL),
        ([(64,), (64, 64)], AxisKind.CATEGORICAL),
    ],
)
def test_a_plain_list_of_numbers_is_ordinal_and_anything_else_categorical(
    values: Any, kind: AxisKind
) -> None:
    assert Axis.of(values).kind is kind


def test_numpy_values_become_pythons_own() -> None:
    values = Axis.log(np.array([0.5, 2.0])).values + Axis.of([np.int64(3), np.str_("x")]).values
    assert [type(v) for v in values] == [float, float, int, str]


def test_a_kind_may_be_given_by_its_word() -> None:
    axis = Axis("log", [1, 10])  # type: ignore[arg-type]
    assert axis == Axis.log([1, 10])
    assert axis.kind is AxisKind.LOG
    assert hash(axis) == hash(Axis.log([1, 10]))


def test_an_axis_may_have_any_name() -> None:
    space = Space(**{"self": [1, 2], "axes": [3]})
    assert space[0] == {"self": 1, "axes": 3}


def test_many_axes_of_one_value_are_one_candidate() -> None:
    space = Space(**{f"a{i}": [i] for i in range(100)})
    assert len(space) == 1
    assert space[0]["a99"] == 99


def test_ranges_are_even_and_keep_their_ends() -> None:
    assert Axis.log_range(1e-4, 1, 5).values == (0.0001, 0.001, 0.01, 0.1, 1.0)
    assert Axis.log_range(0.1, 1, 3).values == (0.1, 0.316228, 1.0)
    assert Axis.linear_range(0, 1, 6).values == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert Axis.linear_range(-0.1, 0.2, 4).values == (-0.1, 0.0, 0.1, 0.2)
    assert Axis.linear_range(0, 1, 3) == Axis.linear_range(0.0, 1.0, 3)


def test_fine_ranges_far_from_zero_stay_inside_their_ends() -> None:
    assert Axis.linear_range(123456789, 123456799, 3).values[1] == 123456794
    low, middle, high = Axis.log_range(1e6, 1.00001e6, 3).values
    assert float(low) < float(middle) < float(high)


@given(
    low=st.floats(1e-12, 1e12), ratio=st.floats(1.001, 1e12), count=st.integers(2, 12),
    sign=st.sampled_from([-1, 1]),
)  # fmt: skip
def test_ranges_ascend_in_even_steps(low: float, ratio: float, count: int, sign: int) -> None:
    for axis in (
        Axis.log_range(low, low * ratio, count),
        Axis.linear_range(
            min(sign * low, sign * low * ratio), max(sign * low, sign * low * ratio), count
        ),
    ):
        values = [float(v) for v in axis.values]
        assert len(values) == count
        assert values == sorted(values)
        steps = axis.steps()
        assert np.allclose(np.diff(steps[0]), 1, rtol=1e-3)


# The metric.


def _check_metric(steps: np.ndarray) -> None:
    assert np.isfinite(steps).all()
    assert (steps >= 0).all()
    assert (np.diag(steps) == 0).all()
    assert (steps == steps.T).all()
    through = (steps[:, :, None] + steps[None, :, :]).min(axis=1)
    assert (steps <= through * (1 + 1e-9) + 1e-9).all()


@given(axis=_axes())
def test_distances_on_an_axis_are_a_metric(axis: Axis) -> None:
    _check_metric(axis.steps())


@given(axis=_axes())
def test_the_widest_pair_of_an_ordered_axis_is_all_its_steps_apart(axis: Axis) -> None:
    assume(axis.kind is not AxisKind.CATEGORICAL)
    places = [0.0 if axis.kind is AxisKind.ORDINAL else float(v) for v in axis.values]
    if axis.kind is AxisKind.LOG:
        places = np.log(places).tolist()
    assume(axis.kind is AxisKind.ORDINAL or max(places) > min(places) or len(places) == 1)
    assert axis.steps().max() == pytest.approx(len(axis.values) - 1)


def test_each_kind_measures_in_its_own_way() -> None:
    values = [1, 10, 100]
    assert Axis.log(values).steps()[0].tolist() == pytest.approx([0, 1, 2])
    assert Axis.linear(values).steps()[0].tolist() == pytest.approx([0, 18 / 99, 2])
    assert Axis.ordinal(values).steps()[0].tolist() == [0, 1, 2]
    assert Axis.categorical(values).steps()[0].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "axis",
    [
        Axis.linear([-1.7e308, 1.7e308]),
        Axis.linear([0.0, 5e-324]),
        Axis.log([5e-324, 1.7e308]),
    ],
)
def test_extreme_values_are_one_step_apart(axis: Axis) -> None:
    assert axis.steps()[0, 1] == pytest.approx(1)


@pytest.mark.parametrize(
    "axis", [Axis.linear([2**60, 2**60 + 1]), Axis.log([1e300, math.nextafter(1e300, 2e300)])]
)
def test_values_that_float64_cannot_tell_apart_are_at_the_same_place(axis: Axis) -> None:
    assert axis.steps().tolist() == [[0, 0], [0, 0]]


def test_an_axis_of_one_value_has_no_distances() -> None:
    assert Axis.log([0.1]).steps().tolist() == [[0]]


# The fingerprint.

_BASE = {"lr": Axis.log([0.1, 1.0]), "m": Axis.linear([0.0, 0.5, 0.9])}


@pytest.mark.parametrize(
    "other",
    [
        Space(lr2=_BASE["lr"], m=_BASE["m"]),
        Space(m=_BASE["m"], lr=_BASE["lr"]),
        Space(lr=Axis.ordinal([0.1, 1.0]), m=_BASE["m"]),
        Space(lr=Axis.log([1.0, 0.1]), m=_BASE["m"]),
        Space(lr=Axis.log([0.1, 1]), m=_BASE["m"]),
        Space(lr=Axis.log([0.1, math.nextafter(1, 2)]), m=_BASE["m"]),
        Space(lr=_BASE["lr"]),
        Space(**_BASE, extra=["x"]),
        Space(**_BASE).subset(5, np.random.default_rng(0)),
    ],
    ids=["name", "axis order", "kind", "value order", "type", "value", "fewer", "more", "subset"],
)  # fmt: skip
def test_the_fingerprint_changes_with_every_ingredient(other: Space) -> None:
    space = Space(**_BASE)
    assert other.fingerprint != space.fingerprint
    assert other != space


def test_equal_spaces_are_equal_and_hash_alike() -> None:
    assert Space(**_BASE) == Space(**_BASE)
    assert len({Space(**_BASE), Space(**_BASE)}) == 1
    assert Space(**_BASE) != "Space"


def test_the_fingerprint_is_the_same_on_every_machine() -> None:
    # Clients and server compare it across versions: a change here breaks running deployments.
    text = (
        '{"axes":[{"name":"lr","kind":"log","values":[0.1,1.0]},'
        '{"name":"m","kind":"linear","values":[0.0,0.5,0.9]}],"chosen":[0,5]}'
    )
    space = Space.from_mapping(Space(**_BASE).as_mapping() | {"chosen": [0, 5]})
    assert space.fingerprint == hashlib.sha256(b"urna space\0" + text.encode()).hexdigest()


def test_a_subset_of_everything_is_the_space_itself() -> None:
    subset = Space(**_BASE).subset(6, np.random.default_rng(0))
    assert subset.chosen is None
    assert subset == Space(**_BASE)


@given(space=_spaces())
def test_the_fingerprint_survives_json_and_toml(
    space: Space, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("space")
    for name, text in (("s.json", space.as_json()), ("s.toml", space.as_toml())):
        (folder / name).write_text(text, encoding="utf-8", newline="")
        read = Space.read(folder / name)
        assert read.fingerprint == space.fingerprint
        assert list(read) == list(space)
        assert [[type(v) for v in a.values] for a in read.axes.values()] == [
            [type(v) for v in a.values] for a in space.axes.values()
        ]
    assert Space.from_mapping(space.as_mapping()) == space


def test_a_short_form_by_hand_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text('[axes]\nlr = {kind = "log", values = [0.1, 1.0]}\nm = [0, 0.9]\n')
    assert Space.read(path) == Space(lr=Axis.log([0.1, 1.0]), m=[0, 0.9])


def test_none_and_tuples_are_written_in_each_files_own_way(tmp_path: Path) -> None:
    space = Space(max_depth=[2, None], sizes=[(64,), (64, 32)], penalty=["none", None])
    assert space[0] == {"max_depth": 2, "sizes": (64,), "penalty": "none"}
    assert json.loads(space.as_json())["axes"][2]["values"] == ["none", None]
    assert "values = [2, { none = true }]" in space.as_toml()
    (tmp_path / "s.toml").write_text(
        "[axes]\nmax_depth = [2, {none = true}]\nsizes = [[64], [64, 32]]\n"
        'penalty = ["none", {none = true}]\n'
    )
    assert Space.read(tmp_path / "s.toml") == space
    text = '{"axes":[{"name":"a","kind":"categorical","values":[null,[1,2.0,"x",true]]}]}'
    digest = hashlib.sha256(b"urna space\0" + text.encode()).hexdigest()
    assert Space(a=[None, (1, 2.0, "x", True)]).fingerprint == digest


@pytest.mark.parametrize("kind", [Axis.log, Axis.linear])
@pytest.mark.parametrize("value", [None, (1, 2), True, "x"])
def test_only_numbers_compare_by_ratio_or_difference(kind: Any, value: Any) -> None:
    with pytest.raises(ParameterError, match=r"axis holds numbers, got"):
        kind([3.0, value])


# Subsets.


@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_subset_keeps_different_candidates_in_product_order(
    data: st.DataObject, seed: int
) -> None:
    space = Space(a=list(range(5)), b=list(range(7)))
    count = data.draw(st.integers(1, len(space)))
    subset = space.subset(count, np.random.default_rng(seed))
    listed = list(space)
    places = [listed.index(c) for c in subset]
    assert len(places) == count
    assert places == sorted(set(places)) == list(subset.chosen or range(35))
    assert subset == space.subset(count, np.random.default_rng(seed))

    smaller = subset.subset(data.draw(st.integers(1, count)), np.random.default_rng(seed + 1))
    assert all(c in list(subset) for c in smaller)
    assert set(smaller.chosen or range(35)) <= set(places)


def test_a_subset_leaves_the_space_as_it_was() -> None:
    space = Space(a=[1, 2, 3])
    before = space.fingerprint
    space.subset(1, np.random.default_rng(0))
    assert (len(space), space.chosen, space.fingerprint) == (3, None, before)


@pytest.mark.parametrize("count", [0, 4, -1])
def test_a_subset_of_no_or_too_many_candidates_is_refused(count: int) -> None:
    with pytest.raises(ParameterError, match=f"1 to 3 candidates, got {count}"):
        Space(a=[1, 2, 3]).subset(count, np.random.default_rng(0))


def test_a_space_prints_its_axes_and_size() -> None:
    assert repr(Space(**_BASE)) == "Space(lr=log[2], m=linear[3]: 6 candidates)"


def test_iterating_a_large_space_does_not_start_over_for_each_candidate() -> None:
    space = Space(a=list(range(300)), b=list(range(300)))
    assert space.places is space.places
    assert sum(1 for _ in space) == 90_000


# What is refused.


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], "at least one value"),
        ([1, 2, 1], "must differ, got 1 twice"),
        ([1, 1.0], r"must differ, got 1\.0 twice"),
        ([0.1, math.nan], "must be finite, got nan"),
        ([math.inf], "must be finite, got inf"),
        ([{"a": 1}], r"got \{'a': 1\} \(dict\)"),
        ([[[1]]], r"got \[1\] \(list\)"),
        ([(1, math.nan)], "must be finite, got nan"),
        ([None, None], "must differ, got None twice"),
        ([(1, 2), [1.0, 2]], r"must differ, got \(1\.0, 2\) twice"),
        ("abc", "takes a list of values, got 'abc'"),
        (b"abc", "takes a list of values"),
        (3, "takes a list of values, got 3"),
        ({1, 2}, "takes a list of values"),
        (np.array(3), "takes a list of values"),
        (np.zeros((2, 2)), "takes a list of values"),
        (["\ud800"], "Unicode that can be written"),
    ],
)
def test_wrong_values_are_refused_with_the_name_of_the_axis(values: Any, says: str) -> None:
    with pytest.raises(ParameterError, match=f"axis 'lr': .*{says}"):
        Space(lr=values)


@pytest.mark.parametrize(
    ("kind", "values", "says"),
    [
        ("log", [0.1, 0], "positive numbers, got 0"),
        ("log", [-1.0], "positive numbers"),
        ("log", ["a"], "a log axis holds numbers, got 'a'"),
        ("linear", [True], "a linear axis holds numbers, got True"),
        ("linear", [10**400], "a linear axis holds numbers of at most"),
        ("log", [10**400], "a log axis holds numbers of at most"),
    ],
)
def test_values_that_do_not_fit_their_kind_are_refused(
    kind: str, values: list[Any], says: str
) -> None:
    with pytest.raises(ParameterError, match=says):
        Axis(AxisKind(kind), tuple(values))


def test_an_unknown_kind_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="unknown kind of axis 'lgo'; did you mean 'log'"):
        Axis("lgo", (1, 2))  # type: ignore[arg-type]


def test_an_ordinal_axis_holds_any_whole_number() -> None:
    assert Axis.ordinal([1, 10**400]).steps()[0, 1] == 1


@pytest.mark.parametrize(
    ("low", "high", "count"),
    [
        (0, 1, 3),
        (1, 1, 3),
        (2, 1, 3),
        (1, math.inf, 3),
        (1, 10**400, 3),
        (math.nan, 1, 3),
        (1, 2, 1),
    ],
)
def test_a_wrong_log_range_is_refused(low: float, high: float, count: int) -> None:
    with pytest.raises(ParameterError, match="a log range needs 0 < low < high and count >= 2"):
        Axis.log_range(low, high, count)


@pytest.mark.parametrize(
    ("low", "high", "count"), [(1, 1, 3), (2, 1, 3), (-math.inf, 0, 3), (0, math.nan, 3), (0, 1, 1)]
)
def test_a_wrong_linear_range_is_refused(low: float, high: float, count: int) -> None:
    with pytest.raises(ParameterError, match="a linear range needs low < high and count >= 2"):
        Axis.linear_range(low, high, count)


def test_a_space_needs_an_axis_and_has_a_largest_size() -> None:
    with pytest.raises(ParameterError, match="at least one axis"):
        Space()
    with pytest.raises(ParameterError, match="has 1,002,001 candidates; at most 1,000,000"):
        Space(a=range(1001), b=range(1001))
    with pytest.raises(ParameterError, match="Unicode"):
        Space(**{"\ud800": [1]})


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ([], "a space holds `axes`"),
        ({"axes": {"a": [1]}, "more": 1}, "a space holds `axes`"),
        ({}, "`axes` must map names to values"),
        ({"axes": [["a", 1]]}, "or list entries with a `name`"),
        ({"axes": []}, "at least one axis"),
        ({"axes": [{"name": "a", "values": [1]}, {"name": "a", "values": [2]}]}, "differ in name"),
        ({"axes": {"a": {"kind": "log"}}}, "axis 'a': it has `values`"),
        ({"axes": {"a": {"values": [1], "scale": 2}}}, r"got \['scale', 'values'\]"),
        ({"axes": {"a": {"values": [1], "kind": "lgo"}}}, "axis 'a': unknown kind .*'log'"),
        ({"axes": {"a": {"values": [1], "kind": ["log"]}}}, "axis 'a': unknown kind"),
        ({"axes": {"a": 3}}, "axis 'a': an axis takes a list"),
        ({"axes": {"a": [1, 2]}, "chosen": []}, "`chosen` must list different places"),
        ({"axes": {"a": [1, 2]}, "chosen": [1, 0]}, "ascending"),
        ({"axes": {"a": [1, 2]}, "chosen": [0, 0]}, "ascending"),
        ({"axes": {"a": [1, 2]}, "chosen": [True]}, "ascending"),
        ({"axes": {"a": [1, 2]}, "chosen": "01"}, "ascending"),
        ({"axes": {"a": [1, 2]}, "chosen": 1}, "ascending"),
        ({"axes": {"a": [1, 2]}, "chosen": [0, 2]}, r"must lie in 0\.\.1"),
        ({"axes": {"a": [1, 2]}, "chosen": [-1]}, r"must lie in 0\.\.1"),
    ],
)
def test_a_wrong_mapping_is_refused_in_words(mapping: Any, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        Space.from_mapping(mapping)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("s.yaml", "", r"ends in \.json or \.toml, got 's\.yaml'"),
        ("s.json", "{", r"s\.json: "),
        ("s.json", '{"axes": {"a": [1], "a": [2]}}', r"names must differ, got \['a', 'a'\]"),
        ("s.json", '{"axes": {"a": [NaN]}}', "must be finite"),
        ("s.json", "[" * 100_000, r"s\.json: "),
        ("s.toml", "axes = ", r"s\.toml: "),
        ("s.toml", "[axes]\na = [1]\na = [2]\n", r"s\.toml: "),
        ("s.toml", "[axes]\na = [1979-05-27]\n", "got datetime"),
    ],
)
def test_a_wrong_file_is_refused_in_words(name: str, text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ParameterError, match=says):
        Space.read(tmp_path / name)


def test_a_missing_or_foreign_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="cannot read the space file"):
        Space.read(tmp_path / "nowhere.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParameterError, match=r"bytes\.json: "):
        Space.read(tmp_path / "bytes.json")


@pytest.mark.parametrize("works", [(100.0, 1000.0), (None, 1e-4), (5.0, None)])
def test_an_axis_of_which_no_value_works_is_refused(
    works: tuple[float | None, float | None],
) -> None:
    with pytest.raises(ParameterError, match=r"should hold some value .* from 0.001 to 3"):
        Axis.log([0.001, 0.1, 3], works=works)


def test_numbers_in_order_may_say_where_they_work_and_nothing_else_may() -> None:
    axis = Axis.ordinal([16, 8, 4, 2], works=(None, 8))
    assert axis.works == (None, 8.0)
    space = Space(depth=axis)
    assert Space.from_mapping(space.as_mapping()) == space
    assert space.fingerprint != Space(depth=[16, 8, 4, 2]).fingerprint
    for values in ([1, 3, 2], [1, None], ["a", "b"], [True, False], [1, 10**400]):
        with pytest.raises(ParameterError, match="or numbers in order; this ordinal axis holds"):
            Axis.ordinal(values, works=(None, 2))
    with pytest.raises(ParameterError, match="this categorical axis holds"):
        Axis("categorical", [1, 2], (1, 2))
