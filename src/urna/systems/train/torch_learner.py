"""Any torch module as a learner; other clients' data do not change what a client computes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import Recipe, Recordings, Speed, TorchLoss, first_weights, hold_out, train_clients
from urna.local.engine.model import Loss, as_tensors, mean_loss, require_torch
from urna.local.generators import own_generators
from urna.local.objective import note_failure
from urna.systems.train.learner import Draw, Matrix, Vector
from urna.systems.train.records import clipped_gradients, every_record

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

ResultT = TypeVar("ResultT")
InsteadT = TypeVar("InsteadT")

__all__ = ["TorchLearner"]

_ROWS = 4096  # rows judged at a time
_FEWEST = 2  # rows that can be divided into some to train on and some to judge by


@dataclass(slots=True)
class TorchLearner:
    """A torch module, trained by SGD or AdamW on every client's own rows.

    Args:
        factory: Makes a fresh module. Modules whose buffers change while they train (batch
            norm's statistics) are refused: those would leave the client as data. Take
            `GroupNorm`, or batch norm with `track_running_stats=False`.
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
        """Train every client from the common weights; rows of one that fails are NaN."""
        divided = [*_each(self._divided, clients, None)]
        sound = [place for place, parts in enumerate(divided) if parts is not None]
        found = np.full((len(clients), len(weights)), np.nan, dtype=np.float32)
        found[sound] = train_clients(
            self.factory,
            weights,
            [parts[0] for parts in divided if parts is not None],
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
        """Return loss and accuracy on the rows that every client judges by.

        NaN for a client without such rows, or whose rows cannot be judged.
        """
        if not self.validation:
            raise ParameterError("this learner cannot validate: name its `validation`")
        module = self._ready(weights)

        def score(client: Samples) -> tuple[float, float]:
            return self._score(module, self._divided(client)[1])

        return np.array(list(_each(score, clients, (math.nan, math.nan)))).reshape(-1, 2)

    def scorer(self, rows: Samples) -> Callable[[Vector], tuple[float, float]]:
        """Return what judges weights by loss and accuracy on some public rows.

        The accuracy is NaN where targets are no classes; both are where there are no rows.
        """
        return lambda weights: self._score(self._ready(weights), rows)

    def _ready(self, weights: Vector) -> "nn.Module":
        module: nn.Module = self.module(weights).eval().to(_device(self.device))
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
            Each record that is drawn adds a vector of at most `record_clip` to the sum, computed
            from that record and the common weights alone, so leaving one out moves it by at most
            `record_clip` and replacing one by twice that. A record is all rows of one id, or a
            row where there are no ids. The row of a client whose data cannot be worked on is NaN.
        """
        module, nothing = self._ready(weights), np.full(len(weights), np.nan)
        drawing = iter(draws or [every_record] * len(clients))

        def summed(client: Samples) -> Matrix:
            return clipped_gradients(module, client, self.loss, record_clip, next(drawing))

        return np.stack(list(_each(summed, clients, nothing)))

    def tensors(self, weights: Vector) -> "dict[str, npt.NDArray[np.float32]]":
        """Return the weights by the names of the module's state, as in a file."""
        state: dict[str, Tensor] = self.module(weights).state_dict()
        return {name: tensor.float().numpy() for name, tensor in state.items()}

    def _divided(self, client: Samples) -> tuple[Samples, Samples]:
        """Return a client's rows to train on and to judge by, the same in every round."""
        kept = self._parts.get(id(client))
        if kept is not None and kept[0] is client:
            return kept[1], kept[2]
        divided = client, client.take(np.zeros(0, dtype=np.intp))
        if self.validation and len(client) >= _FEWEST:
            held = hold_out(client, fraction=self.validation, seed=0)
            divided = held.train, held.validation
        self._parts[id(client)] = (client, *divided)
        return divided

    def with_recipe(self, **settings: Any) -> "TorchLearner":  # noqa: ANN401 - a recipe's fields
        """Return the same learner with another recipe, such as the winner of a vote."""
        return replace(
            self, recipe=replace(self.recipe, **settings), _recordings=Recordings(), _parts={}
        )


def _each(
    work: Callable[[Samples], ResultT], clients: Sequence[Samples], instead: InsteadT
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


def _device(name: str) -> "torch.device":
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


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
