"""Trains candidates, or clients, together and gives back scores or weights.

`Recordings.runner` is the way in, and all the rest of this package is there to make what it gives
fast: a runner searches a group of candidates on a client, trains clients from given weights, and
judges weights. It knows recipes, data and races, but no objective. Importing this package does not
import torch.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from urna.local.engine.model import Model, Tick, Weights, joined, out_of_memory
from urna.local.recipe import Recipe

if TYPE_CHECKING:
    from urna.local.engine.runner import Runner

__all__ = ["Model", "Recordings", "Tick", "Weights", "check_model", "joined"]


@dataclass(slots=True)
class Recordings:
    """Modules and recorded steps, kept from one call to the next; pickled, it is empty."""

    _runners: "dict[object, Runner]" = field(default_factory=dict, repr=False)

    @contextlib.contextmanager
    def runner(self, model: Model, recipes: Sequence[Recipe]) -> "Iterator[Runner]":
        """Yield what trains a model by such recipes, with what it has recorded so far.

        It serves one thread at a time.
        """
        from urna.local.engine.pieces import deterministic_kernels  # noqa: PLC0415
        from urna.local.engine.runner import Runner  # noqa: PLC0415 - imports torch
        from urna.local.engine.stack import Features  # noqa: PLC0415

        key = model, Features.of(recipes)
        found = self._runners.get(key)
        # Two threads may make one; both then use the same.
        runner = found or self._runners.setdefault(key, Runner(*key))
        with runner.lock, deterministic_kernels(model.repeatable):
            yield runner

    def __reduce__(self) -> tuple[type["Recordings"], tuple[()]]:
        return Recordings, ()


def check_model(model: Model) -> None:
    """Refuse a module that cannot be trained together, whatever the data; nothing is computed.

    Raises:
        CannotBatch: The module has recurrent layers.
    """
    import torch  # noqa: PLC0415 - the core runs without torch

    from urna.local.engine.gradients import refuse_recurrent  # noqa: PLC0415
    from urna.local.engine.runner import Runner  # noqa: F401, PLC0415 - imported for later

    try:
        with torch.device("meta"):
            module = model.build()
    except Exception:  # the factory needs real tensors, or cannot be called like this at all
        try:
            module = model.build()
        except RuntimeError as error:
            if out_of_memory(error):
                return  # its candidates will fail, and no others
            raise
    refuse_recurrent(module)
