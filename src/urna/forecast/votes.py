"""Forecast a vote: run it on synthetic loss surfaces, with the ballot and decoder it will have.

A forecast says what such votes found on surfaces that were made up over the same space, under
the same noise. It is no guarantee: clients may differ in ways no loss surface does. Everything
here is public, and nothing is spent.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from urna.errors import ParameterError
from urna.forecast.surfaces import KINDS, LossSurface, kinds_of, within_windows
from urna.privacy import Budget
from urna.randomness import SEED_BYTES
from urna.space import Space
from urna.systems.vote import NoisyVotes, PosteriorDecoder, VotePlan, fill_ballot
from urna.systems.vote.decode import Decoder
from urna.tally import Terms

Array = npt.NDArray[np.float64]

HELD = 200
"""Simulated votes of one forecast."""
WITHIN = (0.01, 0.03, 0.1)
"""Parts of the distance from the worst to the best candidate that a winner may fall short by."""
WIDE = 1.96
"""Standard errors to either side of a mean that make a 95 % interval."""
AGREEMENTS = {"much alike": 0.05, "apart": 0.3, "far apart": 1.0}
"""How far clients deviate from what is true, over how far qualities spread."""
NEAR = 0.03
"""How far a winner may fall short of the best candidate to be called near it."""

_MOST_FILLED = 60  # ballots that are filled in for one vote; more are counted in proportion
_STRUCTURELESS = 10  # one loss surface in so many has no structure
_EARLIEST = 0.05  # quantile of a logarithmic axis before which no plateau begins
_EVEN, _NINE_OF_TEN = 0.5, 0.9
_ERRORS = 2.0  # standard errors beyond which one opening is called better


def exact_interval(successes: int, repetitions: int) -> tuple[float, float]:
    """Return the exact 95 % confidence interval of a probability (Clopper & Pearson)."""
    losses = repetitions - successes
    low = float(betaincinv(successes, losses + 1, 0.025)) if successes else 0.0
    high = float(betaincinv(successes + 1, losses, 0.975)) if losses else 1.0
    return low, high


@dataclass(frozen=True, slots=True)
class Forecast:
    """What simulated votes found. Regret is over the distance from the worst to the best."""

    epsilon: float
    """What the vote costs by itself."""
    agreement: float
    """Mean correlation of what a client saw with what was true."""
    regrets: tuple[float, ...]
    """Of each vote's winner."""
    blind_within: tuple[float, ...]
    """For each of `WITHIN`, the chance of a candidate drawn by lot."""
    blind_regret: float
    """The mean regret of a candidate drawn by lot."""

    @property
    def held(self) -> int:
        """How many votes were held."""
        return len(self.regrets)

    def within(self, part: float) -> float:
        """Return the share of votes whose winner falls short by at most this part."""
        return self._reached(part) / self.held

    def interval(self, part: float) -> tuple[float, float]:
        """Return the exact 95 % confidence interval of `within`."""
        return exact_interval(self._reached(part), self.held)

    def _reached(self, part: float) -> int:
        return sum(regret <= part for regret in self.regrets)

    @property
    def regret(self) -> float:
        """Mean regret."""
        return math.fsum(self.regrets) / self.held

    @property
    def standard_error(self) -> float:
        """Standard error of the mean regret."""
        return float(np.std(self.regrets) / math.sqrt(self.held))

    def described_regret(self) -> str:
        """Return the mean regret and its 95 % interval, in per cent; one vote has no interval."""
        said = f"{100 * self.regret:.1f}"
        return said if self.held == 1 else f"{said} ± {100 * WIDE * self.standard_error:.1f}"

    @property
    def hopeless(self) -> bool:
        """Whether most winners surely fall short by more than a tenth of the range."""
        return self.interval(WITHIN[-1])[1] < _EVEN

    def gain_of(self, other: "Forecast") -> tuple[float, float]:
        """Return another forecast's reduction in regret on the same loss surfaces, and its error.

        Assumes:
            Both had the same space and seed; the shorter decides how many are compared.
        """
        count = min(self.held, other.held)
        less = np.subtract(self.regrets[:count], other.regrets[:count])
        return float(less.mean()), float(less.std() / math.sqrt(count))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "held": self.held,
            "agreement": self.agreement,
            "within": [
                {"part": part, "rate": self.within(part), "low": low, "high": high, "by_lot": lot}
                for part, lot in zip(WITHIN, self.blind_within, strict=True)
                for low, high in [self.interval(part)]
            ],
            "regret": self.regret,
            "standard_error": self.standard_error,
            "regret_by_lot": self.blind_regret,
            "hopeless": self.hopeless,
        }


