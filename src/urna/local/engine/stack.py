"""The weights of many runs as one stack, and the optimisers that move them.

Row i of every tensor belongs to lane i and to nothing else: no operation here mixes rows, so
a lane that diverges to NaN leaves its neighbours untouched. The arithmetic follows PyTorch's
own SGD and AdamW step by step. This module imports torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from urna.local.recipe import Optimiser, Recipe

__all__ = [
    "Features",
    "LaneSettings",
    "SettingsTable",
    "Stack",
    "Tensors",
    "advance",
    "first_stack",
    "fresh_state",
    "same_bits",
    "send",
    "upload",
    "weights_of",
]

Tensors = dict[str, Tensor]
Parts = tuple[Tensors, Tensors, Tensors, Tensors, Tensors]
_EPS = 1e-8  # AdamW's, as PyTorch has it


@dataclass(slots=True)
class Stack:
    """Parameters, buffers and optimiser state of all lanes, first dimension = lane."""

    parameters: Tensors
    buffers: Tensors
    first_moment: Tensors
    """SGD's momentum, or AdamW's mean gradient."""
    second_moment: Tensors
    """AdamW's mean squared gradient; empty for SGD."""
    anchor: Tensors
    """The weights a proximal term pulls back to; empty without one."""
    steps: Tensor
    """Steps taken, one number for all lanes, on the device: AdamW's bias correction."""

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def parts(self) -> "Parts":
        """Return the five dictionaries of stacked tensors."""
        return self.parameters, self.buffers, self.first_moment, self.second_moment, self.anchor

    def select(self, lanes: Tensor) -> "Stack":
        """Return a stack of copies of the given lanes, in the given order."""
        parts = _each(self.parts(), lambda tensor: tensor.index_select(0, lanes))
        return Stack(*parts, self.steps.clone())

    def copy(self) -> "Stack":
        """Return a copy in places of its own."""
        return self.select(torch.arange(len(self), device=self.steps.device))

    def view(self, lanes: slice) -> "Stack":
        """Return some lanes without copying: what is written there is written here."""
        parts = _each(self.parts(), lambda tensor: tensor[lanes])
        return Stack(*parts, self.steps)

    def copy_from(self, other: "Stack") -> None:
        """Overwrite this stack with another of the same shapes, in place."""
        for mine, theirs in zip(self.parts(), other.parts(), strict=True):
            for name, tensor in mine.items():
                tensor.copy_(theirs[name])
        self.steps.copy_(other.steps)


def _each(parts: Parts, change: Callable[[Tensor], Tensor]) -> Parts:
    one, two, three, four, five = ({n: change(t) for n, t in part.items()} for part in parts)
    return one, two, three, four, five


def first_stack(modules: Sequence[nn.Module], features: "Features", device: str) -> Stack:
    """Return the modules' weights as one lane each, with a fresh optimiser state."""
    parameters, buffers = zip(*map(weights_of, modules), strict=True)

    def stacked(parts: Sequence[Mapping[str, Tensor]]) -> Tensors:
        found = {n: torch.stack([part[n].detach() for part in parts]) for n in parts[0]}
        return {name: send(tensor, device) for name, tensor in found.items()}

    return fresh_state(stacked(parameters), stacked(buffers), features)


def weights_of(module: nn.Module) -> tuple[Tensors, Tensors]:
    """Return a module's parameters, and its buffers with those parameters that are frozen."""
    parameters = dict(module.named_parameters())
    frozen = {n: p for n, p in parameters.items() if not p.requires_grad}
    trained: Tensors = {n: p for n, p in parameters.items() if p.requires_grad}
    return trained, {**dict(module.named_buffers()), **frozen}


def fresh_state(parameters: Tensors, buffers: Tensors, features: "Features") -> Stack:
    """Return a stack of these weights with a fresh optimiser state."""
    adamw = features.optimiser is Optimiser.ADAMW
    device = next(iter(parameters.values())).device
    return Stack(
        parameters,
        buffers,
        first_moment={n: torch.zeros_like(p) for n, p in parameters.items()},
        second_moment={n: torch.zeros_like(p) for n, p in parameters.items()} if adamw else {},
        anchor={n: p.clone() for n, p in parameters.items()} if features.proximal else {},
        steps=torch.zeros((), dtype=torch.float64, device=device),
    )


@dataclass(slots=True)
class LaneSettings:
    """What each lane's recipe says, as one tensor per name."""

    lr: Tensor
    momentum: Tensor
    nesterov: Tensor
    weight_decay: Tensor
    label_smoothing: Tensor
    clip_norm: Tensor
    proximal: Tensor
    beta1: Tensor
    beta2: Tensor

    def view(self, lanes: slice) -> "LaneSettings":
        """Return some lanes without copying."""
        return LaneSettings(**{f.name: getattr(self, f.name)[lanes] for f in fields(self)})

    def copy(self) -> "LaneSettings":
        """Return a copy in places of its own."""
        return LaneSettings(**{f.name: getattr(self, f.name).clone() for f in fields(self)})

    def copy_from(self, other: "LaneSettings") -> None:
        """Overwrite in place."""
        for field in fields(self):
            getattr(self, field.name).copy_(getattr(other, field.name))


