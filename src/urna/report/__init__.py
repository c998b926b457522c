"""A result as a page to show to a colleague, and results read back from their files."""

from urna.report.page import assessment, page
from urna.report.pictures import settings_chart
from urna.report.results import (
    AnyResult,
    FailedRound,
    LedgerSummary,
    Provenance,
    StudyResult,
    account_of,
    load_result,
    load_run,
    load_whole,
)
from urna.report.seal import ReportSigner, Seal, read_seal

__all__ = [
    "AnyResult",
    "FailedRound",
    "LedgerSummary",
    "Provenance",
    "ReportSigner",
    "Seal",
    "StudyResult",
    "account_of",
    "assessment",
    "load_result",
    "load_run",
    "load_whole",
    "page",
    "read_seal",
    "settings_chart",
]
