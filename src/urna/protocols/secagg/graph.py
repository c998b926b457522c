"""Who shares with whom: a random ring of neighbours, and how many neighbours are enough.

Clients stand on a ring in a random order, and each is the neighbour of the `neighbours / 2`
next to it on either side (a Harary graph with its vertices permuted at random: Bell, Bonawitz,
Gascón, Lepoint and Raykova 2020, "Secure single-server aggregation with (poly)logarithmic
overhead", section 3). The neighbours of one client are a uniformly random subset of the others,
so the numbers of colluding and of lost clients among them are hypergeometric, exactly.

With n clients, c colluders, d dropouts, k neighbours and threshold t, `choose` returns the
smallest k it finds, and a t, for which

(a) no honest client has t or more colluding neighbours, so that colluders alone rebuild nothing;
(b) every client keeps at least t neighbours that do not drop out, so that the round ends;
(c) the honest clients that do not drop out are connected, so that nothing but their whole sum
    can be unmasked.

(a) and (c) together fail with probability at most 2^-40 against an honest-but-curious server,
whose coin is what it is, and 2^-80 against a dishonest one, which may try as many coins as it
can compute before it shows one: 2^40 of them leave it 2^-40. (b) fails with probability at most
2^-40. All three are union bounds over exact tails, compared as integers: nothing is rounded.

Against an honest-but-curious server (c) is a bound on k/2 lost or colluding clients in a row:
without such a gap the ring of the others closes. A dishonest server may choose whom it calls
lost, and whose shares it passes on, after seeing the graph. Against it (c) is bought by the
threshold instead: t > k/2 + (colluders among the k/2 next on one side), and where all are
neighbours of all 2t > k + c. What follows from it is proven in docs/decisions/0003.
"""

import functools
import math
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.randomness import derive_seed, expand_words

SECURITY_BITS = 40
"""The graph fails to survive with probability at most 2^-40; an honest coin, to protect."""

GRINDING_BITS = 40
"""A dishonest server may try 2^40 coins: the graph is sized for so much less luck."""


