"""Blind averaging: every client trains a model alone, and the mean of all is the result."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from urna.data import Samples
from urna.errors import ParameterError
from urna.privacy import Unit
from urna.systems.average.certified import (
    Array,
    Loss,
    LossKind,
    PaddedRows,
    batches,
    client_model_move,
    minimise,
)
from urna.systems.average.schema import (
    Schema,
    Solved,
    Vector,
    check_spec,
    plain_learner,
    read_fields,
)
from urna.tally import Encoding

PRECISION = 1e-3
"""The certificate's part of the sensitivity: gradient norms are at most this times L/N."""

_STEEPEST = 1e6
"""Largest c²/Λ, and Λ/c²."""

_SHARPEST = 1e-3
"""Smallest h: a hinge with a corner has no curvature that a solver could rely on."""

_MOST_CURVED = 5e6
"""Largest curvature·c²/Λ, whose root is how many steps a solver takes for a digit."""


class Sizes(StrEnum):
    """How clients of different size are treated."""

    SMALLEST = "smallest"
    """All alike, under noise for the smallest, as in the paper."""
    WEIGHTED = "weighted"
    """Each by its number of records, under noise for what a record then moves."""


@dataclass(frozen=True, slots=True)
class Blind:
    """Models that are trained apart and averaged (Secure Distributed DP-Helmet).

    Guarantee:
        `group` records move a client's vector by at most `sensitivity`; a whole client by at most
        2·`longest`. Rows have norm c at most and losses are Lipschitz (`Loss.lipschitz`).
        Projection onto the ball and dividing by a constant only shrink moves. With
        `Sizes.WEIGHTED` a model of n records moves by Υ·2L/(nΛ) and is multiplied by n/N:
        Υ·2L/(NΛ) again, whatever n is.

    Args:
        schema: What the tables hold; classes.
        unit: What is protected.
        points: N. By size of the smallest: fewest records of a client; one with fewer
            abstains. By weights: the number of records whose client weighs 1.
        regularisation: Λ, for rows of norm `schema.rows.clip`.
        loss: What is minimised.
        radius: R; models are projected onto this ball. None leaves them alone: they are never
            longer than L/Λ. Of whole clients it is what the noise is made for.
        group: Υ, records of one client that are protected together.
        sizes: How clients of different size are treated.
        heaviest: Largest weight of a client; heavier ones are cut to it.
        smoothing: h of the Huber hinge, at least 0.001.
    """

    kind: ClassVar[str] = "blind"
    schema: Schema
    unit: Unit
    points: int
    regularisation: float
    loss: LossKind = LossKind.SOFTMAX
    radius: float | None = None
    group: int = 1
    sizes: Sizes = Sizes.SMALLEST
    heaviest: float = 1.0
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        check_spec(self.unit, self.group, self.points)
        if self.schema.classes is None:
            raise ParameterError("blind averaging is for classes; use moments for a regression")
        numbers = [self.regularisation, self.smoothing, self.heaviest]
        if self.radius is not None:
            numbers.append(self.radius)
        if not all(math.isfinite(number) and number > 0 for number in numbers):
            raise ParameterError(
                "regularisation, radius, smoothing and weights are finite and positive, "
                f"got {numbers}"
            )
        relative = self.regularisation / self.schema.rows.clip**2
        if not 1 / _STEEPEST <= relative <= _STEEPEST:
            # How long a solver takes grows with c²/Λ; data must never decide whether it arrives.
            raise ParameterError(
                f"regularisation lies between 1e-06 and 1e+06 times the square of the rows' norm, "
                f"got {relative:g} times"
            )
        if self.smoothing < _SHARPEST:
            raise ParameterError(f"smoothing is at least {_SHARPEST:g}, got {self.smoothing:g}")
        if self._loss.curvature / relative > _MOST_CURVED:
            raise ParameterError(
                f"the loss's curvature times the square of the rows' norm is at most "
                f"{_MOST_CURVED:.0e} times the regularisation, got "
                f"{self._loss.curvature / relative:.3g} times: raise regularisation or smoothing"
            )
        if self.unit is Unit.CLIENT and (self.radius is None or self.sizes is Sizes.WEIGHTED):
            raise ParameterError(
                "where whole clients are protected all weigh the same, and the noise is made for "
                "models of norm at most `radius`: name it"
            )

    @property
    def dimension(self) -> int:
        """Numbers that a client sends: its model, and its weight where that counts."""
        return self.schema.width * self.schema.outputs + (self.sizes is Sizes.WEIGHTED)

    @property
    def _loss(self) -> Loss:
        return Loss(self.loss, self.smoothing)

    @property
    def _lipschitz(self) -> float:
        return self._loss.lipschitz(self.schema.rows.clip, self.schema.outputs)

    @property
    def unbounded(self) -> float:
        """Largest norm of a client's model where no radius is named: L/Λ of every minimiser."""
        # At the minimiser Λf is minus a mean of gradients, at most Υ of each record, L long each.
        return self.group * self._lipschitz / self.regularisation * (1 + PRECISION)

    @property
    def longest(self) -> float:
        """Largest norm of a client's model: of the ball, or of every minimiser."""
        if self.radius is None:
            return self.unbounded
        outputs = self.schema.outputs
        whole = client_model_move(self._loss, radius=self.radius, outputs=outputs) / 2
        return min(whole, self.unbounded)

    @property
    def tolerance(self) -> float:
        """Largest gradient norm of a model that is let through."""
        return PRECISION * self._lipschitz / (self.points * self._most)

    @property
    def sensitivity(self) -> float:
        """How far `group` records move a client's model, in L2.

        Guarantee:
            Let J = Λ/2·‖f‖² + mean loss over N records, each loss convex with gradients of norm
            at most L. Exact minimisers of two neighbours are at most Υ·2L/(NΛ) apart; a model at
            which the gradient of J has norm g is at most g/Λ from the minimiser. Together
            Υ·2L/(NΛ) + 2g/Λ; a client of weight a lets a·g through.

            Proof. Λ-strong convexity gives Λ·‖f − f'‖ ≤ ‖∇J(f) − ∇J(f')‖. At the minimiser f* of
            J and f' of the neighbour's J', ∇J(f') = ∇J(f') − ∇J'(f') is the difference of 2Υ
            gradients of single losses over N (the regulariser's cancels), so at most 2ΥL/N long;
            and ∇J(f*) = 0. The same inequality with f' the model returned gives g/Λ.
        """
        apart = 2 * self.group * self._lipschitz / (self.points * self.regularisation)
        proven = apart + 2 * self.tolerance * self._most / self.regularisation
        return min(proven, 2 * self.longest * self._most)

    @property
    def _most(self) -> float:
        return self.heaviest if self.sizes is Sizes.WEIGHTED else 1.0

    def describe(self) -> str:
        """Say in a few words what it is."""
        reg = f"{self.regularisation:.3g}"
        return f"blind averaging of {self.loss} models, Λ = {reg}, certified solver"

    def encoding(self, excess: float) -> Encoding:
        """Return how a client's vector becomes integers."""
        client = 2 * self.longest * self._most
        norm = self.longest * self._most * (math.sqrt(2) if self.sizes is Sizes.WEIGHTED else 1)
        if self.unit is Unit.CLIENT:
            return Encoding.fine(self.dimension, norm, excess=excess, client_sensitivity=client)
        if self.sizes is Sizes.WEIGHTED:
            client = 2 * norm  # another client may also weigh nothing
        return Encoding.fine(
            self.dimension,
            norm,
            excess=excess,
            record_sensitivity=self.sensitivity,
            client_sensitivity=client,
        )

    def vectors(self, clients: Sequence[Samples]) -> Iterator[tuple[int, Vector]]:
        """Train all clients and yield their models, each the one it would get alone."""
        rows = self.schema.rows
        prepared = [self.schema.prepare(samples, group=self.group) for samples in clients]
        for stack in batches(prepared, clip=rows.clip, outputs=self.schema.outputs):
            for place, model in zip(stack.places, self._models(stack), strict=True):
                yield place, self._weighed(model, prepared[place].records)

    def _models(self, stack: PaddedRows) -> Vector:
        trained = minimise(stack, self._loss, self.regularisation, tolerance=self.tolerance)
        if self.radius is None:
            return trained.weights
        return projected(trained.weights, self.radius, self.loss)

    def _weighed(self, model: Vector, records: int) -> Vector:
        flat = model.reshape(-1)
        if self.sizes is Sizes.WEIGHTED:
            weight = min(records / self.points, self.heaviest)
            return np.append(weight * flat, weight * self.longest)
        if self.unit is Unit.RECORD and records < self.points:
            return np.zeros_like(flat)  # how many records there are, neighbours have in common
        return flat

    def solved(self, total: Vector, *, clients: int, std: float) -> Solved:
        """Return the mean of the models, by number or by weight."""
        schema, weight = self.schema, float(clients)
        if self.sizes is Sizes.WEIGHTED:
            weight = max(float(total[-1]) / self.longest, 1.0)
        weights = (total[: schema.width * schema.outputs] / weight).reshape(schema.outputs, -1).T
        facts = {
            "weight": weight,
            "weight_std": std / weight,
            "norm": float(np.linalg.norm(weights)),
        }
        return Solved(np.ascontiguousarray(weights) * schema.rows.clip, facts)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return plain_learner(self)

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Blind":
        """Read what `as_mapping` wrote; models that version 0.2 trained otherwise are refused."""
        if mapping.get("trainer", "certified") != "certified":
            raise ParameterError("clients train by the certified solver, and by nothing else")
        return cls(**read_fields(cls, mapping, unit=Unit, loss=LossKind, sizes=Sizes))


def projected(weights: Array, radius: float, kind: LossKind) -> Array:
    """Return models scaled down into the ball of radius R; the nearest point of it to each.

    For softmax the ball is of the whole model, else of each class's.
    """
    squares = np.einsum("uij,uij->ui", weights, weights)[:, :, None]
    if kind is LossKind.SOFTMAX:
        squares = np.sum(squares, axis=1, keepdims=True)
    norms = np.sqrt(squares)
    outside = norms > radius
    return np.asarray(weights * np.where(outside, radius / np.where(outside, norms, 1.0), 1.0))
