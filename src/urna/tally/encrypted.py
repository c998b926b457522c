"""Add contributions up under threshold encryption: only enough clients together open the sum."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

import numpy as np

from urna.errors import ParameterError, RoundUnfinished
from urna.noise import IntVector
from urna.protocols.he import Ciphertext, Parameters, Parties, additive, centred
from urna.protocols.secagg import ServerModel
from urna.randomness import SecretSource
from urna.tally.mechanism import add_noise
from urna.tally.plan import TallyPlan
from urna.tally.summation import (
    ClientId,
    Contributions,
    Tallied,
    check_clients,
    check_enough,
    produced,
    really_released,
)
from urna.tally.terms import Terms

_WIDEST_BITS = 46  # plaintext moduli stay below 2^47
_SMALLEST_RING = 4096


class Vanished(StrEnum):
    """From when on a client is silent."""

    BEFORE_THE_KEY = "dropped out before the key was made"
    """The key is made without it."""
    BEFORE_ITS_VECTOR = "dropped out before it sent its vector"
    """It has a share of the key and is not in the sum."""
    BEFORE_OPENING = "did not help to open the sum"
    """It is in the sum and does not help to reveal it."""


@dataclass(frozen=True, slots=True)
class EncryptedSummation:
    """Exact sums under BGV with a joint key, all parties played in this process.

    Where no client may drop out, all must help to open the sum. Where some may, as many as the
    plan's fewest open it together: t of n.

    Guarantee:
        The server's part computes from what a server would see: ciphertexts, decryption
        shares, the noisy sum and who took part. With fewer than the threshold of clients it
        learns nothing else, under ring learning with errors (`urna.protocols.he`, unaudited).

    Assumes:
        A server that is honest but curious. The plan's colluders are fewer than the threshold,
        which `Terms` sees to: somebody honest is always left.

    Args:
        vanished: Clients that vanish, and when; for trying out what happens.
    """

    vanished: Mapping[ClientId, Vanished] = field(default_factory=dict)
    secure: ClassVar[bool] = True
    removes_excess: ClassVar[bool] = False

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who saw what."""
        helpers = "all" if not terms.dropouts else f"any {_threshold(terms, terms.clients)}"
        return (
            "Contributions were added up under threshold encryption (Urna's own, unaudited; all "
            "parties in one process): the server's part, taken to be honest-but-curious, saw "
            f"ciphertexts, the noisy sum and who took part; {helpers} of the {terms.clients} "
            "clients together could open single contributions"
        )

    def tally(
        self, contributions: Contributions, plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus every client's share of the noise.

        Raises:
            ParameterError: The plan trusts the server less than this can protect against, or
                its sums do not fit a plaintext.
            RoundAborted: Fewer clients are left than the plan allows. Nothing was revealed.
            RoundUnfinished: Too few helped to open the sum after others had begun to.
        """
        check_clients(contributions, plan)
        if plan.terms.server is not ServerModel.HONEST_BUT_CURIOUS:
            raise ParameterError(
                "threshold encryption protects against an honest-but-curious server; against a "
                "dishonest one use secure aggregation"
            )
        gone = {c: when for c, when in self.vanished.items() if c in contributions}
        members = sorted(c for c in contributions if gone.get(c) != Vanished.BEFORE_THE_KEY)
        senders = [c for c in members if gone.get(c) != Vanished.BEFORE_ITS_VECTOR]
        lost = {c: str(when) for c, when in sorted(gone.items()) if c not in senders}
        check_enough(len(members), plan, lost)
        parameters = _parameters(plan, len(members))
        parties = Parties(parameters, secrets)
        check_enough(len(senders), plan, lost)
        evaluator, totals = parties.evaluator(), list[Ciphertext]()
        for sender in senders:
            noisy = add_noise(produced(contributions[sender], plan), plan, secrets)
            sent = [
                parties.encrypt(members.index(sender), block)
                for block in _blocks(noisy, parameters)
            ]
            totals = [
                evaluator.total(pair) for pair in zip(totals, sent, strict=bool(totals))
            ] or sent
        there = [members.index(c) for c in members if c not in gone]
        if len(there) < parameters.threshold:
            raise RoundUnfinished(
                f"{len(there)} clients helped to open the sum; {parameters.threshold} are needed",
                {c: str(when) for c, when in sorted(gone.items())},
            )
        helpers = there[: parameters.threshold]
        opened = [parties.decrypt(part, helpers) for part in totals]
        whole = np.asarray(np.concatenate(opened)[: plan.dimension], dtype=np.int64)
        return Tallied(
            total=centred(whole, parameters.plaintext_modulus),
            accepted=frozenset(senders),
            lost=lost,
            noise_variance=plan.share * len(senders),
            release=really_released(plan, len(senders), plan.share),
        )


def _threshold(terms: Terms, members: int) -> int:
    """Return how many must help: all where nobody may be missing."""
    return members if not terms.dropouts else min(terms.fewest, members)


def _parameters(plan: TallyPlan, members: int) -> Parameters:
    """Plan the smallest ring whose sums cannot wrap, and fill it."""
    bits = min(plan.ring_bits, _WIDEST_BITS)
    if plan.needed > 1 << (bits - 1):
        raise ParameterError(
            f"the sum and its noise reach {plan.needed:,} grid steps; under encryption sums are "
            f"exact modulo 2^{_WIDEST_BITS}. Use coarser contributions."
        )

    def fitting(width: int) -> Parameters:
        return additive(
            parties=members,
            width=min(plan.dimension, width),
            plaintext_modulus=1 << bits,
            threshold=_threshold(plan.terms, members),
        )

    least = fitting(_SMALLEST_RING)
    return least if plan.dimension <= least.width else fitting(least.degree)


def _blocks(vector: IntVector, parameters: Parameters) -> list[IntVector]:
    """Cut a vector into pieces that fit a ciphertext."""
    residues = vector % parameters.plaintext_modulus
    return [residues[at : at + parameters.width] for at in range(0, len(vector), parameters.width)]
