"""`urna train`: private training from the command line, all clients on this machine."""

from typing import Annotated

import typer

from urna.cli.once import run_once
from urna.cli.options import QuietOption, Said, keyed
from urna.cli.output import Format, FormatOption

__all__ = ["train"]


def _train(
    said: Said,
    tune: Annotated[
        bool, typer.Option(help="Let clients vote on the step size first, within the same budget.")
    ] = False,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Train a model over clients whose data stay with them, under one privacy budget.

    Run again with the same output folder it goes on where it was interrupted.
    """
    run_once(said, *(["vote"] if tune else []), "train", quiet=quiet, output=output)


train = keyed("train", _train)
