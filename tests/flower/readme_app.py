"""The guide's lines for a Flower app, in the simulation: first without a policy, then with one.

Run in a folder of its own; prints what came of it as JSON.
"""

import json
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from urna.flower import Voter, poll
from urna.flower.gathering import Federation
from urna.flower.simulation import run_apps
from urna.local import CallableObjective
from urna.privacy import Budget, Ledger
from urna.space import Space

NODES = 40
POLICY = """
[privacy]
epsilon = 1.2
delta = 1e-5

[limits]
fewest_clients = 20

[grant.vote]
"""

space = Space(lr=[0.1, 0.3, 0.5])


def loss(candidate, data):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as people write it
    """Return how far a candidate is from what this node likes best."""
    return abs(candidate["lr"] - data)


def load_data(context: Context) -> float:
    """Return this node's data."""
    return 0.3


def main(grid: Grid, context: Context) -> list[dict[str, object]]:
    """Vote without a policy, with one, and once more: its ledgers have no room left."""
    return [vote(grid), write_policy(), vote(grid), ledgers(), vote(grid)]


def vote(grid: Grid) -> dict[str, object]:
    """Run a vote as the guide does."""
    try:
        result = poll(
            grid,
            space,
            budget=Budget(1.0, 1e-5),
            dropout=0.2,
            federation=Federation(wait_for=NODES),
        )
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"took_part": result.took_part, "lost": len(result.lost), "best": result.best}


def write_policy() -> dict[str, object]:
    """Write the policy that all nodes name."""
    Path("policy.toml").write_text(POLICY)
    return {}


def ledgers() -> dict[str, object]:
    """Return how many ledgers there are, and what each has counted."""
    files = sorted(Path().glob("policy.simulated/*/*.ledger"))
    return {"files": len(files), "entries": sorted({len(Ledger(f).entries()) for f in files})}


if __name__ == "__main__":
    app = ClientApp()
    Voter(CallableObjective(loss), load_data, policy="policy.toml").mount(app)
    print(json.dumps(run_apps(main, app, nodes=NODES)))
