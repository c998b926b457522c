"""A ledger of releases: what was spent, what is left, and no more than its cap.

A release is written down before it happens: a crash in between counts a release that did not
happen, never the other way round. Once its result is on disk, that is written down as well: from
then on the id is never released again.
"""

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from urna.errors import BudgetExceeded, CountedAlready, LedgerError, ParameterError
from urna.privacy.budget import Adjacency, Budget
from urna.privacy.cost import FREE, SLIP_PART, Cost, Cover, Release, Spent, together
from urna.privacy.events import Repeated, ways_of
from urna.privacy.gaussian import gaussian_epsilon
from urna.privacy.ledger_file import STARTED, Entry, LedgerFile, Line, State, is_sampled

__all__ = ["Ledger"]

_LEFT = 1 - 1e-8  # what is offered must fit when it is calibrated and entered
_NO_PART = (
    "This ledger sets no part of its cap apart for releases of which only an (epsilon, delta) is "
    "known; that is decided when a ledger is created (`--declared-epsilon`). Without it, training "
    "on secret samples fits in if it is entered before all sums, and its delta is within the cap's."
)


class Ledger:
    """Adds up everything ever released about one set of data, and refuses to pass its cap.

    Guarantee:
        The releases that were entered and not withdrawn are together (cap.epsilon,
        cap.delta)-DP under `adjacency`, even if each of them, its noise included, was chosen
        by looking at the results of all before it: the ledger is a privacy filter
        (`cost.Cover` has the proof). Two processes that enter at the same time are
        serialised; the same id is never counted twice.

    Assumes:
        Everything released about the data is entered, before it is released.

    Args:
        path: The ledger's file; see `Ledger.open` for one that may not exist yet.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise LedgerError(
                f"there is no ledger at {self.path}. Create one with a cap first: `urna ledger "
                "create`, or Ledger.open(path, cap)."
            )
        self._file = LedgerFile(self.path)
        state = self._file.read()
        self.cap, self.declared = state.cover.cap, state.cover.declared
        self.adjacency, self.subject = state.adjacency, state.subject

    @classmethod
    def open(
        cls,
        path: Path | str,
        cap: Budget,
        *,
        adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
        subject: str = "",
        declared: Budget | None = None,
    ) -> "Ledger":
        """Open the ledger at `path`, creating it with this cap where there is none.

        Args:
            path: The ledger's file.
            cap: What all releases together may cost, for life.
            adjacency: The neighbouring relation, for life.
            subject: Which data this is about, for people.
            declared: The part of the cap for releases of which only an (epsilon, delta) is
                known, sampled ones included; none by default, and for life. What is set apart
                is not there for Urna's own sums. Without it a sampled series may be entered
                before all sums, and takes its epsilon and delta from what these have.

        Raises:
            LedgerError: The file is no ledger, or it has another cap or relation: neither
                ever changes.
        """
        path = Path(path)
        if not path.exists():
            _check_part(Cover(cap, declared))
            LedgerFile(path).create(
                {
                    "cap": asdict(cap),
                    "declared": None if declared is None else asdict(declared),
                    "adjacency": str(adjacency),
                    "subject": subject,
                    "created": time.time(),
                }
            )
        ledger = cls(path)
        asked = (cap, adjacency) if declared is None else (cap, adjacency, declared)
        if asked != (ledger.cap, ledger.adjacency, ledger.declared)[: len(asked)]:
            raise LedgerError(
                f"the ledger {path} has the cap ({ledger.cap.epsilon:g}, {ledger.cap.delta:g}), "
                f"{ledger.adjacency}; asked for was ({cap.epsilon:g}, {cap.delta:g}), {adjacency}. "
                "A cap is for life: ask for the ledger's own."
            )
        return ledger

    def charge(
        self,
        release: Release,
        *,
        label: str,
        id: str | None = None,  # noqa: A002
        rounds: int | None = None,
        number: int | None = None,
        once: bool = False,
    ) -> str:
        """Count a release, or the next round of a series, before it happens; return its id.

        The same id is counted once: a process that was killed may charge again, until what the
        release, or the round, revealed is noted.

        Args:
            release: What is about to become public; `Repeated` for a series.
            label: A few words for people.
            id: Names the release; a fresh one by default.
            rounds: Of a series: how many of its rounds are counted from now on. None counts the
                release as a whole. A sampled series costs what all its rounds do from the first
                on: what sampling saves is known only for a number of rounds fixed beforehand.
            number: Of a series: the number of the round that happens next, where not every
                round counts.
            once: Whether to refuse what is counted already.

        Raises:
            BudgetExceeded: The cap would be passed. Nothing was counted; release nothing.
            LedgerError: The file cannot be read or written; or the id names another release, one
                that was withdrawn, or one whose result is noted. Release nothing.
            CountedAlready: `once` was asked for, and it was charged before.
        """
        name = id or uuid.uuid4().hex
        if rounds is not None and not isinstance(release, Repeated):
            raise LedgerError(f"the release {name!r} is no series")
        if isinstance(release, Repeated) and (rounds or 0) > release.rounds:
            raise LedgerError(
                f"the series {name!r} has {release.rounds} rounds; round {rounds} is not one"
            )
        following = rounds if number is None else number

        def body(state: State) -> Line | None:
            same = state.entries.get(name)
            if same is None:
                price = self._priced(state, release, rounds)
                said = {"label": label, "release": release.as_mapping(), "price": asdict(price)}
                return "release", said | {"rounds": rounds}
            if once and (same.withdrawn or (rounds or 0) <= (same.rounds or 0)):
                raise CountedAlready(f"the release {name!r} is counted already")
            if same.withdrawn:
                raise LedgerError(f"the release {name!r} was withdrawn; charge it anew")
            if same.release != release or (same.rounds is None) != (rounds is None):
                raise LedgerError(f"the id {name!r} already names another release")
            same.check_new(0 if following is None else following - 1)
            if rounds is None or rounds <= (same.rounds or 0):
                return None
            if not is_sampled(release):  # that was counted as a whole
                self._check(state, replace(same, rounds=rounds).cost, besides=name)
            return "advance", {"rounds": rounds}

        self._file.append(name, body)
        return name

    def _priced(self, state: State, release: Release, rounds: int | None) -> Cost:
        """Return which proven cost of a new release is counted; of a series, that of one round."""
        if is_sampled(release):
            self._check(state, release.cost(), first=True)
            return release.cost()
        if rounds is None or not isinstance(release, Repeated):
            return self._fitting(state, release.prices())
        # The last of the prices: one that holds whatever else comes between two rounds.
        price = release.release.prices()[-1]
        self._check(state, price.times(max(rounds, 1)))
        return price

    def check_relation(self, adjacency: Adjacency) -> None:
        """Refuse releases under another neighbouring relation.

        Raises:
            ParameterError: The ledger counts under another one.
        """
        if self.adjacency is not adjacency:
            raise ParameterError(
                f"the ledger counts under {self.adjacency}, {adjacency} is asked for. The two do "
                "not add up: use a ledger of this relation"
            )

    def check(self, *releases: Release, ids: Sequence[str | None] = ()) -> None:
        """Refuse releases that could not be charged, before work is done for them; enter nothing.

        Args:
            releases: In the order in which they will be charged.
            ids: Their ids, where they have some: what is counted already is not counted again.

        Raises:
            BudgetExceeded: Together they would pass the cap.
            LedgerError: One was revealed already.
        """
        state = self._file.read()
        listed = []
        for place, release in enumerate(releases):
            name = ids[place] if place < len(ids) else None
            if name is not None and name in state.entries:
                state.entries[name].check_new(0)
            else:
                listed.append(release)
        ways = ways_of(listed)
        later = [release.prices()[0].mu > 0 for release in listed]
        pure_lead = later == sorted(later)
        self._fitting(state, ways if pure_lead else ways[-1:])

    def find(self, id: str | None) -> Entry | None:  # noqa: A002
        """Return the entry of this id; None where there is none."""
        return None if id is None else self._file.read().entries.get(id)

    def free_id(
        self,
        id: str,  # noqa: A002
        release: Release,
        *,
        done: int = 0,
        counted: int = 1,
    ) -> str:
        """Return an id under which a release may be entered, or goes on: the given one if it can.

        An attempt that came to nothing leaves its id behind. Whoever tries again with other
        clients releases something else, which is counted by itself.

        Args:
            id: The id that is wanted.
            release: What is released; of a series that will be begun, all rounds of it.
            done: How many rounds the caller knows the results of.
            counted: How many rounds of a series are counted once the next one is.

        Raises:
            LedgerError: More was released under the id than the caller knows of.
        """
        entries, name, attempt = self._file.read().entries, id, 1
        series = isinstance(release, Repeated)
        while (found := entries.get(name)) is not None:
            same = found.release == release and (found.rounds is not None) is series
            if same and not found.withdrawn:
                found.check_new(done)
                if (found.rounds or 0) > counted:
                    raise found.behind(done)
                return name
            attempt += 1
            name = f"{id}-{attempt}"
        return name

    def withdraw(self, id: str, *, reason: str, rounds: int | None = None) -> None:  # noqa: A002
        """Certify that an entered release did not happen, so that it no longer counts.

        A pure release that counts by its epsilon goes on counting once sums were entered after
        it: they were bounded by what it left, and whoever has seen them could otherwise
        choose whether it did (`Cover` needs it fixed before them).

        Guarantee:
            None by itself: call it only when it is certain that nothing became public, such
            as after a protocol that aborts before anything is unmasked.

        Args:
            id: The release.
            reason: Why it did not happen, for people.
            rounds: Of a series: how many rounds did happen. None withdraws all of it.

        Raises:
            LedgerError: The release, or the round, was revealed. It goes on counting.
        """

        def body(state: State) -> Line | None:
            entry = state.entry(id)
            if entry.released and (rounds is None or rounds < entry.certain):
                raise LedgerError(
                    f"the release {id!r} ({entry.label}) was revealed, so it happened and is not "
                    "withdrawn. It goes on counting"
                )
            if entry.withdrawn or (rounds is not None and rounds >= (entry.rounds or 0)):
                return None
            return "withdraw", {"reason": reason, "rounds": rounds}

        self._file.append(id, body)

    def note_result(self, id: str, path: Path, sha256: str) -> None:  # noqa: A002
        """Note where the result of a release was written, so that it is found again.

        From now on the release is not made again: its result is there to be read. It counts, even
        if another process under the same id has withdrawn it since it was entered.

        Raises:
            LedgerError: Another result of it was written, in another folder.
        """

        def body(state: State) -> Line:
            entry = state.entry(id)
            kept = entry.result
            if kept is not None and kept.sha256 != sha256 and Path(kept.path).parent != path.parent:
                raise entry.behind(0)  # written by a run from a copy of the folder
            return "result", {"path": str(path), "sha256": sha256}

        self._file.append(id, body)

    def note_started(self, id: str, *, number: int = 1) -> None:  # noqa: A002
        """Note that a release begins to reveal: before the first message that depends on data.

        From now on it counts as revealed, whatever ends it, a kill included: it is admitted no
        more and never withdrawn. `note_revealed` says once what it revealed.

        Args:
            id: The release.
            number: Of a series: the round.

        Raises:
            LedgerError: The release was withdrawn, or it was started or revealed before. Reveal
                nothing.
        """

        def body(state: State) -> Line | None:
            entry = state.entry(id)
            if entry.withdrawn:
                raise LedgerError(f"the release {id!r} was withdrawn; charge it anew")
            entry.check_new(number - 1)
            return "revealed", {"number": number, "digest": STARTED}

        self._file.append(id, body)

    def note_revealed(
        self,
        id: str,  # noqa: A002
        digest: str = "",
        *,
        number: int = 1,
        counted: int = 1,
    ) -> None:
        """Note what a release revealed: after it is on disk, before anybody sees it.

        From now on `charge` does not admit the release, or a round up to this one, again.
        Noting the same again changes nothing. What was started is noted over it, once.

        Guarantee:
            What is noted counts from then on, even if another process under the same id has
            withdrawn it since it was entered: the sum is revealed already.

        Args:
            id: The release.
            digest: SHA-256 of what was revealed; empty where it is known only that it was.
            number: Of a series: the round.
            counted: Of a series: how many rounds count after this one.

        Raises:
            LedgerError: Something else was revealed under its id. Do not use what was revealed
                now.
        """

        def body(state: State) -> Line | None:
            entry = state.entry(id)
            if number <= entry.revealed and not digest:
                return None
            if (number, digest) == (entry.revealed, entry.digest):
                return None
            noted = entry.digest not in ("", STARTED)
            if number < entry.revealed or (number == entry.revealed and noted):
                raise entry.behind(number - 1)
            return "revealed", {"number": number, "digest": digest, "counted": counted}

        self._file.append(id, body)

    def entries(self) -> list[Entry]:
        """Return all releases, oldest first."""
        return list(self._file.read().entries.values())

    def spent(self) -> Spent:
        """Return what all releases together have cost at the cap's delta.

        This is what they cost if their noise was fixed beforehand, which is less than what the
        cap promises in every case.
        """
        return self._total().spent(self.cap.delta)

    def left(self) -> float:
        """Return the epsilon of the largest further sum that would be admitted, rounded down."""
        total = self._total()
        most, mu = self._cover(total).mu, total.mu
        if not mu and self.declared is None and not total.delta:
            return max(self.cap.epsilon - total.epsilon, 0.0)
        rest = math.sqrt(max(most**2 - mu**2, 0.0)) * _LEFT
        return gaussian_epsilon(rest, self.cap.delta * (1 - SLIP_PART))

    def as_mapping(self) -> dict[str, Any]:
        """Return the whole ledger as plain values for JSON."""
        spent = self.spent()
        declared = self.declared
        return {
            "path": str(self.path),
            "subject": self.subject,
            "cap": {"epsilon": self.cap.epsilon, "delta": self.cap.delta},
            "declared": None if declared is None else asdict(declared),
            "adjacency": str(self.adjacency),
            "spent": spent.epsilon if math.isfinite(spent.epsilon) else None,
            "left": self.left(),
            "accountant": spent.accountant,
            "entries": [entry.as_mapping(self.cap.delta) for entry in self.entries()],
        }

    def _total(self) -> Cost:
        return together(entry.cost for entry in self.entries())

    def _fitting(self, state: State, offers: Sequence[Cost]) -> Cost:
        """Return the first of some proven costs of a release that fits; refuse if none does."""
        for price in offers[:-1]:
            try:
                self._check(state, price, first=True)
            except BudgetExceeded:
                continue
            return price
        self._check(state, offers[-1])
        return offers[-1]

    def _cover(self, total: Cost) -> Cover:
        """Return the bounds that hold beside what was entered first by its (epsilon, delta)."""
        first = FREE if self.declared is not None else Cost(0.0, total.epsilon, total.delta)
        return Cover(self.cap, self.declared, first)

    def _check(
        self,
        state: State,
        cost: Cost,
        besides: str | None = None,
        *,
        first: bool = False,
    ) -> None:
        """Refuse what would pass the cap beside what is entered already.

        Where `first` is asked for, in a ledger without a part for declared releases, a cost in
        (epsilon, delta) is admitted as long as no Gaussian was entered (`Cover.first`): it comes
        before whatever else is asked for with it.
        """
        entered = [entry.cost for entry in state.entries.values() if entry.id != besides]
        after = together([*entered, cost])
        cover = state.cover
        if cover.declared is None:
            leads = first and not any(price.mu > 0 for price in entered)
            cover = self._cover(after) if leads or not cost.epsilon else cover
        if bound := cover.exceeded(after):
            spent = together(entry.cost for entry in state.entries.values())
            needs_part = state.cover.declared is None and (cost.epsilon > 0 or cost.delta > 0)
            raise BudgetExceeded(
                spent=spent.at(self.cap.delta),
                after=after.at(self.cap.delta),
                cap=self.cap.epsilon,
                delta=self.cap.delta,
                bound=bound,
                hint=_NO_PART if needs_part and math.isfinite(after.mu) else "",
            )


def _check_part(cover: Cover) -> None:
    """Refuse a part for declared releases that is not within the cap, or leaves nothing else."""
    cap, declared = cover.cap, cover.declared
    if declared is None:
        return
    if not (declared.epsilon <= cap.epsilon and declared.delta <= cap.delta):
        raise LedgerError("what is set apart for declared releases is within the cap")
    if declared != cap and not cover.mu:
        raise LedgerError(
            "what is set apart for declared releases leaves nothing for sums: leave some of "
            "the cap's epsilon and some of its delta, or set apart all of both"
        )
