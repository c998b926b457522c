"""Pictures of stages: settings of a combination, weights of a model, rounds of a training."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from urna.privacy.budget import rounded_up
from urna.report.figures import INK, SERIES, SOFT, WIDE, Curve, Picture, curves, drawn
from urna.report.words import count, said
from urna.systems.average import ModelResult
from urna.systems.combine import Combination, Ruler
from urna.systems.train import RoundReport
from urna.systems.train.settings import ACCURACY, LOSS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LARGEST = 160.0  # square points of a circle


def settings_chart(result: Combination, *, alone: bool = False, key: str = "combination") -> Markup:
    """Return the settings over the first two axes, with what is known of cells and clusters.

    Without any guarantee it shows every kept setting; else only what was opened.

    Args:
        result: The combination.
        alone: Whether the text is a file of its own, with its own colours.
        key: Sets the names inside the picture apart from those of others on a page.
    """
    rulers = result.frame.rulers[:2]

    def draw(axes: "Axes") -> None:
        _cells(result, axes)
        _points(result, axes)
        for number, cluster in enumerate(result.clusters):
            x, y = _place(result, tuple(cluster.setting.values()))
            ring = axes.scatter(
                [x], [y], s=70, facecolors="none", edgecolors=_colour(number), linewidths=1.8
            )
            ring.set_gid(f"centre-{number}")
        x, y = _place(result, tuple(result.setting.values()))
        axes.plot([x], [y], marker="+", markersize=14, markeredgewidth=2.4, color=INK, gid="result")
        axes.set_xlim(-0.06, 1.06)
        axes.set_ylim(-0.06, 1.06)
        axes.set_xticks(*_ticks(rulers[0]))
        axes.set_xlabel(_named(rulers[0]))
        if len(rulers) > 1:
            axes.set_yticks(*_ticks(rulers[1]))
            axes.set_ylabel(_named(rulers[1]))
        else:
            axes.set_yticks([])

    return drawn(f"{key}-settings", draw, alone=alone)


def settings_picture(result: Combination, key: str = "combination") -> Picture:
    """Return the picture, what its marks mean, and the table behind it."""
    legend = ["The cross is the result"]
    if result.points:
        legend.append(
            "filled circles are kept settings, larger where several clients kept the same"
        )
    if any(cluster.cells for cluster in result.clusters):
        legend.append("shaded cells are dense")
    if result.clusters:
        legend.append("colours are clusters, rings their centres")
    names = result.frame.names
    kept = Counter(point.values for point in result.points).most_common()
    rows = [
        ("result", result.setting.values()),
        *(
            (f"cluster {number}", cluster.setting.values())
            for number, cluster in enumerate(result.clusters, start=1)
        ),
        *((f"kept by {count(many, 'client')}", values) for values, many in kept),
    ]
    return Picture(
        settings_chart(result, key=key),
        f"Settings over {' and '.join(names[:2])}. {'; '.join(legend)}.",
        f"Settings over {' and '.join(names[:2])}",
        ("", *names),
        tuple((who, *(f"{value:.4g}" for value in values)) for who, values in rows),
    )


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
    return units[0], units[1] if len(units) > 1 else 0.5


def _colour(number: int) -> str:
    return SOFT if number < 0 else SERIES[number % len(SERIES)]


def _cells(result: Combination, axes: "Axes") -> None:
    """Draw dense cells; where there are more than two axes, their shadow on the first two."""
    if result.cell is None:
        return
    from matplotlib.patches import Rectangle

    flat = len(result.frame.rulers) == 1
    for number, cluster in enumerate(result.clusters):
        for row, column in sorted({(c[0], c[1] if len(c) > 1 else 0) for c in cluster.cells}):
            corner = (row * result.cell, 0.0 if flat else column * result.cell)
            size = (result.cell, 1.0 if flat else result.cell)
            axes.add_patch(Rectangle(corner, *size, color=_colour(number), alpha=0.16))


def _points(result: Combination, axes: "Axes") -> None:
    counted = Counter((point.values, point.cluster) for point in result.points)
    most = max(counted.values(), default=1)
    for (values, number), many in sorted(counted.items(), key=lambda each: -each[1]):
        x, y = _place(result, values)
        area = _LARGEST * many / most if most > 1 else 25.0
        dot = axes.scatter(
            [x], [y], s=max(area, 8.0), color=_colour(number), alpha=0.5, linewidths=0
        )
        dot.set_gid(f"point-{values}-{number}".replace('"', ""))


def _named(ruler: Ruler) -> str:
    return f"{ruler.name} (log scale)" if ruler.log else ruler.name


def _ticks(ruler: Ruler) -> tuple[list[float], list[str]]:
    """Return where to write values at an axis, and which."""
    if ruler.listed:
        marks = list(ruler.listed[:: max(1, len(ruler.listed) // 6)])
    elif ruler.high <= ruler.low:
        marks = [ruler.low]
    else:
        marks = _round_values(ruler)
    return [_unit(ruler, mark) for mark in marks], [f"{mark:g}" for mark in marks]


def _round_values(ruler: Ruler) -> list[float]:
    if ruler.log:
        first, last = math.floor(math.log10(ruler.low)), math.ceil(math.log10(ruler.high))
        steps = (1, 3) if last - first <= 2 else (1,)
        every = max(1, (last - first) // 5)
        marks = [m * 10.0**e for e in range(first, last + 1, every) for m in steps]
    else:
        size = 10 ** math.floor(math.log10((ruler.high - ruler.low) / 4))
        size *= next(m for m in (1, 2, 5, 10) if (ruler.high - ruler.low) / (m * size) <= 6)
        start = math.ceil(ruler.low / size - 1e-9)
        marks = [round((start + i) * size, 12) for i in range(9)]
    return [m for m in marks if ruler.low * (1 - 1e-9) <= m <= ruler.high * (1 + 1e-9)]


def weights_picture(result: ModelResult, key: str) -> Picture:
    """Draw the weights by size, beside the noise in each where that is known."""
    sizes = np.sort(np.abs(result.weights).ravel())[::-1]
    rank = np.arange(1, len(sizes) + 1, dtype=np.float64)
    shown = np.unique(np.geomspace(1, len(sizes), 80).round().astype(int)) - 1
    drawn = [Curve("weights", rank[shown], sizes[shown])]
    noise = result.facts.get("weight_std")
    if noise is not None:
        drawn.append(Curve("noise", rank[shown], np.full(len(shown), float(noise)), kind="dashes"))
    beside = (
        "" if noise is None else " The dashed line is the noise in each, one standard deviation."
    )
    svg = curves(
        f"{key}-weights", drawn, across="weights, largest first", up="size", log=len(sizes) > 100
    )
    picked = shown[:: max(1, len(shown) // 12)]
    return Picture(
        svg,
        f"The model's weights by size, as they were read from the noisy sum.{beside}",
        f"Sizes of {len(sizes)} weights, from {sizes[0]:.3g} down to {sizes[-1]:.3g}",
        ("rank", "size"),
        tuple((f"{rank[i]:.0f}", said(float(f"{sizes[i]:.3g}"))) for i in picked),
    )


def learned(history: tuple[RoundReport, ...], key: str) -> list[Picture]:
    """Draw how well the model did round by round, by whom it was judged."""
    public = {r.number: 100 * r.test[1] for r in history if r.test and not math.isnan(r.test[1])}
    drawn = [Curve("public test rows", list(public), list(public.values()))] if public else []
    private = _judged(history, ACCURACY, 100, "clients' own rows, private")
    drawn += private
    found = []
    if drawn:
        noise = " Dots are private sums; whiskers contain 95 % of their noise." if private else ""
        whose, ends = " and ".join(curve.name for curve in drawn), drawn[0].y
        found.append(
            Picture(
                curves(f"{key}-learned", drawn, across="round", up="accuracy, %"),
                f"Accuracy by round, on {whose}.{noise}",
                f"Accuracy over {len(history)} rounds, from {ends[0]:.0f} % to {ends[-1]:.0f} %",
                ("round", *(curve.name for curve in drawn)),
                _rows(history, drawn, "{:.1f} %"),
            )
        )
    if losses := _judged(history, LOSS, 1, "loss"):
        found.append(
            Picture(
                curves(f"{key}-losses", losses, across="round", up="loss"),
                "Validation loss on clients' own rows, as a share of the largest, from private "
                "sums; whiskers contain 95 % of their noise.",
                f"Private validation loss over {len(history)} rounds",
                ("round", "loss"),
                _rows(history, losses, "{:.4f}"),
            )
        )
    return found


def _judged(history: tuple[RoundReport, ...], what: str, scale: int, name: str) -> list[Curve]:
    """Return a private measurement of each round with its noise, where there is any."""
    rounds = [r for r in history if what in r.measured]
    figures = [scale * r.measured[what] for r in rounds]
    errors = [WIDE * scale * r.errors[what] for r in rounds]
    return [Curve(name, [r.number for r in rounds], figures, errors, "dots")] if rounds else []


def spent(history: tuple[RoundReport, ...], key: str) -> Picture | None:
    """Draw epsilon after each round; None of fewer than two."""
    so_far: Mapping[int, float] = {r.number: r.epsilon for r in history if r.epsilon is not None}
    if len(so_far) < 2:
        return None
    drawn = [Curve("epsilon so far", [0, *so_far], [0.0, *so_far.values()])]
    return Picture(
        curves(f"{key}-spent", drawn, across="round", up="epsilon"),
        "Epsilon after each round, by the noise that was really left in each.",
        f"Epsilon grows to {rounded_up(list(so_far.values())[-1])} over {len(so_far)} rounds",
        ("round", "epsilon so far"),
        tuple((f"{n}", rounded_up(e)) for n, e in so_far.items()),
    )


def _rows(
    history: tuple[RoundReport, ...], drawn: list[Curve], form: str
) -> tuple[tuple[str, ...], ...]:
    columns = [dict(zip(curve.x, curve.y, strict=True)) for curve in drawn]
    return tuple(
        (
            f"{r.number}",
            *(form.format(column[r.number]) if r.number in column else "–" for column in columns),
        )
        for r in history
    )
