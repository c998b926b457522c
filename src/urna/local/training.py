"""The clients of one federated round, trained together from the same weights.

Each client trains on its own rows with a fresh optimiser, as it would alone; all of them run as
one stack, or in a plain loop where a module cannot be stacked. Nothing here is private: what
leaves a client is for others to clip and to noise. Torch is imported when something is trained,
not before.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import CannotBatch, ParameterError
from urna.local.engine import Model, Recordings, Weights, check_model
from urna.local.engine.batches import seeded_module, step_key
from urna.local.engine.model import (
    Loss,
    Speed,
    TorchLoss,
    as_tensors,
    check_loss,
    check_smoothing,
    check_targets,
    count_classes,
    require_torch,
)
from urna.local.generators import own_generators
from urna.local.objective import note_failure
from urna.local.recipe import Recipe
from urna.local.torch_modules import train_alone

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ClientWeights", "first_weights", "train_clients"]

Vector = npt.NDArray[np.float32]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ClientWeights:
    """Every client's weights after training, one row for each client."""

    parameters: Vector
    """Shape (clients, parameters), each row in the order of `module.parameters()`, flattened."""
    buffers: Vector
    """Shape (clients, numbers), likewise of `module.buffers()` (batch norm's statistics) and of
    parameters that are frozen; most modules have none."""


def first_weights(factory: Callable[[], Any], *, seed: int) -> ClientWeights:
    """Return a fresh module's weights as one row, drawn from the seed.

    Example:
        >>> from torch import nn
        >>> first_weights(lambda: nn.Linear(2, 3), seed=0).parameters.shape
        (1, 9)
    """
    require_torch()
    from urna.local.engine.stack import weights_of  # noqa: PLC0415 - imports torch

    with seeded_module(seed):
        lane = Weights(*weights_of(factory())).each(lambda tensor: tensor.detach()[None])
    return ClientWeights(*_rows(lane, 1))


def train_clients(
    factory: Callable[[], Any],
    weights: npt.ArrayLike,
    clients: Sequence[Samples],
    recipe: Recipe,
    *,
    seeds: Sequence[int],
    buffers: npt.ArrayLike | None = None,
    loss: Loss = TorchLoss.CROSS_ENTROPY,
    device: str = "auto",
    speed: Speed = Speed(),  # noqa: B008 - a frozen value
    first_epoch: int = 0,
    recordings: Recordings | None = None,
) -> ClientWeights:
    """Train every client from the same weights on its own rows, and return what each reached.

    Up to rounding this is what a loop over the clients computes. On a CPU clients of different
    sizes train together if they take equally many steps, where the loss is cross entropy and rows
    do not mix in the module (no batch norm); otherwise equally large ones do. A client whose
    module cannot be stacked (recurrent layers, control flow that depends on the data) trains in a
    plain loop, whatever the others do.

    Guarantee:
        A client's weights follow from its own rows and seed, to the last bit: other clients may
        hold anything, or not be there. On a CPU clients train in stacks of a fixed number of
        slots (`urna.local.engine.training`); on a GPU one after the other.

    Assumes:
        PyTorch's number of threads stays the same, and memory suffices: where it runs out,
        clients train alone, which may round otherwise.

    Args:
        factory: Makes a fresh module; only its structure and buffers are used.
        weights: The common parameters, one flat vector in the order of `module.parameters()`.
        clients: Each client's rows. One without rows keeps the weights.
        recipe: How each client trains: rate, momentum, epochs, batch size, and `proximal` for
            FedProx's pull to the common weights.
        seeds: One public seed per client, of its batches and dropout masks. Consecutive numbers
            are fastest: of clients with one remainder modulo 16, each has a stack of its own.
        buffers: The common buffers, likewise flat; by default those of a fresh module.
        loss: A `TorchLoss`, or a function (outputs, targets) -> mean loss over the rows.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        speed: What may be done to be faster.
        first_epoch: The number of this round's first epoch: batches and masks go on from there
            instead of repeating themselves. The learning rate begins anew with the recipe.
        recordings: Pass the same value in every round, and steps are recorded once for all.

    Returns:
        Every client's weights. All numbers of a client whose rows cannot be trained on are NaN,
        and the log of this process names the error's type.

    Raises:
        ParameterError: The weights do not fit the module, or a setting is out of range.
    """
    require_torch()
    check_loss(loss)
    check_smoothing([recipe], loss)
    if len(seeds) != len(clients):
        raise ParameterError(
            f"every client needs a seed, got {len(seeds)} seeds for {len(clients)} clients"
        )
    model = Model(factory, loss=loss, device=device, speed=speed)
    recordings = recordings or Recordings()
    start = _start(factory, weights, buffers)
    found = ClientWeights(
        *(np.full((len(clients), row.size), np.nan, np.float32) for row in _rows(start, 1))
    )

    def train(places: Sequence[int]) -> None:
        mine, own = [clients[p] for p in places], [seeds[p] for p in places]
        with recordings.runner(model, [recipe]) as runner:
            for some, trained in runner.train([recipe], start, mine, own, first_epoch):
                chosen = [places[i] for i in some]
                found.parameters[chosen], found.buffers[chosen] = _rows(trained, len(some))

    def train_together() -> list[int]:
        """Train in stacks; return the clients that cannot be in one, each by its own rows."""
        sound, apart = [], []
        for place, client in enumerate(clients):
            try:
                if len(client):
                    with recordings.runner(model, [recipe]) as runner:
                        runner.check(client)
                sound.append(place)
            except Exception as error:  # whatever is wrong with these rows
                note_failure(place, error)
        try:
            train(sound)
        except Exception:  # whose rows cause it shows one by one
            found.parameters[:] = found.buffers[:] = np.nan
            for place in sound:
                try:
                    train([place])
                except CannotBatch:
                    apart.append(place)
                except Exception as error:
                    note_failure(place, error)
        return apart

    try:
        check_model(model)
        apart = train_together()
    except CannotBatch:  # by its layers: no data were seen
        apart = [*range(len(clients))]
    if apart and not first_epoch:  # once, not in every round
        _log.warning("this module cannot be stacked: clients train one by one")
    for place in apart:
        try:
            with own_generators(step_key(seeds[place], first_epoch)):
                alone = _alone(model, start, clients[place], recipe, seeds[place], first_epoch)
            found.parameters[[place]], found.buffers[[place]] = _rows(alone, 1)
        except Exception as error:
            note_failure(place, error)
    return found