class ServerModel(StrEnum):
    """What the server is trusted with."""

    HONEST_BUT_CURIOUS = "honest-but-curious"
    """It follows the protocol, and keeps and combines all it sees with what colluders see."""
    DISHONEST = "dishonest"
    """It sends whatever it likes. Needs a directory of identity keys and one more exchange."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A ring of clients in a random, public order."""

    clients: int
    neighbours: int
    _order: npt.NDArray[np.int64] = field(repr=False)
    _places: npt.NDArray[np.int64] = field(repr=False)

    def of(self, client: int) -> tuple[int, ...]:
        """Return the neighbours of one client, ascending. The relation is symmetric."""
        if self.neighbours == self.clients - 1:
            return tuple(other for other in range(self.clients) if other != client)
        half = np.arange(1, self.neighbours // 2 + 1)
        steps = np.concatenate([-half, half])
        found = self._order[(self._places[client] + steps) % self.clients]
        return tuple(sorted(found.tolist()))

    def table(self) -> npt.NDArray[np.int64]:
        """Return the neighbours of all clients: row c is `of(c)`."""
        if self.neighbours == self.clients - 1:
            others = np.arange(self.neighbours)
            return others + (others >= np.arange(self.clients)[:, None])
        half = np.arange(1, self.neighbours // 2 + 1)
        steps = np.concatenate([-half, half])
        return np.sort(self._order[(self._places[:, None] + steps) % self.clients])


@functools.lru_cache(maxsize=4)
def ring(round_id: bytes, clients: int, neighbours: int) -> Graph:
    """Return the graph of a round, a function of public values that every party computes.

    Assumes:
        The round id is independent of who colludes. A dishonest server may try up to
        2^`GRINDING_BITS` ids until the graph suits its colluders: `choose` allows for it. A
        client that holds the round's coin (`Member.coin`) leaves it no choice.
    """
    if not 1 <= neighbours < clients or (neighbours % 2 and neighbours != clients - 1):
        raise ParameterError(
            f"a client of {clients} has an even number of neighbours below {clients}, or all "
            f"others; got {neighbours}"
        )
    # 128-bit sort keys: a tie, which would bias the order, has probability below n²·2^-129.
    keys = expand_words(derive_seed(round_id, b"secagg graph"), 2 * clients, 64)
    order = np.lexsort((keys[1::2], keys[0::2])).astype(np.int64)
    places = np.empty_like(order)
    places[order] = np.arange(clients)
    return Graph(clients, neighbours, order, places)


def largest_likely(others: int, marked: int, drawn: int, *, draws: int, failure: Fraction) -> int:
    """Return the least x such that none of `draws` neighbourhoods holds more than x marked.

    Guarantee:
        draws · P[X > x] <= failure for hypergeometric X: marked ones among `drawn` of
        `others`, `marked` of them marked. Exact, in integers.

    Example:
        >>> largest_likely(249, 25, 56, draws=225, failure=Fraction(1, 2**40))
        22
    """
    whole = math.comb(others, drawn) * failure.numerator
    scale = draws * failure.denominator
    least = max(0, drawn + marked - others)
    x = min(marked, drawn)
    term = math.comb(marked, x) * math.comb(others - marked, drawn - x)
    tail = 0
    while x > least:
        tail += term
        if scale * tail > whole:
            return x
        # C(m, x)·C(N − m, d − x) for x − 1 in place of x: one small product and quotient.
        term = term * (x * (others - marked - drawn + x)) // ((marked - x + 1) * (drawn - x + 1))
        x -= 1
    return least


def choose(
    clients: int, colluders: int, dropouts: int, server: ServerModel
) -> tuple[int, int] | None:
    """Return neighbours and threshold for which (a), (b) and (c) hold, or None.

    Example:
        >>> choose(250, 25, 50, ServerModel.HONEST_BUT_CURIOUS)
        (56, 23)
    """
    last = clients - 1
    steps = [*range(2, last, 2), last]
    if _threshold(clients, colluders, dropouts, last, server) is None:
        return None
    low, high = 0, 1
    while high < len(steps) and not _threshold(
        clients, colluders, dropouts, steps[high - 1], server
    ):
        low, high = high, 2 * high
    high = min(high, len(steps))
    while high - low > 1:
        middle = (low + high) // 2
        enough = _threshold(clients, colluders, dropouts, steps[middle - 1], server)
        low, high = (low, middle) if enough else (middle, high)
    neighbours = steps[high - 1]
    threshold = _threshold(clients, colluders, dropouts, neighbours, server)
    return None if threshold is None else (neighbours, threshold)


def _threshold(
    clients: int, colluders: int, dropouts: int, neighbours: int, server: ServerModel
) -> int | None:
    """Return the threshold in the middle of those allowed, or None if there is none."""
    low, high = threshold_range(clients, colluders, dropouts, neighbours, server)
    return None if low > high else (low + high) // 2


def threshold_range(
    clients: int, colluders: int, dropouts: int, neighbours: int, server: ServerModel
) -> tuple[int, int]:
    """Return the least threshold that is secure and the largest that survives dropouts.

    No threshold is right where the first is larger than the second.
    """
    others, honest, half = clients - 1, clients - colluders, neighbours // 2
    insecure = unfinished = Fraction(1, 2**SECURITY_BITS)
    if server is ServerModel.DISHONEST:
        insecure /= 2**GRINDING_BITS
    majority = 0
    if server is ServerModel.DISHONEST and neighbours == others:
        majority = (neighbours + colluders) // 2 + 1
    elif server is ServerModel.DISHONEST:
        insecure /= 2  # half for (a), half for the colluders on one side
        aside = largest_likely(others, colluders, half, draws=2 * honest, failure=insecure)
        majority = half + aside + 1
    elif neighbours < others:  # otherwise all are neighbours of all, and (c) holds by itself
        gap = Fraction(math.comb(colluders + dropouts, half), math.comb(clients, half))
        insecure -= clients * gap
        if insecure <= 0:
            return neighbours + 1, neighbours
    low = 1 + largest_likely(others, colluders, neighbours, draws=honest, failure=insecure)
    most_lost = largest_likely(others, dropouts, neighbours, draws=clients, failure=unfinished)
    single = 2 if neighbours > 1 else 1  # a single share would be the secret itself
    return max(low, majority, single), neighbours - most_lost
