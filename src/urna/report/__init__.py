"""A result as a page to show to a colleague, and results read back from their files."""

from urna.average import ModelResult
from urna.combine import Combination
from urna.errors import ParameterError
from urna.report.combination import combination_page
from urna.report.load import AnyResult, FailedRound, load_result
from urna.report.model import model_page
from urna.report.settings import settings_chart
from urna.report.training import training_page
from urna.report.vote import vote_page
from urna.report.winner import winner_page
from urna.train import TrainResult
from urna.vote import Result, WinnerResult

__all__ = ["AnyResult", "FailedRound", "load_result", "page", "settings_chart"]


def page(result: AnyResult, *, title: str) -> str:
    """Return the page about a result, as HTML text.

    Raises:
        ParameterError: There is nothing to show.
    """
    if isinstance(result, Result):
        return vote_page(result, title=title)
    if isinstance(result, WinnerResult):
        return winner_page(result, title=title)
    if isinstance(result, TrainResult):
        return training_page(result, title=title)
    if isinstance(result, ModelResult):
        return model_page(result, title=title)
    if isinstance(result, Combination):
        return combination_page(result, title=title)
    raise ParameterError(f"this round is {result.kind}: {result.reason}. There is no tally to show")
