"""A learner among Flower's nodes: the same training as on one machine, by the same strategy."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from urna.data import Samples
from urna.errors import UnknownName
from urna.flower.strategy import PrivateTraining
from urna.systems.train import Settings, TorchLearner, TrainResult
from urna.systems.train.learner import Vector
from urna.systems.vote.fill import as_data

_WEIGHTS, _WINNER, _ROUND = "weights", "urna-recipe", "server-round"


@dataclass(frozen=True, slots=True)
class LearnerTraining:
    """A node's training function for a learner: what `Updates` and `Trainer` take.

    Args:
        learner: Makes the learner; called on the node, once per round.
        data: Returns the node's data, as for a `Voter`.
    """

    learner: Callable[[], TorchLearner]
    data: Callable[[Context], Samples]

    def __call__(self, message: Message, context: Context) -> Message:
        """Train the common weights on this node's rows, as the winner of the vote says."""
        config = message.content.config_records["config"]
        weights = message.content.array_records["arrays"][_WEIGHTS].numpy()
        learner = self.learner().with_recipe(**json.loads(str(config[_WINNER])))
        rows = as_data(self.data(context))
        number = int(str(config[_ROUND]))
        place = int(str(context.node_config.get("partition-id", 0)))
        (trained,) = learner.train(
            np.asarray(weights, dtype=np.float32), [rows], number=number, seeds=[place]
        )
        content = RecordDict({"arrays": ArrayRecord({_WEIGHTS: Array(np.asarray(trained))})})
        content["metrics"] = MetricRecord({"num-examples": 1})  # everybody counts the same
        return Message(content, reply_to=message)


def server_strategy(name: str, lr: float, momentum: float) -> Strategy:
    """Return Flower's strategy of a server optimiser's name."""
    if name == "fedavg":
        return flower.FedAvg()
    if name == "fedavgm":
        return flower.FedAvgM(server_learning_rate=lr, server_momentum=momentum)
    if name == "fedadam":
        return flower.FedAdam(eta=lr)
    raise UnknownName("server optimiser", name, ("fedavg", "fedavgm", "fedadam"))


def train_learner(
    grid: Grid,
    learner: TorchLearner,
    recipe: Mapping[str, Any],
    *,
    rounds: int,
    settings: Settings,
    strategy: Strategy,
    score: Callable[[Vector], tuple[float, float]] | None = None,
    **how: Any,  # noqa: ANN401 - see `PrivateTraining`
) -> TrainResult:
    """Train a learner among the nodes of a grid, privately.

    Args:
        grid: Flower's grid.
        learner: What is trained.
        recipe: What the vote chose: fields of the learner's recipe.
        rounds: How many rounds there will be at most.
        settings: How updates are clipped, and the seed of the first weights.
        strategy: What the server does with the mean.
        score: Judges weights on public rows.
        how: Budget, terms, ledger and the rest; see `PrivateTraining`.
    """
    training = PrivateTraining(strategy, clip=settings.clipping, **how)

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord | None:
        if score is None:
            return None
        loss, right = score(np.asarray(arrays[_WEIGHTS].numpy(), dtype=np.float32))
        return MetricRecord({"loss": loss, "accuracy": right})

    first = learner.first_weights(seed=settings.seed)
    training.start(
        grid,
        ArrayRecord({_WEIGHTS: Array(np.asarray(first))}),
        num_rounds=rounds,
        train_config=ConfigRecord({_WINNER: json.dumps(dict(recipe))}),
        evaluate_fn=evaluate,
    )
    return training.training
