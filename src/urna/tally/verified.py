"""Verified ballots behind the seams: a noisy tally, or only the winner, of ballots that are valid.

Leader and helper check every ballot on shares of it (`urna.protocols.ballots`). What they open is
either the sum under the noise of clients' coins (`verified_tally`), or the winner alone
(`VerifiedSelection`). Refused ballots are named, and the others go on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.noise import IntVector
from urna.privacy import (
    Adjacency,
    Budget,
    Ledger,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
)
from urna.privacy.accountant import accountant_of
from urna.protocols.ballots import FAST_CODEC, CountPlan, Layout, play
from urna.protocols.winner import Circuit
from urna.protocols.winner import run as run_hidden
from urna.randomness import SecretSource
from urna.tally.release import digest_of_sum
from urna.tally.selection import (
    PLAYED,
    Selected,
    SelectionPlan,
    Started,
    circuit_started,
    rests_on,
    selected,
    unnoted,
)
from urna.tally.summation import ClientId, Contributions
from urna.tally.terms import Terms

__all__ = ["VerifiedSelection", "VerifiedTally", "verified_tally"]


@dataclass(frozen=True, slots=True)
class VerifiedSelection:
    """Only the winner is opened, and every ballot is verified; all parties in this process.

    Guarantee:
        As `HelperSelection`, and no ballot that is not valid is counted: with the fast codec
        an invalid one passes with a probability below 2⁻⁷⁸, for each ballot that is tried.

    Args:
        helper: Who helps, for every output.
        codec: How ballots are proven.
    """

    helper: str
    codec: str = FAST_CODEC

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who was trusted with what."""
        return f"{rests_on('the leader', self.helper, terms, verified=True)}. {PLAYED}"

    def select(
        self,
        contributions: Contributions,
        plan: SelectionPlan,
        secrets: SecretSource,
        started: Started = unnoted,
    ) -> Selected:
        """Return the winner.

        Raises:
            RoundAborted: Too few ballots are valid. Nothing was opened, and nothing counts.
            RoundUnfinished: The circuit started and opened no winner. It counts, whoever ended it.
        """
        count = count_of(plan, self.codec)
        circuit = circuit_modulo(plan, count.proven.modulus)  # what does not fit is said first
        played = play(_ballots(contributions, count), count, secrets)
        ours, theirs, modulus = played.shares()
        shares = [residues(share, plan, modulus) for share in (ours, theirs)]
        shares[1] = ahead(shares[1], plan, modulus)
        refused = dict(played.refused)
        lost = {**played.lost, **refused}
        started()
        with circuit_started(lost, refused):
            found = run_hidden(
                circuit,
                *shares,
                context=played.statement.digest,
                leader_source=secrets,
                helper_source=secrets,
            )
        return selected(found, plan, played.accepted, lost, refused, verified=True)


def count_of(plan: SelectionPlan, codec: str = FAST_CODEC) -> CountPlan:
    """Return the count that leaves leader and helper with the shares of a selection."""
    terms = plan.terms
    layout = Layout(plan.dimension, plan.levels * terms.shards)
    return CountPlan(layout, terms.clients, terms.fewest, codec)


def circuit_modulo(plan: SelectionPlan, modulus: int) -> Circuit:
    """Return the circuit of a selection for shares modulo a prime."""
    plain = plan.circuit
    return Circuit(plain.release, plain.width, modulus)


def residues(
    share: Sequence[int], plan: SelectionPlan, modulus: int
) -> npt.NDArray[np.unsignedinteger]:
    """Return a share of the sum on the noise's grid, in the public order."""
    scaled = [(share[place] << plan.release.fineness) % modulus for place in plan.order]
    return np.array(scaled, dtype=np.uint64 if modulus < 1 << 63 else object)


def ahead(
    share: npt.NDArray[np.unsignedinteger], plan: SelectionPlan, modulus: int
) -> npt.NDArray[np.unsignedinteger]:
    """Return a share with what each entry is given in advance."""
    given = [plan.head_start[place] for place in plan.order]
    both = [(int(a) + b) % modulus for a, b in zip(share, given, strict=True)]
    return np.array(both, dtype=share.dtype)


