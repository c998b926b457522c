"""What can go wrong, in one tree.

Each kind and what it means::

    UrnaError
    ├── ParameterError        what was asked for cannot be: wrong use, exit code 2
    │   ├── UnknownName       no such data set, split, family ...; names the nearest
    │   ├── CannotBatch       torch.func cannot train this module's candidates together
    │   └── DataMissing       the folder or package that should hold the data does not
    ├── BudgetExceeded        a release would pass the ledger's cap; nothing was released
    ├── Inconclusive          a vote would probably not tell its winner; nothing was released
    ├── LedgerError           a ledger file cannot be used as it is
    ├── OutputError           a result could not be written; nothing half-written is left
    ├── Refused               a node does not take part in a vote; nothing of it was released
    └── ProtocolError         a message or request breaks the protocol; nothing was answered
        └── RoundFailed       a private sum came to nothing; says who was lost and who is to blame
            ├── RoundAborted    nothing was revealed, nothing counts
            ├── RoundUnfinished   opening it had begun: it counts as released all the same
            └── InvalidSum    what was opened cannot be a sum of valid contributions; it counts

A message says what should hold, what was found, and what to do next. Numbers are also
attributes. Secrets and data never enter a message: messages may travel to a server.
"""

import difflib
import math
from collections.abc import Iterable, Mapping

__all__ = [
    "BudgetExceeded",
    "CannotBatch",
    "DataMissing",
    "Inconclusive",
    "InvalidSum",
    "LedgerError",
    "OutputError",
    "ParameterError",
    "ProtocolError",
    "Refused",
    "RoundAborted",
    "RoundFailed",
    "RoundUnfinished",
    "UnknownName",
    "UrnaError",
]


class UrnaError(Exception):
    """Anything Urna refuses or could not do."""

    exit_code = 1


class ParameterError(UrnaError, ValueError):
    """What was asked for cannot be. Nothing was computed or released."""

    exit_code = 2


class UnknownName(ParameterError):
    """A name is not one of those known; the message offers the nearest."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Keep the name and the known names as attributes."""
        self.name, self.known = name, tuple(map(str, known))
        near = difflib.get_close_matches(name, self.known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {kind} {name!r}; {hint}known are: {', '.join(self.known)}")


class CannotBatch(ParameterError):
    """A torch module cannot be trained for several candidates at once; no data causes this."""


class DataMissing(ParameterError):
    """The data set is known, but its files or its package are not there."""


class BudgetExceeded(UrnaError):
    """The next release would pass the ledger's cap. Nothing was released."""

    def __init__(
        self,
        *,
        spent: float,
        after: float,
        cap: float,
        delta: float,
        bound: str = "",
        hint: str = "",
    ) -> None:
        """Keep the numbers as attributes, for the command line and the report.

        `bound` says which of the cap's bounds would be passed, where it is not epsilon itself.
        """
        self.spent, self.after, self.cap, self.delta = spent, after, cap, delta
        if not hint:
            hint = "Ask for a smaller epsilon, or start a ledger for other data."
            if after == math.inf:
                hint = "A release without a guarantee at this delta never fits."
        super().__init__(
            f"this release would bring epsilon from {spent:.4g} to {after:.4g} at delta {delta:g}; "
            f"the ledger's cap is {cap:g}{bound and f', and {bound}'}. Nothing was released. {hint}"
        )


class Inconclusive(UrnaError):
    """A vote would probably not tell who leads. Nothing was released."""


class LedgerError(UrnaError):
    """A ledger file cannot be used as it is."""


class CountedAlready(LedgerError):
    """What may be charged only once was charged before."""


class OutputError(UrnaError):
    """A result could not be written. No half-written file is left."""


class Refused(UrnaError):
    """A node does not take part in a vote. Its reason travels, so it holds no data."""


class ProtocolError(UrnaError):
    """A message or a request breaks the protocol. Nothing was answered."""


class Altered(ProtocolError):
    """What arrived is not what its sender wrote. It says nothing about the sender."""


class Exposing(ProtocolError):
    """An authentic message holds a point or key that could show what is secret.

    Nobody honest sends it: its sender is to blame.
    """


class RoundFailed(ProtocolError):
    """A private sum came to nothing."""

    def __init__(
        self,
        reason: str,
        lost: Mapping[int, str] | None = None,
        faults: Mapping[int, str] | None = None,
        receipts: Mapping[int, bytes] | None = None,
    ) -> None:
        """Keep as attributes who was lost and why, and who broke the protocol and how.

        `receipts` are those of clients that have revealed nothing and forgot the round.
        """
        self.reason, self.lost, self.faults = reason, dict(lost or {}), dict(faults or {})
        self.receipts = dict(receipts or {})
        named = _named(" Missing", self.lost) + _named(" Fault", self.faults)
        super().__init__(f"{reason.rstrip('.')}.{named}" if named else reason)


class RoundAborted(RoundFailed):
    """The round ended before anybody was asked to reveal anything. Nothing counts."""


class RoundUnfinished(RoundFailed):
    """Clients began to reveal, and the sum was not unmasked. Count it as released.

    Answers that come late could still unmask it: what was spent stays spent. The same holds for a
    circuit that leader and helper started and that opened no winner.
    """


class InvalidSum(RoundFailed):
    """What was opened is no sum of valid contributions and noise. It counts, and is not read."""


def _named(heading: str, clients: Mapping[int, str]) -> str:
    """Name a few of some clients."""
    named = "; ".join(f"{client}: {why}" for client, why in sorted(clients.items())[:10])
    more = f"; and {len(clients) - 10} more" if len(clients) > 10 else ""
    return f"{heading}: {named}{more}." if clients else ""
