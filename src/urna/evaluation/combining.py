"""Combinations beside each other: how far from the federation's own optimum, and the vote too."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from urna.combine import Combination, Combined, Frame, Guarantee, LocalSearch, Searches, Strategy
from urna.errors import ParameterError
from urna.privacy import Budget, Ledger
from urna.randomness import SecretSource
from urna.space import Axis, Space
from urna.tally import EncryptedSummation, Options, SecureSummation
from urna.vote import Recording, Result, replay
from urna.vote import search as hold_vote

__all__ = ["Judged", "VoteStrategy", "compare", "judge", "vote_on"]


@dataclass(frozen=True, slots=True)
class Judged:
    """How good a combined setting is, by the federation's own search."""

    strategy: str
    setting: Mapping[str, float] | None
    """None where the strategy found nothing to combine."""
    distance: Mapping[str, float]
    """Absolute distance from the federated optimum, by axis, as PrivTuna measures it."""
    away: float
    """Distance in parts of the axes, on their scales, all axes together."""
    accuracy: float
    """Accuracy of the nearest setting that the federation tried."""
    regret: float
    """What the federation's best has more."""

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not known is null."""

        def known(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "strategy": self.strategy,
            "setting": None if self.setting is None else dict(self.setting),
            "distance": {name: known(value) for name, value in self.distance.items()},
            "away": known(self.away),
            "accuracy": known(self.accuracy),
            "regret": known(self.regret),
        }


def judge(
    name: str, setting: Mapping[str, float] | None, federated: LocalSearch, frame: Frame
) -> Judged:
    """Hold a setting against the federation's own search.

    The nearest federated setting is the nearest in parts of the axes; where several runs
    share it (other batch sizes), the best of them counts.
    """
    best = int(np.nanargmax(federated.scores))
    optimum, top = federated.settings[best], float(federated.scores[best])
    if setting is None:
        nothing = dict.fromkeys(frame.names, math.inf)
        return Judged(name, None, nothing, math.inf, math.nan, math.nan)
    row = frame.row(setting)
    units = _units(frame, np.stack([row, optimum]))
    away = np.sqrt(((_units(frame, federated.settings) - units[0]) ** 2).sum(axis=1))
    nearest = away <= away.min() + 1e-9
    accuracy = float(np.nanmax(federated.scores[nearest]))
    distance = dict(zip(frame.names, np.abs(row - optimum).tolist(), strict=True))
    between = float(np.sqrt(((units[0] - units[1]) ** 2).sum()))
    return Judged(name, setting, distance, between, accuracy, top - accuracy)


def compare(
    searches: Searches, federated: LocalSearch, strategies: Sequence[Strategy]
) -> list[Judged]:
    """Judge several strategies on the same searches, each in the clear."""
    judged = []
    for strategy in strategies:
        try:
            setting = strategy.combine(searches).setting
        except ParameterError:  # nothing was left to combine
            setting = None
        judged.append(judge(strategy.name, setting, federated, searches.frame))
    return judged


@dataclass(frozen=True, slots=True)
class VoteStrategy:
    """Urna's vote on the same inputs: every client ranks the settings it tried.

    Not private, whatever the epsilon: noise comes from a public generator, as in a replay. For
    a real vote see `vote_on`, or `urna.search`.

    Args:
        epsilon: Budget whose noise the votes carry; infinite for none.
        delta: The delta that goes with it.
        seed: Public seed of ties and noise.
    """

    epsilon: float = math.inf
    delta: float = 1e-5
    seed: int = 0

    @property
    def name(self) -> str:
        """What tables call it."""
        return "vote" if math.isinf(self.epsilon) else f"vote, ε = {self.epsilon:g}"

    def combine(self, searches: Searches) -> Combined:
        """Return the winner."""
        space, losses = ballots_on(searches)
        recording = Recording(losses, np.zeros(len(space)), "nothing")
        rng = np.random.default_rng(self.seed)
        (held,) = replay(
            recording, space, epsilons=[self.epsilon], rng=rng, delta=self.delta, draws=1
        )
        return Combined({k: float(v) for k, v in space[held.winners[0]].items()})


def vote_on(
    searches: Searches,
    *,
    guarantee: Guarantee,
    space: Space,
    budget: Budget,
    ledger: Ledger | None = None,
    secrets: SecretSource | None = None,
    keep: Callable[[Combination], None] | None = None,
    **options: Unpack[Options],
) -> Combination:
    """Hold a private vote on the candidates of a space, with the scores that clients recorded.

    `keep` is called with the result as soon as the tally is open.

    Guarantee:
        That of `urna.search`: the tally is (epsilon, delta)-DP under `adjacency`.
    """
    searches.check_public()
    _, losses = ballots_on(searches, space)
    numbered = {tuple(candidate.values()): n for n, candidate in enumerate(space)}

    def recorded(candidate: Mapping[str, Any], row: npt.NDArray[np.float64]) -> float:
        return float(row[numbered[tuple(candidate.values())]])

    summation = EncryptedSummation() if guarantee is Guarantee.BOTH else SecureSummation()

    def as_combination(result: Result) -> Combination:
        return Combination(
            setting={name: float(value) for name, value in result.best.items()},
            strategy="vote",
            guarantee=guarantee,
            frame=searches.frame,
            privacy=result.privacy,
            clients=len(searches),
            took_part=result.took_part,
            opened=(tuple(result.votes.tolist()),),
            noise=(result.standard_error,),
            terms=result.terms,
            lost=result.lost,
            entries=() if result.entry is None else (result.entry,),
            when=result.when,
        )

    result = hold_vote(
        space,
        recorded,
        list(losses),
        budget=budget,
        summation=summation,
        ledger=ledger,
        secrets=secrets,
        anyway=True,
        progress=False,
        keep=None if keep is None else lambda found: keep(as_combination(found)),
        **options,
    )
    return as_combination(result)


def ballots_on(
    searches: Searches, space: Space | None = None
) -> tuple[Space, npt.NDArray[np.float64]]:
    """Return a space, by default of all settings tried, and each client's losses on it.

    A setting a client tried several times counts as its mean; one it never tried as its worst;
    one that is no candidate not at all.
    """
    space = _tried(searches) if space is None else space
    numbered = {tuple(float(v) for v in c.values()): n for n, c in enumerate(space)}
    losses = np.full((len(searches), len(space)), np.inf)
    for client, search in enumerate(searches.clients):
        found: dict[int, list[float]] = {}
        for row, score in zip(search.settings.tolist(), search.scores.tolist(), strict=True):
            if tuple(row) in numbered:
                found.setdefault(numbered[tuple(row)], []).append(-score)
        for place, each in found.items():
            losses[client, place] = float(np.mean(each))
    return space, losses


def _tried(searches: Searches) -> Space:
    """Return all settings that some client tried, as a space."""
    candidates = searches.candidates()
    axes = {}
    for place, ruler in enumerate(searches.frame.rulers):
        values = np.unique(candidates[:, place]).tolist()
        axes[ruler.name] = Axis.log(values) if ruler.log else Axis.linear(values)
    whole = Space(**axes)
    tried = {tuple(row) for row in candidates.tolist()}
    places = [n for n, c in enumerate(whole) if tuple(float(v) for v in c.values()) in tried]
    return whole if len(places) == len(whole) else whole.only(places)


def _units(frame: Frame, settings: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return settings as parts of the axes; beyond the ends they are at the ends."""
    low = np.array([ruler.low for ruler in frame.rulers])
    high = np.array([ruler.high for ruler in frame.rulers])
    return frame.units(np.clip(settings, low, high))
