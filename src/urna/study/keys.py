"""What a key of a study may be: read from the annotations of a section's fields.

A section is a frozen dataclass. A field's annotation says its type and, as `Key`, what the key
says; its default is its default. File, command line, draft and the guide's table read this alone.
"""

import dataclasses
import difflib
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["Key", "Path", "StudyField", "Wrong", "dotted", "fields_of", "found", "shown"]

Path = tuple[str, ...]
"""Where a value stands: ("data", "ranges")."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is said of a key beside its type and its default."""

    says: str
    on: str = ""
    """The commands that have an option for it; `--set` reaches the others."""
    option: str = ""
    """Its option, where that is not `--name`."""
    preset: Any = None
    """What commands take where nobody says it, of a key that a file must name."""
    least: float | None = None
    above: float | None = None
    below: float | None = None


class Wrong(Exception):
    """One value that cannot be."""

    def __init__(self, at: Path, message: str, *, of_key: bool = False) -> None:
        """Keep where it stands, and whether the message says what the key is."""
        super().__init__(message)
        self.at, self.of_key = at, of_key


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a type is in words, and how a plain value becomes one.

    `read` raises ValueError for what cannot be.
    """

    words: str
    read: Callable[[Any], Any]
    choices: tuple[str, ...] = ()
    many: bool = False
    text: bool = False
    """Whether a text stands for itself, and is no number or list in a text."""


@dataclass(frozen=True, slots=True)
class StudyField:
    """One key of one section."""

    section: str
    name: str
    key: Key
    kind: _Kind
    default: Any
    """MISSING where it must be named."""

    @property
    def at(self) -> Path:
        """Where it stands."""
        return (self.section, self.name) if self.section else (self.name,)

    @property
    def required(self) -> bool:
        """Whether it must be named."""
        return self.default is MISSING

    @property
    def option(self) -> str:
        """What it is called on the command line."""
        return self.key.option or "--" + self.name.replace("_", "-")

    def read(self, value: Any) -> Any:  # noqa: ANN401 - whatever a file holds
        """Return the value of a plain one.

        Raises:
            Wrong: It cannot be.
        """
        try:
            return self.kind.read(value)
        except (ValueError, OverflowError, ZeroDivisionError):
            close = difflib.get_close_matches(str(value), self.kind.choices, n=1, cutoff=0.5)
            hint = f". Did you mean {close[0]!r}?" if close else ""
            said = f"is {self.kind.words}; got {found(value)}{hint}"
            raise Wrong(self.at, said, of_key=True) from None


@cache
def fields_of(section: str, part: type) -> Mapping[str, StudyField]:
    """Return a section's keys by name."""
    made = {}
    hints = get_type_hints(part, include_extras=True)
    for entry in dataclasses.fields(part):
        hint, key = get_args(hints[entry.name])
        default = entry.default
        if entry.default_factory is not MISSING:
            default = entry.default_factory()
        made[entry.name] = StudyField(section, entry.name, key, _kind(hint, key), default)
    return made


def _kind(hint: Any, key: Key) -> _Kind:  # noqa: ANN401, PLR0911 - a type
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        some = [_kind(each, key) for each in args if each is not type(None)]
        return _either(some, optional=len(some) < len(args))
    if origin is Literal:
        return _choice(args, str)
    if origin is tuple and args[-1] is Ellipsis:
        return _several(_kind(args[0], key))
    if origin is tuple:
        return _pair(_kind(args[0], key), len(args))
    if origin is not None and issubclass(origin, Mapping):
        return _Kind("a table", lambda value: dict(_a(Mapping, value)))
    if issubclass(hint, StrEnum):
        return _choice(tuple(map(str, hint)), hint)
    return _single(hint, key)


