"""`urna average`: one message per client, one model; all clients on this machine."""

from typing import Annotated

import typer

from urna.cli.candidates import SpaceOption, say_candidates
from urna.cli.once import run_once
from urna.cli.options import QuietOption, Said, keyed
from urna.cli.output import Format, FormatOption
from urna.errors import ParameterError

__all__ = ["average"]


def _average(
    said: Said,
    tune: Annotated[
        bool, typer.Option(help="Let clients vote on Λ, R and c first, under the same budget.")
    ] = False,
    space: SpaceOption = None,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Fit one model to all clients' data; each client sends one message, once."""
    if not tune and space:
        raise ParameterError("--space says how settings are voted on: add --tune")
    say_candidates(said, space)
    run_once(said, *(["vote"] if tune else []), "average", quiet=quiet, output=output)


average = keyed("average", _average)
