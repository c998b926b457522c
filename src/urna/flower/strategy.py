"""The server's side of private training: a strategy around the one a user has."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import Result, Strategy

from urna.errors import BudgetExceeded, ParameterError, RoundAborted, RoundFailed
from urna.files import today
from urna.flower.gathering import Federation
from urna.flower.messages import message_of
from urna.flower.sums import Sums
from urna.flower.transport import NodesFailed
from urna.flower.updates import ModelLetter, UpdateSubject, Vector
from urna.privacy import Budget, PrivacyStatement
from urna.systems.train import Clip, FedAvg, Layout, Settings, TrainPlan, TrainResult, Validation
from urna.systems.train.checkpoint import Progress
from urna.systems.train.result import RoundReport
from urna.systems.train.rounds import after_failure, after_round
from urna.systems.train.settings import ACCURACY, LOSS
from urna.tally import Options, Run

_AVERAGING = (
    flower.FedAvg,
    flower.FedProx,
    flower.FedAvgM,
    flower.FedAdam,
    flower.FedAdagrad,
    flower.FedYogi,
)
"""Strategies that look at nothing but the mean of what clients send."""

_log = logging.getLogger("flwr")


class PrivateTraining(Strategy):
    """Trains privately with a strategy that people already have.

    The wrapped strategy says how the mean update is used and what clients are told; in place of
    clients' weights it gets one reply with their noisy mean. All nodes that take part do so in
    every round; how many of them the wrapped strategy would sample is not looked at. Clients'
    own evaluations are not asked for: a plain average of losses tells about data. `validation`
    makes it a private tally in the same sum.

    Guarantee:
        See `urna.flower.Sums`: all rounds together are (epsilon, delta)-DP, and each node counts
        them in its own ledger.

    Assumes:
        Nodes run a `Trainer`. First weights, settings and the number of rounds do not come from
        the data. Without a folder, a server that is killed begins anew with a series of its own,
        and what nodes have counted stays counted.

    Args:
        strategy: FedAvg, FedProx, FedAvgM, FedAdam, FedYogi or FedAdagrad.
        budget: What all rounds together may cost each node.
        clip: How long an update may be: a norm, or a `Clip` that follows a quantile.
        validation: Whether nodes judge the model in every round.
        name: The model's name in announcements, policies and ledgers.
        folder: Where the series, the weights and what the strategy remembers are kept after each
            round. A server that was killed goes on from there when it is started again with the
            same settings, nodes and folder; see `Sums.round` for the round it was killed in.
        federation: Who is invited, who signs, how long to wait; `evaluate` of its deadlines is
            the time to train.
        run: Where it is counted; see `Sums`.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The strategy looks at more than a mean.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        budget: Budget,
        clip: Clip | float = 1.0,
        validation: Validation | None = None,
        name: str = "model",
        folder: Path | None = None,
        federation: Federation | None = None,
        run: Run | None = None,
        **options: Unpack[Options],
    ) -> None:
        if type(strategy) not in _AVERAGING:
            raise ParameterError(
                f"{type(strategy).__name__} may look at single clients' weights, and there are "
                f"none: only their mean. Take one of "
                f"{', '.join(kind.__name__ for kind in _AVERAGING)}."
            )
        self._strategy, self._budget, self._name = strategy, budget, name
        self._settings = Settings(optimiser=FedAvg(), clip=clip, validation=validation)
        run = (run or Run()).only(
            "private training over Flower", "ledger", "entry", "progress", "force"
        )
        self._force, self._folder = run.force, folder
        self._how: dict[str, Any] = {
            "folder": folder,
            "federation": federation or Federation(),
            "run": replace(run, force=False),
            **options,
        }
        self._training: TrainResult | None = None

    @property
    def training(self) -> TrainResult:
        """What was trained, round by round, and what it promises.

        Raises:
            ParameterError: Nothing was trained yet.
        """
        if self._training is None:
            raise ParameterError("nothing was trained yet")
        return self._training

    @property
    def privacy_spent(self) -> PrivacyStatement | None:
        """What all rounds so far cost; None before the first."""
        return None if self._training is None else self._training.privacy

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train; see Flower's `Strategy.start`.

        `timeout` and `evaluate_config` are not used: `deadlines` say how long to wait, and nobody
        evaluates but by `validation` and `evaluate_fn`.

        Raises:
            ParameterError: The folder holds a training with other settings.
            PrivacyBudgetExhausted: The server's own ledger has no room for the first round.
            RoundAborted: Too few nodes take part; it says who does not and why.
        """
        del timeout, evaluate_config
        first = ModelLetter.of(initial_arrays, self._settings.clipping.first)
        if self._settings.validation is not None:
            first = replace(first, largest_loss=self._settings.validation.largest_loss)
        layout = Layout(len(first.weights), self._settings.measurements)
        subject = UpdateSubject(self._name, layout)
        sums = Sums(grid, subject, budget=self._budget, rounds=num_rounds, **self._how)
        try:
            announced = sums.gather()
        except BudgetExceeded as error:
            raise PrivacyBudgetExhausted(str(error)) from error
        # What was announced is what nodes train by: its layout names the grid's steps.
        plan = TrainPlan(
            announced.terms.clients, num_rounds, self._settings, layout, announced.plan
        )
        if not self._force:
            plan.check_hopeful()
        fresh = Progress(
            self._fingerprint(first.weights, train_config),
            announced.digest.hex(),
            first.weights,
            clip_norm=first.clip_norm,
        )
        result, held, stopped = Result(arrays=initial_arrays), 0, ""
        state = fresh if self._folder is None else self._taken_up(self._folder, fresh)
        if state is fresh:
            _judge(evaluate_fn, 0, initial_arrays, result)
            self._keep(state, result, 0)
        else:
            held = int(state.besides["number"])
            self._tell_again(state, result, first)
        for number in range(held + 1, num_rounds + 1):
            arrays = first.arrays(state.weights)
            letter = replace(
                first,
                weights=state.weights,
                clip_norm=state.clip_norm,
                config=self._config(number, arrays, train_config or ConfigRecord(), grid),
            )
            try:
                state = self._after(sums, plan, state, letter, number)
            except BudgetExceeded as error:
                if not state.done:
                    raise PrivacyBudgetExhausted(str(error)) from error
                stopped = "budget"
                break
            except RoundAborted as aborted:
                self._keep(state, result, number)
                if isinstance(aborted, NodesFailed) or (number == num_rounds and not state.done):
                    raise
                _log.warning("round %d: %s", number, aborted)
                continue
            self._training = self._result(plan, state, sums, "rounds")
            self._keep(state, result, number)  # what was paid for, before it is judged
            if not state.history[-1].failed:
                result.arrays = first.arrays(state.weights)
                self._note(state.history[-1], result, logged=number)
                _judge(evaluate_fn, state.done, result.arrays, result)
                self._keep(state, result, number)
        stopped = stopped or ("rounds" if state.done == num_rounds else "dropouts")
        self._training = self._result(plan, state, sums, stopped)
        return result

    def _after(
        self, sums: Sums, plan: TrainPlan, state: Progress, letter: ModelLetter, number: int
    ) -> Progress:
        """Hold a round, and return where training stands after it.

        The wrapped strategy uses the noisy mean as if one client had sent it.
        """
        try:
            released = sums.round(letter.as_bytes(), number=number)
        except RoundAborted:
            raise
        except RoundFailed as failed:
            return _after_failure(plan, state, failed, sums.privacy.epsilon)
        after = after_round(plan, state, released, range(plan.clients), 1)
        inner: Any = self._strategy
        content = RecordDict(
            {
                getattr(inner, "arrayrecord_key", "arrays"): letter.arrays(after.weights),
                "metrics": MetricRecord({getattr(inner, "weighted_by_key", "num-examples"): 1}),
            }
        )
        arrays, _ = inner.aggregate_train(number, [message_of(content, "train")])
        if arrays is None:
            raise ParameterError(f"{type(inner).__name__} made no weights of the mean")
        return after.after(weights=ModelLetter.of(arrays).weights)

    def _fingerprint(self, weights: Vector, config: ConfigRecord | None) -> str:
        """Return a digest of what must not change in a training that is taken up again.

        Budget, rounds, layout and terms are held against the series' own announcement.
        """
        inner = vars(self._strategy).items()
        said = (
            type(self._strategy).__name__,
            sorted((n, value) for n, value in inner if isinstance(value, int | float | str | bool)),
            sorted((config or {}).items()),
            repr(self._settings),
        )
        return hashlib.sha256(repr(said).encode() + weights.tobytes()).hexdigest()

    def _taken_up(self, folder: Path, fresh: Progress) -> Progress:
        """Return where the folder's training stands; the beginning where it holds none."""
        state = Progress.read(folder)
        if state is None or (state.entry != fresh.entry and not state.done):
            return fresh  # nothing was paid for, and the series began anew
        if (state.fingerprint, state.entry) != (fresh.fingerprint, fresh.entry):
            raise ParameterError(
                f"{folder} holds a training with other settings: name another folder, or give "
                "the settings it was begun with"
            )
        return state

    def _keep(self, state: Progress, result: Result, number: int) -> None:
        """Write where the training stands after a round, with what the strategy remembers."""
        if self._folder is None:
            return
        slots = _remembered(self._strategy)
        judged = {n: dict(found) for n, found in result.evaluate_metrics_serverapp.items()}
        besides = {
            "number": number,
            "judged": json.dumps(judged),
            "types": {name: str(slot.dtype) for name, slot in slots.items()},
        }
        state.after(slots=slots, besides=besides).write(self._folder)

    def _tell_again(self, state: Progress, result: Result, first: ModelLetter) -> None:
        """Put back what the strategy remembered, and what was said about earlier rounds."""
        types = state.besides["types"]
        slots = {name: slot.astype(types[name]) for name, slot in state.slots.items()}
        _remind(self._strategy, slots, first.names)
        result.arrays = first.arrays(state.weights)
        for report in state.history:
            if not report.failed:
                self._note(report, result)
        for number, found in json.loads(state.besides["judged"]).items():
            result.evaluate_metrics_serverapp[int(number)] = MetricRecord(found)

    def _config(
        self, number: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> dict[str, Any]:
        """Return what the wrapped strategy would tell its clients."""
        inner: Any = self._strategy
        told = ConfigRecord({"server-round": number, **config})
        for message in inner.configure_train(number, arrays, config, grid):
            told = message.content[getattr(inner, "configrecord_key", "config")]
            break
        return dict(told)

    def _note(self, report: RoundReport, result: Result, logged: int | None = None) -> None:
        """Note a round's figures where Flower's result has them, and in the log of its round."""
        if logged is not None:
            epsilon = float("inf") if report.epsilon is None else report.epsilon
            line = "round %d: %d nodes took part, epsilon so far %.3f"
            _log.info(line, logged, report.took_part, epsilon)
        validation, number = self._settings.validation, report.number
        said: dict[str, float] = {
            "took-part": float(report.took_part),
            "clip-norm": report.clip_norm,
            "noise-std": report.noise_std,
        }
        if report.epsilon is not None:
            said["epsilon"] = report.epsilon
        result.train_metrics_clientapp[number] = MetricRecord(dict(said))
        if validation is not None:
            loss = validation.largest_loss * report.measured[LOSS]
            result.evaluate_metrics_clientapp[number] = MetricRecord(
                {"private_loss": loss, "private_acc": report.measured[ACCURACY]}
            )

    def _result(self, plan: TrainPlan, state: Progress, sums: Sums, stopped: str) -> TrainResult:
        privacy = sums.privacy
        return TrainResult(
            weights=state.model,
            history=state.history,
            stopped=stopped,
            privacy=privacy,
            terms=plan.terms,
            plan=plan.as_mapping(),
            description=f"{self._name}, by {type(self._strategy).__name__} over Flower",
            when=today() if privacy.private else None,
            lost={int(client): why for client, why in state.lost.items()},
            faults={int(client): why for client, why in state.faults.items()},
            entry=sums.entry,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse: rounds are held by `start` alone, which keeps them in one series."""
        raise ParameterError("private training is started by `start`, not round by round")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse: there are no single replies."""
        raise ParameterError("private training is started by `start`, not round by round")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: clients' losses are data."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing: nobody was asked."""
        return None

    def summary(self) -> None:
        """Log what is wrapped, and the budget."""
        _log.info(
            "private training, epsilon %g at delta %g, around:",
            self._budget.epsilon,
            self._budget.delta,
        )
        self._strategy.summary()


Judging = Callable[[int, ArrayRecord], MetricRecord | None]


def _judge(evaluate: Judging | None, number: int, arrays: ArrayRecord, result: Result) -> None:
    found = None if evaluate is None else evaluate(number, arrays)
    if found is not None:
        result.evaluate_metrics_serverapp[number] = found


_MEMORIES = ("current_arrays", "momentum_vector", "m_t", "v_t")
"""What Flower's averaging strategies keep from round to round."""


def _remembered(inner: Any) -> dict[str, npt.NDArray[Any]]:  # noqa: ANN401 - any strategy
    """Return what a strategy keeps from round to round, array by array."""
    found: dict[str, npt.NDArray[Any]] = {}
    for memory in _MEMORIES:
        value = getattr(inner, memory, None)
        if isinstance(value, ArrayRecord):
            value = {name: array.numpy() for name, array in value.items()}
        elif isinstance(value, list):
            value = {str(place): array for place, array in enumerate(value)}
        for name, array in (value or {}).items():
            found[f"{memory}/{name}"] = np.asarray(array)
    return found


def _remind(
    inner: Any,  # noqa: ANN401 - any strategy
    slots: Mapping[str, npt.NDArray[Any]],
    names: tuple[str, ...],
) -> None:
    """Give a strategy back what `_remembered` found."""
    for memory in _MEMORIES:
        named = {name: slots[f"{memory}/{name}"] for name in names if f"{memory}/{name}" in slots}
        if memory == "momentum_vector":
            places = [str(place) for place in range(len(names))]
            listed = [slots[f"{memory}/{p}"] for p in places if f"{memory}/{p}" in slots]
            if listed:
                setattr(inner, memory, listed)
        elif named and memory == "current_arrays" and isinstance(inner, flower.FedAvgM):
            inner.current_arrays = ArrayRecord({n: Array(array) for n, array in named.items()})
        elif named:
            setattr(inner, memory, named)


def _after_failure(
    plan: TrainPlan, state: Progress, failed: RoundFailed, promised: float
) -> Progress:
    """Return where training stands after a round that gave nothing; nodes have Flower's names."""
    _log.warning("round %d counts, and gave nothing: %s", state.done + 1, failed)
    unnamed = type(failed)(failed.reason)
    after = after_failure(plan, state, unnamed, range(plan.clients), 1, promised)
    report = replace(after.history[-1], lost=len(failed.lost))
    return after.after(
        history=(*after.history[:-1], report),
        lost={str(node): why for node, why in failed.lost.items()},
        faults={**state.faults, **{str(node): why for node, why in failed.faults.items()}},
    )
