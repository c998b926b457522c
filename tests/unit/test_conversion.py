"""Spaces from and to Optuna and ConfigSpace, and what a search says when it is handed theirs."""

from typing import Any

import pytest

from urna.conversion import from_configspace, from_optuna, to_configspace, to_optuna
from urna.errors import DataMissing, ParameterError
from urna.space import Axis, AxisKind, Space
from urna.systems.vote.fill import as_space

SPACE = Space(
    lr=Axis.log([1e-4, 1e-3, 1e-2]),
    momentum=Axis.linear([0.0, 0.5, 1.0]),
    layers=Axis.linear([1, 2, 3]),
    penalty=Axis.categorical(["l1", None, True]),
)


def test_a_space_comes_back_from_optuna() -> None:
    pytest.importorskip("optuna")
    assert from_optuna(to_optuna(SPACE), points=3) == SPACE


def test_a_space_comes_back_from_configspace() -> None:
    pytest.importorskip("ConfigSpace")
    more = Space(**SPACE.axes, depth=[2, 4, None], sizes=[(8,), (8, 8)], fixed=[7])
    found = from_configspace(to_configspace(more), points=3)
    assert found.axes == more.axes  # ConfigSpace has an order of its own


@pytest.mark.parametrize(
    ("kind", "settings", "values"),
    [
        ("Float", {"low": 1.0, "high": 100.0, "log": True}, (1.0, 10.0, 100.0)),
        ("Float", {"low": 0.0, "high": 0.4, "step": 0.1}, (0.0, 0.2, 0.4)),
        ("Float", {"low": 0.5, "high": 0.5}, (0.5,)),
        ("Int", {"low": 1, "high": 1024, "log": True}, (1, 32, 1024)),
        ("Int", {"low": 1, "high": 2, "log": True}, (1, 2)),
        ("Int", {"low": 0, "high": 100}, (0, 50, 100)),
        ("Int", {"low": 4, "high": 10, "step": 3}, (4, 7, 10)),
    ],
)
def test_a_range_of_optuna_becomes_points_on_its_scale(
    kind: str, settings: dict[str, Any], values: tuple[float, ...]
) -> None:
    optuna = pytest.importorskip("optuna")
    made = getattr(optuna.distributions, f"{kind}Distribution")(**settings)
    axis = from_optuna({"x": made}, points=3).axes["x"]
    assert axis.values == values
    assert {type(value) for value in axis.values} == {float if kind == "Float" else int}
    assert axis.kind is (AxisKind.LOG if settings.get("log") else AxisKind.LINEAR)


def test_every_candidate_is_one_that_optuna_takes() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = to_optuna(SPACE)
    study = optuna.create_study()
    for candidate in SPACE:
        study.enqueue_trial(candidate)
        trial = study.ask(made)
        assert trial.params == candidate


def test_what_is_forbidden_is_no_candidate() -> None:
    other = pytest.importorskip("ConfigSpace")
    made = other.ConfigurationSpace({"a": ["x", "y"], "b": (1, 3)})
    made.add(
        other.ForbiddenAndConjunction(
            other.ForbiddenEqualsClause(made["a"], "x"), other.ForbiddenEqualsClause(made["b"], 1)
        )
    )
    found = from_configspace(made)
    assert len(found) == 5
    assert {"a": "x", "b": 1} not in list(found)


def test_conditions_and_strange_ranges_are_one_line() -> None:
    other = pytest.importorskip("ConfigSpace")
    made = other.ConfigurationSpace({"a": ["x", "y"], "b": (1, 3)})
    made.add(other.EqualsCondition(made["b"], made["a"], "x"))
    with pytest.raises(ParameterError, match="has conditions: make a space for each case"):
        from_configspace(made)
    normal = other.Float("n", (0.0, 1.0), distribution=other.Normal(0.5, 0.1))
    with pytest.raises(ParameterError, match="'n': a vote knows uniform ranges"):
        from_configspace(other.ConfigurationSpace([normal]))


def test_other_wrong_use_is_one_line() -> None:
    pytest.importorskip("optuna")
    with pytest.raises(ParameterError, match=r"'x': Optuna's distributions are .*, got list"):
        from_optuna({"x": [1, 2]})
    with pytest.raises(ParameterError, match="points must be a whole number of at least 2"):
        from_optuna(to_optuna(SPACE), points=1)
    for convert in (to_optuna, to_configspace):
        with pytest.raises(ParameterError, match="a part of its product"):
            convert(SPACE.only([0, 5]))


def test_a_search_says_how_to_convert() -> None:
    pytest.importorskip("optuna")
    other = pytest.importorskip("ConfigSpace")
    with pytest.raises(ParameterError, match=r"conversion\.from_optuna\(space, points=5\)"):
        as_space(to_optuna(SPACE))
    with pytest.raises(ParameterError, match=r"conversion\.from_configspace\("):
        as_space(other.ConfigurationSpace({"a": (0.1, 1.0)}))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna.distributions", None)
    with pytest.raises(DataMissing, match="pip install optuna"):
        to_optuna(SPACE)
