"""Agree on hyperparameters by secret ballot, then train, under one privacy budget.

Two lines of it::

    import urna
    result = urna.search(space, objective, clients, budget=urna.Budget(epsilon=1, delta=1e-5))
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from urna.errors import UrnaError
    from urna.privacy import Adjacency, Budget, Ledger
    from urna.report import load_result
    from urna.space import Axis, Space
    from urna.systems.average import fit as average
    from urna.systems.combine import combine
    from urna.systems.train import fit as train
    from urna.systems.vote import Reveal, VoteResult, plan, search

__all__ = [
    "Adjacency",
    "Axis",
    "Budget",
    "Ledger",
    "Reveal",
    "Run",
    "Space",
    "UrnaError",
    "VoteResult",
    "VoteSettings",
    "average",
    "combine",
    "load_result",
    "plan",
    "search",
    "train",
]
__version__ = "0.2.0"

_HOMES = {
    "Adjacency": "privacy:Adjacency",
    "Axis": "space:Axis",
    "Budget": "privacy:Budget",
    "Ledger": "privacy:Ledger",
    "Reveal": "systems.vote:Reveal",
    "Run": "tally:Run",
    "Space": "space:Space",
    "UrnaError": "errors:UrnaError",
    "VoteResult": "systems.vote:VoteResult",
    "VoteSettings": "systems.vote:VoteSettings",
    "average": "systems.average:fit",
    "combine": "systems.combine:combine",
    "load_result": "report:load_result",
    "plan": "systems.vote:plan",
    "search": "systems.vote:search",
    "train": "systems.train:fit",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import what is asked for: a command that only prints its help need not import numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'urna' has no attribute {name!r}")
    home, _, inside = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"urna.{home}"), inside)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
