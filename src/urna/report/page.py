"""A result as one HTML page, or as a draft of an impact assessment, from one description."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import jinja2

from urna.errors import ParameterError
from urna.privacy import PrivacyStatement, Unit
from urna.privacy.budget import rounded_down, rounded_up
from urna.report.parties import Added, PartyRow, added
from urna.report.promise import Promise
from urna.report.results import AnyResult, FailedRound, Provenance, StudyResult
from urna.report.seal import ReportSigner, sealed
from urna.report.views import StageView, view_of
from urna.report.words import count, day, size
from urna.tally.card import header, simulated

Line = TypeVar("Line")

_LISTED = 12  # clients that are named one by one


def page(
    result: AnyResult,
    *,
    title: str,
    run: Provenance | None = None,
    sha256: str | None = None,
    signer: ReportSigner | None = None,
) -> str:
    """Return the page about a result, as HTML text that stands alone.

    It shows noisy sums and public facts, nothing else; a combination without any guarantee
    also shows the settings that clients kept.

    Args:
        result: What is shown; a study's has a part for each of its stages.
        title: What the page is called.
        run: How the result came about, where that is known.
        sha256: Digest of the file that holds the result, where there is one.
        signer: Who signs the page; nobody by default.

    Raises:
        ParameterError: There is nothing to show.
    """
    return sealed(_rendered("page.html", result, title, run, sha256), signer)


def assessment(
    result: AnyResult, *, title: str, run: Provenance | None = None, sha256: str | None = None
) -> str:
    """Return a draft of an impact assessment (Art. 35(7) GDPR) about a result, as Markdown.

    It says what the result and its study file say, and marks what neither knows. It takes what
    `page` takes, and raises what that raises.
    """
    return _rendered("assessment.md", result, title, run, sha256)


def _rendered(
    template: str, result: AnyResult, title: str, run: Provenance | None, sha256: str | None
) -> str:
    """Return a template about a result that somebody else may have written."""
    environment = _environment()
    if template.endswith(".md"):
        environment = environment.overlay(autoescape=False, finalize=_in_markdown)
    try:
        shown = _described(result, title, run, sha256)
        return environment.get_template(template).render(shown)
    except ParameterError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ParameterError(f"the result has values that cannot be shown: {error!r}") from error


def _in_markdown(value: object) -> str:
    """Return a value as text of one line that neither begins a tag nor ends a table's cell."""
    line = " ".join(str(value).split())
    return line.replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")


def _described(
    result: AnyResult, title: str, run: Provenance | None, sha256: str | None
) -> dict[str, Any]:
    """Return everything that templates show of a result, by the names that they use."""
    if isinstance(result, FailedRound):
        raise ParameterError(
            f"this round is {result.kind}: {result.reason}. There is no tally to show"
        )
    if isinstance(result, StudyResult):
        stages = [view_of(each, name[:1].upper() + name[1:]) for name, each in result.stages]
        heading = "The study is done"
    else:
        stages = [view_of(result)]
        heading = stages[0].heading
    statement = result.privacy
    played = any(simulated(stage.privacy) for stage in stages)
    if run is not None and run.simulated is not None:
        played = run.simulated
    account = None if run is None else run.account
    ledger = None if account is None else account.name
    return {
        "title": title,
        "heading": heading,
        "header": header(statement, played=played, ledger=ledger),
        "about": {} if run is None else run.about,
        "data": {} if run is None else run.stated("data"),
        "stages": stages,
        "promise": Promise.of(statement),
        "simulated": played,
        "warnings": _warnings(stages, statement),
        "large_delta": _large_delta(stages, statement),
        "parties": _merged(stages),
        "assumptions": _once(line for stage in stages for line in stage.assumptions),
        "uncovered": _uncovered(stages),
        "run": run,
        "account": account,
        "traffic": _traffic(stages),
        "when": result.when,
        "sha256": sha256,
        "listed": _LISTED,
    }


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("urna.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ours = {"rounded_down": rounded_down, "rounded_up": rounded_up}
    environment.filters |= {"count": count, "day": day, "size": size, **ours}
    return environment


def _once(lines: Iterable[Line]) -> list[Line]:
    return list(dict.fromkeys(lines))


def _warnings(stages: Sequence[StageView], statement: PrivacyStatement) -> list[tuple[str, str]]:
    """Return what stands in red, once each; a study whose stages are private may not be."""
    found = _once(warning for stage in stages for warning in stage.warnings)
    if not statement.private and not found:
        found = [("NOT PRIVATE", "No finite epsilon is claimed for all stages together.")]
    return found


def _large_delta(stages: Sequence[StageView], statement: PrivacyStatement) -> int | None:
    """Return of how many clients delta is no small part, where clients are protected."""
    clients = max((s.result.terms.clients for s in stages if s.result.terms is not None), default=0)
    by_client = statement.private and statement.adjacency.unit is Unit.CLIENT
    return clients if by_client and 10 * clients * statement.delta >= 1 else None


def _uncovered(stages: Sequence[StageView]) -> list[str]:
    """Return what is not covered; what follows a stage is, if it is a stage of the study."""
    lines = [line for stage in stages for line in stage.uncovered]
    return _once([*lines[:1], stages[-1].follows, *lines[1:]])


def _merged(stages: Sequence[StageView]) -> list[tuple[str, tuple[PartyRow, ...]]]:
    """Return who learned what, once for stages of which the same is true."""
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
