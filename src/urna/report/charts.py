"""Small charts as SVG text: bars and lines with the noise they carry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Line", "bars", "lines"]

_COLOURS = ("#1f5fbf", "#b0561f", "#2f7d4f", "#7a4fa3", "#888888", "#b03060")
_ROW, _BAR, _LABEL, _WIDTH, _VALUE = 26, 14, 230, 720, 70


def bars(rows: Sequence[tuple[str, float]], *, error: float, marked: int, caption: str) -> str:
    """Return horizontal bars with error bars of ± `error` around each end.

    Args:
        rows: Labels and values, from top to bottom.
        error: Half the length of the error bars, in the unit of the values.
        marked: The row to set apart from the others.
        caption: Read out by screen readers.
    """
    low = min(0.0, *(value - error for _, value in rows))
    high = max(1.0, *(value + error for _, value in rows))
    room = _WIDTH - _LABEL - _VALUE

    def x(value: float) -> float:
        return _LABEL + room * (value - low) / (high - low)

    height = _ROW * len(rows) + 8
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(caption)}">',
        f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{height}"/>',
    ]
    for place, (label, value) in enumerate(rows):
        top = _ROW * place + 8
        middle = top + _BAR / 2
        left, right = sorted((x(0), x(value)))
        chosen = " chosen" if place == marked else ""
        parts += [
            f'<text class="label{chosen}" x="{_LABEL - 10}" y="{middle + 4}">'
            f"{escape(label)}</text>",
            f'<rect class="bar{chosen}" x="{left:.1f}" y="{top}" width="{right - left:.1f}" '
            f'height="{_BAR}" rx="2"/>',
            f'<path class="error" d="M{x(value - error):.1f} {middle}H{x(value + error):.1f}'
            f'M{x(value - error):.1f} {middle - 4}v8M{x(value + error):.1f} {middle - 4}v8"/>',
            f'<text class="value" x="{_WIDTH}" y="{middle + 4}">{value:.1f}</text>',
        ]
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float, float]]
    """Where, how much, and half the length of the error bar."""
    dots: bool = False
    """Whether points are drawn with their error bars, and not joined."""


def lines(drawn: Sequence[Line], *, caption: str, mark: tuple[str, float] | None = None) -> str:
    """Return lines over a common axis, with the errors their points carry.

    Args:
        drawn: The lines; the first is the one that stands out.
        caption: Written above, and read out by screen readers.
        mark: A level to mark, with its name.
    """
    everything = [point for line in drawn for point in line.points]
    levels = [mark[1]] if mark else []
    low = min([y - e for _, y, e in everything] + levels)
    high = max([y + e for _, y, e in everything] + levels)
    high = high if high > low else low + 1.0
    first, last = min(x for x, _, _ in everything), max(x for x, _, _ in everything)
    last = last if last > first else first + 1.0
    left, right, top, bottom = 58, _WIDTH - 14, 34, 236

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (right - left) * (x - first) / (last - first),
            bottom - (bottom - top) * (y - low) / (high - low),
        )

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} 272" role="img" aria-label="{escape(caption)}">',
        f'<text x="{left}" y="18">{escape(caption)}</text>',
    ]
    for part in range(5):
        level = low + (high - low) * part / 4
        y = at(first, level)[1]
        parts.append(f'<line class="zero" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="value" x="{left - 8}" y="{y + 4:.1f}">{level:.3g}</text>')
    for x in (first, last):
        place = at(x, low)[0]
        parts.append(f'<text class="value" x="{place + 6:.1f}" y="{bottom + 18}">{x:g}</text>')
    if mark:
        y = at(first, mark[1])[1]
        parts.append(
            f'<line class="error" stroke-dasharray="5 4" x1="{left}" x2="{right}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/><text x="{left + 6}" y="{y - 5:.1f}">{escape(mark[0])}</text>'
        )
    for number, line in enumerate(drawn):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += _line(line, at, colour)
        if len(drawn) > 1:
            y = bottom - 8 - 17 * (len(drawn) - 1 - number)
            parts.append(
                f'<text class="value" x="{right - 6}" y="{y}" style="fill:{colour}">'
                f"{escape(line.name)}</text>"
            )
    return "".join([*parts, "</svg>"])


def _line(line: Line, at: Callable[[float, float], tuple[float, float]], colour: str) -> list[str]:
    parts = []
    if line.dots:
        for x, y, error in line.points:
            (px, py), (_, above), (_, below) = at(x, y), at(x, y + error), at(x, y - error)
            parts.append(
                f'<path d="M{px:.1f} {above:.1f}V{below:.1f}" stroke="{colour}" opacity=".35"/>'
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.6" fill="{colour}"/>'
            )
        return parts
    path = "L".join("{:.1f} {:.1f}".format(*at(x, y)) for x, y, _ in line.points)
    return [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
