"""Trains one module on many clients, within the memory there is.

This module imports torch.
"""

import contextlib
import copy
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from urna.data import Samples
from urna.local.engine.batches import count_steps, seeded_module
from urna.local.engine.epochs import (
    EagerTrainer,
    EpochTrainer,
    Step,
    eager_step,
    evaluate,
    searched_client,
)
from urna.local.engine.gradients import Batched, KernelContext, refuse_recurrent
from urna.local.engine.graphs import CudaRecorder, GraphTrainer
from urna.local.engine.model import (
    Model,
    Speed,
    Tick,
    TorchLoss,
    Weights,
    as_tensors,
    check_targets,
    count_classes,
    joined,
    out_of_memory,
)
from urna.local.engine.patches import by_patches
from urna.local.engine.pieces import (
    Capacity,
    Threads,
    cut,
    lane_bytes,
    plan_capacity,
    rounds_to_tf32,
    rows_apart,
    slots_of,
)
from urna.local.engine.search import GroupSearch
from urna.local.engine.stack import Features, first_stack, fresh_state, send
from urna.local.engine.tape import RecordedSteps, has_hooks
from urna.local.engine.training import (
    SLOTS,
    GroupTraining,
    Piece,
    repeated,
    slotted,
)
from urna.local.holdout import Holdout
from urna.local.recipe import LaneGroup, Optimiser, Recipe, SuccessiveHalving

__all__ = ["Runner", "pick_device"]

_log = logging.getLogger(__name__)

_REPEATABLE_LANES = 20
"""Lanes of every piece where a GPU is to repeat itself, so that a race runs the same kernels as
the full search. More cost a race that fills up its last piece, fewer leave the card idle."""

_MUCH_WORK, _LITTLE_WORK = 2, 8
"""Fewest lanes worth a thread (`Capacity.least`), where a lane alone is much work and where not."""


