"""Every way to choose a candidate that the evaluation compares, replayed on recorded scores."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.dp_hype.published import DELTA, SIGMA, VOTES
from benchmarks.dp_hype.recorded import Recorded
from benchmarks.papers.baselines import CentralSelection, Feathers, MeanSetting, RawLosses, Subsets
from benchmarks.papers.replay import FEDERATED, Recording, replay

from urna.local.models import authors_space
from urna.privacy import Budget
from urna.space import Space
from urna.systems.vote import ArgmaxDecoder
from urna.systems.vote.ballot import BallotKind
from urna.systems.vote.decode import Decoder

__all__ = ["METHODS", "SPACE", "Method", "noise_of"]

SPACE = authors_space()
UNNAMED = Space(**{"x" if name == "lr" else name: axis for name, axis in SPACE.axes.items()})
"""The same candidates, not saying which axis is a learning rate."""
Winners = npt.NDArray[np.integer]
Choose = Callable[[Recorded, float, np.random.Generator, int], Winners]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to choose, and how tables call it."""

    name: str
    title: str
    choose: Choose
    main: bool = False
    """Whether it is run for every setting; the others are ablations, run where claims are."""


def budget_of(epsilon: float) -> Budget | None:
    """Return the budget of one choice; None for no noise."""
    return None if math.isinf(epsilon) else Budget(epsilon, DELTA)


def vote(
    recorded: Recorded,
    epsilon: float,
    rng: np.random.Generator,
    draws: int,
    *,
    ballot: BallotKind | None = None,
    decoder: Decoder | None = None,
    own_noise: bool = False,
    by_loss: bool = False,
    space: Space = SPACE,
) -> Winners:
    """Choose by votes, as `urna replay` does.

    Args:
        recorded: One setting.
        epsilon: Budget of the vote.
        rng: Public generator of ties and noise.
        draws: How many votes are held.
        ballot: Kind of ballot; None for the default.
        decoder: How winners are read; None for the default.
        own_noise: Whether to add the noise the authors computed, not ours.
        by_loss: Whether clients rank candidates by validation loss; the authors' rank them
            by validation accuracy.
        space: The candidates as the decoder is told of them.
    """
    scores = recorded.losses if by_loss else -recorded.accuracies
    (replayed,) = replay(
        Recording(scores, recorded.federated, FEDERATED),
        space,
        epsilons=[epsilon],
        rng=rng,
        delta=DELTA,
        ballot=ballot,
        votes=VOTES if ballot is BallotKind.TOP_K else None,
        decoder=decoder,
        draws=draws,
        noise_std=SIGMA[epsilon] if own_noise and math.isfinite(epsilon) else None,
    )
    return np.array(replayed.winners)


@functools.cache
def noise_of(epsilon: float, clients: int) -> float:
    """Return the standard deviation, in votes, that we need for the paper's ballots."""
    (replayed,) = replay(
        Recording(np.zeros((clients, len(SPACE))), np.zeros(len(SPACE)), FEDERATED),
        SPACE,
        epsilons=[epsilon],
        rng=np.random.default_rng(0),
        delta=DELTA,
        ballot=BallotKind.TOP_K,
        votes=VOTES,
        decoder=ArgmaxDecoder(),
        draws=1,
    )
    return replayed.noise_std


def raw_losses(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose by the largest noisy sum of accuracies."""
    return RawLosses(budget_of(epsilon)).winners(recorded.accuracies, rng, draws)


def subsets(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose by the accuracies of a few clients for each candidate."""
    return Subsets(budget_of(epsilon)).winners(recorded.accuracies, rng, draws)


def feathers(
    recorded: Recorded,
    epsilon: float,
    rng: np.random.Generator,
    draws: int,
    *,
    honest: bool = False,
) -> Winners:
    """Choose by Feathers' rewards.

    A client's loss before training is that of the candidate which moves least: a learning
    rate of 1e-8 that falls to zero after one epoch.
    """
    still = [i for i, c in enumerate(SPACE) if c["lr"] == 1e-8 and c["decay"] == 0.0]
    method = Feathers(budget_of(epsilon), honest=honest)
    before = recorded.losses[:, still[0]]
    return method.winners(recorded.losses, before, rng, draws, rows=recorded.rows)


def mean_setting(
    recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int
) -> Winners:
    """Choose by the mean of the clients' best settings."""
    return MeanSetting(budget_of(epsilon)).winners(-recorded.accuracies, SPACE, rng, draws)


def central(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose by private selection at a trusted server."""
    return CentralSelection(budget_of(epsilon)).winners(recorded.accuracies, rng, draws)


_partial = functools.partial
_paper = _partial(vote, ballot=BallotKind.TOP_K, decoder=ArgmaxDecoder())

METHODS = {
    method.name: method
    for method in (
        Method("paper", "DP-Hype, its own σ", _partial(_paper, own_noise=True), main=True),
        Method("paper-exact", "DP-Hype, our exact σ", _paper, main=True),
        Method("ours", "ours", vote, main=True),
        Method(
            "paper-by-loss",
            "DP-Hype, its own σ, by loss",
            _partial(_paper, own_noise=True, by_loss=True),
        ),
        Method("ours-by-loss", "ours, by loss", _partial(vote, by_loss=True)),
        Method("ours-unnamed", "ours, the rate's axis unnamed", _partial(vote, space=UNNAMED)),
        Method("ours-argmax", "our ballots, argmax", _partial(vote, decoder=ArgmaxDecoder())),
        Method(
            "paper-decoded",
            "DP-Hype's ballots, our decoder",
            _partial(vote, ballot=BallotKind.TOP_K),
        ),
        Method("raw-losses", "RawLosses", raw_losses),
        Method("subsets", "Subsets", subsets),
        Method("feathers", "Feathers as published (not private)", feathers),
        Method("feathers-honest", "Feathers, honest accounting", _partial(feathers, honest=True)),
        Method("mean-setting", "PrivTuna's mean, with noise", mean_setting),
        Method("central", "central selection (trusted server)", central),
    )
}
