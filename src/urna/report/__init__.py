"""A result as a page to show to a colleague, and results read back from their files."""

from urna.errors import ParameterError
from urna.report.combination import combination_stage
from urna.report.document import document
from urna.report.load import AnyResult, FailedRound, load_result, load_run, load_whole
from urna.report.model import model_stage
from urna.report.run import LedgerSummary, Provenance, account_of
from urna.report.seal import ReportSigner, Seal, read_seal
from urna.report.settings import settings_chart
from urna.report.stages import StageView
from urna.report.study import StageResult, StudyResult
from urna.report.training import training_stage
from urna.report.vote import vote_stage
from urna.systems.average import ModelResult
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult

__all__ = [
    "AnyResult",
    "FailedRound",
    "LedgerSummary",
    "Provenance",
    "ReportSigner",
    "Seal",
    "StudyResult",
    "account_of",
    "load_result",
    "load_run",
    "load_whole",
    "page",
    "read_seal",
    "settings_chart",
]

_HEADINGS = {
    "vote": "The vote is in",
    "winner": "The winner is known",
    "model": "One message, one model",
    "training": "The model is trained",
    "combination": "One setting for all",
}


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
    if isinstance(result, FailedRound):
        raise ParameterError(
            f"this round is {result.kind}: {result.reason}. There is no tally to show"
        )
    if isinstance(result, StudyResult):
        stages = [_stage(each, name[:1].upper() + name[1:]) for name, each in result.stages]
        heading = "The study is done"
    else:
        stages = [_stage(result)]
        heading = _HEADINGS[stages[0].kind]
    return document(
        stages,
        result.privacy,
        title=title,
        heading=heading,
        when=result.when,
        run=run,
        sha256=sha256,
        signer=signer,
    )


def _stage(result: StageResult, name: str | None = None) -> StageView:
    named = {} if name is None else {"name": name}
    if isinstance(result, VoteResult):
        return vote_stage(result, **named)
    if isinstance(result, TrainResult):
        return training_stage(result, **named)
    if isinstance(result, ModelResult):
        return model_stage(result, **named)
    return combination_stage(result, **named)