@dataclass(frozen=True, slots=True)
class Openings:
    """What votes found that reveal counts or the winner alone, on the same loss surfaces."""

    tally: Forecast
    winner: Forecast

    @property
    def gain(self) -> tuple[float, float]:
        """How much less regret the winner has, and its standard error."""
        return self.tally.gain_of(self.winner)

    @property
    def better(self) -> str:
        """`winner`, `tally`, or `either` where chance may explain the difference."""
        gain, error = self.gain
        if abs(gain) <= _ERRORS * error:
            return "either"
        return "winner" if gain > 0 else "tally"

    def __str__(self) -> str:
        what = "either" if self.better == "either" else f"the {self.better}"
        return (
            f"{what} (winner, epsilon {self.winner.epsilon:.3g}: "
            f"{100 * self.winner.within(NEAR):.0f} % within {100 * NEAR:g} % of the best, regret "
            f"{100 * self.winner.regret:.1f}; tally, epsilon {self.tally.epsilon:.3g}: "
            f"{100 * self.tally.within(NEAR):.0f} %, regret {100 * self.tally.regret:.1f})"
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        gain, error = self.gain
        return {
            "better": self.better,
            "gain": gain,
            "gain_error": error,
            "tally": {"epsilon": self.tally.epsilon, **self.tally.as_mapping()},
            "winner": {"epsilon": self.winner.epsilon, **self.winner.as_mapping()},
        }


def forecast(
    vote: VotePlan,
    space: Space,
    *,
    decoder: Decoder | None = None,
    held: int = HELD,
    apart: float | None = None,
    seed: int = 0,
) -> Forecast:
    """Run a planned vote on synthetic loss surfaces and return what it found.

    Noise is the plan's, the most the sum can hold, over the fewest ballots it can hold; where only
    the winner is revealed it is the one around the winner. One loss surface in ten has no
    structure.

    Args:
        vote: The plan: ballots, noise, who may be missing.
        space: The candidates.
        decoder: How winners are read; `PosteriorDecoder` by default.
        held: How many votes, each on a loss surface of its own.
        apart: How far clients deviate from what is true; from 0.03 to 0.6, drawn, by default.
        seed: Public seed. Equal seeds have equal loss surfaces, whatever the plan.
    """
    if held < 1:
        raise ParameterError(f"a forecast needs at least one simulated vote, got {held}")
    if vote.candidates != len(space):
        raise ParameterError(
            f"the plan is for {vote.candidates} candidates, the space has {len(space)}"
        )
    if len(space) < 2:
        raise ParameterError("there is one candidate only: nothing is left to forecast")
    decoder = decoder or PosteriorDecoder()
    filled = min(vote.fewest_ballots, _MOST_FILLED)
    agreements, regrets, blind, chances = [], [], [], []
    for number in range(held):
        rng = np.random.default_rng([0x464F5245, seed, number])
        land = _surface(rng, space, number, filled, apart)
        (winner,) = draw_winners(-land.seen, space, vote, decoder, rng, 1)
        regret = land.regret
        regrets.append(float(regret[winner]))
        agreements.append(land.agreement)
        blind.append(float(regret.mean()))
        chances.append([float(np.mean(regret <= part)) for part in WITHIN])
    return Forecast(
        float(vote.terms.budget.epsilon),
        float(np.mean(agreements)),
        tuple(regrets),
        tuple(np.mean(chances, axis=0).tolist()),
        float(np.mean(blind)),
    )


def draw_winners(
    losses: Array,
    space: Space,
    vote: VotePlan,
    decoder: Decoder,
    rng: np.random.Generator,
    draws: int,
) -> Iterator[int]:
    """Yield the winners of votes with a plan's noise, among clients with these losses.

    Losses are of those that vote, or of some that stand for them. The fewest ballots that the plan
    allows are in the sum, and the most noise. `rng` is public: of ties and noise.
    """
    ballots, shape = vote.fewest_ballots, vote.shape
    total = np.sum([fill_ballot(row, shape, rng.bytes(SEED_BYTES)) for row in losses], axis=0)
    if vote.reveal.winner:
        selection, release = vote.selection, vote.selection.release
        levels = np.rint(total * (ballots / len(losses))).astype(np.int64)
        drawn = rng.geometric(
            -math.expm1(-release.rate), (draws, release.largest_of, vote.candidates)
        )
        noise = (drawn - 1).max(axis=1) + np.array(selection.head_start)
        order = np.array(selection.order)
        noisy = ((levels << release.fineness) + noise)[:, order]
        yield from order[np.argmax(noisy, axis=1)].tolist()
        return
    exact = total * (ballots / len(losses)) / shape.vote
    table, norm = vote.tally.noise.table(vote.tally.most_noise), shape.norm / shape.vote
    for _ in range(draws):
        noisy = exact + table.draw(rng.bytes(SEED_BYTES), len(space)) / vote.vote
        yield decoder.winner(NoisyVotes(space, noisy, vote.most_noise_std, ballots, norm))


def alternatives(
    vote: VotePlan,
    space: Space,
    plan: Callable[[Terms], VotePlan],
    **how: Any,  # noqa: ANN401 - of `forecast`
) -> dict[str, Forecast]:
    """Forecast what a vote would find if more were spent on it.

    `plan` plans a vote under other terms; `how` is what else `forecast` takes.
    """
    terms, found = vote.terms, {}
    double = Budget(2 * terms.budget.epsilon, terms.budget.delta)
    changes = {
        "twice the clients": terms.among(2 * terms.clients),
        "twice the epsilon": terms.costing(double),
    }
    for name, changed in changes.items():
        with suppress(ParameterError):  # it cannot be planned: nothing to recommend
            found[name] = forecast(plan(changed), space, **how)
    return found


def clients_needed(
    vote: VotePlan,
    space: Space,
    plan: Callable[[Terms], VotePlan],
    *,
    decoder: Decoder | None = None,
    held: int = 40,
) -> int | None:
    """Return a number of clients at which nine of ten simulated votes find a good candidate.

    Numbers are tried by doubling, 64 times the plan's at most; None if none of them is enough.
    The arguments are those of `alternatives` and `forecast`.
    """
    for times in (2, 4, 8, 16, 32, 64):
        clients = times * vote.terms.clients
        more = plan(vote.terms.among(clients))
        if forecast(more, space, decoder=decoder, held=held).within(WITHIN[-1]) >= _NINE_OF_TEN:
            return clients
    return None


def _surface(
    rng: np.random.Generator, space: Space, number: int, clients: int, apart: float | None
) -> LossSurface:
    """Draw the loss surface of one vote; kinds take turns.

    What names and `works` say of axes holds as often as a decoder expects it to.
    """
    kinds = kinds_of(space)
    kind = kinds[number % len(kinds)] if kinds else "none"
    if number % _STRUCTURELESS == _STRUCTURELESS - 1:
        kind = "none"
    more = {"earliest": _EARLIEST} if kind == "rates" else {}
    return within_windows(rng, space, KINDS[kind](rng, space, clients, apart, **more))
