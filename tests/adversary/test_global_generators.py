"""Code of a user's own may draw from global generators, as often as its client's data say.

One process plays several clients: what one of them draws must not change what another hands in.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from urna.data import Samples
from urna.flower import participant
from urna.local import (
    CachedObjective,
    CallableObjective,
    EstimatorObjective,
    Limits,
    TorchObjective,
    losses_apart,
    losses_of_each,
)
from urna.local.generators import own_generators
from urna.privacy import Adjacency, Budget, Unit
from urna.randomness import ScriptedSecrets
from urna.space import Space
from urna.systems.average import Moments, RowRule, Schema, plan_average
from urna.systems.average.fit import contributions as average_contributions
from urna.systems.train import (
    FunctionLearner,
    Settings,
    TorchLearner,
    Validation,
    plan_training,
)
from urna.systems.train.rounds import contributions
from urna.systems.vote.fill import try_objective
from urna.tally import Terms

torch = pytest.importorskip("torch", reason="its generator is one of them")
from torch import nn  # noqa: E402 - after the check

Table = npt.NDArray[Any]
Handed = Callable[[Sequence[Samples]], list[Table]]

SPACE = Space(lr=[0.3, 0.1, 0.01])
VICTIM = 1


def client(seed: int, rows: int) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(rng.normal(size=(rows, 3)).astype(np.float32), np.arange(rows) % 2)


CLIENTS = [client(seed, 12) for seed in range(4)]
OTHERS = {"more rows": client(9, 31), "fewer rows": client(9, 7), "no rows": client(9, 0)}


def drawn(data: Samples) -> float:
    """Draw from every global generator, the more often the more rows there are."""
    numbers = [random.random() + np.random.rand() + torch.rand(1).item() for _ in range(len(data))]
    return float(np.mean(numbers))


def judged(candidate: Any, data: Samples) -> float:
    return float(candidate["lr"]) + drawn(data)


@dataclass(frozen=True)
class OwnObjective:
    """An objective of one's own: not one of Urna's classes."""

    def losses(self, data: Samples, space: Space, *, seed: int, progress: Any = None) -> Table:
        return np.array([judged(candidate, data) for candidate in space])


def noisy_loss(outputs: Any, targets: Any) -> Any:
    weight = random.random() + np.random.rand()
    return weight * nn.functional.cross_entropy(outputs, targets)


class Sampling(nn.Module):
    """A module that draws numbers when it is judged."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, rows: Any) -> Any:
        scale = 1.0 if self.training else random.random() + torch.rand(len(rows), 2)
        return self.inner(rows) * scale


class Scaled(nn.Module):
    """A module that draws numbers when its gradients are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, rows: Any) -> Any:
        return self.inner(rows) * (random.random() + np.random.rand())


def splitting() -> GridSearchCV:
    model = SGDClassifier(max_iter=2, tol=None)
    return GridSearchCV(model, {"penalty": ["l1", "l2", None]}, cv=ShuffleSplit(2), error_score=0)


SHARED = {"cv": ShuffleSplit(2, random_state=np.random.RandomState(4))}
ALPHA = Space(estimator__alpha=[1e-3, 1e-1])


def voted(objective: Any, space: Space = SPACE) -> Handed:
    def losses(clients: Sequence[Samples]) -> list[Table]:
        return list(
            losses_of_each(
                objective, clients, space, seeds=[5] * len(clients), progress=lambda *_: None
            )
        )

    return losses


def tried(clients: Sequence[Samples]) -> list[Table]:
    """Evaluate after an objective was tried on the first clients, as a search does."""
    try_objective(OwnObjective(), SPACE, clients[1:], seed=5)
    return [np.frombuffer(repr(states()).encode(), np.uint8)] * len(clients)


def averaged(clients: Sequence[Samples]) -> list[Table]:
    schema = Schema(3, (0, 1), rows=RowRule(unit=False, clip=2.0))
    terms = Terms.of(len(clients), Budget(2.0, 1e-5), adjacency=Adjacency.REPLACE_ONE_RECORD)
    plan = plan_average(terms, OwnMoments(schema, Unit.RECORD, 12))
    made = average_contributions(plan, clients, ScriptedSecrets(b"average"))
    return [made[place]() for place in sorted(made)]


class OwnMoments(Moments):
    """A learner of one's own."""

    def vectors(self, clients: Sequence[Samples]) -> Iterator[Any]:
        for place, vector in super().vectors(clients):
            yield place, vector * drawn(clients[place])


def rounds(learner: Any, **how: Any) -> Handed:
    def vectors(clients: Sequence[Samples]) -> list[Table]:
        unit = how.get("adjacency", Adjacency.REPLACE_ONE_CLIENT)
        settings = Settings(**{key: value for key, value in how.items() if key != "adjacency"})
        plan = plan_training(
            len(clients), 8, budget=Budget(8.0, 1e-3), rounds=4, settings=settings, adjacency=unit
        )
        weights = np.zeros(8, dtype=np.float32)
        made = contributions(learner, clients, plan, weights, 0.5, 2, ScriptedSecrets(b"round"))
        return [made[place]() for place in sorted(made)]

    return vectors


def stepped(weights: Table, data: Samples, seed: int) -> Table:
    return weights + drawn(data)


