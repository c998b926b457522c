"""Options that are a study's keys: a command line is another source of what a file would hold."""

import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.errors import ParameterError, UnknownName
from urna.space import AxisKind, Space, Value
from urna.study.file import Study, make_study
from urna.study.keys import Path as At
from urna.study.keys import StudyField, shown
from urna.study.schema import SECTIONS, keys_of

__all__ = ["QuietOption", "Said", "SpaceOption", "keyed", "named_candidates", "say_candidates"]

QuietOption = Annotated[bool, typer.Option(help="Show no progress.")]

_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
_MOST = 100_000  # classes of a range
_SET = (
    "Any other key of a study, `--set section.key=value`; repeat for several. The guide lists all."
)


@dataclass(frozen=True, slots=True)
class Said:
    """What the options of one command say, by section and key, and which option says it."""

    values: dict[str, Any]
    places: dict[At, str] = field(default_factory=dict)

    def say(self, at: At, value: Any, place: str) -> None:  # noqa: ANN401 - plain values
        """Note a value that an option says.

        Raises:
            ParameterError: Two options say it.
        """
        here = self.values
        for name in at[:-1]:
            here = here.setdefault(name, {})
        if at in self.places:
            raise ParameterError(f"{self.places[at]} and {place} say the same: leave one out")
        here[at[-1]] = value
        self.places[at] = place

    def section(self, name: str) -> dict[str, Any]:
        """Return a section, which is then named."""
        found: dict[str, Any] = self.values.setdefault(name, {})
        return found

    def part(self, name: str) -> Any:  # noqa: ANN401 - a section of the schema
        """Return one checked section; the others are not looked at."""
        return getattr(self.study(), name)

    def study(self) -> Study:
        """Return the study that was asked for; what must be named is as `Key.preset` says.

        Raises:
            ParameterError: Something cannot be; a line each names the option.
        """
        for section in SECTIONS:
            for entry in keys_of(section).values():
                if entry.required:
                    self.section(section).setdefault(entry.name, entry.key.preset)
        return make_study(self.values, self.places, path=Path("study.toml"))


def keyed(command: str, body: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose options are the keys that name it, before those of its own.

    `body` is called with what was said, and with options of its own.
    """
    entries = {
        f"{section}_{entry.name}": entry
        for section in SECTIONS
        for entry in keys_of(section).values()
        if command in entry.key.on.split()
    }
    _, *own = inspect.signature(body).parameters.values()

    def call(**given: Any) -> None:  # noqa: ANN401 - Typer's
        said = Said({})
        for name, entry in entries.items():
            if (value := given.pop(name)) not in (None, []):
                said.say(entry.at, _plain(entry, value), entry.option)
        for text in given.pop("set_") or ():
            _set(said, text)
        body(said, **given)

    listed = [(name, _annotation(entry), None) for name, entry in entries.items()]
    setting = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SET)]
    listed += [(p.name, p.annotation, p.default) for p in own if p.kind is not p.VAR_KEYWORD]
    listed.append(("set_", setting, None))
    keyword = inspect.Parameter.KEYWORD_ONLY
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, keyword, annotation=a, default=d) for n, a, d in listed]
    )
    call.__annotations__ = {name: annotation for name, annotation, _ in listed}
    call.__doc__, call.__name__ = body.__doc__, command
    return call


def _annotation(entry: StudyField) -> Any:  # noqa: ANN401 - a type
    kind = entry.kind
    default = entry.key.preset if entry.required else entry.default
    hidden = default in (None, "", (), {}, 0) or entry.section == "output"
    bare = default if isinstance(default, str) else shown(default)
    said = "" if hidden else f" Default: {bare}."
    flag = kind.words == "true or false"
    hint = bool if flag else str
    return Annotated[
        hint | None,
        typer.Option(
            entry.option if not flag or default else f"{entry.option}/--no-{entry.option[2:]}",
            help=f"{entry.key.says}{said}",
            metavar=None if flag else _metavar(entry),
            show_default=False,
            rich_help_panel=SECTIONS[entry.section].says if entry.section else "Options",
        ),
    ]


def _metavar(entry: StudyField) -> str:
    if entry.kind.many:
        return "A,B"
    if len(entry.kind.choices) > 1:
        return "|".join(entry.kind.choices)
    return "TEXT" if entry.kind.text else "NUMBER"


def _plain(entry: StudyField, value: bool | str) -> Any:  # noqa: ANN401 - plain values
    """Return what a file would hold for the text of an option."""
    if isinstance(value, bool) or entry.kind.text:
        return value
    if not entry.kind.many:
        return _read(entry, value)
    if whole := _RANGE.fullmatch(value):
        low, high = map(int, whole.groups())
        if not low < high < low + _MOST:
            raise ParameterError(
                f"{entry.option}: a range is 2 to {_MOST:,} whole numbers, smallest first; got "
                f"{value}"
            )
        return list(range(low, high + 1))
    items = [_read(entry, item.strip()) for item in value.split(",")]
    same = all(isinstance(item, int | float) for item in items)
    return items if same else [item.strip() for item in value.split(",")]


def _read(entry: StudyField, text: str) -> Any:  # noqa: ANN401 - plain values
    """Return the value of one text; a number in any spelling that Python reads, as .5 or 5."""
    read = _toml(text)
    return _value(text) if read == text and "text" not in entry.kind.words else read


def _toml(text: str) -> Any:  # noqa: ANN401 - plain values
    """Return the value that a text stands for in a file; itself where it stands for none."""
    try:
        read = tomllib.loads(f"k = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["k"] if len(read) == 1 else text


def _set(said: Said, text: str) -> None:
    """Note one `section.key=value`."""
    name, equals, value = text.partition("=")
    section, _, key = name.strip().rpartition(".")
    known = keys_of(section) if section in SECTIONS else {}
    if not equals or section not in SECTIONS or (section != "space" and key not in known):
        raise ParameterError(
            f"--set takes section.key=value, as train.tail=0.2; got {text!r}. Sections are "
            f"{', '.join(filter(None, SECTIONS))}"
            + (f"; keys of [{section}] are {', '.join(known)}" if known else "")
        )
    at = (section, key) if section else (key,)
    if key in known:
        plain = value if known[key].kind.text else _read(known[key], value)
    else:
        plain = _toml(value)
    said.say(at, plain, f"--set {name.strip()}")


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
