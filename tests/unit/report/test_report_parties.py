"""Who learns what: read from the very sentences that summations write."""

import importlib
import inspect

import pytest
from pages import made, read, shown

from urna.privacy import Adjacency, Budget, PrivacyStatement
from urna.privacy.cost import GAUSSIAN
from urna.protocols.secagg import ServerModel
from urna.report.parties import Added, added, not_covered, parties
from urna.systems.train.pipelined import PipelinedSummation
from urna.tally import ClearSummation, EncryptedSummation, SecureAggregation, Summation, Terms
from urna.tally.card import simulated

TERMS = Terms.of(20, Budget(1.0, 1e-5), colluding=0.1)
OVER_FLOWER = (
    "Contributions were added up by secure aggregation (SecAgg+) over Flower: the server saw"
)


def statement(*caveats: str, epsilon: float = 1.0) -> PrivacyStatement:
    return PrivacyStatement(epsilon, 1e-5, Adjacency.REPLACE_ONE_CLIENT, GAUSSIAN, caveats)


@pytest.mark.parametrize(
    ("summation", "how"),
    [
        (SecureAggregation(), Added.MASKS),
        (PipelinedSummation(), Added.MASKS),
        (EncryptedSummation(), Added.ENCRYPTION),
        (ClearSummation(), Added.CLEAR),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, str) else each,
)
def test_every_summation_is_told_by_its_own_sentence(summation: Summation, how: Added) -> None:
    said = statement("Something else", summation.describe(TERMS))
    assert added(said) is how
    assert simulated(said)
    rows = {row.who: row for row in parties(said, TERMS, "ballot", "the noisy votes")}
    assert ("any single ballot" in rows["The server"].never) == (how is not Added.CLEAR)
    assert "The person who ran this simulation" in rows


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nodes_over_flower_are_no_simulation_and_trust_a_server_with_keys() -> None:
    pytest.importorskip("flwr", reason="nodes are Flower's")
    source = inspect.getsource(importlib.import_module("urna.flower.sums"))
    assert "by secure aggregation (SecAgg+) over Flower" in source
    assert "checked keys against their own directories" in source
    said = statement(OVER_FLOWER)
    assert added(said) is Added.MASKS
    assert not simulated(said)
    server = parties(said, TERMS, "ballot", "the noisy votes")[1]
    assert "pass on the clients' keys" in server.trusted
    signed = statement(OVER_FLOWER, "Nodes checked keys against their own directories")
    assert "keys" not in parties(signed, TERMS, "ballot", "the noisy votes")[1].trusted


def test_a_dishonest_server_is_trusted_with_nothing_and_colluders_are_counted() -> None:
    terms = Terms.of(20, Budget(1.0, 1e-5), colluding=0.1, server=ServerModel.DISHONEST)
    rows = parties(statement(OVER_FLOWER), terms, "ballot", "the noisy votes")
    assert "nothing but to be there" in rows[1].trusted
    assert "but for 2 that may" in rows[0].trusted
    alone = Terms.of(20, Budget(1.0, 1e-5))
    assert "no colluders" in parties(statement(OVER_FLOWER), alone, "b", "v")[0].trusted


def test_nothing_is_said_to_stay_hidden_where_nothing_is_private() -> None:
    scripted = made("scripted")
    rows = parties(scripted.privacy, scripted.terms, "ballot", "the noisy votes")
    assert {row.never for row in rows} == {"nothing is promised"}


def test_what_is_not_covered_names_the_unit() -> None:
    client = not_covered(made("vote").privacy)
    record = not_covered(made("model").privacy)
    assert any("That a client took part" in line for line in client)
    assert any("This is record-level privacy." in line for line in record)
    assert all(line.endswith(".") for line in (*client, *record))


@pytest.mark.parametrize(
    ("kind", "together"),
    [
        ("winner", "the exact sum of all ballots, without noise"),
        ("verified winner", "every single ballot"),
    ],
)
def test_a_winners_page_says_first_who_must_not_collude(kind: str, together: str) -> None:
    text = read(shown(kind)).text
    answer = text[: text.index("by cheating")]
    assert "rests on the leader and hospital <7> not colluding" in answer
    assert together in answer
    rows = text[text.index("Who learns what, and who was trusted") :]
    for who in ("The leader (the server), alone", "The helper (hospital <7>), alone"):
        assert who in rows
    assert "The leader and hospital <7> together" in rows
    assert ("Every counted ballot is valid" in rows) == (kind == "verified winner")
