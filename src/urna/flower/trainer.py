"""The node's side of private training: your own training function, and nothing more leaves it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from urna.errors import Refused
from urna.flower.contributor import Call
from urna.flower.messages import message_of
from urna.flower.participant import Participant
from urna.flower.policy import Policy
from urna.flower.updates import ModelLetter, UpdateSubject, Vector, flattened
from urna.noise import IntVector
from urna.privacy import Unit
from urna.randomness import StreamSecrets, derive_seed
from urna.systems.train.layout import norm_of
from urna.systems.train.settings import ACCURACY, LOSS, SHORT

__all__ = ["Trainer", "Updates"]

Function = Callable[[Message, Context], Message]
"""What people register with `@app.train()` or `@app.evaluate()`."""


class Updates:
    """Trains the common model on the node's data: the contributor to training.

    Args:
        train: The node's own training function, as it is registered with `@app.train()`: takes a
            message with arrays and a config, returns one with arrays.
        evaluate: Its evaluation function, where the server asks for a private tally of losses.
        arrays: Key of the arrays in messages.
        config: Key of the config in messages.
        loss: Key of the loss in the evaluation's metrics.
        accuracy: Key of the share of right answers in them.
    """

    kind = "update"

    def __init__(
        self,
        train: Function,
        evaluate: Function | None = None,
        *,
        arrays: str = "arrays",
        config: str = "config",
        loss: str = "eval_loss",
        accuracy: str = "eval_acc",
    ) -> None:
        self._train, self._evaluate = train, evaluate
        self._arrays, self._config = arrays, config
        self._loss, self._accuracy = loss, accuracy

    def check(self, call: Call) -> None:
        """Refuse a training that this node cannot take part in, whatever its data.

        Raises:
            Refused: Single records are to be protected, or a tally of losses is asked for and
                nothing here can evaluate.
        """
        subject = _subject(call)
        if call.announcement.terms.adjacency.unit is Unit.RECORD:
            raise Refused("nodes train under relations about whole clients")
        asked = {measurement.name for measurement in subject.layout.measurements}
        if asked & {LOSS, ACCURACY} and self._evaluate is None:
            raise Refused("this node cannot validate: its app has no evaluation for it")
        if unknown := asked - {LOSS, ACCURACY, SHORT}:
            raise Refused(f"this node does not measure {sorted(unknown)[0][:40]}")

    def contribute(self, call: Call) -> IntVector:
        """Return the node's clipped update and what it measured, on the grid."""
        layout, letter = _subject(call).layout, ModelLetter.read(call.inputs)
        if len(letter.weights) != layout.parameters:
            raise ValueError("the model has another size than was announced")
        measured = self._measured(call, letter)
        update = self.update(letter, call.context, call.number, call.seconds)
        norm = norm_of(update)
        measured[SHORT] = math.nan if math.isnan(norm) else float(norm <= letter.clip_norm)
        coins = StreamSecrets(derive_seed(call.key, b"coins of an update"))
        return layout.encode(update, letter.clip_norm, measured, coins)

    def update(self, letter: ModelLetter, context: Context, number: int, seconds: float) -> Vector:
        """Return what one round of the node's own training adds to the weights.

        Raises:
            Exception: What the training raises, or it returns other arrays than it got.
        """
        reply = self._train(self._message(letter, "train", context, number, seconds), context)
        update, names, shapes = flattened(_arrays_in(reply, self._arrays))
        if (names, shapes) != (letter.names, letter.shapes):
            raise ValueError(
                f"training got arrays {_told(letter.names, letter.shapes)} and returned "
                f"{_told(names, shapes)}"
            )
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(update - letter.weights)

    def _measured(self, call: Call, letter: ModelLetter) -> dict[str, float]:
        names = {measurement.name for measurement in _subject(call).layout.measurements}
        if self._evaluate is None or not names & {LOSS, ACCURACY}:
            return {}
        message = self._message(letter, "evaluate", call.context, call.number, call.seconds)
        reply = self._evaluate(message, call.context)
        metrics: dict[str, Any] = {}
        for record in reply.content.values():
            if isinstance(record, MetricRecord):
                metrics |= dict(record)
        loss = float(metrics.get(self._loss, math.nan)) / letter.largest_loss
        return {LOSS: loss, ACCURACY: float(metrics.get(self._accuracy, math.nan))}

    def _message(
        self, letter: ModelLetter, kind: str, context: Context, number: int, seconds: float
    ) -> Message:
        """Return the message that a server would have sent to the node's own function."""
        content = RecordDict(
            {self._arrays: letter.arrays(), self._config: ConfigRecord(dict(letter.config))}
        )
        return message_of(
            content,
            kind,
            to=context.node_id,
            run=context.run_id,
            group=str(number),
            ttl=max(seconds, 1.0),
        )


class Trainer(Participant):
    """A node's part in private training. Mount it on the node's ClientApp.

    Args:
        train: The node's own training function, as it is registered with `@app.train()`.
        evaluate: Its evaluation function, for a private tally of losses.
        policy: The node's limits, or the file that holds them; see `Participant`. It must grant
            `update`.
        name: The node's name where it has no identity key; its partition by default.
        script: Label of scripted randomness, for tests and comparisons. NOT PRIVATE.
        keys: Names of records and metrics; see `Updates`.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> @app.train()
        ... def train(message, context):
        ...     return message
        >>> Trainer(train, policy="policy.toml").mount(app)
    """

    def __init__(
        self,
        train: Function,
        evaluate: Function | None = None,
        *,
        policy: Policy | Path | str | None = None,
        name: Callable[[Context], str] | None = None,
        script: str | None = None,
        **keys: Any,  # noqa: ANN401 - see `Updates`
    ) -> None:
        updates = Updates(train, evaluate, **keys)
        super().__init__([updates], policy=policy, name=name, script=script)


def _subject(call: Call) -> UpdateSubject:
    subject = call.announcement.subject
    if not isinstance(subject, UpdateSubject):
        raise Refused("this is no training")
    return subject


def _told(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in zip(names, shapes, strict=True))


def _arrays_in(reply: Message, key: str) -> Any:  # noqa: ANN401 - an ArrayRecord
    return reply.content[key]
