"""Settings of a run that tests write side by side, grouped as functions take them."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from urna.study.held import Held
from urna.systems.vote import VoteSettings
from urna.tally import Run

RUN = {"ledger", "entry", "secrets", "keep", "progress", "force"}
VOTE = {
    "reveal",
    "ballot",
    "votes",
    "decoder",
    "rehearsal",
    "smallest_shard",
    "shard_seconds",
}
FEDERATION = {"directory", "server_key", "least_clients", "wait_for", "deadlines", "transcripts"}


def grouped(given: Mapping[str, Any] = MappingProxyType({}), **more: Any) -> dict[str, Any]:
    """Return keywords, those of a run, a federation and a vote grouped; None is left out."""
    flat = {name: value for name, value in {**given, **more}.items() if value is not None}
    made = {name: flat[name] for name in flat if name not in RUN | FEDERATION | VOTE}
    run = {name: flat[name] for name in flat if name in RUN}
    vote = {name: flat[name] for name in flat if name in VOTE}
    reached = {name: flat[name] for name in flat if name in FEDERATION}
    if run:
        made["run"] = Run(**run)
    if vote:
        made["settings"] = VoteSettings(**vote)
    if reached:
        made["federation"] = importlib.import_module("urna.flower").Federation(**reached)
    return made


def tuned(given: Mapping[str, Any] = MappingProxyType({}), **more: Any) -> dict[str, Any]:
    """Return keywords of what follows a vote: `vote`, `between`, `entries` are about that."""
    flat = {**given, **more}
    first, then = flat.pop("entries", (None, None))
    held = Held(vote=flat.pop("vote", None), keep=flat.pop("between", None), entry=first)
    made = grouped(flat, entry=then)
    if "settings" in made and isinstance(made["settings"], VoteSettings):
        made["voting"] = made.pop("settings")
    return made | {"held": held}
