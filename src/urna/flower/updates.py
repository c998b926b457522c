"""What travels when nodes train: the subject that is announced, the model a round starts from.

A model travels as one line of JSON and the numbers themselves. Reading one runs no code.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from urna.errors import ParameterError, ProtocolError
from urna.flower.subjects import register
from urna.systems.train import Layout
from urna.tally import TallyPlan, Terms, plan_tally

__all__ = ["ModelLetter", "UpdateSubject", "Vector", "flattened", "shaped"]

_MOST_ENTRIES = 2**31
_WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class UpdateSubject:
    """Updates of a model, each clipped, summed round by round.

    Args:
        name: The model's name; a policy may grant it by name.
        layout: What stands where in a node's vector.
    """

    name: str
    layout: Layout

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        return "update"

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
        """Return the letter as it travels.

        Raises:
            ParameterError: The config holds bytes, or a number that is not finite.
        """
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
        """Read a letter.

        Raises:
            ProtocolError: It is none.
        """
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
        except _WRONG as error:
            raise ProtocolError("what the round starts from is no model") from error
        if not sound:
            raise ProtocolError("what the round starts from is no model")
        weights = np.frombuffer(numbers, dtype="<f4").astype(np.float32)
        return cls(names, shapes, weights, clip_norm, largest, said["config"])

    def arrays(self) -> ArrayRecord:
        """Return the weights as Flower carries them."""
        return shaped(self.weights, self.names, self.shapes)


def flattened(arrays: ArrayRecord) -> tuple[Vector, tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Return all arrays as one vector, with their names and shapes.

    Raises:
        ParameterError: An array does not hold floating-point numbers.
    """
    found = {name: array.numpy() for name, array in arrays.items()}
    for name, array in found.items():
        if not np.issubdtype(array.dtype, np.floating):
            raise ParameterError(
                f"the array {name!r} holds {array.dtype}: only floating-point parameters are "
                "trained privately. Leave counters and other buffers out of the ArrayRecord."
            )
    if not found:
        raise ParameterError("a model has an array or more")
    vector = np.concatenate([array.ravel().astype(np.float32) for array in found.values()])
    return vector, tuple(found), tuple(array.shape for array in found.values())


def shaped(
    vector: Vector, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
) -> ArrayRecord:
    """Return a vector as named arrays."""
    cuts = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = np.split(vector, cuts)
    return ArrayRecord(
        {
            name: Array(part.reshape(shape))
            for name, part, shape in zip(names, parts, shapes, strict=True)
        }
    )
