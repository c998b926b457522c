"""Small charts as SVG text: bars with the noise they carry."""

from collections.abc import Sequence
from html import escape

__all__ = ["bars"]

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
