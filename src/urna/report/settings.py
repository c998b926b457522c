"""The picture of a combination: settings, dense cells and clusters, as SVG text."""

import math
from collections import Counter
from html import escape

from urna.combine import Combination, Ruler

__all__ = ["STYLE", "settings_chart"]

STYLE = (
    "svg{font:12.5px system-ui,sans-serif;background:#fff}text{fill:#1d2430}"
    ".frame{fill:none;stroke:#d9dee7}.tick{stroke:#e8ecf2}.soft{fill:#5b6678}"
)
"""For a picture that stands alone; a page brings its own."""

_WIDTH, _HEIGHT = 720, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 10, 50
_PAD = 18  # between the frame and the ends of the axes
_COLOURS = ("#1f5fbf", "#c2571a", "#2c8a57", "#8a4fb0", "#a8842c", "#3d8fa6", "#b04a6f", "#6b7280")
_NONE = "#9aa6b8"
_LARGEST = 15.0


def settings_chart(result: Combination, *, alone: bool = False) -> str:
    """Return the settings over the first two axes, with what is known of cells and clusters.

    Without any guarantee it shows every kept setting; else only what was opened.

    Args:
        result: The combination.
        alone: Whether the text is a file of its own, with its own style.
    """
    across = result.frame.rulers[0]
    up = result.frame.rulers[1] if len(result.frame.rulers) > 1 else None
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    caption = f"Settings over {' and '.join(result.frame.names[:2])}"
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(caption)}"{space}>',
        f"<style>{STYLE}</style>" if alone else "",
        *_cells(result),
        *_axis(across, horizontal=True),
        *(_axis(up, horizontal=False) if up is not None else ()),
        f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}" fill="none" stroke="#b8c1cf"/>',
        *_points(result),
        *_centres(result),
        _cross(*_place(result, tuple(result.setting.values()))),
        "</svg>",
    ]
    return "".join(parts)


def legend(result: Combination) -> str:
    """Say what the marks mean."""
    said = ["The cross is the result"]
    if result.points:
        said.append("circles are kept settings, larger where several clients kept the same")
    if any(cluster.cells for cluster in result.clusters):
        said.append("shaded cells are dense")
    if result.clusters:
        said.append("colours are clusters, rings their centres")
    return "; ".join(said) + "."


def _x(unit: float) -> float:
    return _LEFT + _PAD + min(max(unit, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT - 2 * _PAD)


def _y(unit: float) -> float:
    room = _HEIGHT - _TOP - _BOTTOM - 2 * _PAD
    return _HEIGHT - _BOTTOM - _PAD - min(max(unit, 0.0), 1.0) * room


def _unit(ruler: Ruler, value: float) -> float:
    """Return a value's part of its axis; beyond the ends, the end."""
    if ruler.listed:
        nearest = min(range(len(ruler.listed)), key=lambda i: abs(ruler.listed[i] - value))
        return nearest / max(1, len(ruler.listed) - 1)
    low, high, here = ruler.low, ruler.high, min(max(value, ruler.low), ruler.high)
    if ruler.log:
        low, high, here = math.log(low), math.log(high), math.log(here)
    return (here - low) / (high - low) if high > low else 0.5


def _place(result: Combination, values: tuple[float, ...]) -> tuple[float, float]:
    units = [_unit(r, v) for r, v in zip(result.frame.rulers, values, strict=True)]
    return _x(units[0]), _y(units[1]) if len(units) > 1 else _y(0.5)


def _colour(number: int) -> str:
    return _NONE if number < 0 else _COLOURS[number % len(_COLOURS)]


def _cells(result: Combination) -> list[str]:
    """Draw dense cells; where there are more than two axes, their shadow on the first two."""
    if result.cell is None:
        return []
    found = []
    for number, cluster in enumerate(result.clusters):
        for row, column in sorted(
            {(cell[0], cell[1] if len(cell) > 1 else 0) for cell in cluster.cells}
        ):
            left, right = _x(row * result.cell), _x((row + 1) * result.cell)
            if len(result.frame.rulers) > 1:
                low, high = _y(column * result.cell), _y((column + 1) * result.cell)
            else:
                low, high = _y(0.0), _y(1.0)
            found.append(
                f'<rect x="{left:.1f}" y="{high:.1f}" width="{right - left:.1f}" '
                f'height="{low - high:.1f}" fill="{_colour(number)}" fill-opacity="0.16" '
                f'stroke="{_colour(number)}" stroke-opacity="0.35"/>'
            )
    return found


def _points(result: Combination) -> list[str]:
    counted = Counter((point.values, point.cluster) for point in result.points)
    most = max(counted.values(), default=1)
    found = []
    for (values, number), count in sorted(counted.items(), key=lambda each: -each[1]):
        x, y = _place(result, values)
        radius = 2.5 + (_LARGEST - 2.5) * math.sqrt(count / most) * (0.35 if most == 1 else 1)
        found.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{_colour(number)}" '
            f'fill-opacity="0.55"/>'
        )
    return found


