"""The reference that Urna's proof is compared with, byte for byte on the draft's own vectors."""

import json
from pathlib import Path
from typing import Any

import pytest
from reference.prio3 import FIELD128, Prio3SumVec
from reference.turboshake import turboshake128

HERE = Path(__file__).parent


def load(name: str) -> dict[str, Any]:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


SUM_VEC = load("vdaf_prio3_sum_vec")
CODEC = Prio3SumVec(SUM_VEC["length"], SUM_VEC["max_measurement"], SUM_VEC["chunk_length"])
CTX, KEY = bytes.fromhex(SUM_VEC["ctx"]), bytes.fromhex(SUM_VEC["verify_key"])
REPORTS = SUM_VEC["reports"]


def hexed(name: str) -> list[bytes]:
    return [bytes.fromhex(report[name]) for report in REPORTS]


def test_turboshake128_gives_the_draft_s_stream() -> None:
    vector = load("vdaf_turboshake128")
    dst, seed, binder = (bytes.fromhex(vector[name]) for name in ("dst", "seed", "binder"))
    message = len(dst).to_bytes(2, "little") + dst + bytes([len(seed)]) + seed + binder
    expected = bytes.fromhex(vector["expanded_vec_field128"])
    assert len(expected) == 16 * vector["length"]
    for many in (1, 20):  # by integers and by arrays
        streams = turboshake128([message] * many, 1, len(expected))
        assert streams == [expected] * many
        assert (
            turboshake128([message] * many, 1, 32) == [bytes.fromhex(vector["derived_seed"])] * many
        )


def test_sharding_gives_the_draft_s_shares() -> None:
    assert SUM_VEC["shares"] == 2
    measurements = [report["measurement"] for report in REPORTS]
    made = CODEC.shard(CTX, measurements, hexed("nonce"), hexed("rand"))
    for (public, leader, helper), report in zip(made, REPORTS, strict=True):
        assert public.hex() == report["public_share"]
        assert [leader.hex(), helper.hex()] == report["input_shares"]


@pytest.mark.parametrize("many", [1, 4], ids=["by integers", "by arrays"])
def test_verification_gives_the_draft_s_messages_and_sum(many: int) -> None:
    both = [
        CODEC.verify_init(
            KEY,
            CTX,
            who,
            hexed("nonce") * many,
            hexed("public_share") * many,
            [bytes.fromhex(report["input_shares"][who]) for report in REPORTS] * many,
        )[: len(REPORTS)]
        for who in (0, 1)
    ]
    for who, found in enumerate(both):
        for state, report in zip(found, REPORTS, strict=True):
            assert state.verifier_share.hex() == report["verifier_shares"][0][who]
            shares = b"".join(value.to_bytes(16, "little") for value in state.out_share)
            assert shares.hex() == "".join(report["out_shares"][who])
    pairs = [(a.verifier_share, b.verifier_share) for a, b in zip(*both, strict=True)]
    messages = CODEC.verifier_shares_to_message(CTX, pairs)
    for message, report, leader, helper in zip(messages, REPORTS, *both, strict=True):
        assert message is not None
        assert [message.hex()] == report["verifier_messages"]
        assert leader.joint_seed == helper.joint_seed == message
    sums = [CODEC.aggregate(state.out_share for state in found) for found in both]
    encoded = [b"".join(v.to_bytes(16, "little") for v in share).hex() for share in sums]
    assert encoded == SUM_VEC["agg_shares"]
    assert CODEC.unshard(sums) == SUM_VEC["agg_result"]


def test_no_element_is_as_large_as_the_prime() -> None:
    leader = bytes.fromhex(REPORTS[0]["input_shares"][0])
    assert CODEC.well_formed(leader)
    assert not CODEC.well_formed(FIELD128.to_bytes(16, "little") + leader[16:])
    assert not CODEC.well_formed(leader + b"\0")
