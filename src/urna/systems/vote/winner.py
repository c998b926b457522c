"""A vote of which only the winner is opened: its plan and its result."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.local import Losses
from urna.noise import IntVector
from urna.privacy import PrivacyStatement, SelectionRelease
from urna.space import Candidate, Space
from urna.systems.vote.levels import LEVELS, LevelShape, choose_levels, fill_levels, head_start
from urna.systems.vote.plan import EVEN
from urna.tally import SelectionPlan, Terms, public_order

__all__ = ["WINNER", "WinnerPlan", "WinnerResult", "plan_winner"]

WINNER, _VERSION = "winner", 1
"""What a file that holds such a result says it is."""


@dataclass(frozen=True, slots=True)
class WinnerPlan:
    """The ballots of a vote of which only the winner is opened, and the noise around it."""

    selection: SelectionPlan
    shape: LevelShape

    @property
    def terms(self) -> Terms:
        """Who takes part, what it may cost, and what may go wrong."""
        return self.selection.terms

    @property
    def release(self) -> SelectionRelease:
        """What is opened, and under which noise."""
        return self.selection.release

    @property
    def candidates(self) -> int:
        """How many candidates there are."""
        return self.shape.candidates

    @property
    def fewest_ballots(self) -> int:
        """Ballots that are sure to be counted."""
        return self.terms.fewest * self.terms.shards

    def fill(self, losses: Losses, key: bytes) -> IntVector:
        """Return a ballot from losses; no lot is needed, since equal losses get equal levels."""
        del key
        return fill_levels(losses, self.shape)

    def contribution(self, ballot: IntVector) -> IntVector:
        """Return what a client puts in: its ballots, checked."""
        self.shape.check(ballot, self.terms.shards)
        return np.asarray(ballot, dtype=np.int64)

    @property
    def best_case(self) -> float:
        """How probably a candidate wins that all ballots give the top level, and others nothing.

        Σ_t P(N = t)·P(N ≤ t + lead)^(m − 1), for noise on whole votes.
        """
        release = self.release
        rate = release.rate * 2**release.fineness
        lead = self.terms.fewest * self.terms.shards * self.shape.levels
        steps = np.arange(math.ceil(40 / rate) + lead + 1)
        below = (-np.expm1(-rate * (steps + 1))) ** release.largest_of
        chance = np.diff(below, prepend=0.0)
        rivals = below[lead:] ** (self.candidates - 1)
        return float(chance[: len(rivals)] @ rivals + chance[len(rivals) :].sum())

    def check_hopeful(self) -> None:
        """Refuse a vote that could not name even the unanimous choice of all.

        Raises:
            ParameterError: It says so.
        """
        if self.candidates < 2:
            raise ParameterError("there is one candidate only: nothing is left to vote on")
        if self.best_case < EVEN:
            raise ParameterError(
                f"this vote cannot succeed: even the unanimous choice of all wins with probability "
                f"{self.best_case:.2f} only. Raise epsilon, or ask more clients. To hold it all "
                "the same, say so (`anyway=True`, --anyway)."
            )

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        return {
            **self.selection.as_mapping(),
            "candidates": self.candidates,
            "ballot": str(self.shape),
            "best_case": self.best_case,
        }


def plan_winner(
    terms: Terms,
    space: Space,
    *,
    gap: bool = True,
    largest_of: int = 1,
    fineness: int = 0,
) -> WinnerPlan:
    """Plan a vote of which only the winner is opened; nothing is spent.

    Args:
        terms: Who takes part, what it may cost, and what may go wrong. All of epsilon is for the
            winner; delta is not needed.
        space: The candidates.
        gap: Whether the gap to the runner-up is opened as well, which costs nothing more.
        largest_of: K: more than one makes the vote cheaper beside others in a ledger if no gap
            is opened, and the noise a little larger.
        fineness: Bits below a vote to which noise is drawn; 4 go well with K = 4.

    Raises:
        ParameterError: No such noise can be drawn.
    """
    if len(space) < 2:
        raise ParameterError("there is one candidate only: nothing is left to vote on")
    release = SelectionRelease(
        float(terms.budget.epsilon),
        LevelShape(len(space)).reach,
        len(space),
        largest_of,
        fineness,
        gap,
    )
    ballots = terms.clients * terms.shards
    shape = choose_levels(len(space), noise_std=release.noise_std, ballots=ballots)
    order = public_order(space.fingerprint.encode(), len(space))
    start = head_start(space, release)
    return WinnerPlan(SelectionPlan(terms, release, LEVELS, start, order), shape)


@dataclass(frozen=True, slots=True)
class WinnerResult:
    """The winner of a vote whose tally nobody has seen, and what it cost."""

    space: Space
    winner: int
    """The winner's place in the space."""
    gap: float | None
    """Fewest votes it would have to lose to be overtaken, noise included, where a full ballot
    gives three; None where it was not opened."""
    privacy: PrivacyStatement
    terms: Terms
    ballot: LevelShape
    helper: str
    """Who was trusted not to collude with the leader."""
    took_part: int
    """How many clients' ballots were counted."""
    lost: Mapping[int, str]
    """Whose ballot was not, and why."""
    verified: bool = False
    """Whether every ballot counted was checked by leader and helper."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Who broke the protocol, and how."""
    plan: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The vote's plan as plain values."""
    entry: str | None = None
    """Its id in the ledger, where there is one."""
    when: float | None = None
    """Its day, in seconds since the epoch; None of a scripted run: those are all the same."""

    @property
    def best(self) -> Candidate:
        """The winning hyperparameters."""
        candidate: Candidate = self.space[self.winner]
        return candidate

    @property
    def total(self) -> npt.NDArray[np.int64]:
        """What was opened, the winner and the steps of its gap: transcripts have a digest of it."""
        fineness = int(self.plan["selection"]["fineness"])
        gap = -1 if self.gap is None else round(self.gap * (1 << fineness))
        return np.array([self.winner, gap], dtype=np.int64)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of each candidate, in votes."""
        return float(self.plan["noise_std"])

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON, from which `read` makes it again."""
        return {
            "kind": WINNER,
            "version": _VERSION,
            "best": self.best,
            "winner": self.winner,
            "gap": self.gap,
            "helper": self.helper,
            "verified": self.verified,
            "took_part": self.took_part,
            "lost": {str(client): reason for client, reason in self.lost.items()},
            "faults": {str(client): deed for client, deed in self.faults.items()},
            "privacy": self.privacy.as_mapping(),
            "terms": self.terms.as_mapping(),
            "ballot": self.ballot.as_mapping(),
            "plan": dict(self.plan),
            "space": self.space.as_mapping(),
            "space_fingerprint": self.space.fingerprint,
            "entry": self.entry,
            "when": self.when,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "WinnerResult":
        """Read what `as_mapping` wrote.

        Raises:
            ParameterError: It is no such result, or of a newer version.
        """
        if (mapping.get("kind"), mapping.get("version")) != (WINNER, _VERSION):
            raise ParameterError(
                f"this is no winner of a vote of version {_VERSION}: kind "
                f"{mapping.get('kind')!r}, version {mapping.get('version')!r}"
            )
        try:
            space = Space.from_mapping(mapping["space"])
            winner, gap = int(mapping["winner"]), mapping["gap"]
            if not 0 <= winner < len(space):
                raise ValueError(f"a winner's place lies in 0..{len(space) - 1}, got {winner}")
            if gap is not None and not math.isfinite(gap):
                raise ValueError(f"a gap is a number of votes, got {gap}")
            return cls(
                space=space,
                winner=winner,
                gap=None if gap is None else float(gap),
                privacy=PrivacyStatement.read(mapping["privacy"]),
                terms=Terms.read(mapping["terms"]),
                ballot=LevelShape.read(mapping["ballot"], len(space)),
                helper=str(mapping["helper"]),
                verified=mapping["verified"] is True,
                took_part=int(mapping["took_part"]),
                lost={int(client): str(why) for client, why in mapping["lost"].items()},
                faults={int(client): str(why) for client, why in mapping["faults"].items()},
                plan=dict(mapping["plan"]),
                entry=mapping["entry"],
                when=mapping["when"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ParameterError(f"the winner of a vote cannot be read: {error!r}") from error

    def as_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.as_mapping(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        best = ", ".join(f"{name}={value}" for name, value in self.best.items())
        gap = ""
        if self.gap is not None:
            gap = (
                f"gap: {self.gap:g}, the votes it would have to lose to be overtaken, noise "
                f"included (± {self.noise_std:.1f}; a ballot gives 0 to {self.ballot.levels})\n"
            )
        return f"best: {best}\n{gap}privacy: {self.privacy}"
