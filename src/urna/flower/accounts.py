"""A node's own account: what it has released, and which stages it has answered."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from urna.errors import BudgetExceeded, CountedAlready, LedgerError, Refused
from urna.flower.announcement import Announcement
from urna.flower.claims import check_run, claim, claimed, count_run, runs
from urna.privacy import Adjacency, Budget, Ledger, NonPrivateRelease, Release, Repeated

__all__ = ["NodeAccount"]

_BEGUN = "begin"


@dataclass(frozen=True, slots=True)
class NodeAccount:
    """The ledger of one data set, and the file of claims beside it.

    Guarantee:
        No round of an announcement is begun twice, whatever it starts from, and no stage of it
        is answered twice. A series is counted up to the latest of its rounds that was
        answered, so every round is counted before its masked vector leaves the node. A round
        that is counted is not counted again: without the file of claims it is refused, too.

    Args:
        file: The ledger's file; None for a node that remembers nothing.
        cap: What all releases together may cost.
        relation: The neighbouring relation.
        data: Names the data set, for people.
    """

    file: Path | None
    cap: Budget
    relation: Adjacency
    data: str = ""

    def check(self, announcement: Announcement, *, private: bool) -> None:
        """Refuse a sum that the ledger has no room for; enter nothing.

        Raises:
            Refused: With a reason that says nothing about the ledger's contents.
        """
        with _refusals():
            if (ledger := self.ledger()) is not None:
                ledger.check(_event(announcement, private))

    def begin(self, announcement: Announcement, number: int) -> None:
        """Take the one right to begin a round, whatever inputs it comes with.

        Raises:
            Refused: It was begun before, or that cannot be written down.
        """
        self.claim(announcement.place(number), _BEGUN)

    def begun(self, announcement: Announcement, number: int) -> bool:
        """Say whether the node took part in a round; always so where nothing is remembered."""
        claims = self._claims
        return claims is None or claimed(claims, announcement.place(number), _BEGUN)

    def claim(self, coin: bytes, stage: str) -> None:
        """Take the one right to answer a stage of a round, before the answer leaves the node.

        Raises:
            Refused: The stage was answered before, or the claim cannot be written.
        """
        if self._claims is not None:
            claim(self._claims, coin, stage)

    @property
    def runs(self) -> frozenset[str]:
        """The exact results that were counted; none where nothing is remembered.

        Raises:
            Refused: The claims cannot be read.
        """
        return frozenset() if self._claims is None else runs(self._claims)

    def check_run(self, run: bytes, most: int | None) -> None:
        """Refuse an exact result for which nothing is left of what the owner granted.

        Raises:
            Refused: `most` others were counted.
        """
        if most is not None:
            check_run(self.runs, run, most)

    def count_run(self, run: bytes, most: int | None) -> None:
        """Count an exact result for good, before anything that it is made of leaves the node.

        Raises:
            Refused: `most` others were counted, or it cannot be written down.
        """
        if self._claims is not None and most is not None:
            count_run(self._claims, run, most)

    def count(self, announcement: Announcement, number: int, coin: bytes, *, private: bool) -> None:
        """Count a round in the ledger, before the masked vector leaves the node.

        Raises:
            Refused: The cap would be passed, or the round is counted already.
        """
        with _refusals():
            if (ledger := self.ledger()) is None:
                return
            event, label = _event(announcement, private), announcement.label
            name, rounds = _place(announcement, number, coin)
            if rounds is not None:
                event = Repeated(event, announcement.rounds)
            ledger.charge(event, label=label, id=name, rounds=rounds, once=True)

    def withdraw(self, announcement: Announcement, number: int, coin: bytes, reason: str) -> None:
        """Take a round out of the ledger that can never be opened any more.

        Of a series only the latest round counted can be taken back: a number stands for all
        rounds up to it.
        """
        with _refusals():
            if (ledger := self.ledger()) is None:
                return
            name, rounds = _place(announcement, number, coin)
            entry = ledger.find(name)
            if entry is not None and entry.rounds == rounds:
                ledger.withdraw(name, reason=reason, rounds=rounds and rounds - 1)

    def ledger(self) -> Ledger | None:
        """Return the ledger, created on first use; None where none is kept."""
        if self.file is None:
            return None
        return Ledger.open(self.file, self.cap, adjacency=self.relation, subject=self.data)

    @property
    def _claims(self) -> Path | None:
        return None if self.file is None else self.file.with_name(f"{self.file.name}.answered")


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn a ledger's errors into refusals without its figures or its path."""
    try:
        yield
    except BudgetExceeded as error:
        raise Refused("what is left of this node's privacy budget is too little") from error
    except CountedAlready as error:
        raise Refused("this node has answered this round before") from error
    except LedgerError as error:
        raise Refused("this node's ledger cannot be used") from error


def _place(announcement: Announcement, number: int, coin: bytes) -> tuple[str, int | None]:
    """Return a round's id in the ledger, and how many rounds of a series it counts."""
    if announcement.rounds == 1:
        return coin.hex(), None
    return announcement.digest.hex(), number


def _event(announcement: Announcement, private: bool) -> Release:
    """Return what one round of what is announced releases."""
    if not private:
        return NonPrivateRelease("scripted secrets")
    return announcement.plan.event or NonPrivateRelease("the sum is exact")
