"""Line charts as SVG text: panels of accuracy over epsilon, with confidence intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Line", "Panel", "chart"]

_COLOURS = (
    "#0b6e4f", "#e07a2f", "#b3261e", "#30638e", "#8f2d56", "#c9a227", "#6a4c93",
    "#1b998b", "#7a5c3e", "#d65db1", "#5b8c2a", "#4d4d4d", "#3a86ff", "#9a9a9a",
)  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _LEGEND = 236, 170, 44, 34, 30, 22


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel: values at some of the ticks, None where there is none."""

    title: str
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One small chart."""

    title: str
    lines: Sequence[Line]


def chart(
    panels: Sequence[Panel],
    ticks: Sequence[str],
    *,
    caption: str,
    axis: str,
    columns: int = 3,
    span: tuple[float, float] = (0.0, 1.0),
) -> str:
    """Return panels of lines over common ticks, with one legend.

    Args:
        panels: From left to right, row by row.
        ticks: Labels of the horizontal axis, evenly spaced.
        caption: Read out by screen readers.
        axis: What the horizontal axis is.
        columns: Panels in a row.
        span: Ends of the vertical axis.
    """
    titles = list(dict.fromkeys(line.title for panel in panels for line in panel.lines))
    colours = {title: _COLOURS[i % len(_COLOURS)] for i, title in enumerate(titles)}
    rows = -(-len(panels) // columns)
    across = max(min(columns, len(panels)), 2)  # the legend needs some room
    width = across * (_WIDTH + _LEFT) + 12
    legend = _legend(titles, colours, width)
    height = rows * (_HEIGHT + _TOP + _GAP) + _LEGEND * _legend_rows(titles, width)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(caption)}" '
        'font-family="sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for place, panel in enumerate(panels):
        left = _LEFT + (place % columns) * (_WIDTH + _LEFT)
        top = _TOP + (place // columns) * (_HEIGHT + _TOP + _GAP)
        parts.append(_panel(panel, ticks, colours, left, top, axis, span))
    parts.append(
        f'<g transform="translate(0 {rows * (_HEIGHT + _TOP + _GAP)})">{legend}</g></svg>\n'
    )
    return "".join(parts)


def _panel(
    panel: Panel,
    ticks: Sequence[str],
    colours: Mapping[str, str],
    left: int,
    top: int,
    axis: str,
    span: tuple[float, float],
) -> str:
    low, high = span

    def x(place: int) -> float:
        return left + 10 + (_WIDTH - 20) * place / max(len(ticks) - 1, 1)

    def y(value: float) -> float:
        inside = min(max(value, low), high)
        return top + _HEIGHT * (1 - (inside - low) / (high - low))

    parts = [f'<text x="{left}" y="{top - 10}" font-weight="bold">{escape(panel.title)}</text>']
    step = 0.2 if high - low > 0.6 else 0.1
    for place in range(round((high - low) / step) + 1):
        value = low + step * place
        parts.append(
            f'<line x1="{left}" x2="{left + _WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            'stroke="#e4e4e4"/>'
            f'<text x="{left - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>'
        )
    for place, tick in enumerate(ticks):
        parts.append(
            f'<text x="{x(place):.1f}" y="{top + _HEIGHT + 14}" text-anchor="middle">'
            f"{escape(tick)}</text>"
        )
    parts.append(
        f'<text x="{left + _WIDTH / 2}" y="{top + _HEIGHT + 27}" text-anchor="middle">'
        f"{escape(axis)}</text>"
    )
    uncertain = [line.title for line in panel.lines if line.low is not None]
    for line in panel.lines:
        colour = colours[line.title]
        known = [(i, v) for i, v in enumerate(line.values) if v is not None]
        path = " ".join(
            f"{'M' if n == 0 else 'L'}{x(i):.1f} {y(v):.1f}" for n, (i, v) in enumerate(known)
        )
        dash = ' stroke-dasharray="5 3"' if line.dashed else ""
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        if line.low is not None and line.high is not None:
            # Side by side, so that intervals do not cover each other.
            aside = 3.0 * (uncertain.index(line.title) - (len(uncertain) - 1) / 2)
            for i, below, above in zip(range(len(ticks)), line.low, line.high, strict=True):
                if below is not None and above is not None:
                    parts.append(
                        f'<path d="M{x(i) + aside:.1f} {y(below):.1f}V{y(above):.1f}" '
                        f'stroke="{colour}" stroke-opacity=".6" stroke-width="2"/>'
                    )
        if not line.dashed:
            parts += [f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="2.6" fill="{colour}"/>'
                      for i, v in known]  # fmt: skip
    return "".join(parts)


def _place(titles: Sequence[str], width: int) -> list[tuple[int, int]]:
    """Return column and row of every entry of the legend, by an estimate of its width."""
    places, left, row = [], 12, 0
    for title in titles:
        needed = 42 + 6 * len(title)
        if left + needed > width and left > 12:
            left, row = 12, row + 1
        places.append((left, row))
        left += needed
    return places


def _legend_rows(titles: Sequence[str], width: int) -> int:
    return _place(titles, width)[-1][1] + 1 if titles else 0


def _legend(titles: Sequence[str], colours: Mapping[str, str], width: int) -> str:
    parts = []
    for title, (left, row) in zip(titles, _place(titles, width), strict=True):
        y = 10 + _LEGEND * row
        parts.append(
            f'<line x1="{left}" x2="{left + 20}" y1="{y}" y2="{y}" stroke="{colours[title]}" '
            f'stroke-width="3"/><text x="{left + 25}" y="{y + 4}">{escape(title)}</text>'
        )
    return "".join(parts)
