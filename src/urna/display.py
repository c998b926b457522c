"""What a result looks like to people: a card in a notebook, a frame, a picture.

pandas and matplotlib are imported when they are asked for; nothing else needs them.
"""

import html
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from urna.errors import DataMissing

__all__ = ["as_frame", "axes_for", "card", "package"]

_CELL = "text-align:left;padding:0.1em 1em 0.1em 0"
_ALARM = '<p style="color:#b00020;background:#fff;font-weight:bold">NOT PRIVATE</p>'


def package(name: str, why: str) -> Any:  # noqa: ANN401 - whatever the package offers
    """Import a package that is not always there.

    Raises:
        DataMissing: It is not installed; the message says what to do.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        raise DataMissing(f"{why} needs {root}; install it with: pip install {root}") from error


def as_frame(columns: Mapping[str, Sequence[Any]]) -> Any:  # noqa: ANN401 - a pandas.DataFrame
    """Return columns as a pandas frame.

    Raises:
        DataMissing: pandas is not installed.
    """
    return package("pandas", "a frame").DataFrame(dict(columns))


def axes_for(axes: Any = None) -> Any:  # noqa: ANN401 - matplotlib's Axes
    """Return matplotlib's axes to draw on: those given, or new ones.

    Raises:
        DataMissing: matplotlib is not installed.
    """
    plots = package("matplotlib.pyplot", "a plot")
    return plots.subplots()[1] if axes is None else axes


def card(
    heading: str,
    lines: Iterable[str],
    *,
    private: bool,
    table: Sequence[Sequence[str]] = (),
) -> str:
    """Return a few lines of HTML that stand alone; every text is escaped.

    Args:
        heading: What it is about.
        lines: One paragraph each.
        private: Whether to leave out the warning that nothing is.
        table: Rows of cells, the head first.

    Example:
        >>> card("a < b", ["fine"], private=True)
        '<div><p><b>a &lt; b</b></p><p>fine</p></div>'
    """
    parts = [] if private else [_ALARM]
    parts.append(f"<p><b>{html.escape(heading)}</b></p>")
    if table:
        rows = [_row(row, "td" if place else "th") for place, row in enumerate(table)]
        parts.append(f"<table>{''.join(rows)}</table>")
    parts += [f"<p>{html.escape(line)}</p>" for line in lines]
    return f"<div>{''.join(parts)}</div>"


def _row(cells: Sequence[str], tag: str) -> str:
    inner = "".join(f'<{tag} style="{_CELL}">{html.escape(cell)}</{tag}>' for cell in cells)
    return f"<tr>{inner}</tr>"
