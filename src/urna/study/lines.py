"""On which line of a TOML text each section and key stands."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["find_lines"]

_TOKEN = re.compile(
    r'(?P<skip>[ \t\r]+|#[^\n]*)|(?P<line>\n)|(?P<text>"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*')|(?P<sign>[\[\]{}=,.])"
    r"|(?P<bare>[^\s\[\]{}=,.#\"']+)",
    re.DOTALL,
)

Path = tuple[str, ...]


def find_lines(text: str) -> dict[Path, int]:
    """Return the line of every section and key of a text that `tomllib` has accepted.

    Of a list of tables the line of its first is that of all.
    """
    finder = _Finder(_tokens(text))
    finder.read()
    return finder.lines


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Return kinds, texts and lines of what a text is made of."""
    text = text.replace("\r\n", "\n")
    found, number = [], 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            found.append((match.lastgroup or "", match.group(), number))
        number += match.group().count("\n")
    return [*found, ("line", "\n", number)]


@dataclass(slots=True)
class _Finder:
    tokens: Sequence[tuple[str, str, int]]
    lines: dict[Path, int] = field(default_factory=dict)
    at: int = 0

    @property
    def said(self) -> str:
        """The token that is looked at."""
        kind, said, _ = self.tokens[self.at]
        return "\n" if kind == "line" else said if kind == "sign" else ""

    def read(self) -> None:
        here: Path = ()
        while self.at < len(self.tokens):
            line = self.tokens[self.at][2]
            if self.said == "\n":
                self.at += 1
            elif self.said == "[":
                brackets = 2 if self.tokens[self.at + 1][1] == "[" else 1
                self.at += brackets
                here = self.note((), self.name("]"), line)
                self.at += brackets
            else:
                self.entry(here)

    def entry(self, base: Path) -> None:
        """Read a key and its value."""
        line = self.tokens[self.at][2]
        path = self.note(base, self.name("="), line)
        self.at += 1
        self.value(path)

    def name(self, end: str) -> list[str]:
        """Return the parts of a name that ends before a sign."""
        parts = []
        while self.said != end:
            kind, said, _ = self.tokens[self.at]
            if kind == "text":
                parts.append(str(tomllib.loads(f"k = {said}")["k"]))
            elif kind == "bare":
                parts.append(said)
            self.at += 1
        return parts

    def note(self, base: Path, parts: Sequence[str], line: int) -> Path:
        for part in parts:
            base = (*base, part)
            self.lines.setdefault(base, line)
        return base

    def value(self, path: Path) -> None:
        """Pass over a value, noting the keys in it."""
        opening = self.said
        if opening not in ("[", "{"):
            while self.said not in ("\n", ",", "]", "}"):
                self.at += 1
            return
        self.at += 1
        while self.said not in ("]", "}"):
            if self.said in ("\n", ","):
                self.at += 1
            elif opening == "[":
                self.value(path)
            else:
                self.entry(path)
        self.at += 1
