"""One client may hold anything: what every other client hands in stays the same, bit for bit.

All places are tried in which one process computes for several clients at once. Replacing a client
must not move the others, or the sum would move by more than one client's sensitivity.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import SGDClassifier

from urna.data import Samples
from urna.local import (
    BatchedObjective,
    CachedObjective,
    CallableObjective,
    EstimatorObjective,
    Objective,
    Recipe,
    Speed,
    SuccessiveHalving,
    TorchObjective,
    first_weights,
    losses_of_each,
    train_clients,
)
from urna.privacy import Adjacency, Budget, Unit
from urna.randomness import ScriptedSecrets
from urna.space import Space
from urna.systems.average import (
    Blind,
    LossKind,
    Moments,
    RowRule,
    Schema,
    Sizes,
    plan_average,
)
from urna.systems.average.certified import PaddedRows
from urna.systems.average.fit import contributions as average_contributions
from urna.systems.average.objective import BlindObjective, default_space
from urna.systems.train import (
    Clip,
    FunctionLearner,
    Sampling,
    Settings,
    TorchLearner,
    Validation,
    plan_training,
)
from urna.systems.train.rounds import contributions
from urna.systems.vote import plan_vote
from urna.systems.vote.fill import fill_all
from urna.tally import Terms

torch = pytest.importorskip("torch", reason="most stacks are torch's")
pieces = pytest.importorskip("urna.local.engine.pieces")
from torch import nn  # noqa: E402 - after the check

Table = npt.NDArray[Any]
Handed = Callable[[Sequence[Samples]], list[Table]]

FEATURES, CLASSES, VICTIM = 7, 3, 3  # an odd width: rows of a stack begin where no vector does
CENTRES = np.random.default_rng(99).normal(size=(CLASSES, FEATURES))


def client(seed: int, rows: int) -> Samples:
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=rows)
    return Samples((CENTRES[y] + rng.normal(size=(rows, FEATURES))).astype(np.float32), y)


# Of equal size or not; some take equally many steps of 8 rows; one holds a single class.
CLIENTS = [client(seed, rows) for seed, rows in enumerate((20, 20, 23, 20, 33, 9, 20, 24, 20))]
CLIENTS[6] = Samples(CLIENTS[6].features, np.zeros_like(CLIENTS[6].targets))
HERE = CLIENTS[VICTIM]

ANYTHING = {
    "NaN": Samples(np.full_like(HERE.features, np.nan), HERE.targets),
    "infinite": Samples(np.full_like(HERE.features, np.inf), HERE.targets),
    "huge": Samples(HERE.features * 1e30, HERE.targets),
    "tiny": Samples(HERE.features * 1e-30, HERE.targets),
    "zeros": Samples(np.zeros_like(HERE.features), np.zeros_like(HERE.targets)),
    "more rows": client(50, 70),
    "fewer rows": client(51, 11),
    "one row": client(52, 1),
    "no rows": client(53, 0),
    "classes that nobody announced": Samples(HERE.features, HERE.targets + 2),
    "targets that are no classes": Samples(HERE.features, np.where(HERE.targets, np.nan, 0.5)),
    "fewer columns": Samples(HERE.features[:, :5], HERE.targets),
    "pictures": Samples(HERE.features[:, :, None, None], HERE.targets),
    "texts": Samples(np.full((20, FEATURES), "a name", dtype=object), HERE.targets),
}
UNANNOUNCED = ("fewer columns", "pictures")  # refused before anything is spent


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Dropout(0.2), nn.Linear(9, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 1, FEATURES)), nn.Conv2d(1, 3, (1, 3)), nn.ReLU(), nn.Flatten(),
        nn.Linear(15, CLASSES),
    )  # fmt: skip


def mixing() -> nn.Module:
    """Build a module in which the rows of a batch mix, in training and when it is judged."""
    return nn.Sequential(
        nn.Linear(FEATURES, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU(),
        nn.Linear(5, CLASSES),
    )  # fmt: skip


class Branching(nn.Module):
    """Looks at its numbers, which no stack allows; rows may mix as well."""

    def __init__(self, out: int = CLASSES, *, mixes: bool = False) -> None:
        super().__init__()
        self.one = mixing()[:2] if mixes else nn.Linear(FEATURES, 5)
        self.two = nn.Linear(5, out)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        inner = self.one(rows)
        found: torch.Tensor = self.two(inner * 1.1 if inner.sum().item() > 0 else inner)
        return found


def branching_and_mixing() -> nn.Module:
    return Branching(mixes=True)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        _, last = self.gru(rows[:, :, None])
        found: torch.Tensor = self.head(last[-1])
        return found


def attentive() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.3, batch_first=True)
    return nn.Sequential(
        nn.Unflatten(1, (FEATURES, 1)), nn.Linear(1, 4), layer, nn.Flatten(),
        nn.Linear(4 * FEATURES, CLASSES),
    )  # fmt: skip


UNSTACKABLE = (Branching, branching_and_mixing, Recurrent, attentive)
RULE = RowRule(unit=False, clip=2.0)
SCHEMA = Schema(FEATURES, tuple(range(CLASSES)), rows=RULE)
RECORDS = Terms.of(len(CLIENTS), Budget(2.0, 1e-5), adjacency=Adjacency.REPLACE_ONE_RECORD)
SPACE = Space(lr=[0.3, 0.1, 0.01], decay=[0.3, 1.0], momentum=[0.0, 0.9])
RECIPE = Recipe(lr=0.1, momentum=0.9, epochs=2, batch_size=8)
SEEDS = range(4, 4 + len(CLIENTS))


def averaged(learner: Blind | Moments) -> Handed:
    """Return what clients hand in, exact and on the grid."""

    def handed_in(clients: Sequence[Samples]) -> list[Table]:
        plan = plan_average(RECORDS, learner)
        parts = average_contributions(plan, clients, ScriptedSecrets(b"average"))
        vectors = dict(learner.vectors(clients))
        return [np.append(vectors[place], parts[place]()) for place in sorted(parts)]

    return handed_in


def blind(loss: LossKind, **settings: Any) -> Blind:
    asked: dict[str, Any] = {"sizes": Sizes.WEIGHTED, "heaviest": 3.0, **settings}
    regularisation = asked.pop("regularisation", 1e-3)
    return Blind(SCHEMA, Unit.RECORD, 20, regularisation, loss, **asked)


def voted(objective: Objective[Samples], space: Space = SPACE, seed: int | None = 5) -> Handed:
    """Return every client's losses and its ballot."""

    def ballots(clients: Sequence[Samples]) -> list[Table]:
        seeds = list(SEEDS) if seed is None else [seed] * len(clients)
        found = list(
            losses_of_each(objective, clients, space, seeds=seeds, progress=lambda *_: None)
        )
        plan = plan_vote(Terms.of(len(clients), Budget(2.0, 1e-5)), len(space))
        filled = fill_all(found, plan, ScriptedSecrets(b"ballots"))
        return [np.append(losses, filled[place]) for place, losses in enumerate(found)]

    return ballots


