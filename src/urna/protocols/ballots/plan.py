"""What one count will do, decided before anybody casts a ballot."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from urna.errors import ParameterError
from urna.privacy import Budget, CoinRelease, calibrate_coins
from urna.protocols.ballots.codec import FAST_CODEC, Codec, codec_for
from urna.protocols.ballots.layout import Layout, enough_room

__all__ = ["CountPlan"]

_MOST = 1 << 20  # clients of one count


@dataclass(frozen=True, slots=True)
class CountPlan:
    """What a valid ballot is, how it is proven, who must be there, how much noise there is.

    Args:
        layout: What a valid ballot is.
        clients: How many are invited.
        least: Fewest valid ballots with which anything is opened.
        codec: How ballots are proven.
        tossing: How many clients' coins are used: those of the first so many valid ballots.
        readers: How many clients' coins a reader of the result may know: at least its own.
        tail: As in `CoinRelease`.
    """

    layout: Layout
    clients: int
    least: int
    codec: str = FAST_CODEC
    tossing: int = 0
    readers: int = 1
    tail: float = 1e-15

    def __post_init__(self) -> None:
        counts = (self.clients, self.least, self.readers)
        if any(type(n) is not int or n < 1 for n in counts) or self.clients > _MOST:
            raise ParameterError(f"numbers of clients lie in 1..{_MOST:,}, got {counts}")
        if not 2 <= self.least <= self.clients:
            raise ParameterError(
                f"a count needs at least 2 valid ballots and at most those of all {self.clients} "
                f"clients, got {self.least}"
            )
        if type(self.tossing) is not int or bool(self.tossing) != bool(self.layout.coins):
            raise ParameterError("coins are in ballots exactly if so many clients toss them")
        if self.layout.coins and not self.readers < self.tossing <= self.least:
            raise ParameterError(
                f"the coins of {self.tossing} clients are used, of {self.least} or more; "
                f"{self.readers} may know theirs, and at least one must not. Lower `readers`, or "
                "ask more clients."
            )
        if not enough_room(self.layout, self.clients, self.proven.modulus):
            raise ParameterError(
                f"a sum of {self.clients:,} ballots and its noise do not fit into the field of "
                f"{self.codec}. Use lower levels, or lighter coins."
            )

    @classmethod
    def noisy(
        cls, layout: Layout, budget: Budget, *, clients: int, least: int, readers: int = 1
    ) -> "CountPlan":
        """Return a plan whose sum is opened under the least noise that meets a budget.

        Example:
            >>> plan = CountPlan.noisy(Layout(100, 1, 5), Budget(1.0, 1e-5), clients=100, least=90)
            >>> plan.layout.coins, round(plan.noise_std, 1)
            ((1, 1, 1, 1, 1, 1, 1, 1), 12.1)
        """
        plain = cls(layout, clients, least, readers=readers)
        made = calibrate_coins(
            budget, layout.move, shares=plain.least - readers, largest=layout.levels
        )
        return replace(
            plain,
            layout=replace(layout, coins=made.weights),
            tossing=made.shares + readers,
            tail=made.tail,
        )

    @property
    def proven(self) -> Codec:
        """The codec for this layout."""
        return codec_for(self.codec, self.layout)

    @property
    def release(self) -> CoinRelease | None:
        """What opening the noisy sum is; None where there are no coins, and none is opened."""
        layout = self.layout
        if not layout.coins:
            return None
        honest = self.tossing - self.readers
        return CoinRelease(layout.move, layout.coins, honest, layout.levels, self.tail)

    @property
    def noise_std(self) -> float:
        """Standard deviation of all noise in the opened sum, in levels."""
        return math.sqrt(self.tossing * self.layout.noise_variance) / 2

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read` makes the same plan."""
        return {
            "layout": self.layout.as_mapping(),
            "clients": self.clients,
            "least": self.least,
            "codec": self.codec,
            "tossing": self.tossing,
            "readers": self.readers,
            "tail": self.tail,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "CountPlan":
        """Read what `as_mapping` wrote; what is missing or malformed raises."""
        layout = mapping["layout"]
        made = Layout(
            layout["candidates"], layout["levels"], layout["limit"], tuple(layout["coins"])
        )
        numbers = {name: mapping[name] for name in ("clients", "least", "tossing", "readers")}
        return cls(made, codec=str(mapping["codec"]), tail=float(mapping["tail"]), **numbers)
