"""Single records' gradients, each clipped: what may leave a client where records are protected."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples, count_records
from urna.local.engine.loss import Loss, TorchLoss, as_tensors, count_classes, mean_loss

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["clipped_gradients"]

_ROWS = 256  # rows whose gradients are in memory at a time


def clipped_gradients(
    module: Any,  # noqa: ANN401 - a torch module
    client: Samples,
    loss: Loss,
    record_clip: float,
) -> npt.NDArray[np.float64]:
    """Return minus the sum of all records' gradients, each of a norm of at most `record_clip`.

    A record is a row, or all rows of one id where rows have ids: their gradients are added up
    before that sum is clipped. A record whose gradient is not finite adds nothing, nor does a row
    whose target is none of the module's classes: a wrong record costs no other. The sum is one of
    float64, so that its order does not matter beyond rounding.

    Assumes:
        Rows do not mix in the module: no batch norm. The module is in evaluation mode, so
        nothing is drawn. A loss function of one's own raises for no record.

    Raises:
        ParameterError: Ids are neither integers nor texts.
    """
    import torch
    from torch.func import functional_call, grad, vmap

    module.eval()
    weights = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}
    device = next(iter(weights.values())).device

    def row_loss(given: "dict[str, Tensor]", row: "Tensor", target: "Tensor") -> "Tensor":
        return mean_loss(functional_call(module, given, (row[None],)), target[None], loss, 0.0)

    per_row = vmap(grad(row_loss), in_dims=(None, 0, 0))
    total = torch.zeros(sum(p.numel() for p in weights.values()), dtype=torch.float64)
    begun = torch.zeros_like(total)  # of a record whose rows do not end with a batch
    order, records = _by_record(client)
    features, targets = (tensor[torch.from_numpy(order)] for tensor in as_tensors(client))
    known = torch.ones(len(client), dtype=torch.bool)
    if loss is TorchLoss.CROSS_ENTROPY and targets.dim() == 1 and len(client):
        classes = count_classes(module, features[:1].to(device))
        known = (targets >= 0) & (targets < classes) & (targets == targets.round())
        targets = torch.where(known, targets, 0).long()
    for start in range(0, len(client), _ROWS):
        rows = features[start : start + _ROWS].to(device)
        found = per_row(weights, rows, targets[start : start + _ROWS].to(device))
        each = torch.cat([g.reshape(len(rows), -1) for g in found.values()], dim=1).double().cpu()
        each = torch.where(known[start : start + _ROWS, None], each, 0.0)
        own = records[start : start + _ROWS]
        flat = torch.zeros(int(own[-1] - own[0]) + 1, each.shape[1], dtype=torch.float64)
        flat.index_add_(0, torch.from_numpy(own - own[0]), each)
        flat[0] += begun
        begun = torch.zeros_like(total)
        if start + _ROWS < len(client) and records[start + _ROWS] == own[-1]:
            begun, flat = flat[-1].clone(), flat[:-1]
        norms = flat.norm(dim=1, keepdim=True)
        # A hair below, so that rounding of floats cannot pass the bound.
        flat *= (record_clip * (1 - 1e-9)) / norms.clamp(min=record_clip)
        total += torch.where(torch.isfinite(norms), flat, 0.0).nan_to_num(0.0).sum(dim=0)
    return np.asarray(-total.numpy())


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
