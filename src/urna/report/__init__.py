"""A result as a page to show to a colleague, and results read back from their files."""

from urna.errors import ParameterError
from urna.report.load import AnyResult, FailedRound, load_result
from urna.report.training import training_page
from urna.report.vote import vote_page
from urna.train import TrainResult
from urna.vote import Result

__all__ = ["AnyResult", "FailedRound", "load_result", "page"]


def page(result: AnyResult, *, title: str) -> str:
    """Return the page about a result, as HTML text.

    Raises:
        ParameterError: There is nothing to show.
    """
    if isinstance(result, Result):
        return vote_page(result, title=title)
    if isinstance(result, TrainResult):
        return training_page(result, title=title)
    raise ParameterError(f"this round is {result.kind}: {result.reason}. There is no tally to show")