def _centres(result: Combination) -> list[str]:
    found = []
    for number, cluster in enumerate(result.clusters):
        x, y = _place(result, tuple(cluster.setting.values()))
        found.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="{_colour(number)}" '
            'stroke-width="2.5"/>'
        )
    return found


def _cross(x: float, y: float) -> str:
    arms = f"M{x - 9:.1f} {y:.1f}h18M{x:.1f} {y - 9:.1f}v18"
    return (
        f'<path d="{arms}" stroke="#ffffff" stroke-width="6" fill="none"/>'
        f'<path d="{arms}" stroke="#111827" stroke-width="2.6" fill="none"/>'
    )


def _axis(ruler: Ruler, *, horizontal: bool) -> list[str]:
    found = []
    for value in _ticks(ruler):
        unit = _unit(ruler, value)
        if horizontal:
            x = _x(unit)
            found += [
                f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" '
                f'y2="{_HEIGHT - _BOTTOM}" stroke="#8a94a6" stroke-opacity="0.25"/>',
                f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">'
                f"{value:g}</text>",
            ]
        else:
            y = _y(unit)
            found += [
                f'<line class="tick" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" '
                f'y2="{y:.1f}" stroke="#8a94a6" stroke-opacity="0.25"/>',
                f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>',
            ]
    scale = " (log scale)" if ruler.log else ""
    name = escape(f"{ruler.name}{scale}")
    if horizontal:
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        found.append(
            f'<text x="{middle:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">{name}</text>'
        )
    else:
        middle = (_TOP + _HEIGHT - _BOTTOM) / 2
        found.append(
            f'<text transform="translate(16 {middle:.0f}) rotate(-90)" text-anchor="middle">'
            f"{name}</text>"
        )
    return found


def _ticks(ruler: Ruler) -> list[float]:
    """Return some values to write at an axis."""
    if ruler.listed:
        step = max(1, len(ruler.listed) // 8)
        return list(ruler.listed[::step])
    if ruler.high <= ruler.low:
        return [ruler.low]
    if ruler.log:
        first, last = math.floor(math.log10(ruler.low)), math.ceil(math.log10(ruler.high))
        steps = (1, 2, 5) if last - first <= 3 else (1,)
        marks = [m * 10.0**e for e in range(first, last + 1) for m in steps]
    else:
        size = 10 ** math.floor(math.log10((ruler.high - ruler.low) / 4))
        size *= next(m for m in (1, 2, 5, 10) if (ruler.high - ruler.low) / (m * size) <= 7)
        start = math.ceil(ruler.low / size - 1e-9)
        marks = [round((start + i) * size, 12) for i in range(9)]
    return [m for m in marks if ruler.low * (1 - 1e-9) <= m <= ruler.high * (1 + 1e-9)]
