"""Settings of a run that tests write side by side, grouped as functions take them."""

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from urna.study import Tuned, VoteStage, tune
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


def tuned(
    follow: Any,
    clients: Sequence[Any],
    given: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Tuned:
    """Tune with keywords of the vote, of the run and of what follows, side by side.

    `vote`, `between` and `entries` are about the vote that was held, its keeping, and both ids.
    """
    flat = {**given, **more}
    first, then = flat.pop("entries", (None, None))
    before, keep = flat.pop("vote", None), flat.pop("between", None)
    space, seed = flat.pop("space", None), flat.pop("seed", 0)
    made = grouped(flat, entry=then)
    how = made.pop("settings", VoteSettings())
    vote = VoteStage(
        space=space,
        settings=how,
        seed=seed,
        before=before,
        entry=first,
        keep=keep,
        force=bool(flat.get("force")),
    )
    return tune(vote, follow, clients, **made)
