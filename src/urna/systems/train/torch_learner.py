"""Any torch module as a learner; other clients' data do not change what a client computes."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from urna.data import Samples, count_records
from urna.errors import ParameterError
from urna.local import Recipe, Recordings, Speed, TorchLoss, first_weights, hold_out, train_clients
from urna.local.engine.model import Loss, as_tensors, count_classes, mean_loss, require_torch
from urna.local.generators import own_generators
from urna.local.objective import note_failure
from urna.systems.train.layout import client_log
from urna.systems.train.learner import Draw, Matrix, Vector

if TYPE_CHECKING:
    from torch import Tensor, nn

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
InsteadT = TypeVar("InsteadT")
Gradients = Callable[["Tensor", "Tensor"], "Tensor"]

__all__ = ["TorchLearner"]

_ROWS = 4096  # rows judged at a time
_STACKED_ROWS = 256  # rows whose gradients are in memory at a time, at most
_NUMBERS = 1 << 25  # of these gradients together, at most
_FEWEST = 2  # rows that can be divided into some to train on and some to judge by


@dataclass(slots=True)
class TorchLearner:
    """A torch module, trained by SGD or AdamW on every client's own rows.

    Args:
        factory: Makes a fresh module. Modules whose buffers change while they train (batch
            norm's statistics) are refused: those would leave the client as data.
        recipe: How a client trains in one round; `proximal` is FedProx's pull.
        validation: Fraction of a client's rows that it judges the model by; none by default.
        loss: A `TorchLoss`, or a function (outputs, targets) -> mean loss over the rows.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        speed: What may be done to be faster.
    """

    factory: Callable[[], Any]
    recipe: Recipe = field(default_factory=lambda: Recipe(epochs=1))
    validation: float = 0.0
    loss: Loss = TorchLoss.CROSS_ENTROPY
    device: str = "auto"
    speed: Speed = field(default_factory=Speed)
    _recordings: Recordings = field(default_factory=Recordings, repr=False)
    _parts: "dict[int, tuple[Samples, Samples, Samples]]" = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        require_torch()
        if not 0 <= self.validation < 1:
            raise ParameterError(f"the share to judge by is in [0, 1), got {self.validation}")
        with own_generators(0):
            _check_buffers(self.factory())

    @property
    def description(self) -> str:
        """What is trained."""
        name = getattr(self.factory, "__name__", "a module")
        return f"torch module {name if name != '<lambda>' else 'of a lambda'}"

    def first_weights(self, *, seed: int) -> Vector:
        """Return a fresh module's parameters."""
        weights: Vector = first_weights(self.factory, seed=seed).parameters[0]
        return weights

    def train(
        self, weights: Vector, clients: Sequence[Samples], *, number: int, seeds: Sequence[int]
    ) -> Matrix:
        """Train every client, in a plain loop if it cannot be stacked; one that fails is NaN."""
        divided = [*_each(self._divided, clients, None)]
        sound = {place: parts[0] for place, parts in enumerate(divided) if parts is not None}
        found = np.full((len(clients), len(weights)), np.nan, dtype=np.float32)
        found[list(sound)] = train_clients(
            self.factory,
            weights,
            list(sound.values()),
            self.recipe,
            seeds=[seeds[place] for place in sound],
            loss=self.loss,
            device=self.device,
            speed=self.speed,
            first_epoch=(number - 1) * self.recipe.epochs,
            recordings=self._recordings,
        ).parameters
        return found

    def judge(self, weights: Vector, clients: Sequence[Samples]) -> npt.NDArray[np.float64]:
        """Return loss and accuracy on the rows that every client judges by; NaN where it cannot."""
        if not self.validation:
            raise ParameterError("this learner cannot validate: name its `validation`")
        module = self._ready(weights)

        def score(client: Samples) -> tuple[float, float]:
            return self._score(module, self._divided(client)[1])

        return np.array(list(_each(score, clients, (math.nan, math.nan)))).reshape(-1, 2)

    def scorer(self, rows: Samples) -> Callable[[Vector], tuple[float, float]]:
        """Return what judges weights by loss and accuracy on public rows; NaN where it cannot."""
        return lambda weights: self._score(self._ready(weights), rows)

    def _ready(self, weights: Vector) -> "nn.Module":
        from urna.local.engine.runner import pick_device  # imports torch

        module: nn.Module = self.module(weights).eval().to(pick_device(self.device))
        return module

    def _score(self, module: "nn.Module", part: Samples) -> tuple[float, float]:
        """Judge one set of rows by itself: a row's output may depend on the rows beside it."""
        import torch

        if not len(part):
            return math.nan, math.nan
        device = next(module.parameters()).device
        features, targets = as_tensors(part)
        with torch.no_grad():
            if self.loss is not TorchLoss.CROSS_ENTROPY:
                outputs = module(features.to(device))
                return float(mean_loss(outputs, targets.to(device), self.loss, 0.0)), math.nan
            losses = right = 0.0
            for start in range(0, len(part), _ROWS):
                some = targets[start : start + _ROWS].to(device)
                outputs = module(features[start : start + _ROWS].to(device)).float()
                each = torch.nn.functional.cross_entropy(outputs, some, reduction="none")
                losses += float(each.double().sum())
                right += float((outputs.argmax(dim=1) == some).double().sum())
        return losses / len(part), right / len(part)

    def module(self, weights: Vector) -> Any:  # noqa: ANN401 - a torch module
        """Return a module with these weights, for use after training."""
        import torch

        with own_generators(0):  # buffers as they are when clients train
            module = self.factory()
        own = [p for p in module.parameters() if p.requires_grad]
        sizes = [parameter.numel() for parameter in own]
        vector = torch.from_numpy(np.array(weights, dtype=np.float32))
        if len(vector) != sum(sizes):
            raise ParameterError("these weights are not of this module")
        with torch.no_grad():
            for parameter, part in zip(own, torch.split(vector, sizes), strict=True):
                parameter.copy_(part.view_as(parameter))
        return module

    def record_sums(
        self,
        weights: Vector,
        clients: Sequence[Samples],
        *,
        record_clip: float,
        draws: Sequence[Draw] | None = None,
    ) -> Matrix:
        """Return for every client minus the sum of its records' clipped gradients.

        Guarantee:
            As `RecordLearner`: each record that is drawn adds a vector of at most `record_clip`,
            computed from that record and the common weights alone. The row of a client whose data
            cannot be worked on is NaN.
        """
        module, nothing = self._ready(weights), np.full(len(weights), np.nan)
        drawing = iter(draws or [_every_record] * len(clients))

        def summed(client: Samples) -> Matrix:
            return _clipped_gradients(module, client, self.loss, record_clip, next(drawing))

        return np.stack(list(_each(summed, clients, nothing)))

    def tensors(self, weights: Vector) -> "dict[str, npt.NDArray[np.float32]]":
        """Return the weights by the names of the module's state, as in a file."""
        state: dict[str, Tensor] = self.module(weights).state_dict()
        return {name: tensor.float().numpy() for name, tensor in state.items()}

    def _divided(self, client: Samples) -> tuple[Samples, Samples]:
        """Return a client's rows to train on and to judge by, the same in every round."""
        kept = self._parts.get(id(client))
        if kept is None or kept[0] is not client:
            divided = client, client.take(np.zeros(0, dtype=np.intp))
            if self.validation and len(client) >= _FEWEST:
                held = hold_out(client, fraction=self.validation, seed=0)
                divided = held.train, held.validation
            kept = self._parts[id(client)] = (client, *divided)
        return kept[1], kept[2]

    def with_recipe(self, **settings: Any) -> "TorchLearner":  # noqa: ANN401 - a recipe's fields
        """Return the same learner with another recipe, such as the winner of a vote."""
        return replace(
            self, recipe=replace(self.recipe, **settings), _recordings=Recordings(), _parts={}
        )


def _each(
    work: Callable[[ItemT], ResultT], clients: Sequence[ItemT], instead: InsteadT
) -> Iterator[ResultT | InsteadT]:
    """Yield the work's result for each client, or `instead` where its data make it fail."""
    for place, client in enumerate(clients):
        try:
            with own_generators(0):  # a module may draw numbers of its own
                found: ResultT | InsteadT = work(client)
        except Exception as error:  # whatever a stranger's data make strangers' code raise
            note_failure(place, error)
            found = instead
        yield found


def _check_buffers(module: Any) -> None:  # noqa: ANN401 - a torch module
    """Refuse modules that gather statistics of their rows while they train."""
    from torch.nn.modules.batchnorm import _NormBase

    for name, part in module.named_modules():
        if isinstance(part, _NormBase) and part.track_running_stats:
            raise ParameterError(
                f"the layer {name or type(part).__name__!r} keeps running statistics of the rows "
                "it sees, which no update carries. Use GroupNorm, or "
                "track_running_stats=False."
            )


# --- single records' gradients, each clipped ------------------------------------------------------


def _every_record(count: int) -> npt.NDArray[np.bool_]:
    return np.ones(count, dtype=np.bool_)


def _clipped_gradients(
    module: Any,  # noqa: ANN401 - a torch module
    client: Samples,
    loss: Loss,
    record_clip: float,
    draw: Draw,
) -> npt.NDArray[np.float64]:
    """Return minus the sum of all drawn records' gradients, each at most `record_clip` long.

    A record is a row, or all rows of one id: they are drawn together, and their gradients are added
    up before that sum is clipped. A record that makes the module raise, or whose gradient is not
    finite, adds nothing, nor does a row whose target is none of the module's classes. All is
    computed in float64, so that neither the order of rows nor what stands beside a row matters
    beyond what `Encoding` allows for.

    Assumes:
        Rows do not mix in the module: no batch norm. The module is in evaluation mode, so
        nothing is drawn.
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
    at_once = max(1, min(_STACKED_ROWS, _NUMBERS // size))
    begun = torch.zeros_like(total)  # of a record whose rows do not end with a batch
    for start in range(0, len(order), at_once):
        places = torch.from_numpy(order[start : start + at_once])
        each = _sound_rows(per_row, features[places].to(device), targets[places].to(device), size)
        each[~known[places].to(device)] = 0.0
        if client.ids is not None:
            own = records[start : start + at_once]
            found, numbers = np.unique(own, return_inverse=True)  # records not drawn take no room
            sums = each.new_zeros((len(found), each.shape[1]))
            each = sums.index_add_(0, torch.from_numpy(numbers).to(device), each)
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
        parts = stacked(weights, rows, targets).values()
        return torch.cat([part.reshape(len(rows), -1) for part in parts], dim=1)

    nothing = row.new_zeros((2, *row.shape[1:])), target.new_zeros((2, *target.shape[1:]))
    try:
        together(*nothing)
    except Exception:  # whatever a stranger's module raises
        client_log.info("this module's gradients cannot be stacked: they are computed row by row")
        return one_by_one
    return together


def _sound_rows(per_row: Gradients, rows: "Tensor", targets: "Tensor", size: int) -> "Tensor":
    """Return every row's gradient, NaN for a row that makes the module raise."""
    try:
        return per_row(rows, targets)
    except Exception:  # whose row causes it shows one by one
        found = rows.new_full((len(rows), size), math.nan)
        for place in range(len(rows)):
            with contextlib.suppress(Exception):
                some = slice(place, place + 1)
                found[some] = per_row(rows[some], targets[some])
        return found


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
