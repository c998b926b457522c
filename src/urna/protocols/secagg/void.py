"""Rounds that came to nothing: when it is certain that nothing of them can ever be opened.

A client that has revealed nothing can forget the round and sign that it did (`client.give_up`).
With enough of these receipts a round is closed for good, and nobody need count it any more.

Guarantee:
    If `closed` holds for a client, nothing about its vector was or will be learned in this
    round, but with the probability that the graph fails (`graph`).

    Proof. What left the client is its vector under a self-mask, uniform over the ring, whose
    seed was shared among its neighbours with threshold t. An honest neighbour that signed a
    receipt had handed out nothing and holds nothing any more. Those who could still hand out
    shares are the neighbours without a receipt and the colluding ones, whose receipts mean
    nothing; of these a client has at most C but with that probability. Fewer than t together
    know nothing of the seed, so the masked vector stays uniform whatever else becomes known.

    If `closed` holds for more survivors than there are colluders, then for an honest one, and
    the sum of all survivors stays uniform; no other sum can be learned (`client`).

Assumes:
    Receipts are signed and were checked against a directory, or come from a server that
    follows the protocol.
"""

from collections.abc import Collection, Iterable
from fractions import Fraction

from urna.protocols.secagg.graph import GRINDING_BITS, SECURITY_BITS, ServerModel, largest_likely
from urna.protocols.secagg.messages import ClientId
from urna.protocols.secagg.plan import Plan


def closed(plan: Plan, holders: Iterable[ClientId], receipts: Collection[ClientId]) -> bool:
    """Say whether a client's vector can never be unmasked any more.

    Args:
        plan: The round's plan.
        holders: Those who may hold shares of the client's secrets: its neighbours.
        receipts: Who has signed that it revealed nothing and forgot the round.
    """
    open_still = sum(holder not in receipts for holder in holders)
    return open_still + _most_colluding(plan) < plan.threshold


def closed_for_all(
    plan: Plan,
    holders: Iterable[tuple[ClientId, Iterable[ClientId]]],
    receipts: Collection[ClientId],
) -> bool:
    """Say whether the sum of some survivors, each with its holders, can never be opened."""
    stuck = sum(closed(plan, some, receipts) for _, some in holders)
    return stuck > plan.colluders


def _most_colluding(plan: Plan) -> int:
    """Return how many neighbours of one client collude, but with the graph's own probability."""
    bits = SECURITY_BITS
    if plan.server is ServerModel.DISHONEST:
        bits += GRINDING_BITS
    return largest_likely(
        plan.clients - 1,
        plan.colluders,
        plan.neighbours,
        draws=max(1, plan.clients - plan.colluders),
        failure=Fraction(1, 2**bits),
    )
