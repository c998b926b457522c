"""The golden vectors of the secure sum are what the code does, and tampered ones fail."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from make_secagg import PLANS, TAMPERED, files, plan_of, text_of

from urna.protocols.secagg.evidence import PROOF_BYTES
from urna.protocols.secagg.messages import Complaint, Invitation, Message, Receipt, UnmaskReply
from urna.protocols.secagg.wire import VERSION, decode, encode, without_signature

HERE = Path(__file__).parent
CONTENT = files()


@pytest.mark.parametrize("file", sorted(CONTENT))
def test_regenerating_shows_no_difference(file: str) -> None:
    assert (HERE / file).read_text(encoding="utf-8") == text_of(CONTENT[file])


def test_there_are_no_other_vectors() -> None:
    assert {path.name for path in HERE.glob("secagg_*.json")} == set(CONTENT)


@pytest.mark.parametrize("name", sorted(PLANS))
def test_golden_messages_are_read_and_written_alike(name: str) -> None:
    golden = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    assert golden["plan"]["digest"] == plan_of(name).digest.hex()
    assert golden["success"]
    assert golden["faults"] == {}
    assert all(step["success"] for step in golden["steps"])
    assert {type(message) for message in messages(golden, name)} >= {Invitation, UnmaskReply}


def messages(content: dict[str, Any], name: str) -> Iterator[Message]:
    """Yield what was said, each read and written again."""
    plan = plan_of(name)
    for step in content["steps"]:
        for data in [*step["to_clients"].values(), *step["from_clients"].values()]:
            packed = without_signature(bytes.fromhex(data))
            if content["tampered"] == "version" and packed[4] != VERSION:
                continue
            message = decode(packed, plan)
            assert encode(message, plan) == packed
            yield message


@pytest.mark.parametrize("field", sorted(TAMPERED))
def test_a_tampered_message_does_no_harm_or_ends_the_round(field: str) -> None:
    name, alterations = TAMPERED[field]
    found, good = CONTENT[f"{name}_bad_{field}.json"], CONTENT[f"{name}.json"]
    refused = not all(step["success"] for step in found["steps"])
    assert refused or not found["success"] or found["faults"] or found["lost"] != good["lost"]
    if name == "secagg_dishonest" and all(way != "by" for way, _, _ in alterations):
        assert found["faults"] == {}, "it was altered on its way: nobody is to blame"
        assert found["lost"]["1"][1].startswith("its message arrived altered")
    # What comes in a client's name is its own; nobody else is ever named.
    assert found["faults"].keys() <= {"1"}
    for message in messages(found, name):
        assert message is not None
    if found["success"]:
        assert found["lost"].keys() <= good["lost"].keys() | {"1"}
        if found["survivors"] == good["survivors"]:
            assert found["total"] == good["total"]


def test_a_complaint_shows_a_proof_and_the_round_ends_in_receipts() -> None:
    name = "secagg_curious"
    found = CONTENT[f"{name}_bad_complaint.json"]
    said = list(messages(found, name))
    (complaint,) = [message for message in said if isinstance(message, Complaint)]
    assert (complaint.against, len(complaint.proof)) == (1, PROOF_BYTES)
    assert found["faults"].keys() == {"1"}
    assert found["error"].startswith("RoundAborted: client 1 sent client")
    receipts = {message.client for message in said if isinstance(message, Receipt)}
    # Client 4 is silent; who complained has revealed nothing and says so too.
    assert receipts == set(range(6)) - {4}
    assert found["receipts"].keys() == {str(client) for client in receipts}


def test_without_a_signature_nothing_is_shown() -> None:
    name = "secagg_dishonest"
    said = list(messages(CONTENT[f"{name}_bad_unsigned.json"], name))
    (complaint,) = [message for message in said if isinstance(message, Complaint)]
    assert (complaint.against, complaint.proof) == (1, b"")


def test_receipts_are_signed_and_one_that_is_not_does_not_count() -> None:
    name = "secagg_dishonest"
    good, bad = (CONTENT[f"{name}_bad_{which}.json"] for which in ("unsigned", "receipt"))
    assert good["receipts"].keys() - bad["receipts"].keys() == {"1"}
    assert all(len(bytes.fromhex(signature)) == 64 for signature in good["receipts"].values())