def _alone(
    model: Model, start: Weights, rows: Samples, recipe: Recipe, seed: int, first_epoch: int
) -> Weights:
    """Return what a client reaches from these weights in a plain loop."""
    import torch  # noqa: PLC0415 - the core runs without torch

    from urna.local.engine.runner import pick_device  # noqa: PLC0415
    from urna.local.engine.stack import weights_of  # noqa: PLC0415

    with seeded_module(0):
        module = model.build()
    given = start.parameters | start.buffers
    with torch.no_grad():
        for part in weights_of(module):
            for name, tensor in part.items():
                tensor.copy_(given[name][0])
    if len(rows) and model.loss == TorchLoss.CROSS_ENTROPY:
        inputs, targets = as_tensors(rows)
        check_targets(targets, count_classes(module, inputs))
    module.to(pick_device(model.device))
    train_alone(module, rows, recipe, model.loss, seed=seed, first_epoch=first_epoch)
    return Weights(*weights_of(module)).each(lambda tensor: tensor.detach()[None])


def _start(
    factory: Callable[[], Any], weights: npt.ArrayLike, buffers: npt.ArrayLike | None
) -> Weights:
    """Return flat vectors as one lane of a module's weights."""
    import torch  # noqa: PLC0415 - the core runs without torch

    from urna.local.engine.stack import weights_of  # noqa: PLC0415

    with seeded_module(0):
        parameters, own = weights_of(factory())

    def shaped(kind: str, like: "dict[str, Tensor]", given: npt.ArrayLike) -> "dict[str, Tensor]":
        vector = torch.from_numpy(np.array(given, dtype=np.float32).ravel())
        needed = sum(tensor.numel() for tensor in like.values())
        if len(vector) != needed:
            raise ParameterError(f"the module has {needed:,} {kind}, got {len(vector):,}")
        parts = torch.split(vector, [tensor.numel() for tensor in like.values()])
        return {
            name: part.view(1, *tensor.shape).to(tensor.dtype)
            for (name, tensor), part in zip(like.items(), parts, strict=True)
        }

    if buffers is None:
        state = {name: tensor.detach()[None] for name, tensor in own.items()}
    else:
        state = shaped("numbers in buffers", own, buffers)
    return Weights(shaped("parameters", parameters, weights), state)


def _rows(weights: Weights, clients: int) -> tuple[Vector, Vector]:
    """Return parameters and buffers of some clients as one flat row each."""
    import torch  # noqa: PLC0415 - the core runs without torch

    def flat(part: "dict[str, Tensor]") -> Vector:
        if not part:
            return np.zeros((clients, 0), np.float32)
        flattened = [t.reshape(clients, -1).float() for t in part.values()]
        rows: Vector = torch.cat(flattened, dim=1).cpu().numpy()
        return rows

    return flat(weights.parameters), flat(weights.buffers)