class SettingsTable:
    """All recipes of a group on the device, so that an epoch only picks rows."""

    def __init__(self, recipes: Sequence[Recipe], device: str) -> None:
        self._columns: Tensors = {}
        for field in fields(LaneSettings):
            # float64 for the betas: 1 − 0.999 in float32 is wrong in its fifth digit.
            kind = torch.float64 if field.name.startswith("beta") else torch.float32
            values = [float(getattr(recipe, field.name)) for recipe in recipes]
            self._columns[field.name] = torch.tensor(values, dtype=kind, device=device)
        rates = [recipe.learning_rates() for recipe in recipes]
        self._rates = torch.tensor(rates, dtype=torch.float32, device=device)

    def at(self, members: Tensor, epoch: int) -> LaneSettings:
        """Return the lanes' settings for one epoch; `members` names each lane's recipe."""
        picked = {name: column.index_select(0, members) for name, column in self._columns.items()}
        picked["lr"] = self._rates[:, epoch].index_select(0, members)
        return LaneSettings(**picked)


def upload(array: npt.NDArray[np.integer], device: str) -> Tensor:
    """Bring numbers to the device without waiting for what it is doing."""
    return send(torch.from_numpy(array), device)


def send(tensor: Tensor, device: str) -> Tensor:
    """Bring a tensor to the device without waiting for what it is doing."""
    if not device.startswith("cuda") or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True, slots=True)
class Features:
    """Which parts of the update any recipe of a group asks for; the others are left out."""

    optimiser: Optimiser
    momentum: bool
    nesterov: bool
    weight_decay: bool
    label_smoothing: bool
    clipping: bool
    proximal: bool

    @classmethod
    def of(cls, recipes: Sequence[Recipe]) -> "Features":
        """Look at all recipes of a group, so that every chunk does the same arithmetic."""
        return cls(
            optimiser=recipes[0].optimiser,
            momentum=any(r.momentum > 0 for r in recipes),
            nesterov=any(r.nesterov and r.momentum > 0 for r in recipes),
            weight_decay=any(r.weight_decay > 0 for r in recipes),
            label_smoothing=any(r.label_smoothing > 0 for r in recipes),
            clipping=any(r.clip_norm < float("inf") for r in recipes),
            proximal=any(r.proximal > 0 for r in recipes),
        )


def advance(stack: Stack, gradients: Tensors, settings: LaneSettings, features: Features) -> None:
    """Take one optimiser step in every lane, in place."""
    if features.proximal:
        gradients = {n: _pulled(g, stack, n, settings.proximal) for n, g in gradients.items()}
    if features.clipping:
        gradients = _clip(gradients, settings.clip_norm)
    stack.steps.add_(1)
    if features.optimiser is Optimiser.ADAMW:
        _adamw(stack, gradients, settings, features)
    else:
        _sgd(stack, gradients, settings, features)


def _sgd(stack: Stack, gradients: Tensors, settings: LaneSettings, features: Features) -> None:
    for name, weights in stack.parameters.items():
        rows = _rows(weights)
        step = gradients[name]
        if features.weight_decay:
            step = torch.addcmul(step, settings.weight_decay.view(rows), weights)
        if features.momentum:
            momentum = settings.momentum.view(rows)
            velocity = stack.first_moment[name]
            velocity.mul_(momentum).add_(step)
            if features.nesterov:
                ahead = torch.addcmul(step, momentum, velocity)
                step = torch.where(settings.nesterov.view(rows) > 0, ahead, velocity)
            else:
                step = velocity
        weights.addcmul_(settings.lr.view(rows), step, value=-1)


def _adamw(stack: Stack, gradients: Tensors, settings: LaneSettings, features: Features) -> None:
    first_bias = 1 - settings.beta1**stack.steps
    second_bias = (1 - settings.beta2**stack.steps).sqrt().float()
    rate = (settings.lr / first_bias).float()
    keep = 1 - settings.lr * settings.weight_decay
    to_mean, to_square = (1 - settings.beta1).float(), (1 - settings.beta2).float()
    beta2 = settings.beta2.float()
    for name, weights in stack.parameters.items():
        rows = _rows(weights)
        gradient = gradients[name]
        mean, square = stack.first_moment[name], stack.second_moment[name]
        if features.weight_decay:
            weights.mul_(keep.view(rows))
        mean.add_((gradient - mean) * to_mean.view(rows))
        square.mul_(beta2.view(rows)).add_(gradient * gradient * to_square.view(rows))
        spread = square.sqrt().div_(second_bias.view(rows)).add_(_EPS)
        weights.addcmul_(rate.view(rows), mean / spread, value=-1)


def _pulled(gradient: Tensor, stack: Stack, name: str, proximal: Tensor) -> Tensor:
    """Add the gradient of proximal/2 ‖w − anchor‖² (FedProx, Li et al. 2020)."""
    away = stack.parameters[name] - stack.anchor[name]
    return torch.addcmul(gradient, proximal.view(_rows(away)), away)


def _clip(gradients: Tensors, longest: Tensor) -> Tensors:
    """Scale each lane's whole gradient to at most its clip norm, as clip_grad_norm_ does."""
    squares = [g.flatten(1).square().sum(1) for g in gradients.values()]
    norm = torch.stack(squares).sum(0).sqrt()
    factor = (longest / (norm + 1e-6)).clamp(max=1.0)
    return {n: g * factor.view(_rows(g)) for n, g in gradients.items()}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors agree, NaN with NaN."""
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _rows(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape that spreads one number per lane over a stacked tensor."""
    return (-1,) + (1,) * (tensor.dim() - 1)
