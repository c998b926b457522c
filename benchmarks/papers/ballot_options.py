"""Ballots, decoders and candidates on the command line, named alike by every command."""

from pathlib import Path
from typing import Annotated

import typer

from urna.errors import ParameterError
from urna.space import Space
from urna.systems.vote import DecoderKind
from urna.systems.vote.ballot import BallotKind

__all__ = ["BallotOption", "DecoderOption", "VotesOption", "asked_space"]

BallotOption = Annotated[
    BallotKind | None,
    typer.Option(help="How a client spreads its vote; scored, or top-k if --votes is given."),
]
VotesOption = Annotated[
    int | None, typer.Option(help="How many candidates a top-k ballot names; 5 by default.")
]
DecoderOption = Annotated[
    DecoderKind, typer.Option(help="How the winner is read from the noisy votes.")
]

_CANDIDATES = 100  # unless one says otherwise


def asked_space(file: Path | None, candidates: int | None) -> tuple[Space | None, int]:
    """Return a plan's candidates, where a file names them, and how many they are.

    Raises:
        ParameterError: The file cannot be read, or holds another number than was named.
    """
    if file is None:
        return None, _CANDIDATES if candidates is None else candidates
    space = Space.read(file)
    if candidates not in (None, len(space)):
        raise ParameterError(
            f"the space has {len(space)} candidates, --candidates says {candidates}: leave one out"
        )
    return space, len(space)
