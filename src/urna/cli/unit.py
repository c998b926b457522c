"""The unit of protection on the command line: a client, or one of its records."""

from typing import Annotated

import typer

from urna.errors import ParameterError
from urna.privacy import Adjacency, Unit

__all__ = ["AdjacencyOption", "ShardsOption", "UnitOption", "relation"]

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


def relation(unit: Unit | None, adjacency: Adjacency | None, shards: int) -> Adjacency:
    """Return the neighbouring relation that was asked for.

    Raises:
        ParameterError: Unit, relation and shards contradict each other.
    """
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
