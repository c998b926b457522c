"""The graph and its bounds, beside slow and obvious computations."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from urna.errors import ParameterError
from urna.protocols.secagg.graph import ServerModel, choose, largest_likely, ring, threshold_range

CURIOUS, DISHONEST = ServerModel.HONEST_BUT_CURIOUS, ServerModel.DISHONEST


@pytest.mark.parametrize(("clients", "neighbours"), [(2, 1), (5, 4), (6, 5), (7, 4), (40, 12)])
def test_neighbours_are_mutual_and_as_many_as_planned(clients: int, neighbours: int) -> None:
    graph = ring(b"r" * 32, clients, neighbours)
    for client in range(clients):
        found = graph.of(client)
        assert len(found) == len(set(found)) == neighbours
        assert tuple(graph.table()[client].tolist()) == found
        assert client not in found
        assert list(found) == sorted(found)
        assert all(client in graph.of(other) for other in found)


def test_another_round_has_another_graph() -> None:
    one, other = ring(b"a" * 32, 50, 10), ring(b"b" * 32, 50, 10)
    assert [one.of(c) for c in range(50)] != [other.of(c) for c in range(50)]


@pytest.mark.parametrize(("clients", "neighbours"), [(10, 3), (10, 10), (10, 0), (3, 3)])
def test_a_graph_that_is_no_ring_is_refused(clients: int, neighbours: int) -> None:
    with pytest.raises(ParameterError, match="neighbours"):
        ring(b"r" * 32, clients, neighbours)


def test_every_pair_is_equally_likely_to_be_neighbours() -> None:
    # 2,000 rings of 7 with 2 neighbours: each of the 21 pairs is an edge with chance 1/3.
    # Edges of one ring depend on each other, which makes their numbers spread less, not more.
    counts = dict.fromkeys(itertools.combinations(range(7), 2), 0)
    for number in range(2_000):
        graph = ring(number.to_bytes(32, "big"), 7, 2)
        for pair in counts:
            counts[pair] += pair[1] in graph.of(pair[0])
    sigma = math.sqrt(2_000 * 2 / 9)
    assert all(abs(count - 2_000 / 3) < 6 * sigma for count in counts.values())  # 4e-8 in all


def slow_tail(others: int, marked: int, drawn: int, x: int) -> Fraction:
    """Return P[X > x], each term from factorials of its own."""
    terms = (
        math.comb(marked, i) * math.comb(others - marked, drawn - i)
        for i in range(x + 1, min(marked, drawn) + 1)
    )
    return Fraction(sum(terms), math.comb(others, drawn))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_tail_is_exact(data: st.DataObject) -> None:
    others = data.draw(st.integers(1, 60))
    marked = data.draw(st.integers(0, others))
    drawn = data.draw(st.integers(0, others))
    failure = Fraction(1, 2 ** data.draw(st.integers(1, 40)))
    found = largest_likely(others, marked, drawn, draws=7, failure=failure)

    least = max(0, drawn + marked - others)
    assert least <= found <= min(marked, drawn)
    assert 7 * slow_tail(others, marked, drawn, found) <= failure
    assert found == least or 7 * slow_tail(others, marked, drawn, found - 1) > failure


@pytest.mark.parametrize(
    ("others", "marked", "drawn"),
    [
        (9_999, 1_000, 200),
        (9_999, 1_000, 9_999),
        (1_500, 0, 60),
        (1_500, 1_500, 60),
        (700, 650, 90),
    ],
)
@pytest.mark.parametrize("bits", [40, 80])
def test_the_tail_is_exact_in_large_electorates(
    others: int, marked: int, drawn: int, bits: int
) -> None:
    failure = Fraction(1, 2**bits)
    found = largest_likely(others, marked, drawn, draws=others, failure=failure)
    least = max(0, drawn + marked - others)
    assert others * slow_tail(others, marked, drawn, found) <= failure
    assert found == least or others * slow_tail(others, marked, drawn, found - 1) > failure


@pytest.mark.parametrize("server", list(ServerModel))
@pytest.mark.parametrize("clients", [20, 100, 250, 1_000])
def test_chosen_neighbours_meet_the_bounds_by_another_library(
    clients: int, server: ServerModel
) -> None:
    colluders, dropouts = clients // 20, clients // 10
    chosen = choose(clients, colluders, dropouts, server)
    assert chosen is not None
    k, t = chosen
    many = stats.hypergeom(clients - 1, colluders, k).sf(t - 1)
    few = stats.hypergeom(clients - 1, dropouts, k).sf(k - t)
    assert clients * few <= 2.0**-40 * (1 + 1e-9)
    if server is DISHONEST:  # which may try 2^40 coins before it shows one
        aside = stats.hypergeom(clients - 1, colluders, k // 2).sf(t - k // 2 - 1)
        assert (clients - colluders) * (many + 2 * aside) <= 2.0**-80 * (1 + 1e-9)
    else:
        gap = stats.hypergeom(clients, colluders + dropouts, k // 2).pmf(k // 2)
        together = (clients - colluders) * many + clients * gap
        assert together <= 2.0**-40 * (1 + 1e-9)


@pytest.mark.parametrize("clients", [20, 250])
def test_two_neighbours_fewer_are_not_enough(clients: int) -> None:
    colluders, dropouts = clients // 20, clients // 10
    chosen = choose(clients, colluders, dropouts, CURIOUS)
    assert chosen is not None
    low, high = threshold_range(clients, colluders, dropouts, chosen[0] - 2, CURIOUS)
    assert low > high


def test_a_dishonest_server_costs_neighbours() -> None:
    curious = choose(250, 12, 25, CURIOUS)
    dishonest = choose(250, 12, 25, DISHONEST)
    assert curious is not None
    assert dishonest is not None
    assert dishonest[0] > curious[0]
    assert 2 * dishonest[1] > dishonest[0]


def test_what_no_graph_can_do_is_none() -> None:
    assert choose(10, 5, 5, CURIOUS) is None
    assert choose(10, 4, 4, CURIOUS) == (9, 5)


def test_without_a_gap_of_half_the_neighbours_honest_survivors_stay_connected() -> None:
    """The lemma behind (c), on rings small enough to try every set of lost clients."""
    graph = ring(b"c" * 32, 9, 4)
    order = _walk(graph.of, 9)
    for lost in itertools.chain.from_iterable(
        itertools.combinations(range(9), size) for size in range(8)
    ):
        left = set(range(9)) - set(lost)
        gap = any(order[place] in lost and order[(place + 1) % 9] in lost for place in range(9))
        assert gap or _connected(left, graph.of)


def _walk(of: object, clients: int) -> list[int]:
    """Return the clients in ring order: next ones share the most neighbours."""
    order, left = [0], set(range(1, clients))
    while left:
        here = set(of(order[-1]))  # type: ignore[operator]
        near = max(left & here, key=lambda c: len(here & set(of(c))))  # type: ignore[operator]
        order.append(near)
        left.remove(near)
    return order


def _connected(left: set[int], of: object) -> bool:
    seen, todo = set(), [min(left)]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            todo += [peer for peer in of(here) if peer in left]  # type: ignore[operator]
    return seen == left


@pytest.mark.parametrize(("clients", "colluders"), [(6, 1), (9, 2), (12, 0)])
def test_among_all_neighbours_a_dishonest_server_needs_a_majority(
    clients: int, colluders: int
) -> None:
    """Otherwise it could rebuild with one half what it let the other half share alone."""
    low, _ = threshold_range(clients, colluders, 1, clients - 1, DISHONEST)
    assert 2 * low > clients - 1 + colluders >= 2 * (low - 1)
