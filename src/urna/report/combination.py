"""The page about a combination: the setting, what was opened to find it, and what that promises."""

import datetime
import math
from html import escape

from urna.combine import Combination, Guarantee
from urna.report.sections import electorate, privacy
from urna.report.settings import legend, settings_chart
from urna.report.shell import document, facts, notes, section

__all__ = ["combination_page"]

_SHOWN = 12

_SAID = {
    Guarantee.NONE: "Nothing was hidden: whoever combined saw every client's settings and scores.",
    Guarantee.ENCRYPTION: (
        "NO DIFFERENTIAL PRIVACY: what clients put in was encrypted, what was opened is exact, and "
        "an exact result can tell about single clients."
    ),
    Guarantee.DP: "Differentially private: sums carry noise, and masks hid single clients' parts.",
    Guarantee.BOTH: (
        "Differentially private: sums carry noise, and threshold encryption hid single clients' "
        "parts."
    ),
}


def combination_page(result: Combination, *, title: str) -> str:
    """Return the page about a combination. It shows what was opened and public facts.

    Without any guarantee it also shows the settings that clients kept.
    """
    body = [
        section(
            "Setting for all",
            facts("best", {name: f"{value:.4g}" for name, value in result.setting.items()}),
            notes(f"By {result.strategy}. {_SAID[result.guarantee]}"),
        ),
        section("Settings and clusters", settings_chart(result), notes(legend(result))),
    ]
    if result.clusters:
        body.append(section("Clusters", _clusters(result)))
    if result.terms is not None:
        body += [
            privacy(result.privacy, result.terms),
            electorate(result.terms, result.took_part, result.lost, {}, _opened(result)),
        ]
    else:
        body.append(_without_noise(result))
    held = ""
    if result.when is not None:
        held = f"{datetime.datetime.fromtimestamp(result.when, datetime.UTC):%Y-%m-%d %H:%M} UTC. "
    axes = ", ".join(f"{r.name} {r.low:g} to {r.high:g}" for r in result.frame.rulers)
    # The shell's own warning would say that nothing is protected, which is true of none alone.
    private = result.guarantee is not Guarantee.NONE
    footer = f"{held}Axes: {escape(axes)}."
    return document(title, "One setting for all", "".join(body), footer, private=private)


def _clusters(result: Combination) -> str:
    noisy = result.guarantee.private
    rows = []
    for number, cluster in enumerate(result.clusters[:_SHOWN], start=1):
        setting = ", ".join(f"{name} {value:.4g}" for name, value in cluster.setting.items())
        size = f"{cluster.points:.1f} clients' worth" if noisy else f"{cluster.points:g} settings"
        known = math.isfinite(cluster.score)
        score = f"mean score {cluster.score:.3f}, " if known else "score not known, "
        many = len(cluster.cells)
        cells = f", {many} cell{'s' if many > 1 else ''}" if many else ""
        rows.append(
            f"<li>{escape(setting)}: {score}{size}{cells}{' (taken)' if number == 1 else ''}</li>"
        )
    more = len(result.clusters) - len(rows)
    rest = f"<li>and {more} more</li>" if more > 0 else ""
    return f"<ol>{''.join(rows)}{rest}</ol>"


def _opened(result: Combination) -> dict[str, str]:
    sizes = " and ".join(f"{len(entries)}" for entries in result.opened)
    return {"opened": f"{sizes} numbers"} if result.opened else {}


def _without_noise(result: Combination) -> str:
    said = {
        "invited": f"{result.clients} clients",
        "took part": f"{result.took_part}",
        "guarantee": str(result.guarantee),
        **_opened(result),
    }
    if result.cost:
        if "party_seconds" in result.cost:
            seconds = result.cost["party_seconds"] + result.cost["server_seconds"]
            said["CPU time of all"] = f"{seconds:.2f} s"
        said |= {
            "bytes per party": f"{result.cost['bytes_per_party'] / 1e6:.2f} MB",
            "and keys": f"{result.cost['key_bytes_per_party'] / 1e6:.2f} MB",
        }
    lost = [f"Client {client} is not in it: {why}." for client, why in result.lost.items()]
    caveats = [f"{caveat.rstrip('.')}." for caveat in result.privacy.caveats]
    return section("What was promised", facts("facts", said), notes(*caveats, *lost[:_SHOWN]))
