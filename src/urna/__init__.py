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
    from urna.vote import Result, plan, search

__all__ = [
    "Adjacency",
    "Axis",
    "Budget",
    "Ledger",
    "Result",
    "Space",
    "UrnaError",
    "load_result",
    "plan",
    "search",
]
__version__ = "0.2.0"

_HOMES = {
    "Adjacency": "privacy",
    "Axis": "space",
    "Budget": "privacy",
    "Ledger": "privacy",
    "Result": "vote",
    "Space": "space",
    "UrnaError": "errors",
    "load_result": "report",
    "plan": "vote",
    "search": "vote",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import what is asked for: a command that only prints its help need not import numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'urna' has no attribute {name!r}")
    return getattr(importlib.import_module(f"urna.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
