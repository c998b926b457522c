"""Agree on hyperparameters by secret ballot, then train, under one privacy budget.

import urna
result = urna.search(space, objective, clients, budget=urna.Budget(epsilon=1, delta=1e-5))
"""

from urna.errors import UrnaError
from urna.privacy import Adjacency, Budget, Ledger
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
    "plan",
    "search",
]
__version__ = "0.1.0"
