"""A node's own app, tried on the node's own data before anybody asks for anything."""

import importlib
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, RecordDict, UserConfig
from flwr.common.config import parse_config_args

from urna.errors import ParameterError
from urna.flower.site import ON_APP
from urna.flower.updates import ModelLetter, Updates
from urna.flower.votes import Votes
from urna.space import Space
from urna.systems.train.layout import norm_of
from urna.systems.vote.fill import as_space

_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class NodeApp:
    """The nodes' part of a Flower app, as its folder holds it.

    Args:
        folder: The app's folder, with its `pyproject.toml`.
        node_config: The node's own configuration, as `--node-config` says it.
    """

    folder: Path
    node_config: str = ""

    def find(self, named: str) -> Any:  # noqa: ANN401 - whatever it names
        """Return what `module:name` names in the app."""
        module, _, name = named.partition(":")
        if (where := str(self.folder.resolve())) not in sys.path:
            sys.path.insert(0, where)
        found = getattr(importlib.import_module(module), name, None) if name else None
        if found is None:
            raise ParameterError(f"{named!r} names nothing: say module:name, as in client_app:app")
        return found

    def try_out(self, space: str = "", model: str = "", config: str = "") -> list[str]:
        """Evaluate one candidate, or train for one step; return what came of it, line by line.

        It happens as in a round: in a process of its own where a vote would use one. Nothing is
        announced, noted or charged, and nothing leaves the node.

        Args:
            space: What names the candidates, or a function that returns them.
            model: What names the weights that training begins with: arrays, by name or in a
                list, a torch module, or a function that returns one of these.
            config: What the server's strategy would tell its clients.
        """
        app, told = self._project(), list[str]()
        part = getattr(self.find(str(app["components"]["clientapp"])), ON_APP, None)
        run_config = _flat(app.get("config", {}))
        context = Context(0, 0, _config(self.node_config), RecordDict(), run_config)
        for contributor in getattr(part, "contributors", ()):
            if isinstance(contributor, Votes) and (space or contributor.space) and not told:
                one = (contributor.space or as_space(self._made(space))).only([0])
                (loss,) = contributor.losses(context, one, 0, _SECONDS)
                told.append(f"candidate {dict(next(iter(one)))}: loss {loss:.6g}")
            if isinstance(contributor, Updates) and model:
                said = {"server-round": 1, **_config(config)}
                letter = replace(ModelLetter.of(_arrays(self._made(model))), config=said)
                norm = norm_of(contributor.update(letter, context, 1, _SECONDS))
                told.append(f"one step of training: an update of norm {norm:.6g}")
        if not told:
            raise ParameterError(
                "there is nothing to try: name --space for a Voter, or --model for a Trainer, that "
                "is mounted on the app"
            )
        return told

    def _project(self) -> dict[str, Any]:
        path = self.folder / "pyproject.toml"
        try:
            found: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))["tool"]["flwr"]["app"]
            found["components"]["clientapp"]
        except (OSError, ValueError, KeyError) as error:
            raise ParameterError(f"{path} describes no Flower app: {error}") from error
        return found

    def _made(self, named: str) -> Any:  # noqa: ANN401 - whatever it names
        found = self.find(named)
        is_value = isinstance(found, Space) or hasattr(found, "state_dict")
        return found() if isinstance(found, type) or (callable(found) and not is_value) else found


def _arrays(given: Any) -> ArrayRecord:  # noqa: ANN401 - whatever people train
    """Return weights as Flower carries them."""
    if isinstance(given, ArrayRecord):
        return given
    given = given.state_dict() if hasattr(given, "state_dict") else given
    if isinstance(given, Mapping):
        return ArrayRecord({name: Array(np.asarray(part)) for name, part in given.items()})
    return ArrayRecord(list(given) if isinstance(given, list | tuple) else [np.asarray(given)])


def _config(said: str) -> UserConfig:
    """Read what the command line says, as in 'lr=0.1 epochs=1'."""
    return parse_config_args([said] if said else None)


def _flat(config: Mapping[str, Any], before: str = "") -> UserConfig:
    """Return an app's configuration as nodes get it: nested names joined by dots."""
    found: UserConfig = {}
    for name, value in config.items():
        nested = isinstance(value, Mapping)
        found |= _flat(value, f"{before}{name}.") if nested else {f"{before}{name}": value}
    return found