def pick_device(device: str) -> str:
    """Return the device to use; "auto" is a GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


class Runner:
    """Trains one model; what was recorded is kept from call to call.

    Who calls has `lock` (`Recordings.runner`): one module serves one call at a time.

    Args:
        model: What is trained.
        features: What its recipes ask of the optimiser.
    """

    def __init__(self, model: Model, features: Features) -> None:
        self.lock = Lock()
        self._model, self._features = model, features
        self._device = pick_device(model.device)
        self._on_gpu = self._device.startswith("cuda")
        self._speed = model.speed.on(torch.__version__)
        with seeded_module(0):
            self._module: nn.Module = model.build()
        refuse_recurrent(self._module)
        self._batched = Batched(
            copy.deepcopy(self._module).to(self._device),
            model.loss,
            features.label_smoothing,
            kernel_context(self._module, self._device, self._speed),
        )
        recorded = self._speed.recorded_steps and not (self._on_gpu or has_hooks(self._module))
        self._step: Step = RecordedSteps() if recorded else eager_step
        self._graphs = self._make_graphs()
        self._threads: dict[tuple[int, bool], Threads] = {}
        self._classes: dict[tuple[int, ...], int] = {}
        self._bytes: dict[tuple[int, ...], tuple[int, int]] = {}
        self._apart: dict[tuple[int, ...], bool] = {}

    def _make_graphs(self) -> GraphTrainer | None:
        if not (self._on_gpu and self._speed.graphs):
            return None
        return GraphTrainer(self._batched, self._features, CudaRecorder())

    def _tools(self, capacity: Capacity) -> tuple[Threads, EpochTrainer]:
        """Return who runs pieces, and what moves a stack through an epoch."""
        key = capacity.threads, capacity.least == 2
        if key not in self._threads:
            self._threads[key] = Threads(self._batched, key[0], spread=key[1])
        threads = self._threads[key]
        return threads, self._graphs or EagerTrainer(threads, self._features, self._step)

    def _forget(self) -> None:
        """Let go of recordings and of what PyTorch keeps, where memory has run out."""
        self._graphs = self._make_graphs()
        if self._on_gpu:
            torch.cuda.empty_cache()

    def check(self, data: Samples) -> None:
        """Refuse rows that the module cannot be trained on, before a device sees them.

        Raises:
            ParameterError: Targets are not among the module's classes.
        """
        inputs, targets = as_tensors(data)
        if self._model.loss != TorchLoss.CROSS_ENTROPY:
            return
        shape = tuple(inputs.shape[1:])
        if shape not in self._classes:
            self._classes[shape] = count_classes(self._module, inputs)
        check_targets(targets, self._classes[shape])

    def search(
        self,
        group: LaneGroup,
        client: Holdout,
        seed: int,
        *,
        race: SuccessiveHalving | None = None,
        most_lanes: int | None = None,
        tick: Tick = lambda share: None,
    ) -> npt.NDArray[np.float64]:
        """Train a group of candidates on a client, and judge them.

        Where memory runs out, again with half as much at once.

        Args:
            group: The candidates' recipes.
            client: Its rows to train on and to judge by.
            seed: Of first weights, batches and masks.
            race: Which candidates may stop early.
            most_lanes: Candidates trained at once; None lets memory and cache decide.
            tick: Called after each epoch.

        Returns:
            Shape (members, 2): losses and shares of right answers.
        """
        capacity = self._search_capacity(group, client.train, most_lanes)
        while True:
            try:
                return self._search_once(group, client, seed, capacity, race, tick)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
            # Outside the handler: the error's traceback holds on to the tensors of the failed try.
            self._forget()
            if capacity.lanes == 1:
                return self._search_alone(group, client, seed, tick)
            _log.info("out of memory with %d candidates at once; trying half", capacity.lanes)
            capacity = replace(capacity, lanes=-(-capacity.lanes // 2))

    def _search_alone(
        self, group: LaneGroup, client: Holdout, seed: int, tick: Tick
    ) -> npt.NDArray[np.float64]:
        """Give each candidate all the memory; one that still does not fit has failed."""
        scores = np.full((len(group), 2), (np.inf, np.nan))
        for member in range(len(group)):
            alone = group.only(member)
            try:
                scores[[member]] = self._search_once(alone, client, seed, Capacity(1), None, tick)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
        return scores

    def _search_once(
        self,
        group: LaneGroup,
        client: Holdout,
        seed: int,
        capacity: Capacity,
        race: SuccessiveHalving | None,
        tick: Tick,
    ) -> npt.NDArray[np.float64]:
        threads, trainer = self._tools(capacity)
        block = searched_client(client, seed, self._device)
        search = GroupSearch(
            group, block, threads, trainer, capacity, race, self._speed.shared_lanes
        )
        with threads.between_pieces():
            with seeded_module(seed):
                module = self._model.build()
            search.run(first_stack([module], self._features, self._device), tick)
            return search.scores()

    def _search_capacity(
        self, group: LaneGroup, train: Samples, most_lanes: int | None
    ) -> Capacity:
        """Plan how many lanes run at once; what is to be repeatable on a GPU, in one width."""
        capacity = self._capacity(train, group.batch_size, len(group))
        if most_lanes is not None:
            most = max(most_lanes, 2) if len(group) > 1 else 1
            capacity = replace(capacity, lanes=min(most, capacity.lanes))
        if self._on_gpu and self._model.repeatable:
            lanes = min(_REPEATABLE_LANES, capacity.lanes)
            capacity = replace(capacity, lanes=lanes, fixed=True)
        return capacity

    def _capacity(self, train: Samples, batch_size: int, lanes: int) -> Capacity:
        """Measure one lane of a client's shape and plan how many run at once."""
        batch = min(batch_size, len(train)), *np.shape(train.features)[1:]
        return self._plan(*self._lane_bytes(batch), lanes)

    def _lane_bytes(self, batch: tuple[int, ...]) -> tuple[int, int]:
        """Measure one lane on a batch of a shape; measuring takes longer than a small client."""
        if batch not in self._bytes:
            states = 4 if self._features.optimiser is Optimiser.ADAMW else 3
            self._bytes[batch] = lane_bytes(
                self._module, torch.zeros(batch), states + self._features.proximal
            )
        return self._bytes[batch]

    def _plan(self, activations: int, state: int, lanes: int) -> Capacity:
        threaded = self._speed.threads and not self._on_gpu
        return plan_capacity(
            activations,
            state,
            lanes=lanes,
            device=self._device,
            threads=torch.get_num_threads() if threaded else 1,
        )

    def train(
        self,
        recipes: Sequence[Recipe],
        weights: Weights,
        clients: Sequence[Samples],
        seeds: Sequence[int],
        first_epoch: int = 0,
    ) -> Iterator[tuple[list[int], Weights]]:
        """Train given weights on every client with a fresh optimiser.

        On a CPU clients that take equally many steps are trained together, smaller ones padded with
        rows that the loss ignores, where that is sound: cross entropy without smoothing, and a
        module in which rows do not mix. Otherwise only equally large ones are.

        Args:
            recipes: One for each lane of `weights`; of one batch size, optimiser and length.
            weights: Where every client starts, one lane for each recipe.
            clients: Each client's rows.
            seeds: Each client's seed of batches and masks.
            first_epoch: The number of the first epoch: batches and masks go on from there.

        Yields:
            The places of some clients, and their weights: all lanes of the first, then the next.
        """
        batch_size, lanes, start = recipes[0].batch_size, len(recipes), self._sent(weights)
        steps = [count_steps(len(client), batch_size) for client in clients]
        if idle := [place for place, count in enumerate(steps) if count == 0]:
            yield idle, repeated(start, len(idle))
        if len(idle) == len(clients):
            return
        training = GroupTraining(
            recipes, start, clients, seeds, first_epoch, self._features, self._device
        )

        def trainer(batched: Batched) -> EpochTrainer:
            # A piece is on a thread already; its steps need no others.
            return self._graphs or EagerTrainer(Threads(batched), self._features, self._step)

        def train(batched: Batched, piece: Piece) -> Weights:
            try:
                return training.run(piece, trainer(batched))
            except RuntimeError as error:
                if not out_of_memory(error) or len(piece.stack) == 1:
                    raise
            self._forget()
            alone = [replace(piece, places=(p,), slots=(0,), width=1) for p in piece.places]
            return joined([training.run(one, trainer(batched)) for one in alone])

        for capacity, pieces in self._pieces(clients, seeds, steps, batch_size, lanes):
            threads, _ = self._tools(capacity)
            trained: list[Weights] = []
            for first in range(0, len(pieces), capacity.threads):
                wave = pieces[first : first + capacity.threads]
                with threads.between_pieces():
                    found = threads.run(wave, train)
                for piece, some in zip(wave, found, strict=True):
                    trained.append(some)
                    if piece.lanes.stop == lanes:
                        yield list(piece.places), joined(trained)
                        trained = []

    def _pieces(
        self,
        clients: Sequence[Samples],
        seeds: Sequence[int],
        steps: Sequence[int],
        batch_size: int,
        lanes: int,
    ) -> Iterator[tuple[Capacity, list[Piece]]]:
        """Yield what is trained at once, and how; the largest clients first.

        Nothing that decides about a client's numbers depends on the other clients: not the shape
        of its stack, and not how many threads a kernel has, which are one where several pieces
        run, and PyTorch's own where a lane alone is much work. (A GPU's kernels may round by what
        is in a stack: there each has one of its own.)
        """
        alike: dict[tuple[Any, ...], list[int]] = {}
        for place, client in enumerate(clients):
            if not steps[place]:
                continue
            targets, features = np.asarray(client.targets), np.shape(client.features)[1:]
            # One row more than all batches hold is always there: it is what pads.
            padded = steps[place] * batch_size + 1 if self._pads(features) else 0
            size = padded or len(client)
            key = size, padded, features, targets.shape[1:], targets.dtype.kind in "iu"
            alike.setdefault(key, []).append(place)
        small: list[Piece] = []
        for (size, padded, features, *_), places in sorted(alike.items(), key=lambda p: -p[0][0]):
            batch = batch_size if padded else min(batch_size, size)
            activations, state = self._lane_bytes((batch, *features))
            capacity = self._plan(activations, state, lanes)
            slots = 1 if self._on_gpu else SLOTS
            width = slots_of(activations, state, lanes=lanes, most=slots)
            parts = cut(lanes, capacity.width(lanes), least=2) if width == 1 else [slice(0, lanes)]
            pieces = slotted(places, seeds, width, parts, padded or None)
            if capacity.least == _MUCH_WORK:
                yield replace(capacity, threads=1), pieces
            else:
                small += pieces
        if small:
            yield Capacity(lanes, threads=capacity.threads, least=_LITTLE_WORK), small

    def _pads(self, features: tuple[int, ...]) -> bool:
        """Tell whether rows that the loss ignores may be added to a batch."""
        plain = self._model.loss == TorchLoss.CROSS_ENTROPY and not self._features.label_smoothing
        if plain and features not in self._apart:
            self._apart[features] = rows_apart(self._module, torch.zeros((0, *features)))
        return plain and self._apart[features]

    def score(self, weights: Weights, data: Samples, rows: int) -> npt.NDArray[np.float64]:
        """Return every lane's loss and share of right answers, `rows` rows at a time.

        Shape (lanes, 2).
        """
        self.check(data)
        sent = self._sent(weights)
        stack = fresh_state(sent.parameters, sent.buffers, self._features)
        capacity = self._capacity(data, rows, len(stack))
        threads, _ = self._tools(capacity)
        inputs, targets = (send(t.unsqueeze(0), self._device) for t in as_tensors(data))
        with threads.between_pieces():
            found = evaluate(threads, stack, inputs, targets, width=capacity.lanes, rows=rows)
        scores: npt.NDArray[np.float64] = found.double().cpu().numpy().T
        return scores

    def _sent(self, weights: Weights) -> Weights:
        return weights.each(lambda tensor: send(tensor, self._device))


def kernel_context(module: nn.Module, device: str, speed: Speed) -> KernelContext:
    """Return the context of convolutions: ours where they pay, else PyTorch's.

    On a CPU normalising layers give images back in PyTorch's own order, and their gradient wants
    them so: turning them over and back costs more than patches save.
    """
    if device.startswith("cuda"):
        return _triton_kernels(device) if speed.kernels else contextlib.nullcontext
    normalising = nn.modules.batchnorm._NormBase | nn.GroupNorm
    convolves = any(parameter.dim() == 4 for parameter in module.parameters())
    normalises = any(isinstance(part, normalising) for part in module.modules())
    pays = speed.patches and convolves and not normalises
    return by_patches if pays else contextlib.nullcontext


def _triton_kernels(device: str) -> KernelContext:
    """Return our kernels' context on a GPU that can run them.

    Float32 counts as TF32 there, unless PyTorch was told otherwise; then it is cuDNN's.
    """
    if find_spec("triton") is None or not rounds_to_tf32():
        return contextlib.nullcontext
    from urna.local.engine.convolve import LaneKernels, works_on  # noqa: PLC0415 - imports triton

    if not works_on(device):
        return contextlib.nullcontext
    return lambda _: LaneKernels()  # type: ignore[no-untyped-call]
