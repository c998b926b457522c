"""What one count will do, decided before anybody casts a ballot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from urna.errors import ParameterError
from urna.protocols.ballots.codec import CODEC, Codec
from urna.protocols.ballots.layout import BallotLayout

_MOST = 1 << 20  # clients of one count


@dataclass(frozen=True, slots=True)
class CountPlan:
    """What a valid ballot is, and who must be there.

    Args:
        layout: What a valid ballot is.
        clients: How many are invited.
        least: Fewest valid ballots with which a count goes on.
    """

    layout: BallotLayout
    clients: int
    least: int

    def __post_init__(self) -> None:
        counts = (self.clients, self.least)
        if any(type(n) is not int or n < 1 for n in counts) or self.clients > _MOST:
            raise ParameterError(f"numbers of clients lie in 1..{_MOST:,}, got {counts}")
        if not 2 <= self.least <= self.clients:
            raise ParameterError(
                f"a count needs at least 2 valid ballots and at most those of all {self.clients} "
                f"clients, got {self.least}"
            )
        if self.clients * self.layout.levels >= self.codec.modulus:
            raise ParameterError(
                f"a sum of {self.clients:,} ballots does not fit into the field of {CODEC}. Use "
                "lower levels."
            )

    @property
    def codec(self) -> Codec:
        """How ballots of this layout are shared and proven."""
        return Codec(self.layout)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read` makes the same plan."""
        return {
            "layout": self.layout.as_mapping(),
            "clients": self.clients,
            "least": self.least,
            "codec": CODEC,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "CountPlan":
        """Read what `as_mapping` wrote; what is missing or malformed raises."""
        if mapping["codec"] != CODEC:
            raise ParameterError(
                f"ballots are proven by {CODEC}, the statement says {mapping['codec']!r:.50}"
            )
        layout = mapping["layout"]
        made = BallotLayout(layout["candidates"], layout["levels"])
        return cls(made, mapping["clients"], mapping["least"])