def batched(factory: Callable[[], nn.Module], **more: Any) -> BatchedObjective:
    return BatchedObjective(factory, epochs=2, batch_size=8, device="cpu", **more)


def linear_loss(candidate: dict[str, float], train: Samples, held: Samples) -> float:
    centres = [train.features[train.targets == k].mean(axis=0) for k in range(CLASSES)]
    far = np.square(held.features[:, None] - np.stack(centres)).sum(axis=2) * candidate["lr"]
    return float(far[np.arange(len(held)), held.targets].mean())


def trained(factory: Callable[[], nn.Module], recipe: Recipe = RECIPE, **more: Any) -> Handed:
    def weights(clients: Sequence[Samples]) -> list[Table]:
        start = first_weights(factory, seed=0).parameters[0]
        found = train_clients(factory, start, clients, recipe, seeds=SEEDS, device="cpu", **more)
        return list(found.parameters)

    return weights


def regressed(factory: Callable[[], nn.Module]) -> Handed:
    def weights(clients: Sequence[Samples]) -> list[Table]:
        as_numbers = [
            Samples(c.features, c.targets / 2) if c.targets.dtype.kind in "iu" else c
            for c in clients
        ]
        return trained(factory, loss="squared_error")(as_numbers)

    return weights


def rounds(learner: Any, unit: Adjacency = Adjacency.REPLACE_ONE_CLIENT, **how: Any) -> Handed:
    """Return what clients put into the second round of a training."""
    settings = Settings(seed=3, **how)

    def vectors(clients: Sequence[Samples]) -> list[Table]:
        weights = learner.first_weights(seed=0)
        plan = plan_training(
            len(clients), len(weights), budget=Budget(8.0, 1e-3), rounds=4, settings=settings,
            adjacency=unit,
        )  # fmt: skip
        made = contributions(learner, clients, plan, weights, 0.05, 2, ScriptedSecrets(b"round"))
        return [made[place]() for place in sorted(made)]

    return vectors


