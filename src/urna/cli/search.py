"""`urna search`: a private search from the command line, all clients on this machine."""

from urna.cli.candidates import SpaceOption, say_candidates
from urna.cli.once import run_once
from urna.cli.options import QuietOption, Said, keyed
from urna.cli.output import Format, FormatOption

__all__ = ["search"]


def _search(
    said: Said,
    space: SpaceOption = None,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Let clients agree on hyperparameters by secret ballot."""
    say_candidates(said, space)
    run_once(said, "vote", quiet=quiet, output=output)


search = keyed("search", _search)
