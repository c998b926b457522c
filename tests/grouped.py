"""Settings of a run that tests write side by side, grouped as functions take them."""

import importlib
from collections.abc import Mapping
from typing import Any

from urna.tally import Run

RUN = {"ledger", "entry", "secrets", "keep", "progress", "force"}
FEDERATION = {"directory", "server_key", "least_clients", "wait_for", "deadlines", "transcripts"}


def grouped(given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return keywords, those of a `Run` and of a `Federation` made into one; None is left out."""
    flat = {name: value for name, value in {**given, **more}.items() if value is not None}
    made = {name: flat[name] for name in flat if name not in RUN | FEDERATION}
    run = {name: flat[name] for name in flat if name in RUN}
    reached = {name: flat[name] for name in flat if name in FEDERATION}
    if run:
        made["run"] = Run(**run)
    if reached:
        made["federation"] = importlib.import_module("urna.flower").Federation(**reached)
    return made