def first_rounds(factory: Callable[[], nn.Module]) -> Handed:
    """Return what clients put into a round of a learner that remembers no other round."""

    def vectors(clients: Sequence[Samples]) -> list[Table]:
        return rounds(TorchLearner(factory, RECIPE, device="cpu"))(clients)

    return vectors


def means(weights: Table, data: Samples, seed: int) -> Table:
    if data.features.shape[1:] != (FEATURES,) or not len(data):
        raise ValueError("whatever is wrong with these rows")
    return weights + 0.1 * (data.features.astype(float).mean(axis=0) - weights)


class Careless(FunctionLearner[Samples]):
    """A learner of one's own that fails for all where one client's data make it fail."""

    def train(self, weights: Any, clients: Any, *, number: int, seeds: Any) -> Any:
        return [means(weights, data, 0) for data in clients]


VALIDATED = {"clip": Clip(0.05, 0.5), "validation": Validation()}
RECORD_LEVEL = {"record_clip": 0.5, "clip": 10.0, "unit": Adjacency.REPLACE_ONE_RECORD}

AVERAGES: dict[str, Handed] = {
    **{f"certified, {loss}": averaged(blind(loss)) for loss in LossKind},
    "certified, many digits": averaged(blind(LossKind.SOFTMAX, regularisation=4.1e-6)),
    "certified, all alike": averaged(blind(LossKind.SVM, sizes=Sizes.SMALLEST, heaviest=1.0)),
    "moments": averaged(Moments(SCHEMA, Unit.RECORD, 20)),
}
TUNED = blind(LossKind.SOFTMAX)
PATHS: dict[str, Handed] = AVERAGES | {
    "settings of an average": voted(
        BlindObjective(TUNED, RECORDS), default_space(TUNED).only([0, 7, 14])
    ),
    "search": voted(batched(mlp)),
    "search, seeds of their own": voted(batched(mlp), seed=None),
    "search, convolutions": voted(batched(cnn)),
    "search, rows that mix": voted(batched(mixing)),
    "search, a race": voted(batched(mlp, race=SuccessiveHalving(2.0, 3))),
    "search, one by one": voted(TorchObjective(mlp, epochs=1, batch_size=8), SPACE.only([0, 5])),
    "search, an estimator": voted(
        EstimatorObjective(SGDClassifier(max_iter=5, tol=None)), Space(alpha=[1e-3, 1e-1])
    ),
    "search, a function": voted(CallableObjective(linear_loss)),
    "training": trained(mlp),
    "training, AdamW": trained(mlp, replace(RECIPE, optimiser="adamw", weight_decay=0.1)),
    "training, smoothed labels": trained(mlp, replace(RECIPE, label_smoothing=0.1)),
    "training, convolutions": trained(cnn),
    "training, rows that mix": trained(mixing),
    "training, numbers": regressed(lambda: nn.Linear(FEATURES, 1)),
    "training, numbers, not stacked": regressed(lambda: Branching(1)),
    "training, not stacked": trained(Branching),
    "training, plain": trained(cnn, speed=Speed.plain()),
    "a round": rounds(TorchLearner(mlp, RECIPE, validation=0.3, device="cpu"), **VALIDATED),
    "a round, rows that mix": rounds(
        TorchLearner(mixing, RECIPE, validation=0.3, device="cpu"), **VALIDATED
    ),
    **{f"a round, {factory.__name__}": first_rounds(factory) for factory in UNSTACKABLE},
    "a round by lots": rounds(
        TorchLearner(cnn, RECIPE, device="cpu"), sampling=Sampling.of("poisson", "1/2")
    ),
    "a round, record by record": rounds(TorchLearner(cnn, device="cpu"), **RECORD_LEVEL),
    "a round, functions": rounds(FunctionLearner(np.zeros(FEATURES), means)),
    "a round, careless functions": rounds(Careless(np.zeros(FEATURES), means)),
}


