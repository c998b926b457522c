"""Private training on a node: what is announced, the model a round starts from, your own function.

A model travels as one line of JSON and the numbers themselves. Reading one runs no code.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from urna.errors import ParameterError, ProtocolError, Refused
from urna.flower.messages import message_of
from urna.flower.participant import Call, Participant
from urna.flower.policy import Policy
from urna.flower.subjects import MALFORMED, register
from urna.noise import IntVector
from urna.privacy import Unit
from urna.randomness import StreamSecrets, derive_seed
from urna.systems.train import Layout
from urna.systems.train.layout import norm_of
from urna.systems.train.settings import ACCURACY, LOSS, SHORT
from urna.tally import TallyPlan, Terms, plan_tally

_MOST_ENTRIES = 2**31

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class UpdateSubject:
    """Updates of a model, each clipped, summed round by round.

    Args:
        name: The model's name; a policy may grant it by name.
        layout: What stands where in a node's vector.
    """

    kind: ClassVar[str] = "update"
    name: str
    layout: Layout

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        return f"training of {self.name}, {self.layout.parameters:,} parameters"

    def plan(self, terms: Terms, rounds: int) -> TallyPlan:
        """Return the plan of one round."""
        return plan_tally(terms, self.layout.contribution, rounds=rounds, finest=1)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        return {"name": self.name, "layout": self.layout.as_mapping()}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "UpdateSubject":
        """Read what `as_mapping` wrote."""
        return cls(str(mapping["name"]), Layout.read_mapping(mapping["layout"]))

    @staticmethod
    def size(mapping: Mapping[str, Any]) -> int:
        """Return how many entries are announced."""
        layout = mapping["layout"]
        return int(layout["parameters"]) + len(layout["measurements"])


register("update", UpdateSubject.read, UpdateSubject.size)


@dataclass(frozen=True, slots=True)
class ModelLetter:
    """What a round starts from: the common weights, and how a node should train them."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    weights: Vector = field(repr=False)
    """All arrays one after the other."""
    clip_norm: float
    largest_loss: float = 4.0
    """Larger validation losses count as this one."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """What the user's own strategy tells its clients."""

    def as_bytes(self) -> bytes:
        """Return the letter as it travels."""
        head = {
            "names": list(self.names),
            "shapes": [list(shape) for shape in self.shapes],
            "clip_norm": self.clip_norm,
            "largest_loss": self.largest_loss,
            "config": dict(self.config),
        }
        numbers = np.ascontiguousarray(self.weights, dtype="<f4").tobytes()
        try:
            said = json.dumps(head, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"what clients are told travels as JSON, and this does not: {error}"
            ) from error
        return said + b"\n" + numbers

    @classmethod
    def read(cls, data: bytes) -> "ModelLetter":
        """Read a letter."""
        head, mark, numbers = data.partition(b"\n")
        try:
            said = json.loads(head)
            shapes = tuple(tuple(map(int, shape)) for shape in said["shapes"])
            names = tuple(map(str, said["names"]))
            clip_norm, largest = float(said["clip_norm"]), float(said["largest_loss"])
            count = sum(math.prod(shape) for shape in shapes)
            sound = (
                mark
                and len(names) == len(shapes) == len(set(names))
                and all(n >= 0 for shape in shapes for n in shape)
                and 0 < count < _MOST_ENTRIES
                and len(numbers) == 4 * count
                and 0 < clip_norm < math.inf
                and 0 < largest < math.inf
                and isinstance(said["config"], dict)
            )
        except MALFORMED as error:
            raise ProtocolError("what the round starts from is no model") from error
        if not sound:
            raise ProtocolError("what the round starts from is no model")
        weights = np.frombuffer(numbers, dtype="<f4").astype(np.float32)
        return cls(names, shapes, weights, clip_norm, largest, said["config"])

    @classmethod
    def of(cls, arrays: ArrayRecord, clip_norm: float = 1.0) -> "ModelLetter":
        """Return a letter with these arrays."""
        found = {name: array.numpy() for name, array in arrays.items()}
        for name, array in found.items():
            if not np.issubdtype(array.dtype, np.floating):
                raise ParameterError(
                    f"the array {name!r} holds {array.dtype}: only floating-point parameters are "
                    "trained privately. Leave counters and other buffers out of the ArrayRecord."
                )
        if not found:
            raise ParameterError("a model has an array or more")
        weights = np.concatenate([array.ravel().astype(np.float32) for array in found.values()])
        shapes = tuple(array.shape for array in found.values())
        return cls(tuple(found), shapes, weights, clip_norm)

    def arrays(self, weights: Vector | None = None) -> ArrayRecord:
        """Return the weights, or others of the same shapes, as Flower carries them."""
        given, start, record = self.weights if weights is None else weights, 0, ArrayRecord()
        for name, shape in zip(self.names, self.shapes, strict=True):
            count = math.prod(shape)
            part = np.asarray(given[start : start + count], dtype=np.float32)
            record[name] = Array(part.reshape(shape))
            start += count
        return record


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
        layout = _layout(call)
        if call.announcement.terms.adjacency.unit is Unit.RECORD:
            raise Refused("nodes train under relations about whole clients")
        asked = {measurement.name for measurement in layout.measurements}
        if asked & {LOSS, ACCURACY} and self._evaluate is None:
            raise Refused("this node cannot validate: its app has no evaluation for it")
        if unknown := asked - {LOSS, ACCURACY, SHORT}:
            raise Refused(f"this node does not measure {sorted(unknown)[0][:40]}")

    def contribute(self, call: Call) -> IntVector:
        """Return the node's clipped update and what it measured, on the grid."""
        layout, letter = (
            call.subject(UpdateSubject, "training").layout,
            ModelLetter.read(call.inputs),
        )
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
        after = ModelLetter.of(_arrays_in(reply, self._arrays))
        if (after.names, after.shapes) != (letter.names, letter.shapes):
            raise ValueError(f"training got arrays {_told(letter)} and returned {_told(after)}")
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(after.weights - letter.weights)

    def _measured(self, call: Call, letter: ModelLetter) -> dict[str, float]:
        names = {
            measurement.name
            for measurement in call.subject(UpdateSubject, "training").layout.measurements
        }
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


def _told(letter: ModelLetter) -> str:
    return ", ".join(f"{n} {shape}" for n, shape in zip(letter.names, letter.shapes, strict=True))


def _arrays_in(reply: Message, key: str) -> Any:  # noqa: ANN401 - an ArrayRecord
    return reply.content[key]


def _layout(call: Call) -> Layout:
    return call.subject(UpdateSubject, "training").layout
