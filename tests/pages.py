"""Results of every kind to make pages of, made in a second, and a reader of pages."""

import functools
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
from grouped import grouped

import urna
from urna import tally
from urna.data import Samples
from urna.privacy import Adjacency, PrivacyStatement
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.report import LedgerSummary, Provenance, StudyResult, page
from urna.systems.average import ModelResult, RowRule, Schema
from urna.systems.average import fit as average
from urna.systems.combine import (
    Combination,
    FederatedDbscan,
    Frame,
    Guarantee,
    LocalSearch,
    Searches,
    combine,
)
from urna.systems.train import FunctionLearner, TrainResult, fit
from urna.systems.vote import ArgmaxDecoder, VoteResult, VoteSettings
from urna.tally import ClearSummation

__all__ = ["KINDS", "RUN", "TITLE", "Read", "made", "read", "shown", "vote"]

RUN = Provenance(
    version="9.8.7",
    title="A page",
    command="urna search --data <digits>",
    study="[study]\nname = 'A & B'\n[about]\npurpose = 'triage <b>of  letters'\nodd = [1]\n",
    study_name="study.toml",
    simulated=True,
    account=LedgerSummary("h.ledger", "ward <3>", 6.0, 1e-5, "replace-one-client", 2.0, 5.2, 1),
)

_RATES, _MOMENTA = (0.01, 0.1, 1.0), (0.0, 0.5, 0.9)
_GRID = np.array([(lr, momentum) for lr in _RATES for momentum in _MOMENTA])
_SCORES = np.random.default_rng(3).random((6, len(_GRID))).round(3)
_SEARCHES = Searches(
    Frame.of(urna.Space(lr=urna.Axis.log(_RATES), momentum=urna.Axis.linear(_MOMENTA)), log=True),
    tuple(LocalSearch(_GRID, row) for row in _SCORES),
)


