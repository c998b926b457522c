"""Curves as small SVG pictures that follow the page's colours, drawn by matplotlib.

A picture is made for the width of a telephone, so that its text is as large as the page's there;
what a picture shows stands in a table behind it as well.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[np.float64]

WIDE = 1.959964
"""Deviations of noise on either side that contain 95 % of it."""

# Colours of the picture stand for colours of the page, which differ by day and night.
INK, SOFT, LINE = "#010101", "#020202", "#030303"
SERIES = ("#040404", "#050505", "#060606", "#070707", "#080808", "#090909")
_NAMES = ("ink", "soft", "line", "s1", "s2", "s3", "s4", "s5", "s6")

_WIDTH, _HEIGHT = 4.6, 2.75  # inches of 72 units: 331 × 198
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "text.color": INK,
    "text.parse_math": False,  # names of axes are the user's, dollars and all
    "xtick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.color": LINE,
    "ytick.labelcolor": SOFT,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, and the table behind it."""

    svg: Markup
    caption: str
    """Read beside it."""
    described: str
    """What it shows, for those who do not see it."""
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """One line or row of dots."""

    name: str
    x: Sequence[float] | Array
    y: Sequence[float] | Array
    errors: Sequence[float] | Array | None = None
    """Half the length of the error bars."""
    kind: str = "line"
    """`line`, `dashes` or `dots`."""


def curves(
    key: str,
    some: Sequence[Curve],
    *,
    across: str,
    up: str,
    log: bool = False,
    band: tuple[Array, Array, Array] | None = None,
    mark: tuple[float, float] | None = None,
) -> Markup:
    """Return curves over common axes as SVG text.

    Args:
        key: Sets the names inside the picture apart from those of others on the page.
        some: The curves; the first stands out.
        across: What the horizontal axis is.
        up: What the vertical axis is.
        log: Whether the horizontal axis is logarithmic.
        band: Where, from and to: a shaded region.
        mark: A point to set apart.
    """

    def draw(axes: "Axes") -> None:
        axes.grid(visible=True, axis="y")
        if band is not None:
            axes.fill_between(*band, color=SOFT, alpha=0.22, linewidth=0)
        for number, curve in enumerate(some):
            colour = SERIES[number % len(SERIES)]
            if curve.kind == "dots":
                axes.errorbar(
                    np.asarray(curve.x),
                    np.asarray(curve.y),
                    None if curve.errors is None else np.asarray(curve.errors),
                    fmt="o",
                    markersize=3,
                    elinewidth=0.8,
                    color=colour,
                    label=curve.name,
                )
            else:
                dashes = "--" if curve.kind == "dashes" else "-"
                axes.plot(
                    np.asarray(curve.x),
                    np.asarray(curve.y),
                    dashes,
                    color=colour,
                    label=curve.name,
                    linewidth=1.8,
                )
        if mark is not None:
            axes.plot(*mark, marker="o", markersize=6, color=SERIES[1], linestyle="none")
        if log:
            axes.set_xscale("log")
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        whole = all(float(x).is_integer() for curve in some for x in curve.x)
        _plain_ticks(axes, log=log, whole=whole)

    return drawn(key, draw)


def drawn(key: str, draw: Callable[["Axes"], None], *, alone: bool = False) -> Markup:
    """Return what a function draws, as SVG text in the page's colours.

    Args:
        key: Sets the names inside the picture apart from those of others on the page.
        draw: Draws on the axes it is handed.
        alone: Whether the text is a file of its own, with its own colours.
    """
    # Half a second, which only who draws has to wait for.
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    room = io.StringIO()
    with rc_context({**_STYLE, "svg.hashsalt": key}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name's letters may be missing in its own font
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        figure.savefig(room, format="svg", transparent=True, metadata={"Date": None})
    return Markup(_cleaned(room.getvalue(), key, alone))  # noqa: S704 - matplotlib escapes text


_DAY = dict(
    zip(
        _NAMES,
        (
            "#1d2430", "#5b6678", "#cfd6e1", "#1f5fbf", "#b0561f", "#2c7a4d", "#7a4fa3", "#6b6f76",
            "#a83263",
        ),
        strict=True,
    )
)  # fmt: skip


def _cleaned(text: str, key: str, alone: bool) -> str:
    """Return a picture without what a page has no use for, and with names of its own."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+)px[^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{key}-", text)
    text = re.sub(r' (?:d|x|y|points|transform)="[^"]*"', _shortened, text)
    text = re.sub(r">\s+<", "><", text)
    head = r'<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="\S+" height="\S+"'
    box = re.search(r'viewBox="([^"]+)"', text)
    size = "" if box is None else box.group(1)
    text = re.sub(head, "<svg", text, count=1)
    links = ' xmlns:xlink="http://www.w3.org/1999/xlink"'
    if alone:
        width, height = size.split()[2:]
        ours = f'<svg{links} width="{2 * float(width):.0f}" height="{2 * float(height):.0f}"'
        text = text.replace("<svg", ours, 1)
        text = text.replace(
            "<defs>", "<style>text{font-family:system-ui,sans-serif}</style><defs>", 1
        )
    else:
        text = text.replace("<svg", f'<svg{links} class="plot" aria-hidden="true"', 1)
    for number, name in enumerate(_NAMES, start=1):
        colour = _DAY[name] if alone else f"var(--{name})"
        text = text.replace("#" + 3 * f"0{number}", colour)
    return text


def _shortened(attribute: re.Match[str]) -> str:
    """Return places to a hundredth of a unit, which is all that can be seen."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", attribute.group())


def _plain_ticks(axes: "Axes", *, log: bool, whole: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(plain)
    axes.xaxis.set_major_formatter(plain)
    if log:
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole))
