"""Verified ballots behind the seams: only the winner is opened, of ballots that are valid.

Leader and helper check every ballot on shares of it (`urna.protocols.ballots`). Refused ballots
are named, and the others go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.protocols.ballots import BallotLayout, CountPlan, play
from urna.protocols.winner import Circuit
from urna.protocols.winner import run as run_hidden
from urna.randomness import SecretSource
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


@dataclass(frozen=True, slots=True)
class VerifiedSelection:
    """Only the winner is opened, and every ballot is verified; all parties in this process.

    Guarantee:
        As `HelperSelection`, and no ballot that is not valid is counted: an invalid one passes
        with a probability below 2⁻⁷⁸, for each ballot that is tried.

    Args:
        helper: Who helps, for every output.
    """

    helper: str

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
        count = count_of(plan)
        circuit = circuit_modulo(plan, count.codec.modulus)  # what does not fit is said first
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


def count_of(plan: SelectionPlan) -> CountPlan:
    """Return the count that leaves leader and helper with the shares of a selection."""
    terms = plan.terms
    layout = BallotLayout(plan.dimension, plan.levels * terms.shards)
    return CountPlan(layout, terms.clients, terms.fewest)


def circuit_modulo(plan: SelectionPlan, modulus: int) -> Circuit:
    """Return the circuit of a selection for shares modulo a prime."""
    plain = plan.circuit
    return Circuit(plain.release, plain.width, modulus)


def residues(
    share: Sequence[int], plan: SelectionPlan, modulus: int
) -> npt.NDArray[np.unsignedinteger]:
    """Return a share of the sum on the noise's grid, in the public order."""
    scaled = [(share[place] << plan.release.fineness) % modulus for place in plan.order]
    return np.array(scaled, dtype=np.uint64)


def ahead(
    share: npt.NDArray[np.unsignedinteger], plan: SelectionPlan, modulus: int
) -> npt.NDArray[np.unsignedinteger]:
    """Return a share with what each entry is given in advance."""
    given = [plan.head_start[place] for place in plan.order]
    both = [(int(a) + b) % modulus for a, b in zip(share, given, strict=True)]
    return np.array(both, dtype=share.dtype)


def _ballots(contributions: Contributions, plan: CountPlan) -> dict[ClientId, IntVector]:
    """Return every client's ballot, produced now where it was not yet."""
    if len(contributions) != plan.clients:
        raise ParameterError(
            f"the plan is for {plan.clients} clients, got {len(contributions)} contributions"
        )
    return {c: made() if callable(made) else made for c, made in sorted(contributions.items())}
