"""The stage of a combination: the setting, what was opened to find it, and what that promises."""

import math

from urna.report.parties import combined_parties, not_covered, parties
from urna.report.settings import settings_picture
from urna.report.stages import StageAnswer, StageView, participation_of, warnings_of
from urna.report.words import count, size, slug
from urna.systems.combine import Combination, Guarantee

__all__ = ["combination_stage"]

_SHOWN = 12

_SAID = {
    Guarantee.NONE: "Nothing was hidden: whoever combined saw every client's settings and scores.",
    Guarantee.ENCRYPTION: (
        "What clients put in was encrypted; what was opened is exact, and an exact result can tell "
        "about single clients."
    ),
    Guarantee.DP: "Differentially private: sums carry noise, and masks hid single clients' parts.",
    Guarantee.BOTH: (
        "Differentially private: sums carry noise, and threshold encryption hid single clients' "
        "parts."
    ),
}


def combination_stage(result: Combination, *, name: str = "Combination") -> StageView:
    """Return what a page shows of a combination: what was opened, and public facts.

    Without any guarantee it also shows the settings that clients kept.
    """
    statement, terms = result.privacy, result.terms
    exact = result.guarantee is Guarantee.ENCRYPTION
    warnings = warnings_of(statement)
    if exact:
        warnings = (("NO DIFFERENTIAL PRIVACY", _SAID[Guarantee.ENCRYPTION]),)
    elif result.guarantee is Guarantee.NONE:
        warnings = (("NOT PRIVATE", _SAID[Guarantee.NONE]),)
    told = [f"Found by {result.strategy}."]
    if not warnings:
        told.append(_SAID[result.guarantee])
    axes = ", ".join(f"{r.name} {r.low:g} to {r.high:g}" for r in result.frame.rulers)
    opened = " and ".join(f"{len(entries)}" for entries in result.opened)
    facts = {
        "strategy": result.strategy,
        "guarantee": str(result.guarantee),
        "axes": axes,
        **({"opened": f"{opened} numbers"} if opened else {}),
        **(
            {"noise in each": ", ".join(f"± {std:.3g}" for std in result.noise)}
            if result.noise
            else {}
        ),
        **_cost(result),
    }
    follows = (
        "What is trained with the setting. A model trained afterwards is private only if that "
        "training is, and is counted in the same ledger."
    )
    invited = (("invited", f"{result.clients}"), ("took part", f"{result.took_part}"))
    who = (
        combined_parties(result)
        if terms is None
        else parties(statement, terms, "part", "the noisy sums and so the setting")
    )
    return StageView(
        kind="combination",
        name=name,
        answer=StageAnswer(
            "One setting for all",
            tuple((axis, f"{value:.4g}") for axis, value in result.setting.items()),
            "",
            f"From {result.took_part} of {count(result.clients, 'client')}",
            tuple(told),
        ),
        privacy=statement,
        took_part=result.took_part,
        invited=result.clients,
        participation=invited if terms is None else participation_of(terms, result.took_part),
        parties=tuple(who),
        uncovered=tuple(not_covered(statement, follows=follows, noisy=terms is not None)),
        facts=tuple(facts.items()),
        lost=result.lost,
        when=result.when,
        bytes_per_client=int(result.cost["bytes_per_party"]) if result.cost else None,
        warnings=warnings,
        view={
            "pictures": [settings_picture(result, slug(name))],
            "clusters": _clusters(result),
            "more": max(0, len(result.clusters) - _SHOWN),
        },
        entry=result.entry,
    )


def _cost(result: Combination) -> dict[str, str]:
    if not result.cost:
        return {}
    return {"bytes of keys per party": size(result.cost["key_bytes_per_party"])}


def _clusters(result: Combination) -> list[tuple[str, ...]]:
    """Return rows: setting, mean score, size, cells, whether it was taken."""
    noisy = result.guarantee.private
    rows: list[tuple[str, ...]] = []
    for number, cluster in enumerate(result.clusters[:_SHOWN]):
        rows.append(
            (
                ", ".join(f"{axis} {value:.4g}" for axis, value in cluster.setting.items()),
                f"{cluster.score:.3f}" if math.isfinite(cluster.score) else "not known",
                f"{cluster.points:.1f} clients' worth" if noisy else f"{cluster.points:g} settings",
                f"{len(cluster.cells)}" if cluster.cells else "–",
                "taken" if number == 0 else "",
            )
        )
    return rows