def others(found: Sequence[Table]) -> list[bytes]:
    return [row.tobytes() for place, row in enumerate(found) if place != VICTIM]


def disturbed_by(path: Handed, names: Sequence[str]) -> list[str]:
    """Return what the victim can hold so that another client hands in something else."""
    expected = others(path(CLIENTS))
    assert len(set(expected)) > len(CLIENTS) // 3  # there is something to change
    return [
        what
        for what in names
        if others(path([*CLIENTS[:VICTIM], ANYTHING[what], *CLIENTS[VICTIM + 1 :]])) != expected
    ]


@pytest.fixture(autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let one thread work, or two: on busy cores PyTorch's own wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(getattr(request, "param", 1))
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", PATHS)
def test_no_client_changes_what_another_hands_in(name: str) -> None:
    refused = UNANNOUNCED if name in AVERAGES else ()
    assert not disturbed_by(PATHS[name], [what for what in ANYTHING if what not in refused])


def test_losses_from_a_cache_are_not_changed_either(tmp_path: Path) -> None:
    path = voted(CachedObjective(batched(mlp), tmp_path), SPACE.only([0, 3]))
    assert not disturbed_by(path, ["NaN", "more rows", "fewer columns", "texts"])


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
@pytest.mark.parametrize("cache", [1, 2**14, 2**24], ids=["one by one", "few slots", "all slots"])
@pytest.mark.parametrize("work", [1, 2**22], ids=["much work", "little work"])
def test_neither_threads_nor_room_let_a_client_change_another(
    cache: int, work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lanes that are much work have PyTorch's own threads, others one of ours each.
    monkeypatch.setattr(pieces, "_CPU_CACHE", cache)
    monkeypatch.setattr(pieces, "_LEAST_BYTES", work)
    assert not disturbed_by(trained(cnn), ["more rows", "no rows"])


@pytest.mark.parametrize("loss", LossKind)
def test_a_model_is_the_one_a_client_would_train_alone(loss: LossKind) -> None:
    learner = blind(loss)
    together = dict(learner.vectors(CLIENTS))
    for place, data in enumerate(CLIENTS):
        ((_, alone),) = learner.vectors([data])
        assert alone.tobytes() == together[place].tobytes()


@pytest.mark.parametrize("factory", [mlp, cnn, mixing, *UNSTACKABLE])
def test_weights_are_those_a_client_would_reach_alone(factory: Callable[[], nn.Module]) -> None:
    learner = TorchLearner(factory, RECIPE, validation=0.3, device="cpu")
    weights = learner.first_weights(seed=0)
    together = learner.train(weights, CLIENTS, number=2, seeds=SEEDS)
    judged = learner.judge(weights, CLIENTS)
    for place, data in enumerate(CLIENTS):
        (alone,) = learner.train(weights, [data], number=2, seeds=[SEEDS[place]])
        assert alone.tobytes() == together[place].tobytes()
        assert learner.judge(weights, [data])[0].tobytes() == judged[place].tobytes()


def test_a_step_that_is_chosen_for_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def largest_of_all(batch: PaddedRows) -> Any:
        own = np.einsum("uij,uij->u", batch.rows, batch.rows) / batch.records.ravel()
        return np.full_like(batch.records, own.max())

    monkeypatch.setattr(PaddedRows, "squares", property(largest_of_all))
    path = PATHS["certified, softmax"]
    assert disturbed_by(path, ["NaN", "tiny", "more rows"]) == ["NaN", "tiny", "more rows"]
