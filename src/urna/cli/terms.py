"""The terms of a private sum on the command line, named alike by every command."""

import os
from pathlib import Path
from typing import Annotated

import typer

from urna.errors import ParameterError
from urna.privacy import Adjacency, Ledger, Unit
from urna.protocols.secagg import ServerModel
from urna.tally import Options

__all__ = [
    "AdjacencyOption",
    "AnywayOption",
    "ColludingOption",
    "DeltaOption",
    "DropoutOption",
    "EpsilonOption",
    "LedgerOption",
    "QuietOption",
    "ScriptOption",
    "SeedOption",
    "ServerOption",
    "ShardsOption",
    "UnitOption",
    "cache_folder",
    "ledger_at",
    "terms_of",
]

EpsilonOption = Annotated[float, typer.Option(help="Privacy budget: epsilon.")]
DeltaOption = Annotated[float, typer.Option(help="Privacy budget: delta.")]
DropoutOption = Annotated[
    str, typer.Option(help="Largest part of the clients that may drop out: 0.2 or 1/5.")
]
ColludingOption = Annotated[
    str, typer.Option(help="Largest part that may tell the server their noise: 0.1 or 1/10.")
]
ServerOption = Annotated[
    ServerModel, typer.Option(help="Which server the secure summation protects against.")
]
AnywayOption = Annotated[bool, typer.Option(help="Hold a vote that cannot succeed all the same.")]
UnitOption = Annotated[
    Unit | None,
    typer.Option(
        help="What is protected: each client (default), or each single record of a client."
    ),
]
ShardsOption = Annotated[
    int,
    typer.Option(help="With --unit record: shards of records, each with a ballot, per client."),
]
AdjacencyOption = Annotated[
    Adjacency | None,
    typer.Option(
        help="Between which electorates the guarantee holds; by default that of the unit."
    ),
]
LedgerOption = Annotated[
    Path | None,
    typer.Option(help="Count what is released in this ledger (`urna ledger create`)."),
]
ScriptOption = Annotated[
    str | None, typer.Option(help="Repeatable secrets from this label. NOT PRIVATE.")
]
SeedOption = Annotated[int, typer.Option(help="Public seed of splits and of training.")]
QuietOption = Annotated[bool, typer.Option(help="Show no progress.")]


def ledger_at(path: Path | None) -> Ledger | None:
    """Return the ledger that was named, if one was."""
    return None if path is None else Ledger(path)


def cache_folder() -> Path:
    """Return where this user's programs keep losses, which can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "urna" / "losses"


def terms_of(
    dropout: str,
    colluding: str,
    unit: Unit | None,
    adjacency: Adjacency | None,
    shards: int,
    server: ServerModel,
) -> Options:
    """Return the terms that were asked for, but for the clients and the budget.

    Raises:
        ParameterError: Unit, relation and shards contradict each other.
    """
    return {
        "dropout": dropout,
        "colluding": colluding,
        "adjacency": _relation(unit, adjacency, shards),
        "shards": shards,
        "server": server,
    }


def _relation(unit: Unit | None, adjacency: Adjacency | None, shards: int) -> Adjacency:
    if unit is not None and adjacency is not None and adjacency.unit is not unit:
        raise ParameterError(
            f"--adjacency {adjacency} protects a {adjacency.unit}, --unit says {unit}: leave one "
            "of them out"
        )
    if adjacency is not None:
        found = adjacency
    else:
        by_record = unit is Unit.RECORD
        found = Adjacency.REPLACE_ONE_RECORD if by_record else Adjacency.REPLACE_ONE_CLIENT
    if shards > 1 and found.unit is Unit.CLIENT:
        raise ParameterError(
            f"--shards {shards} makes every client add up {shards} ballots, under noise made for "
            "one: say --unit record as well, which protects single records and not clients"
        )
    return found
