"""The page itself: stages, promise and provenance put into templates, and sealed."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jinja2
import numpy as np

from urna.privacy import PrivacyStatement
from urna.privacy.budget import rounded_down, rounded_up
from urna.report.figures import Curve, Picture, curves
from urna.report.odds import Odds
from urna.report.parties import Added, PartyRow, added, simulated
from urna.report.run import Provenance
from urna.report.seal import ReportSigner, sealed
from urna.report.stages import StageView
from urna.report.words import at_most, count, day, size

__all__ = ["document"]

_PRIORS = (0.01, 0.1, 0.5, 0.9)
_WEAK = 0.95  # right guesses from which on a promise is called weak
_LISTED = 12  # clients that are named one by one


@dataclass(frozen=True, slots=True)
class _Promise:
    """What the whole page promises, in words and in odds."""

    statement: PrivacyStatement
    odds: Odds | None
    beliefs: tuple[tuple[str, str, float, float], ...]
    """Before and after, as text and as per cent of the room."""
    pictures: tuple[Picture, ...]

    @property
    def epsilon(self) -> str:
        return rounded_up(self.statement.epsilon) if self.statement.private else "infinite"

    @property
    def factor(self) -> str:
        value = math.inf if self.odds is None else self.odds.factor
        return f"{math.ceil(100 * value) / 100:,.2f}" if value < 1e6 else f"{value:.1e}"

    @property
    def right(self) -> str:
        return "" if self.odds is None else at_most(self.odds.right_guess)

    @property
    def weak(self) -> bool:
        return self.odds is not None and self.odds.right_guess >= _WEAK

    @property
    def loud(self) -> list[str]:
        return [line for line in self._caveats if "NOT protected" in line]

    @property
    def caveats(self) -> list[str]:
        return [line for line in self._caveats if "NOT protected" not in line]

    @property
    def _caveats(self) -> list[str]:
        return [f"{caveat.rstrip('.')}." for caveat in self.statement.caveats]


def document(
    stages: Sequence[StageView],
    statement: PrivacyStatement,
    *,
    title: str,
    heading: str,
    when: float | None,
    run: Provenance | None,
    sha256: str | None,
    signer: ReportSigner | None = None,
) -> str:
    """Return a whole page as HTML text, sealed."""
    uncovered = [line for stage in stages for line in stage.uncovered]
    text = (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            heading=heading,
            stages=stages,
            promise=_promise(statement),
            clear=any(added(stage.privacy) is Added.CLEAR for stage in stages),
            simulated=_simulated(stages, run),
            warnings=_warnings(stages, statement),
            parties=_merged(stages),
            uncovered=list(dict.fromkeys(uncovered)),
            run=run,
            traffic=_traffic(stages),
            when=when,
            sha256=sha256,
            listed=_LISTED,
        )
    )
    return sealed(text, signer)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("urna.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count,
        "day": day,
        "rounded_down": rounded_down,
        "rounded_up": rounded_up,
        "size": size,
    }
    return environment


def _promise(statement: PrivacyStatement) -> _Promise:
    odds = Odds.of(statement)
    if odds is None:
        return _Promise(statement, None, (), ())
    beliefs = tuple(
        (f"{100 * prior:g} %", at_most(odds.belief(prior)), 100 * prior, 100 * odds.belief(prior))
        for prior in _PRIORS
    )
    pictures = [_guesses(odds)]
    if (curve := _curve(odds)) is not None:
        pictures.append(curve)
    return _Promise(statement, odds, beliefs, tuple(pictures))


def _guesses(odds: Odds) -> Picture:
    alpha = np.linspace(0.0, 1.0, 101)
    found = odds.detected(alpha)
    drawn = [
        Curve("at most", 100 * alpha, 100 * found),
        Curve("a coin", 100 * alpha, 100 * alpha, kind="dashes"),
    ]
    shown = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
    return Picture(
        curves("guesses", drawn, across="false alarms, %", up="found, %"),
        "An attacker who wants to know which of two data sets was used: how often it can be right "
        "where it should be (up), for how often it cries wolf (across). The dashed line is a coin "
        "toss; the nearer the curve, the less is learnt.",
        "At 5 % false alarms an attacker finds at most "
        f"{at_most(float(odds.detected(np.array([0.05]))[0]))}",
        ("false alarms", "found at most"),
        tuple((f"{100 * a:g} %", at_most(float(odds.detected(np.array([a]))[0]))) for a in shown),
    )


def _curve(odds: Odds) -> Picture | None:
    found = odds.curve()
    if found is None:
        return None
    deltas, epsilons = found
    drawn = [Curve("epsilon", deltas, epsilons)]
    picked = range(0, len(deltas), max(1, len(deltas) // 12))
    return Picture(
        curves(
            "curve", drawn, across="delta", up="epsilon", log=True, mark=(odds.delta, odds.epsilon)
        ),
        "The whole privacy curve: every point on it is a promise that holds. The dot is the "
        "one that is quoted.",
        f"Epsilon against delta, from epsilon {epsilons[-1]:.3g} at delta {deltas[-1]:.1e} to 0 at "
        f"{deltas[0]:.3g}",
        ("delta", "epsilon"),
        tuple((f"{deltas[i]:.2e}", rounded_up(float(epsilons[i]))) for i in picked),
    )


def _simulated(stages: Sequence[StageView], run: Provenance | None) -> bool:
    if run is not None and run.simulated is not None:
        return run.simulated
    return any(simulated(stage.privacy) for stage in stages)


def _warnings(stages: Sequence[StageView], statement: PrivacyStatement) -> list[tuple[str, str]]:
    """Return what stands in red, once each; a study whose stages are private may not be."""
    found = list(dict.fromkeys(warning for stage in stages for warning in stage.warnings))
    if not statement.private and not found:
        found = [("NOT PRIVATE", "No finite epsilon is claimed for all stages together.")]
    return found


def _merged(stages: Sequence[StageView]) -> list[tuple[str, tuple[PartyRow, ...]]]:
    """Return who learnt what, once for stages of which the same is true."""
    found: dict[tuple[PartyRow, ...], list[str]] = {}
    for stage in stages:
        found.setdefault(stage.parties, []).append(stage.name)
    return [(" and ".join(names), rows) for rows, names in found.items()]


def _traffic(stages: Sequence[StageView]) -> list[tuple[str, str]]:
    """Return the bytes of each stage's messages, as planned or counted."""
    rows = []
    for view in stages:
        if view.bytes_per_client is not None and added(view.privacy) is not Added.CLEAR:
            each = f", each of {count(view.rounds, 'round')}" if view.rounds > 1 else ""
            rows.append((f"{view.name}: messages of one client{each}", size(view.bytes_per_client)))
    return rows
