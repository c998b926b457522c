"""What the clients' tables hold, and how a record becomes a row of bounded norm: public rules.

Rows stand on a grid of 2^-16. Products of two entries are then whole multiples of 2^-32, and
sums of them are exact in float64 for up to two million records: what one record adds to a
client's sums is a fixed vector, whatever stands beside it and in whatever order it is added.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples, count_records
from urna.data.coding import as_numbers
from urna.errors import ParameterError
from urna.privacy import Unit
from urna.randomness import derive_seed, expand

GRID = 1 << 16
"""Steps of an entry per unit."""

MOST_RECORDS = 1 << 20
"""Records of one client up to which sums of products are exact, with room to spare."""

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

Class = int | str
"""The name of a class: a whole number or a text."""

_HAIR = 1 - 1e-12  # so that rounding of floats cannot pass the norm
_SEED = bytes(32)
_LONGEST_ROW = 1e9  # squares of longer rows could overflow, and failing is something data decide


@dataclass(frozen=True, slots=True)
class RowRule:
    """What is done to the features of every record, of clients and of those who predict.

    Guarantee:
        A row's norm is at most 1, in exact arithmetic, and depends on its own record alone. A
        record with a feature that is not finite becomes a row of zeros, which adds nothing.

    Args:
        clip: c, the norm that rows are scaled to. Rows are returned in units of c.
        unit: Whether every row is scaled to norm c (all rows then weigh the same). Otherwise
            only longer ones are clipped, as in the paper.
        intercept: A constant put in front. With `unit` it is a part of the norm, below 1;
            otherwise it stands beside the features before they are clipped (1 in the paper).
        nonnegative: Whether negative features are set to zero. Rows of features that never
            are negative cannot point away from each other, which makes noise a little smaller.
        projected: Project features onto so many random directions first, all public.
        seed: Public seed of the directions.

    Example:
        >>> RowRule().rows(np.array([[3.0, 4.0], [np.nan, 1.0]])).round(3)
        array([[0.6, 0.8],
               [0. , 0. ]])
    """

    clip: float = 1.0
    unit: bool = True
    intercept: float = 0.0
    nonnegative: bool = False
    projected: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 / _LONGEST_ROW <= self.clip <= _LONGEST_ROW:
            raise ParameterError(
                f"rows are clipped to a norm between 1e-09 and 1e+09, got {self.clip}"
            )
        most = 1.0 if self.unit else math.inf
        if not 0 <= self.intercept < most:
            raise ParameterError(
                f"the intercept is at least 0{' and below 1' if self.unit else ''}, got "
                f"{self.intercept}"
            )
        if self.projected is not None and (type(self.projected) is not int or self.projected < 1):
            raise ParameterError(f"features are projected onto 1 direction or more, got {self}")
        if type(self.seed) is not int or self.seed < 0:
            raise ParameterError(f"the seed is a whole number of at least 0, got {self.seed}")

    def width(self, features: int) -> int:
        """Return how many entries a row has, made from so many features."""
        return (self.projected or features) + (1 if self.intercept else 0)

    @property
    def lowest(self) -> float:
        """Smallest inner product of two rows that are not zero, rounded down."""
        if not self.unit:
            return 0.0 if self.nonnegative else -1.0
        constant = self.intercept**2
        return max(-1.0, constant - (0.0 if self.nonnegative else 1 - constant) - 4 / GRID)

    def rows(self, features: npt.NDArray[Any]) -> Matrix:
        """Return the rows of records, in units of `clip` and on the grid."""
        given = np.asarray(features, dtype=np.float64)
        if given.ndim != 2:
            raise ParameterError(f"features are a matrix, one row each, got shape {given.shape}")
        finite = np.asarray(np.isfinite(given).all(axis=1))
        made = np.where(finite[:, None], given, 0.0)
        if self.projected is not None:
            # Shrunk first, so that no product overflows; a row's own largest entry alone decides.
            made /= np.maximum(np.abs(made).max(axis=1, keepdims=True, initial=0.0) / 1e100, 1.0)
            made = made @ _directions(made.shape[1], self.projected, self.seed)
        if self.nonnegative:
            np.maximum(made, 0.0, out=made)
        made = self._bounded(made)
        made[~finite] = 0.0
        return np.trunc(made * GRID) / GRID

    def _bounded(self, made: Matrix) -> Matrix:
        if self.intercept and not self.unit:
            made = np.column_stack([np.full(len(made), self.intercept), made])
        largest = np.abs(made).max(axis=1, keepdims=True, initial=0.0)
        shrunk = np.divide(made, largest, out=np.zeros_like(made), where=largest > 0)
        norm = np.sqrt(np.square(shrunk).sum(axis=1, keepdims=True))  # of shrunk rows: no overflow
        room = math.sqrt(1 - self.intercept**2) if self.unit else 1.0
        direction = np.divide(shrunk, norm, out=np.zeros_like(made), where=norm > 0)
        if self.unit:
            made = direction * (room * _HAIR)
            if self.intercept:
                made = np.column_stack([np.full(len(made), self.intercept * _HAIR), made])
            return made
        with np.errstate(over="ignore"):
            length = np.minimum(norm * largest / self.clip, 1.0)
        return np.asarray(direction * (length * _HAIR))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return asdict(self)

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "RowRule":
        """Read what `as_mapping` wrote."""
        return cls(**mapping)


@functools.lru_cache(maxsize=4)
def _directions(features: int, projected: int, seed: int) -> Matrix:
    """Return random signs over √projected: a projection that keeps norms on average."""
    count = features * projected
    label = b"directions %d %d %d" % (seed, features, projected)
    packed = np.frombuffer(expand(derive_seed(_SEED, label), (count + 7) // 8), dtype=np.uint8)
    signs = 1.0 - 2.0 * np.unpackbits(packed)[:count]
    made = signs.reshape(features, projected) / math.sqrt(projected)
    made.setflags(write=False)
    return np.asarray(made)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PreparedRows:
    """One client's records as rows and targets. Nothing of it leaves the client."""

    rows: Matrix
    """Norm at most 1; zeros where a record adds nothing."""
    targets: npt.NDArray[np.int64] | Matrix
    """Places of classes, or values in -1..1; 0 where a record adds nothing."""
    records: int
    """How many records there are, those that add nothing included: neighbours have as many."""

    def __repr__(self) -> str:
        return f"Prepared({self.records:,} records)"


