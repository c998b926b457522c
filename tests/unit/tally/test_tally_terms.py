"""Terms: parts of the clients are exact, numbers of clients are rounded up."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from urna.errors import ParameterError, UnknownName
from urna.privacy import Adjacency, Budget
from urna.protocols.secagg import Removal, ServerModel
from urna.tally import Terms, exact_part
from urna.tally.terms import MOST_PRECISE, MOST_SHARDS

BUDGET = Budget(1.0, 1e-5)


@pytest.mark.parametrize(
    ("clients", "part", "number"),
    [
        (6, "1/3", 2),
        (6, Fraction(1, 3), 2),
        (6, 1 / 3, 2),
        (4, 0.2, 1),
        (4, "0.2", 1),
        (10, 0.1, 1),
        (10, 0.3, 3),  # 10 · 0.3 is 3.0000000000000004 in floats
        (100, 0.29, 29),  # and 100 · 0.29 is 28.999999999999996
        (100, 0.07, 7),
        (7, 0, 0),
        (7, 0.001, 1),
        (7, "1e-18", 1),
    ],
)
def test_a_part_of_the_clients_is_exact_and_rounded_up(
    clients: int, part: float | str | Fraction, number: int
) -> None:
    assert Terms.of(clients, BUDGET, colluding=part).colluders == number
    assert Terms.of(clients, BUDGET, dropout=part).dropouts == number


@given(st.integers(0, 999), st.integers(1, 1000), st.integers(2, 500))
def test_no_fewer_clients_than_the_part_says_and_less_than_one_more(
    top: int, bottom: int, clients: int
) -> None:
    part = Fraction(top % bottom, bottom)
    try:
        terms = Terms.of(clients, BUDGET, dropout=part)
    except ParameterError:
        assert clients - math.ceil(clients * part) < 2
        return
    assert 0 <= terms.dropouts - clients * part < 1
    assert terms.fewest == clients - terms.dropouts


@given(st.floats(0, 1, exclude_max=True, allow_subnormal=False))
def test_a_float_is_taken_as_it_is_written(value: float) -> None:
    try:
        part = exact_part("dropout", value)
    except ParameterError as error:
        assert "18 digits" in str(error)  # noqa: PT017 - some floats need more
        return
    assert part == Fraction(repr(value))
    assert float(part) == value


@pytest.mark.parametrize(
    "wrong",
    ["a third", "1/0", "", None, 1, 1.0, -0.1, "3/2", math.nan, math.inf, "1e-19", [0.2], 1j],
    ids=repr,
)
def test_what_is_no_part_of_the_clients_is_refused(wrong: object) -> None:
    with pytest.raises(ParameterError, match="dropout"):
        exact_part("dropout", wrong)  # type: ignore[arg-type]


def test_a_part_of_a_thousand_digits_is_refused_before_it_slows_anything() -> None:
    with pytest.raises(ParameterError, match="at most 18 digits"):
        exact_part("colluding", "0." + "3" * 1000)


def test_whoever_reads_the_result_knows_its_own_noise() -> None:
    nobody, two = Terms.of(10, BUDGET), Terms.of(10, BUDGET, colluding="1/5")
    assert (nobody.colluders, nobody.readers, nobody.honest) == (0, 1, 9)
    assert (two.colluders, two.readers, two.honest) == (2, 2, 8)


def test_dropouts_and_colluders_are_both_counted_out() -> None:
    terms = Terms.of(20, BUDGET, dropout="1/5", colluding="1/10")
    assert (terms.dropouts, terms.colluders, terms.fewest, terms.honest) == (4, 2, 16, 14)


@pytest.mark.parametrize(
    ("clients", "options"),
    [(10, {"dropout": "1/2", "colluding": "1/2"}), (2, {"dropout": "1/2"}), (3, {"dropout": 0.4})],
)
def test_somebody_honest_must_remain(clients: int, options: dict[str, str]) -> None:
    with pytest.raises(ParameterError, match="no honest client is sure to remain"):
        Terms.of(clients, BUDGET, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 1}, "at least two clients, got 1"),
        ({"clients": 2.0}, "at least two clients"),
        ({"clients": True}, "at least two clients"),
        ({"budget": 1.0}, "as in Budget"),
        ({"dropout": 0.2}, "dropout must be"),
        ({"colluding": Fraction(1)}, "colluding must be"),
        ({"shards": 0}, "whole number in 1..100,000"),
        ({"shards": MOST_SHARDS + 1}, "whole number in 1..100,000"),
        ({"shards": 2}, "made for one. Ask for replace-one-record"),
    ],
    ids=lambda case: str(case) if isinstance(case, dict) else "",
)
def test_terms_that_contradict_themselves_are_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        replace(Terms.of(20, BUDGET), **change)  # type: ignore[arg-type]


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'skellam'"):
        Terms.of(100, BUDGET, family="skelam")


@pytest.mark.parametrize(
    ("name", "wrong", "nearest"),
    [("adjacency", "replace-client", "replace-one-client"), ("server", "dishnest", "dishonest")],
)
def test_an_unknown_relation_or_server_is_answered_with_the_nearest(
    name: str, wrong: str, nearest: str
) -> None:
    with pytest.raises(UnknownName, match=f"did you mean '{nearest}'"):
        Terms.of(100, BUDGET, **{name: wrong})  # type: ignore[arg-type]


def test_excess_is_removed_precisely_only_for_few_dropouts() -> None:
    few = Terms.of(80, BUDGET, dropout=Fraction(MOST_PRECISE, 80))
    many = Terms.of(80, BUDGET, dropout=Fraction(MOST_PRECISE + 1, 80))
    other = Terms.of(80, BUDGET, family="discrete-gaussian")
    removals = [terms.removal for terms in (few, many, other)]
    assert removals == [Removal.PRECISE, Removal.APPROXIMATE, Removal.NONE]


def test_terms_are_read_from_what_they_write() -> None:
    terms = Terms.of(
        12,
        Budget(0.1, 1e-7),
        dropout=0.29,
        colluding="1/3",
        adjacency="replace-one-record",
        shards=7,
        family="discrete-gaussian",
        server="dishonest",
    )
    assert Terms.read(json.loads(json.dumps(terms.as_mapping()))) == terms
    assert terms.server is ServerModel.DISHONEST
    assert terms.adjacency is Adjacency.REPLACE_ONE_RECORD


@pytest.mark.parametrize(
    "change",
    [
        {"clients": "12"},
        {"epsilon": "much"},
        {"delta": 2.0},
        {"dropout": "1/0"},
        {"server": "kind"},
        {"adjacency": None},
        {"shards": 1.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_are_no_terms_is_refused(change: dict[str, object]) -> None:
    good = Terms.of(12, BUDGET).as_mapping()
    with pytest.raises(ParameterError):
        Terms.read(good | change)
    missing = {key: value for key, value in good.items() if key not in change}
    with pytest.raises(ParameterError, match="cannot be read"):
        Terms.read(missing)


def test_the_same_terms_for_others_or_less() -> None:
    terms = Terms.of(10, BUDGET, dropout="1/5")
    assert terms.among(20).dropouts == 4
    assert terms.costing(Budget(0.5, 1e-6)).budget.epsilon == 0.5
    assert (terms.among(20).dropout, terms.costing(Budget(0.5, 1e-6)).clients) == (
        Fraction(1, 5),
        10,
    )


@pytest.mark.parametrize(("few", "counted"), [(99, 10), (20, 10), (11, 10), (10, 9), (2, 1)])
def test_of_some_clients_as_many_collude_as_of_all(few: int, counted: int) -> None:
    terms = Terms.of(100, BUDGET, colluding="0.1").for_some(few)
    assert (terms.clients, terms.colluders) == (few, counted)
    assert Terms.read(terms.as_mapping()) == terms
    assert Terms.of(100, BUDGET).for_some(few).colluders == 0


def test_of_as_many_clients_or_more_the_same_part_colludes() -> None:
    terms = Terms.of(100, BUDGET, colluding="0.1")
    assert terms.for_some(100) == terms
    assert terms.for_some(200).colluders == 20
