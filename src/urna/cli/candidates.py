"""`--space`: the candidates of a search, as the command line names them."""

import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.options import Said
from urna.errors import ParameterError, UnknownName
from urna.space import AxisKind, Space, Value

__all__ = ["SpaceOption", "named_candidates", "say_candidates"]

SpaceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|AXIS",
        help="Candidates, as .toml or .json, or one axis of them, C=0.01,0.1,1:log; repeat for "
        f"several axes. Kinds: {', '.join(AxisKind)}. A window after the kind says where good "
        "numbers are expected, lr=0.01,0.1,1:log:1e-4..1; either end may be left out, and :log:.. "
        "says that nothing is known. Values that hold a colon need their kind, "
        "f=a:b,c:d:categorical. The model's own by default.",
    ),
]


def named_candidates(texts: Sequence[str]) -> Space:
    """Return what is voted on, as named.

    Args:
        texts: One file that holds candidates, or a text for each axis,
            NAME=VALUE,VALUE,...[:KIND[:LOW..HIGH]].

    Raises:
        ParameterError: They are named twice, or cannot be.
    """
    if len(texts) == 1 and ("=" not in texts[0] or Path(texts[0]).exists()):
        return Space.read(Path(texts[0]))
    return Space.from_mapping({"axes": [_axis(text) for text in texts]})


def say_candidates(said: Said, texts: Sequence[str] | None) -> None:
    """Note the candidates that options name."""
    if texts:
        said.places["space",] = "--space"
        for name, value in tomllib.loads(named_candidates(texts).as_toml()).items():
            said.say(("space", name), value, "--space")


def _axis(text: str) -> dict[str, Any]:
    """Read NAME=VALUES[:KIND[:LOW..HIGH]] as an axis of a space file."""
    name, equals, values = text.partition("=")
    said: dict[str, Any] = {"name": name}
    if ":" in values:
        values, _, kind = values.rpartition(":")
        if ".." in kind:
            said["works"] = _window(name, kind)
            values, colon, kind = values.rpartition(":")
            if not colon:
                raise ParameterError(
                    f"axis {name!r}: a window follows the kind of its axis, as in "
                    f"lr=0.01,0.1,1:log:1e-4..1; got {text}"
                )
        kind = kind.strip()
        if kind not in list(AxisKind):
            raise ParameterError(
                f"axis {name!r}: {UnknownName('kind of axis', kind, AxisKind)}; a window is "
                "LOW..HIGH, lr=0.01,0.1,1:log:1e-4..1, and values that hold a colon need their "
                "kind, f=a:b,c:d:categorical"
            )
        said["kind"] = kind
    if not (name and equals and all(value.strip() for value in values.split(","))):
        raise ParameterError(
            f"an axis is NAME=VALUE,VALUE,...:KIND, as C=0.01,0.1,1:log; got {text}"
        )
    return said | {"values": [_value(value.strip()) for value in values.split(",")]}


def _window(name: str, text: str) -> dict[str, float]:
    """Read LOW..HIGH, of which either may be left out."""
    low, _, high = text.partition("..")
    try:
        if high.startswith("."):  # three dots: whose is the third?
            raise ValueError(text)
        return {end: float(said) for end, said in (("low", low), ("high", high)) if said}
    except ValueError as error:
        raise ParameterError(
            f"axis {name!r}: a window is LOW..HIGH, two numbers of which either may be left out, "
            f"as 1e-4..1; got {text}"
        ) from error


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