def scored(weights: Table, data: Samples) -> tuple[float, float]:
    return drawn(data), drawn(data) / 3


FUNCTIONS = FunctionLearner(np.zeros(8), stepped, scored)

PATHS: dict[str, Handed] = {
    "a function": voted(CallableObjective(judged)),
    "an objective": voted(OwnObjective()),
    "an objective that is tried": tried,
    "a splitter": voted(EstimatorObjective(splitting, "error"), ALPHA),
    "a splitter that is shared": voted(
        EstimatorObjective(splitting, "error", fixed=SHARED), ALPHA
    ),
    "a loss of torch's": voted(TorchObjective(Sampling, noisy_loss, epochs=1, batch_size=4)),
    "an average": averaged,
    "training": rounds(FUNCTIONS, seed=3),
    "training and validation": rounds(FUNCTIONS, seed=3, validation=Validation()),
    "validation by torch": rounds(
        TorchLearner(Sampling, validation=0.5, device="cpu"), validation=Validation()
    ),
    "training by record": rounds(
        TorchLearner(Scaled, device="cpu"),
        record_clip=0.5, clip=10.0, adjacency=Adjacency.REPLACE_ONE_RECORD,
    ),
}  # fmt: skip


def states() -> list[Any]:
    state = np.random.get_state(legacy=False)
    return [random.getstate(), state["state"]["key"].tobytes(), torch.get_rng_state().tolist()]


def others(path: Handed, victim: Samples) -> list[bytes]:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    found = path([*CLIENTS[:VICTIM], victim, *CLIENTS[VICTIM + 1 :]])
    return [row.tobytes() for place, row in enumerate(found) if place != VICTIM]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PATHS)
def test_what_one_client_draws_changes_no_other(name: str) -> None:
    path = PATHS[name]
    expected = others(path, CLIENTS[VICTIM])
    for what, data in OTHERS.items():
        assert others(path, data) == expected, what


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PATHS)
def test_generators_go_on_where_they_were(name: str) -> None:
    before = states()
    PATHS[name](CLIENTS)
    assert states() == before


def test_losses_are_not_those_of_a_constant() -> None:
    assert len({row.tobytes() for row in PATHS["a function"](CLIENTS)}) == 1  # of equal size
    other = voted(CallableObjective(judged))([*CLIENTS, OTHERS["more rows"]])
    assert other[-1].tobytes() != other[0].tobytes()


def test_losses_from_a_cache_are_those_without(tmp_path: Any) -> None:
    cached = voted(CachedObjective(CallableObjective(judged), tmp_path))
    plain = [row.tobytes() for row in PATHS["a function"](CLIENTS)]
    assert [row.tobytes() for row in cached(CLIENTS)] == plain
    assert [row.tobytes() for row in cached(CLIENTS[::-1])] == plain[::-1]


def test_processes_draw_what_this_one_draws() -> None:
    def function(candidate: Any, data: Any) -> float:
        return candidate["lr"] + random.random() + np.random.rand()

    here = CallableObjective(function).losses(CLIENTS[0], SPACE, seed=5)
    there = CallableObjective(function, limits=Limits(workers=1))
    assert there.losses(CLIENTS[0], SPACE, seed=5).tolist() == here.tolist()
    apart = losses_apart(CallableObjective(function), CLIENTS[:1], SPACE, seeds=[5], seconds=60.0)
    assert [row is not None and row.tolist() for row in apart] == [here.tolist()]


def test_rounds_and_clients_draw_other_numbers() -> None:
    weights = np.zeros(8, dtype=np.float32)
    first, second = FUNCTIONS.train(weights, CLIENTS[:1] * 2, number=1, seeds=[1, 2])
    later, _ = FUNCTIONS.train(weights, CLIENTS[:1] * 2, number=2, seeds=[1, 2])
    assert len({row.tobytes() for row in (first, second, later)}) == 3


def test_simulated_nodes_of_one_worker_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participant, "simulated", lambda: True)

    class Drawing:
        kind = "statistic"

        def check(self, call: Any) -> None: ...

        def contribute(self, call: Any) -> Any:
            return np.array([drawn(call.inputs)])

    def asked(place: int, data: Samples) -> bytes:
        context = SimpleNamespace(node_config={"partition-id": place})
        call: Any = SimpleNamespace(context=context, number=1, inputs=data)
        return participant._in_time(Drawing(), call).tobytes()

    expected = [asked(place, data) for place, data in enumerate(CLIENTS)]
    assert len(set(expected)) == len(CLIENTS)
    before = states()
    asked(VICTIM, OTHERS["more rows"])
    assert states() == before
    assert [asked(place, data) for place, data in enumerate(CLIENTS)] == expected


def test_generators_may_be_nested_and_are_put_back_after_an_error() -> None:
    before, first = states(), []

    def fails() -> None:
        with own_generators(3):
            first.append(drawn(CLIENTS[0]))
            with own_generators(4):
                drawn(CLIENTS[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert states() == before
    with own_generators(3):
        assert drawn(CLIENTS[0]) == first[0]
    with own_generators(-(2**63)):  # any whole number will do
        assert drawn(CLIENTS[0]) != first[0]
