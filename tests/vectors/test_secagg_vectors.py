"""The golden vectors of the secure sum are what the code does, and tampered ones fail."""

import json
from pathlib import Path

import pytest
from make_secagg import PLANS, TAMPERED, files, plan_of, text_of

from urna.secagg.wire import decode, encode

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
    plan = plan_of(name)
    assert golden["plan"]["digest"] == plan.digest.hex()
    assert golden["success"]
    for step in golden["steps"]:
        assert step["success"]
        for data in [*step["to_clients"].values(), *step["from_clients"].values()]:
            message = bytes.fromhex(data)
            assert encode(decode(message, plan), plan) == message


@pytest.mark.parametrize("field", sorted(TAMPERED))
def test_a_tampered_message_ends_in_a_refusal_or_an_abort(field: str) -> None:
    found = CONTENT[f"secagg_curious_bad_{field}.json"]
    good = CONTENT["secagg_curious.json"]
    refused = not all(step["success"] for step in found["steps"])
    assert refused or not found["success"]
    if found["success"]:
        assert found["total"] == good["total"]
        assert found["lost"].keys() == good["lost"].keys() | {"1"}
