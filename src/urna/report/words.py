"""How values are written on a page: short, exact, and never rounded to a better promise."""

import datetime
import math
import re
from collections.abc import Mapping
from typing import Any

_SPACE = "\xa0"  # a figure and its sign stay on one line


def said(value: object) -> str:
    """Return a hyperparameter's value as people write it.

    Example:
        >>> said(0.001), said(None), said((64, 64)), said(True), said("adam")
        ('0.001', 'None', '(64, 64)', 'True', 'adam')
    """
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(tuple(value)) if isinstance(value, list) else str(value)


def slug(name: str) -> str:
    """Return a name that may stand in an attribute.

    Example:
        >>> slug("Second round!")
        'second-round'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def settings(candidate: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a candidate's names and values, as text."""
    return [(name, said(value)) for name, value in candidate.items()]


def at_most(part: float) -> str:
    r"""Return a probability in per cent, rounded up.

    Example:
        >>> at_most(0.5001), at_most(0.99999), at_most(1.0)
        ('50.1\xa0%', 'over 99.9\xa0%', '100\xa0%')
    """
    if 0.999 < part < 1:
        return f"over 99.9{_SPACE}%"
    # A multiple of a thousandth stays itself, whatever its last binary digit is.
    return f"{math.ceil(1000 * part - 1e-9) / 10:g}{_SPACE}%"


def at_least(part: float) -> str:
    r"""Return a probability in per cent, rounded down.

    Example:
        >>> at_least(0.9999), at_least(0.0004)
        ('99.9\xa0%', 'under 0.1\xa0%')
    """
    if 0 < part < 0.001:
        return f"under 0.1{_SPACE}%"
    return f"{math.floor(1000 * part + 1e-9) / 10:g}{_SPACE}%"


def count(number: int, noun: str) -> str:
    """Return a number and its noun.

    Example:
        >>> count(1, "client"), count(1200, "client")
        ('1 client', '1,200 clients')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def day(when: float) -> str:
    """Return the day of a moment in universal time.

    Example:
        >>> day(0)
        '1970-01-01'
    """
    return f"{datetime.datetime.fromtimestamp(when, datetime.UTC):%Y-%m-%d}"


def size(data: float) -> str:
    """Return a number of bytes.

    Example:
        >>> size(900), size(23_500), size(4.2e6)
        ('900 B', '23.5 kB', '4.2 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if data >= scale:
            return f"{data / scale:.3g} {unit}"
    return f"{data:.0f} B"
