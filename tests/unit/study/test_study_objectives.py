"""Objectives by name: ready-made, an estimator, a function, a torch module."""

from pathlib import Path

import pytest

from urna.data import load
from urna.errors import ParameterError
from urna.local import BatchedObjective, CallableObjective, EstimatorObjective
from urna.local.named import named_object
from urna.study.prepare import choose_objective
from urna.study.schema import ObjectivePart

DATA = load("wine")
OWN = """\
def judge(candidate, data):
    return 0.0
def judge_apart(candidate, train, validation, *, seed=0):
    return 0.0
def estimator():
    from sklearn.svm import SVC
    return SVC()
def network():
    import torch
    return torch.nn.Linear(13, 3)
def number():
    return 3
def broken():
    raise RuntimeError("no\\nway")
constant = 7
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("own.py:judge", CallableObjective),
        ("own.py:judge_apart", CallableObjective),
        ("own.py:estimator", EstimatorObjective),
        ("own.py:network", BatchedObjective),
        ("sklearn.linear_model:LogisticRegression", EstimatorObjective),
        ("linear", EstimatorObjective),
        ("mlp", BatchedObjective),
    ],
)
def test_names_are_what_they_stand_for(base: Path, name: str, kind: type) -> None:
    if kind is BatchedObjective:
        pytest.importorskip("torch")
    found = choose_objective(ObjectivePart(model=name), DATA, base=base)
    assert isinstance(found.objective, kind)
    assert (found.factory is not None) == (kind is BatchedObjective)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own.py:number", "own.py:number makes int, which is no estimator and no torch module"),
        ("own.py:broken", "own.py:broken cannot be made: RuntimeError: no"),
        ("own.py:constant", "own.py:constant is int: a function"),
        ("own.py:nothing", "own.py holds no function 'nothing'"),
        ("other.py:judge", "there is no file other.py"),
        ("sklearn.nowhere:X", "there is no module 'sklearn.nowhere'"),
        ("sklearn.svm:LinearSCV", "the module sklearn.svm holds no 'LinearSCV'; did you mean"),
        ("lineal", "unknown model 'lineal'; did you mean 'linear'?"),
    ],
)
def test_what_judges_nothing_is_refused_in_one_line(base: Path, name: str, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        choose_objective(ObjectivePart(model=name), DATA, base=base)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_preset_that_is_only_judged_is_not_trained() -> None:
    with pytest.raises(ParameterError, match="is judged and not trained"):
        choose_objective(ObjectivePart(model="network"), DATA, train=True)


def test_a_name_has_two_parts() -> None:
    with pytest.raises(ParameterError, match="module:name"):
        named_object("math")