@dataclass(frozen=True, slots=True)
class Schema:
    """What everybody knows of everybody's data before anything is computed.

    Args:
        features: How many numbers describe a record.
        classes: The classes, for classification. A record of another class adds nothing.
        span: Smallest and largest target, for regression. Targets outside are clipped.
        rows: How features become rows.
    """

    features: int
    classes: tuple[Class, ...] | None = None
    span: tuple[float, float] | None = None
    rows: RowRule = field(default_factory=RowRule)

    def __post_init__(self) -> None:
        if type(self.features) is not int or self.features < 1:
            raise ParameterError(f"records have at least one feature, got {self.features}")
        if (self.classes is None) == (self.span is None):
            raise ParameterError(
                "name the classes of a classification, or the span (smallest, largest) of the "
                "targets of a regression; one of them"
            )
        if self.classes is not None:
            self._check_classes(self.classes)
        if self.span is not None:
            low, high = self.span
            if not (low < high and math.isfinite(float(high) - float(low))):
                raise ParameterError(
                    f"a span is finite, from end to end as well, smallest first, got {self.span}"
                )

    @staticmethod
    def _check_classes(classes: tuple[Class, ...]) -> None:
        kinds = {type(name) for name in classes}
        if kinds not in ({int}, {str}) or len(set(classes)) < len(classes) or len(classes) < 2:
            raise ParameterError(
                "classes are two or more different whole numbers, or as many texts; got "
                f"{str(classes)[:80]}"
            )

    @property
    def width(self) -> int:
        """Entries of a row."""
        return self.rows.width(self.features)

    @property
    def outputs(self) -> int:
        """Scores that a model gives a row: one for each class, or one value."""
        return len(self.classes) if self.classes is not None else 1

    @property
    def target_square(self) -> float:
        """Largest squared norm of a target: of a centred one-hot vector, or of a value."""
        return 1.0 if self.classes is None else 1 - 1 / len(self.classes)

    def check(self, clients: Sequence[Samples]) -> None:
        """Refuse tables of another form than announced, before anything is computed or spent.

        Only numbers of columns and records are looked at. What records hold plays no part.
        """
        for place, samples in enumerate(clients):
            shape = np.shape(samples.features)
            if len(shape) != 2 or shape[1] != self.features:
                raise ParameterError(
                    f"client {place}: records have {self.features} features, these have shape "
                    f"{tuple(shape[1:])}"
                )
            if np.shape(samples.targets) != shape[:1]:
                raise ParameterError(
                    f"client {place}: {shape[0]:,} records have as many targets, one each; these "
                    f"have shape {np.shape(samples.targets)}"
                )
            # Where there are ids, one record may have any number of rows.
            if count_records(samples) > MOST_RECORDS:
                raise ParameterError(
                    f"client {place}: a client has at most {MOST_RECORDS:,} records"
                )

    def prepare(self, samples: Samples, *, group: int = 1) -> PreparedRows:
        """Return a client's records as rows and targets.

        Guarantee:
            Each row is a function of its own record. A record that cannot be used (a feature
            or target that is not finite, a class nobody announced) is a row of zeros. Where
            there are ids, each record has `group` rows, zeros if need be, in the order of ids:
            the content of one record decides neither how many rows there are nor where those
            of the others stand.

        Args:
            samples: The client's data. Where it has ids, rows of one id are one record.
            group: Most rows of one record that count; the first ones do.
        """
        self.check([samples])
        features, records = _plain(samples.features), count_records(samples)
        counted = records if samples.ids is None else records * group
        if counted > MOST_RECORDS:
            raise ParameterError(
                f"at most {MOST_RECORDS:,} rows of a client can count, got {records:,} records of "
                f"{group} rows"
            )
        if samples.ids is None:
            return PreparedRows(*self._usable(features, np.asarray(samples.targets)), records)
        # Rows that do not count are not even looked at: there may be any number of them.
        taken, places = _first_of_each(np.asarray(samples.ids).tolist(), group)
        some, known = self._usable(features[taken], np.asarray(samples.targets)[taken])
        rows = np.zeros((counted, some.shape[1]))
        targets = np.zeros(counted, dtype=known.dtype)
        rows[places], targets[places] = some, known
        return PreparedRows(rows, targets, records)

    def _usable(
        self, features: npt.NDArray[Any], given: npt.NDArray[Any]
    ) -> tuple[Matrix, npt.NDArray[Any]]:
        """Return rows and targets, zeros where a record cannot be used."""
        rows = self.rows.rows(features)
        targets, known = self._targets(given)
        rows[~known] = 0.0
        return rows, np.where(known, targets, 0)

    def _targets(self, given: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return targets as places or values, and which of them are valid."""
        if self.classes is not None:
            places = {name: place for place, name in enumerate(self.classes)}
            found = [places.get(_name(name), -1) for name in given.tolist()]
            at = np.array(found, dtype=np.int64)
            return at, np.asarray(at >= 0)
        low, high = self.span or (0.0, 1.0)
        values = as_numbers(given)
        known = np.isfinite(values)
        scaled = (np.where(known, values, low) - low) / (high - low) * 2 - 1
        # On the rows' grid, so that sums are exact.
        return np.asarray(np.trunc(np.clip(scaled, -1.0, 1.0) * GRID) / GRID), known

    def decoded(self, scores: Matrix) -> npt.NDArray[Any]:
        """Return classes of the largest scores, or values within the span's scale."""
        if self.classes is not None:
            return np.asarray(np.asarray(self.classes)[scores.argmax(axis=1)])
        low, high = self.span or (0.0, 1.0)
        return np.asarray((scores[:, 0] + 1) / 2 * (high - low) + low)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {
            "features": self.features,
            "classes": None if self.classes is None else list(self.classes),
            "span": None if self.span is None else list(self.span),
            "rows": self.rows.as_mapping(),
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Schema":
        """Read what `as_mapping` wrote."""
        classes, span = mapping["classes"], mapping["span"]
        return cls(
            mapping["features"],
            None if classes is None else tuple(classes),
            None if span is None else (float(span[0]), float(span[1])),
            RowRule.read(mapping["rows"]),
        )


@dataclass(frozen=True, slots=True)
class Solved:
    """A model read out of a noisy sum."""

    weights: Matrix
    """(width, outputs), for rows in units of the clip norm."""
    facts: Mapping[str, Any]
    """What else was read, in plain values."""


def check_spec(unit: Unit, group: int, points: int) -> None:
    """Refuse a unit, a group and a number of records of a client that cannot be."""
    if type(group) is not int or group < 1:
        raise ParameterError(f"records protected together are 1 or more, got {group}")
    if type(points) is not int or points < 1:
        raise ParameterError(
            f"a number of records is a whole number of at least 1, got {points}. Clients without "
            "records can be left out, or asked for at least one by `points=1`, and abstain"
        )
    if points > MOST_RECORDS:
        raise ParameterError(f"a client has at most {MOST_RECORDS:,} records, got {points:,}")
    if unit is Unit.CLIENT and group > 1:
        raise ParameterError(
            "where whole clients are protected all their records are: leave `group` out"
        )


def plain_learner(learner: Any) -> dict[str, Any]:  # noqa: ANN401 - of any kind
    """Return a learner as plain values."""
    said = {each.name: getattr(learner, each.name) for each in fields(learner)}
    plain = {name: str(v) if isinstance(v, StrEnum) else v for name, v in said.items()}
    return {"kind": learner.kind, **plain, "schema": learner.schema.as_mapping()}


def read_fields(
    learner: Any,  # noqa: ANN401 - the class of any kind
    mapping: Mapping[str, Any],
    **kinds: Callable[[Any], Any],
) -> dict[str, Any]:
    """Return a learner's fields from what `plain_learner` wrote; `kinds` read what is no number."""
    readers = {"schema": Schema.read, **kinds}
    said = {each.name: mapping[each.name] for each in fields(learner)}
    return {name: readers[name](v) if name in readers else v for name, v in said.items()}


def _plain(features: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - arrays and frames
    """Return a matrix of floats; what is no number is not finite."""
    found = np.asarray(features)
    if found.dtype.kind in "fiub":
        return found
    return np.array([as_numbers(row) for row in found]).reshape(found.shape)


def _name(value: Any) -> Any:  # noqa: ANN401 - whatever a label is
    """Return a label as classes are named: 3.0 is 3."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) else None


def _first_of_each(ids: list[Any], group: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the first so many rows of each record, and where each stands in the fixed shape.

    By id, not by where rows stand: a record's content decides where its own rows do.
    """
    found: dict[Any, list[int]] = {}
    for row, name in enumerate(ids):
        of_record = found.setdefault(name, [])
        if len(of_record) < group:
            of_record.append(row)
    names = sorted(found, key=lambda name: (type(name).__name__, name))
    taken = [row for name in names for row in found[name]]
    places = [
        number * group + place
        for number, name in enumerate(names)
        for place in range(len(found[name]))
    ]
    return np.array(taken, dtype=np.intp), np.array(places, dtype=np.intp)
