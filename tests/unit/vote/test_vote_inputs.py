"""What people hand to a search: it works, or one line says what to hand in instead."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from grouped import grouped
from sklearn.linear_model import LogisticRegression

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import CallableObjective, EstimatorObjective
from urna.privacy import Budget
from urna.randomness import ScriptedSecrets
from urna.space import Space
from urna.systems.vote import search
from urna.systems.vote.fill import as_budget, as_clients, as_objective, as_space
from urna.tally import ClearSummation

SPACE = Space(x=[0.0, 1.0, 2.0], y=["a", "b"])
BUDGET = Budget(4.0, 1e-3)
CLIENTS = [Samples(np.full((4, 1), float(c % 2)), np.arange(4) % 2) for c in range(20)]


def distance(candidate: dict[str, Any], data: Samples) -> float:
    """A plain function: how far a candidate is from the client's mean."""
    return abs(candidate["x"] - float(data.features.mean())) + (candidate["y"] == "b")


def votes(**settings: Any) -> list[float]:
    usual: dict[str, Any] = {"space": SPACE, "objective": distance, "clients": CLIENTS}
    chosen = usual | {"budget": BUDGET, "secrets": ScriptedSecrets(b"inputs")} | settings
    space, objective, clients = (chosen.pop(n) for n in ("space", "objective", "clients"))
    result = search(space, objective, clients, summation=ClearSummation(), **grouped(chosen))
    return list(result.votes.tolist())


def test_a_dict_is_a_space() -> None:
    plain = {"x": [0.0, 1.0, 2.0], "y": ["a", "b"]}
    assert as_space(plain) == SPACE
    assert votes(space=plain) == votes()


def test_a_function_is_an_objective() -> None:
    assert isinstance(as_objective(distance), CallableObjective)
    assert votes(objective=CallableObjective(distance)) == votes()
    assert isinstance(as_objective(lambda candidate, data: 0.0), CallableObjective)


def test_an_estimator_is_an_objective() -> None:
    found = as_objective(LogisticRegression())
    assert isinstance(found, EstimatorObjective)
    clients = [
        Samples(np.random.default_rng(c).normal(size=(30, 2)), np.arange(30) % 2) for c in range(20)
    ]
    got = votes(space={"C": [0.01, 1.0]}, objective=LogisticRegression(), clients=clients)
    assert len(got) == 2


def test_what_is_an_objective_stays_one() -> None:
    objective = CallableObjective(distance)
    assert as_objective(objective) is objective


def test_pairs_of_features_and_targets_are_clients() -> None:
    pairs = [(samples.features, samples.targets) for samples in CLIENTS]
    assert votes(clients=pairs) == votes()
    lists = [(s.features.tolist(), s.targets.tolist()) for s in CLIENTS]
    assert votes(clients=lists) == votes()
    named = as_clients([(np.zeros((2, 1)), np.zeros(2), ["a", "b"])])
    assert named[0].ids is not None
    assert named[0].ids.tolist() == ["a", "b"]


def test_data_of_other_kinds_are_passed_on_as_they_are() -> None:
    others = [1.0, "text", np.zeros(3), (1, 2, 3, 4)]
    assert as_clients(others) == others


def is_one_line(text: str) -> bool:
    return "\n" not in text and len(text) < 200


@pytest.mark.parametrize(
    ("make", "wrong", "says"),
    [
        (as_space, [0.1, 0.01], "a dict of names and values such as .*got list"),
        (as_space, "lr", "got str"),
        (as_space, None, "got NoneType"),
        (as_objective, 3, r"a function of \(candidate, data\).*got int"),
        (as_objective, LogisticRegression, r"an object of it, as in LogisticRegression\(\)"),
        (as_objective, CallableObjective, r"as in CallableObjective\(\)"),
        (as_objective, None, "got NoneType"),
        (as_clients, CLIENTS[0], "a list with each client's data.*got Samples"),
        (as_clients, {"a": CLIENTS[0]}, "got dict"),
        (as_clients, "data.csv", "got str"),
        (as_clients, (c for c in CLIENTS), "got generator"),
        (as_clients, 7, "got int"),
        (as_budget, 1.0, r"as in Budget\(epsilon=1, delta=1e-5\); got 1.0"),
        (as_budget, (1.0, 1e-5), r"got \(1.0, 1e-05\)"),
        (as_budget, None, "got None"),
        (as_budget, "x" * 5_000, "got 'xxx"),
    ],
    ids=lambda case: getattr(case, "__name__", None) or type(case).__name__,
)
def test_what_cannot_be_used_is_answered_in_one_line(
    make: Callable[[Any], Any], wrong: object, says: str
) -> None:
    with pytest.raises(ParameterError, match=says) as refused:
        make(wrong)
    assert is_one_line(str(refused.value))


def test_a_torch_module_is_answered_with_what_to_hand_in() -> None:
    class Module:
        """Looks like one, so that torch need not be there."""

        def parameters(self) -> list[float]:
            return []

        def forward(self) -> None: ...

        def __call__(self) -> None: ...

    with pytest.raises(ParameterError, match=r"hand in BatchedObjective\(factory\)") as refused:
        as_objective(Module())
    assert is_one_line(str(refused.value))


def test_a_real_torch_module_as_well() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ParameterError, match="a torch module was handed in"):
        as_objective(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"budget": 1.0}, "a budget names epsilon and delta"),
        ({"objective": 3}, "an objective has a method"),
        ({"space": [1]}, "a space is a Space"),
        ({"clients": CLIENTS[0]}, "clients are a list"),
        ({"clients": [([[1.0]], [1, 2])] * 3}, "equally many rows"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_a_search_says_so_before_anything_is_evaluated(wrong: dict[str, Any], says: str) -> None:
    calls = 0

    def counting(candidate: dict[str, Any], data: Samples) -> float:
        nonlocal calls
        calls += 1
        return math.nan

    usual = {"space": SPACE, "objective": counting, "clients": CLIENTS, "budget": BUDGET}
    chosen = usual | wrong
    with pytest.raises(ParameterError, match=says):
        search(chosen["space"], chosen["objective"], chosen["clients"], budget=chosen["budget"])
    assert calls == 0
