"""The node's side of private training: your own training function, and nothing more leaves it."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.metadata import Metadata

from urna.errors import Refused
from urna.flower.contributor import Call
from urna.flower.participant import Participant
from urna.flower.policy import Policy
from urna.flower.updates import ModelLetter, UpdateSubject, flattened
from urna.noise import IntVector
from urna.privacy import Unit
from urna.randomness import StreamSecrets, derive_seed
from urna.systems.train.layout import client_log, norm_of
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
        reply = self._train(self._message(call, letter, "train"), call.context)
        update, names, shapes = flattened(_arrays_in(reply, self._arrays))
        if (names, shapes) != (letter.names, letter.shapes):
            client_log.warning(
                "this node's arrays have other names or shapes: it contributes nothing"
            )
            update = np.zeros(0, dtype=np.float32)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                update = update - letter.weights
        norm = norm_of(update)
        measured[SHORT] = math.nan if math.isnan(norm) else float(norm <= letter.clip_norm)
        coins = StreamSecrets(derive_seed(call.key, b"coins of an update"))
        return layout.encode(update, letter.clip_norm, measured, coins)

    def _measured(self, call: Call, letter: ModelLetter) -> dict[str, float]:
        names = {measurement.name for measurement in _subject(call).layout.measurements}
        if self._evaluate is None or not names & {LOSS, ACCURACY}:
            return {}
        reply = self._evaluate(self._message(call, letter, "evaluate"), call.context)
        metrics: dict[str, Any] = {}
        for record in reply.content.values():
            if isinstance(record, MetricRecord):
                metrics |= dict(record)
        loss = float(metrics.get(self._loss, math.nan)) / letter.largest_loss
        return {LOSS: loss, ACCURACY: float(metrics.get(self._accuracy, math.nan))}

    def _message(self, call: Call, letter: ModelLetter, kind: str) -> Message:
        """Return the message that a server would have sent to the node's own function."""
        content = RecordDict(
            {self._arrays: letter.arrays(), self._config: ConfigRecord(dict(letter.config))}
        )
        context, now = call.context, time.time()
        metadata = Metadata(
            run_id=context.run_id,
            message_id="",
            src_node_id=1,
            dst_node_id=context.node_id,
            reply_to_message_id="",
            group_id=str(call.number),
            created_at=now,
            ttl=max(call.seconds, 1.0),
            message_type=kind,
        )
        return Message(content=content, metadata=metadata)  # type: ignore[call-overload,no-any-return]


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


def _arrays_in(reply: Message, key: str) -> Any:  # noqa: ANN401 - an ArrayRecord
    return reply.content[key]
