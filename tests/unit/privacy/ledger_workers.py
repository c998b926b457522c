"""What the processes of the ledger's tests do."""

import os
from pathlib import Path

from urna.errors import BudgetExceeded
from urna.privacy import Budget, GaussianRelease, Ledger

__all__ = ["enter_forever", "enter_many", "open_new"]


def enter_many(path: str, prefix: str, count: int, multiplier: float) -> None:
    """Enter `count` releases; print the ids of those the ledger took."""
    ledger = Ledger(Path(path))
    for number in range(count):
        name = f"{prefix}-{number}"
        try:
            ledger.charge(GaussianRelease(multiplier), label="one of many", id=name)
        except BudgetExceeded:
            continue
        print(name, flush=True)


def enter_forever(path: str, prefix: str) -> None:
    """Enter releases until killed; print each id once it is entered."""
    ledger = Ledger(Path(path))
    number, parent = 0, os.getppid()
    while os.getppid() == parent:  # a test that fails must leave no process behind
        name = f"{prefix}-{number}"
        ledger.charge(GaussianRelease(1e3), label="until killed", id=name)
        print(name, flush=True)
        number += 1


def open_new(path: str, epsilon: float) -> None:
    """Open a ledger that another process may be creating; print its cap."""
    print(Ledger.open(Path(path), Budget(epsilon, 1e-5)).cap.epsilon, flush=True)
