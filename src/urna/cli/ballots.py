"""Ballots and decoders on the command line, named alike by every command."""

from typing import Annotated

import typer

from urna.vote import BallotKind, DecoderKind

__all__ = ["BallotOption", "DecoderOption", "VotesOption"]

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
