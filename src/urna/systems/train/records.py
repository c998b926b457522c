"""Single records' gradients, each clipped: what may leave a client where records are protected."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples, count_records
from urna.local.engine.model import Loss, TorchLoss, as_tensors, count_classes, mean_loss
from urna.systems.train.layout import client_log
from urna.systems.train.learner import Draw

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["clipped_gradients", "every_record"]

_ROWS = 256  # rows whose gradients are in memory at a time, at most
_NUMBERS = 1 << 25  # of these gradients together, at most

Gradients = Callable[["Tensor", "Tensor"], "Tensor"]


def every_record(count: int) -> npt.NDArray[np.bool_]:
    """Draw all of so many records."""
    return np.ones(count, dtype=np.bool_)


def clipped_gradients(
    module: Any,  # noqa: ANN401 - a torch module
    client: Samples,
    loss: Loss,
    record_clip: float,
    draw: Draw = every_record,
) -> npt.NDArray[np.float64]:
    """Return minus the sum of all drawn records' gradients, each at most `record_clip` long.

    A record is a row, or all rows of one id where rows have ids: they are drawn together, and
    their gradients are added up before that sum is clipped. A record whose gradient is not finite
    adds nothing, nor does a row whose target is none of the module's classes: a wrong record costs
    no other. All is computed in float64, so that neither the order of rows nor what stands beside
    a row matters beyond rounding that `Encoding` allows for.

    Assumes:
        Rows do not mix in the module: no batch norm. The module is in evaluation mode, so
        nothing is drawn. A loss function of one's own raises for no record.

    Raises:
        ParameterError: Ids are neither integers nor texts.
    """
    import torch

    module.eval().double()
    weights = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}
    device, size = next(iter(weights.values())).device, sum(p.numel() for p in weights.values())
    total = torch.zeros(size, dtype=torch.float64, device=device)
    order, records = _by_record(client)
    if not len(order):
        return np.zeros(size)
    drawn = draw(int(records[-1]) + 1)[records]
    order, records = order[drawn], records[drawn]
    features, targets = as_tensors(client)
    features = features.double()
    known = torch.ones(len(client), dtype=torch.bool)
    if loss is TorchLoss.CROSS_ENTROPY and targets.dim() == 1:
        classes = count_classes(module, features[:1].to(device))
        known = (targets >= 0) & (targets < classes) & (targets == targets.round())
        targets = torch.where(known, targets, 0).long()
    per_row = _per_row(module, weights, loss, features[:1].to(device), targets[:1].to(device))
    at_once = max(1, min(_ROWS, _NUMBERS // size))
    begun = torch.zeros_like(total)  # of a record whose rows do not end with a batch
    for start in range(0, len(order), at_once):
        places = torch.from_numpy(order[start : start + at_once])
        each = per_row(features[places].to(device), targets[places].to(device))
        each[~known[places].to(device)] = 0.0
        if client.ids is not None:
            own = records[start : start + at_once]
            each = _summed(each, torch.from_numpy(own - own[0]).to(device))
            each[0] += begun
            begun = torch.zeros_like(total)
            if start + at_once < len(order) and records[start + at_once] == own[-1]:
                begun, each = each[-1].clone(), each[:-1]
        norms = each.norm(dim=1)
        sound = torch.isfinite(norms)
        # A hair below, so that rounding of floats cannot pass the bound.
        factors = record_clip * (1 - 1e-9) / norms[sound].clamp(min=record_clip)
        total += factors @ each[sound]
    return np.asarray(-total.cpu().numpy())


def _per_row(
    module: Any,  # noqa: ANN401 - a torch module
    weights: "dict[str, Tensor]",
    loss: Loss,
    row: "Tensor",
    target: "Tensor",
) -> Gradients:
    """Return what computes every row's gradient: of many rows at once where the module can.

    That is tried on two rows of zeros like this one: what rows hold must not decide it.
    """
    import torch
    from torch.func import functional_call, grad, vmap

    def row_loss(given: "dict[str, Tensor]", row: "Tensor", target: "Tensor") -> "Tensor":
        return mean_loss(functional_call(module, given, (row[None],)), target[None], loss, 0.0)

    def flat(found: "dict[str, Tensor]", rows: int) -> "Tensor":
        return torch.cat([part.reshape(rows, -1) for part in found.values()], dim=1)

    def one_by_one(rows: "Tensor", targets: "Tensor") -> "Tensor":
        found = []
        given = {name: part.requires_grad_() for name, part in weights.items()}
        for one in zip(rows, targets, strict=True):
            parts = torch.autograd.grad(
                row_loss(given, *one), list(given.values()), materialize_grads=True
            )
            found.append(torch.cat([part.reshape(-1) for part in parts]))
        return torch.stack(found)

    stacked = vmap(grad(row_loss), in_dims=(None, 0, 0))

    def together(rows: "Tensor", targets: "Tensor") -> "Tensor":
        return flat(stacked(weights, rows, targets), len(rows))

    nothing = row.new_zeros((2, *row.shape[1:])), target.new_zeros((2, *target.shape[1:]))
    try:
        together(*nothing)
    except Exception:  # whatever a stranger's module raises
        client_log.info("this module's gradients cannot be stacked: they are computed row by row")
        return one_by_one
    return together


def _summed(each: "Tensor", numbers: "Tensor") -> "Tensor":
    """Return the sums of rows with the same number, in the order of numbers."""
    sums = each.new_zeros((int(numbers[-1]) + 1, each.shape[1]))
    return sums.index_add_(0, numbers, each)


def _by_record(client: Samples) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Return an order of rows in which those of a record follow each other, and their records."""
    if client.ids is None:
        return np.arange(len(client)), np.arange(len(client), dtype=np.int64)
    count_records(client)  # refuses values that are no ids
    numbers: dict[Any, int] = {}
    records = np.array(
        [numbers.setdefault(value, len(numbers)) for value in client.ids.tolist()], dtype=np.int64
    )
    order = np.argsort(records, kind="stable")
    return order, records[order]
