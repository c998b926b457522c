"""What every system returns: a promise, who took part, ids in the ledger, and one file format."""

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from urna.display import card
from urna.errors import ParameterError
from urna.privacy import PrivacyStatement

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a damaged file raises."""


class Participation(NamedTuple):
    """Who is in a result, and who is not."""

    took_part: int
    dropped_out: Mapping[int, str]
    """Whose contribution is not in it, and why."""
    misbehaving: Mapping[int, str]
    """Who broke the protocol, and how."""


class Result:
    """What a run of any system came to; a dataclass that is kept as JSON, field by field."""

    __slots__ = ()
    kind: ClassVar[str]
    """What a file that holds such a result says it is."""
    version: ClassVar[int]
    later: ClassVar[tuple[str, ...]] = ()
    """Fields that files of before do not have."""
    privacy: PrivacyStatement
    """What it promises."""

    @property
    def participation(self: Any) -> Participation:
        """Who took part."""
        return Participation(self.took_part, self.lost, getattr(self, "faults", {}))

    @property
    def entries(self: Any) -> tuple[str, ...]:
        """Its ids in the ledger, where there is one."""
        return () if self.entry is None else (self.entry,)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON, from which the class's `read` makes the result again."""
        return {"kind": self.kind, "version": self.version, **written(self)}

    def as_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.as_mapping(), indent=2, allow_nan=False)

    def _repr_html_(self) -> str:
        first, *rest = str(self).splitlines()
        return card(first, rest, private=self.privacy.private)

    @classmethod
    def _check_kind(cls, mapping: Mapping[str, Any], *older: tuple[str, int]) -> None:
        """Refuse a mapping that is of another kind, or of a version nobody knows yet."""
        found = (mapping.get("kind"), mapping.get("version"))
        if found not in ((cls.kind, cls.version), *older):
            raise ParameterError(
                f"this is no {cls.kind} of version {cls.version}: kind {found[0]!r}, version "
                f"{found[1]!r}"
            )

    @classmethod
    def _read(cls, mapping: Mapping[str, Any], **readers: Callable[[Any], Any]) -> Self:
        """Read fields, each by its type or by its own reader."""
        hints = typing.get_type_hints(cls)
        try:
            said = {
                each.name: readers.get(each.name, partial(_typed, hints[each.name]))(
                    mapping[each.name]
                )
                for each in dataclasses.fields(typing.cast(Any, cls))
                if each.name in mapping or each.name not in cls.later
            }
            return cls(**said)
        except UNREADABLE as error:
            raise ParameterError(f"the {cls.kind} cannot be read: {error!r}") from error


def written(value: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    """Return a dataclass's fields as plain values."""
    return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a result holds
    """Return a value as JSON has it; what is not a finite number becomes null."""
    if hasattr(value, "as_mapping"):
        return value.as_mapping()
    if dataclasses.is_dataclass(value):
        return written(value)
    match value:
        case enum.StrEnum():
            value = str(value)
        case np.ndarray():
            value = value.tolist()
        case tuple() | list():
            value = [_plain(each) for each in value]
        case Mapping():
            value = {str(name): _plain(each) for name, each in value.items()}
        case float() if not math.isfinite(value):
            value = None
    return value


def _typed(hint: Any, value: Any) -> Any:  # noqa: ANN401 - a type, and what JSON has
    """Return a plain value as its type says."""
    inside = [each for each in typing.get_args(hint) if each is not types.NoneType]
    match typing.get_origin(hint):
        case types.UnionType:
            return None if value is None else _typed(inside[0], value)
        case kind if kind is tuple:
            return tuple(_typed(inside[0], each) for each in value)
        case None:
            return value if hint is Any else getattr(hint, "read", hint)(value)
    return {_typed(inside[0], k): _typed(inside[1], each) for k, each in value.items()}