def _single(hint: type, key: Key) -> _Kind:
    if hint is bool:
        return _Kind("true or false", lambda value: _a(bool, value))
    if hint is str:
        return _Kind("a text", lambda value: _a(str, value), text=True)
    if hint is Fraction:  # Fraction(0.2) is not 1/5; Fraction("0.2") is
        words = "a part of one, such as 0.2 or '1/5'"
        return _Kind(words, lambda value: _within(key, Fraction(str(_a(float | str, value)))))
    noun = "a whole number" if hint is int else "a number"
    lowest = 0 if hint is int and key.least is None else key.least
    bounds = [f"{key.least:g} or more"] if key.least is not None else []
    bounds += [f"above {key.above:g}"] if key.above is not None else []
    bounds += [f"below {key.below:g}"] if key.below is not None else []
    words = f"{noun}{', ' if bounds else ''}{' and '.join(bounds)}"
    limits = dataclasses.replace(key, least=lowest)
    return _Kind(words, lambda value: _within(limits, hint(_a(hint, value))))


def _a(kind: Any, value: Any) -> Any:  # noqa: ANN401 - a type, and whatever a file holds
    """Return a value of a kind; whole numbers are numbers, and true is none."""
    wide = int | kind if kind in (float, float | str) else kind
    if not isinstance(value, wide) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(value)
    return value


def _within(key: Key, value: Any) -> Any:  # noqa: ANN401 - a number
    if (
        not math.isfinite(value)
        or (key.least is not None and value < key.least)
        or (key.above is not None and value <= key.above)
        or (key.below is not None and value >= key.below)
    ):
        raise ValueError(value)
    return value


def _choice(choices: tuple[str, ...], make: Callable[[str], Any]) -> _Kind:
    listed = ", ".join(map(repr, choices))

    def read(value: Any) -> Any:  # noqa: ANN401
        if value not in choices:
            raise ValueError(value)
        return make(value)

    return _Kind(f"one of {listed}" if len(choices) > 1 else listed, read, choices, text=True)


def _either(kinds: Sequence[_Kind], *, optional: bool) -> _Kind:
    def read(value: Any) -> Any:  # noqa: ANN401
        if optional and value in ("", []):
            return None
        for kind in kinds:
            try:
                return kind.read(value)
            except ValueError:
                continue
        raise ValueError(value)

    words = ", or ".join(dict.fromkeys(kind.words for kind in kinds))
    choices = tuple(choice for kind in kinds for choice in kind.choices)
    return _Kind(words, read, choices, kinds[0].many, all(kind.text for kind in kinds))


def _several(item: _Kind) -> _Kind:
    def read(value: Any) -> Any:  # noqa: ANN401
        made = tuple(item.read(each) for each in _a(list, value))
        if len(set(made)) < len(made):
            raise ValueError(value)
        return made

    return _Kind(f"a list of different {_plural(item)}", read, many=True)


def _pair(item: _Kind, size: int) -> _Kind:
    def read(value: Any) -> Any:  # noqa: ANN401
        made = tuple(item.read(each) for each in _a(list, value))
        if len(made) != size:
            raise ValueError(value)
        return made

    return _Kind(f"a list of {size} {_plural(item)}", read, many=True)


def _plural(item: _Kind) -> str:
    noun, comma, bounds = item.words.removeprefix("a ").partition(",")
    return f"{noun}s{comma}{bounds}"


def found(value: Any) -> str:  # noqa: ANN401 - whatever a file holds
    """Return a value in a few words."""
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    named = {int: "the number ", float: "the number ", list: "the list "}
    kind = "the table " if isinstance(value, Mapping) else named.get(type(value), "")
    return f"{kind}{shown(value)[:60]}"


def dotted(at: Path) -> str:
    """Return a path as errors write it."""
    return ".".join(at)


def shown(value: Any) -> str:  # noqa: ANN401 - plain values of TOML, and those read from them
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Fraction):
        return repr(int(value) if value.denominator == 1 else float(value))
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{quoted}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(item) for item in value)}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{quoted_key(key)} = {shown(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return '""' if value is None else repr(value)


def quoted_key(name: str) -> str:
    """Return a key as TOML writes it: bare where that may be."""
    bare = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if bare else shown(name)
