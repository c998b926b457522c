"""What the forked processes of the command line's tests run."""

import runpy
import sys

import urna.cli  # noqa: F401 - imported here so that no fork has to
from urna.privacy import Budget
from urna.vote import plan

__all__ = ["command"]

# Pricing takes most of a command's time. What is priced here once is known to every fork.
_small = plan(clients=60, candidates=3, votes=1, budget=Budget(0.2, 1e-2))
_small.epsilon_for(30.0)
_small.clients_for(0.5)
plan(clients=12, candidates=3, votes=1, budget=Budget(0.5, 1e-3))
for _votes in (1, 2):
    plan(clients=40, candidates=10, votes=_votes, budget=Budget(0.5, 1e-5))


def command(*arguments: str) -> None:
    """Be `python -m urna` with these arguments."""
    sys.argv = ["urna", *arguments]
    runpy.run_module("urna", run_name="__main__", alter_sys=True)