def vote(space: urna.Space, *, clients: int = 40, **more: Any) -> VoteResult:
    """Hold a vote on a smooth function of the candidates' places."""
    shape = [len(axis.values) for axis in space.axes.values()]
    best = [size // 2 for size in shape]
    places = {tuple(c.values()): i for i, c in enumerate(space)}

    def loss(candidate: dict[str, Any], data: float) -> float:
        place = np.unravel_index(places[tuple(candidate.values())], shape)
        return float(sum(abs(p - b - data) for p, b in zip(place, best, strict=True)))

    rng = np.random.default_rng(1)
    settings = {"budget": urna.Budget(2.0, 1e-5), "force": True, "decoder": ArgmaxDecoder()}
    data = rng.normal(scale=0.4, size=clients).tolist()
    return urna.search(space, loss, data, **grouped(settings | more))


def _unsure(result: VoteResult) -> VoteResult:
    """Return a vote that cannot tell, whatever its noise was, which is real."""
    return replace(result, confidence=None, credible_set=(result.winner,))


def _five() -> VoteResult:
    return vote(
        urna.Space(
            learning_rate=urna.Axis.log([1e-4, 1e-3, 1e-2, 1e-1, 1.0]),
            momentum=urna.Axis.linear([0.0, 0.5, 0.9, 0.99]),
            optimiser=["sgd", "<adamw>", "lion"],
            batch_size=[16, 64, 256],
            nesterov=[True, False],
        )
    )


def _winner(*, verified: bool = False) -> VoteResult:
    """Hold a vote of which only the winner is opened."""
    space = urna.Space(eta0=urna.Axis.log([1e-3, 1e-2, 0.1, 1.0]), alpha=[1, 2, 3])
    data = np.random.default_rng(1).normal(scale=0.1, size=20).tolist()

    def loss(candidate: dict[str, Any], own: float) -> float:
        return abs(float(np.log10(candidate["eta0"])) + 1 - own) + float(candidate["alpha"])

    reveal = urna.Reveal("winner", "hospital <7>", verified)
    return urna.search(
        space, loss, data, budget=urna.Budget(2.0, 1e-5), settings=VoteSettings(reveal=reveal)
    )


def _combined(guarantee: Guarantee) -> Combination:
    return combine(
        _SEARCHES,
        "mean" if guarantee.private else FederatedDbscan(min_points=2),
        guarantee=guarantee,
        budget=urna.Budget(8.0, 1e-5) if guarantee.private else None,
        run=tally.Run(secrets=OsSecrets() if guarantee.private else ScriptedSecrets(b"page")),
    )


def _model() -> ModelResult:
    rng = np.random.default_rng(0)
    parts = [
        Samples(rng.normal(size=(20, 4)), rng.integers(3, size=20).astype(np.int64))
        for _ in range(12)
    ]
    result = average(
        parts,
        Schema(4, (0, 1, 2), rows=RowRule()),
        budget=urna.Budget(2.0, 1e-5),
        adjacency=Adjacency.REPLACE_ONE_RECORD,
    )
    return replace(result, measured={"accuracy": 0.75})


def _training() -> TrainResult:
    def step(weights: Any, data: float, seed: int) -> Any:
        del seed
        return weights + 0.5 * (data - weights)

    learner = FunctionLearner(np.zeros(4, np.float32), step, "four means")
    targets = list(np.random.default_rng(2).normal(size=20))
    return fit(learner, targets, budget=urna.Budget(8.0, 1e-3), rounds=4, run=tally.Run(force=True))


def _study() -> StudyResult:
    stages = (("vote", made("vote")), ("model", made("model")))
    together = PrivacyStatement(
        3.0, 1e-5, Adjacency.REPLACE_ONE_CLIENT, "basic composition", ("Both together",)
    )
    return StudyResult(stages, together, 1.7e9)


_MAKERS = {
    "winner": _winner,
    "verified winner": lambda: _winner(verified=True),
    "vote": lambda: vote(urna.Space(eta0=urna.Axis.log([1e-3, 1e-2, 0.1, 1.0]), alpha=[1, 2, 3])),
    "five axes": _five,
    "one axis": lambda: vote(urna.Space(lr=urna.Axis.log_range(1e-4, 1.0, 30))),
    "one candidate": lambda: vote(urna.Space(lr=[0.1])),
    "hopeless": lambda: _unsure(
        vote(urna.Space(lr=[1, 2, 3, 4, 5]), clients=10, budget=urna.Budget(0.1, 1e-5))
    ),
    "thousand": lambda: vote(
        urna.Space(lr=urna.Axis.log_range(1e-5, 1.0, 50), width=list(range(20)))
    ),
    "scripted": lambda: vote(urna.Space(x=[1, 2, 3]), secrets=ScriptedSecrets(b"page")),
    "clear": lambda: vote(
        urna.Space(x=[1, 2, 3], kind=["<a>", "b"]),
        dropout=0.25,
        summation=ClearSummation(frozenset({3})),
    ),
    "model": _model,
    "training": _training,
    "combined": lambda: _combined(Guarantee.NONE),
    "combined, encrypted": lambda: _combined(Guarantee.ENCRYPTION),
    "combined, private": lambda: _combined(Guarantee.DP),
    "study": _study,
}
KINDS = tuple(_MAKERS)
"""Names of results that `made` makes."""


@functools.cache
def made(kind: str) -> Any:
    """Return a result, made once."""
    return _MAKERS[kind]()


TITLE = "A & B <i>"


@functools.cache
def shown(kind: str) -> str:
    """Return a result's page with all that may stand on one, made once."""
    return page(made(kind), title=TITLE, run=RUN, sha256="ab" * 32)


_VOID = {"meta", "br"}


@dataclass
class Read(HTMLParser):
    """What a page holds, and what is wrong with how it is written."""

    wrong: list[str] = field(default_factory=list)
    headings: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    pointed: list[str] = field(default_factory=list)
    """Ids that something on the page points to."""
    addresses: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        said = dict(attrs)
        self.tags.append((tag, said))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if said.get("id"):
            self.ids.append(str(said["id"]))
        for name in ("href", "xlink:href", "src", "aria-labelledby"):
            value = said.get(name)
            if value is not None and (value.startswith("#") or name == "aria-labelledby"):
                self.pointed.append(value.lstrip("#"))
            elif value is not None:
                self.addresses.append(value)

    def handle_endtag(self, tag: str) -> None:
        """Close a tag, in order."""
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        """Note words that are read."""
        if "style" not in self._open:
            self.words.append(data)

    @property
    def text(self) -> str:
        """All words, with single spaces."""
        return " ".join(" ".join(self.words).split())

    def close(self) -> None:
        """End the page: everything is closed."""
        super().close()
        self.wrong += [f"<{tag}> is open" for tag in self._open]


def read(page: str) -> Read:
    """Read a page."""
    reader = Read()
    reader.feed(page)
    reader.close()
    return reader
