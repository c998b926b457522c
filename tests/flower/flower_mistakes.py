"""What people get wrong in an app: loaders, labels, columns, objectives, shapes, and training."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from sklearn.linear_model import LogisticRegression

from urna.flower import Call, Updates, Votes
from urna.flower.vote_subject import vote_of
from urna.noise import IntVector

__all__ = ["MISTAKES", "STEPS", "Mistaken", "MistakenTraining", "ends", "good_pair", "no_file"]

FRAME = pd.DataFrame({"age": np.arange(20.0), "dose": np.arange(20.0) % 3})
LABELS = np.arange(20) % 2


def good_pair(_: Context) -> Any:
    return FRAME, pd.Series(LABELS)


def ragged(_: Context) -> Any:
    return FRAME, LABELS[:19]


def rows_alone(_: Context) -> Any:
    return FRAME.to_numpy()


def nothing(_: Context) -> Any:
    return None


def one_class(_: Context) -> Any:
    return FRAME, np.zeros(20)


def texts(_: Context) -> Any:
    return FRAME.assign(age=["forty"] * 20), LABELS


def no_file(context: Context) -> Any:
    return np.loadtxt(Path("nowhere") / f"{context.node_config['partition-id']}.csv")


def old_name(_: Context) -> Any:
    return np.int(3)  # type: ignore[attr-defined] # gone from NumPy: that is the mistake


def ends(_: Context) -> Any:
    sys.exit(3)


def fine(candidate: Mapping[str, Any], data: Any) -> float:
    return abs(float(candidate["C"]) - float(data.features["dose"].mean()))


def other_axis(candidate: Mapping[str, Any], data: Any) -> float:
    return float(candidate["learning_rate"])


def other_column(candidate: Mapping[str, Any], data: Any) -> float:
    return float(data.features["weight"].mean())


def words(candidate: Mapping[str, Any], data: Any) -> Any:
    return "good"


def product(candidate: Mapping[str, Any], data: Any) -> float:
    return float(np.sum(data.features.to_numpy() @ np.ones(3)))


def not_a_number(candidate: Mapping[str, Any], data: Any) -> float:
    return float("nan")


class OneLoss:
    """An objective whose losses have the wrong shape."""

    def losses(self, data: Any, space: Any, *, seed: int, progress: Any = None) -> Any:
        return np.zeros(1)


MODEL = LogisticRegression()
MISTAKES: list[tuple[Any, Callable[[Context], Any], str]] = [
    (fine, no_file, "FileNotFoundError"),
    (fine, old_name, "AttributeError"),
    (fine, nothing, "AttributeError"),
    (fine, ragged, "equally many rows"),
    (fine, ends, "ended its process|SystemExit"),
    (MODEL, rows_alone, "has no attribute 'features'"),
    (MODEL, one_class, "one class"),
    (MODEL, texts, "could not convert string"),
    (other_axis, good_pair, "KeyError: 'learning_rate'"),
    (other_column, good_pair, "KeyError: 'weight'"),
    (words, good_pair, "could not convert string"),
    (product, good_pair, "matmul"),
    (not_a_number, good_pair, "no candidate has a finite loss"),
    (OneLoss(), good_pair, "one loss per candidate|shape"),
]
"""Objective, loader, and what the traceback must say."""


class Mistaken:
    """A contributor to votes that makes the mistake which the vote's public seed names."""

    kind = "vote"

    def check(self, call: Call) -> None:
        self._votes(call).check(call)

    def contribute(self, call: Call) -> IntVector:
        return self._votes(call).contribute(call)

    def _votes(self, call: Call) -> Votes[Any]:
        objective, loader, _ = MISTAKES[vote_of(call.announcement).seed]
        return Votes(objective, loader)


def _reply(message: Message, arrays: Mapping[str, Any]) -> Message:
    record = ArrayRecord({name: Array(np.asarray(part)) for name, part in arrays.items()})
    return Message(RecordDict({"arrays": record}), reply_to=message)


def other_record(message: Message, context: Context) -> Message:
    return _reply(message, {"w": message.content["parameters"]["w"].numpy()})


def other_shape(message: Message, context: Context) -> Message:
    return _reply(message, {"w": np.zeros(3)})


def other_names(message: Message, context: Context) -> Message:
    return _reply(message, {"weights": np.zeros(2)})


def no_reply(message: Message, context: Context) -> Any:
    return None


STEPS: list[tuple[Callable[[Message, Context], Any], str]] = [
    (other_record, "KeyError: 'parameters'"),
    (other_shape, r"got arrays w \(2,\) and returned w \(3,\)"),
    (other_names, r"returned weights \(2,\)"),
    (no_reply, "AttributeError"),
]


class MistakenTraining:
    """A contributor to training that makes the mistake which its config names."""

    kind = "update"

    def check(self, call: Call) -> None:
        pass

    def contribute(self, call: Call) -> IntVector:
        return Updates(self._train).contribute(call)

    @staticmethod
    def _train(message: Message, context: Context) -> Message:
        train, _ = STEPS[int(message.content["config"]["mistake"])]
        found: Message = train(message, context)
        return found
