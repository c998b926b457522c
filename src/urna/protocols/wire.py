"""Messages as bytes, for every protocol: a strict reader, and fields that write and read."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from urna.errors import ProtocolError


class Reader:
    """Reads bytes from front to back; every length is checked before it is used."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data, self._at = data, start

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        start = self._pass(count)
        return self._data[start : self._at]

    def view(self, count: int) -> memoryview:
        """Return the next bytes where they lie: a copy may be most of the work."""
        start = self._pass(count)
        return memoryview(self._data)[start : self._at]

    def number(self, size: int) -> int:
        """Return the next bytes as a number."""
        return int.from_bytes(self.take(size), "big")

    def count(self, most: int, what: str) -> int:
        """Return the next four bytes as a number of things, of which there may be so many."""
        count = self.number(4)
        if count > most:
            raise ProtocolError(f"at most {most} {what} are expected, got {count}")
        return count

    def end(self) -> None:
        """Refuse what is left."""
        if self._at != len(self._data):
            raise ProtocolError("the message is too long: it has trailing bytes")

    def _pass(self, count: int) -> int:
        """Move on; return where the next bytes begin."""
        start = self._at
        if count > len(self._data) - start:
            raise ProtocolError("the message is too short: it ends too early")
        self._at += count
        return start


class Form(NamedTuple):
    """How a field is written, given what is public, and how a protocol's reader reads it."""

    write: Callable[[Any, Any], bytes]
    read: Callable[[Any], Any]


class MessageForm(NamedTuple):
    """How a message is written: its number, its type, and its fields in the type's order."""

    number: int
    kind: type
    fields: tuple[tuple[str, Form], ...]

    @classmethod
    def of(cls, number: int, kind: type, *fields: Form) -> "MessageForm":
        """Return the form of a dataclass, given the form of each of its fields."""
        names = [field.name for field in dataclasses.fields(kind)]
        return cls(number, kind, tuple(zip(names, fields, strict=True)))

    def write(self, message: Any, public: Any) -> bytes:  # noqa: ANN401 - of this form's type
        """Return a message's fields as bytes, given what is public."""
        return b"".join(
            [field.write(getattr(message, name), public) for name, field in self.fields]
        )

    def read(self, reader: Any) -> Any:  # noqa: ANN401 - this form's type
        """Read the fields of a message."""
        return self.kind(*[field.read(reader) for _, field in self.fields])


def fixed(size: int) -> Form:
    """Return a field of so many bytes."""
    return Form(lambda value, _: value, lambda reader: reader.take(size))


def number(size: int) -> Form:
    """Return a field that holds a number, big-endian."""
    return Form(lambda value, _: value.to_bytes(size, "big"), lambda reader: reader.number(size))


DIGEST = fixed(32)
"""A digest, a key or a seed."""