@dataclass(frozen=True, slots=True)
class VerifiedTally:
    """A noisy sum of verified ballots, and what became of each client."""

    votes: npt.NDArray[np.float64]
    """The noisy sum, in levels."""
    noise_std: float
    """Of the noise in it, in levels."""
    accepted: frozenset[ClientId]
    refused: Mapping[ClientId, str]
    """Who is not in the sum, and what was wrong with its ballot."""
    privacy: PrivacyStatement
    entry: str | None
    """Its id in the ledger, where there is one."""


def verified_tally(
    contributions: Contributions,
    plan: CountPlan,
    budget: Budget,
    secrets: SecretSource,
    *,
    helper: str,
    ledger: Ledger | None = None,
    label: str = "verified tally",
) -> VerifiedTally:
    """Count a noisy sum of verified ballots in the ledger, open it, and say what it cost.

    Guarantee:
        It is in the ledger before it happens, and no longer if nothing was opened. The sum is
        private for a replaced client by the coins of the fewest honest clients
        (`CountPlan.release`); no ballot that is not valid is in it.

    Assumes:
        Leader and helper do not collude, and no more than `plan.readers` clients tell a reader
        of the result their coins.

    Args:
        contributions: Every client's levels.
        plan: What is counted and under which noise; see `CountPlan.noisy`.
        budget: Its delta is the one epsilon is stated at.
        secrets: Where everybody's keys and coins come from.
        helper: Who helps, for every output.
        ledger: Where it is counted.
        label: A few words for the ledger.

    Raises:
        ParameterError: The plan has no coins, or the ledger counts under another relation.
        BudgetExceeded: There is no room in the ledger. Nothing was opened.
        RoundAborted: Too few ballots are valid. Nothing was opened, and nothing counts.
    """
    if plan.release is None:
        raise ParameterError("a tally is opened under noise: make the plan by CountPlan.noisy")
    event: Release = plan.release if secrets.private else NonPrivateRelease("scripted secrets")
    adjacency = Adjacency.REPLACE_ONE_CLIENT
    if ledger is not None:
        ledger.check_relation(adjacency)
    entry = None if ledger is None else ledger.charge(event, label=label)
    try:
        counted = play(_ballots(contributions, plan), plan, secrets).counted
    except RoundAborted as aborted:
        if ledger is not None and entry is not None:
            ledger.withdraw(entry, reason=aborted.reason)
        raise
    if counted is None:
        raise ProtocolError("no noisy sum was opened")
    if ledger is not None and entry is not None:
        ledger.note_revealed(entry, digest_of_sum(counted.total, counted.accepted))
    cost = event.cost()
    rests = (
        f"It rests on the leader and {helper} not colluding, together they could read every "
        f"ballot; and on at least {plan.release.shares} of the clients whose coins are in the sum "
        "keeping them to themselves. Every ballot counted was verified",
    )
    why = () if secrets.private else ("The randomness was scripted, so nothing is private",)
    statement = PrivacyStatement(
        epsilon=cost.at(budget.delta),
        delta=budget.delta,
        adjacency=adjacency,
        accountant=accountant_of(cost) if math.isfinite(cost.mu) else "none",
        caveats=(*why, *rests),
    )
    return VerifiedTally(
        counted.total / 2,
        plan.noise_std,
        counted.accepted,
        counted.refused,
        statement,
        entry,
    )


def _ballots(contributions: Contributions, plan: CountPlan) -> dict[ClientId, IntVector]:
    """Return every client's ballot, produced now where it was not yet."""
    if len(contributions) != plan.clients:
        raise ParameterError(
            f"the plan is for {plan.clients} clients, got {len(contributions)} contributions"
        )
    return {c: made() if callable(made) else made for c, made in sorted(contributions.items())}
