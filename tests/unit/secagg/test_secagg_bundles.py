"""Digests of bundles: some shares can be held against them without the others being shown."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from urna.protocols.secagg.shares import (
    PRIME,
    bundle_digest,
    draw_secret,
    good_bundle,
    partial_size,
    partly_shown,
    shown_digest,
)
from urna.randomness import ScriptedSecrets

ROUND = bytes(range(32))


def bundle(secrets: int, label: bytes = b"bundle") -> bytes:
    source = ScriptedSecrets(label)
    return b"".join(draw_secret(source) for _ in range(secrets))


def choices(secrets: int) -> list[tuple[int, ...]]:
    sizes = range(1, secrets + 1)
    return list(chain.from_iterable(combinations(range(secrets), size) for size in sizes))


@pytest.mark.parametrize("secrets", [2, 3, 5])
def test_any_part_of_a_bundle_gives_the_digest_of_the_whole(secrets: int) -> None:
    several = [bundle(secrets, b"%d" % i) for i in range(3)]
    rows = np.stack([np.frombuffer(b, dtype=np.uint8) for b in several])
    for places in choices(secrets):
        shown = partly_shown(rows, places)
        assert shown.shape == (3, partial_size(len(places), secrets))
        for whole, row in zip(several, shown, strict=True):
            found = shown_digest(row.tobytes(), places, secrets, ROUND, 4, 7)
            assert found == bundle_digest(whole, ROUND, 4, 7)


def test_what_is_not_shown_is_not_in_it() -> None:
    whole = bundle(4)
    rows = np.frombuffer(whole, dtype=np.uint8)[None]
    shown = partly_shown(rows, [1, 3])[0].tobytes()
    assert shown[:64] == whole[32:64] + whole[96:]
    for hidden in (whole[:32], whole[64:96]):
        assert hidden[:16] not in shown


@given(st.integers(0, 3), st.integers(0, 95), st.integers(1, 255))
def test_any_other_byte_gives_another_digest(place: int, byte: int, flip: int) -> None:
    whole = bundle(4)
    rows = np.frombuffer(whole, dtype=np.uint8)[None]
    shown = bytearray(partly_shown(rows, [place])[0].tobytes())
    at = byte % len(shown)
    shown[at] ^= flip
    assert shown_digest(bytes(shown), [place], 4, ROUND, 4, 7) != bundle_digest(whole, ROUND, 4, 7)


def test_a_digest_belongs_to_one_round_one_sender_and_one_recipient() -> None:
    whole = bundle(2)
    others = [
        bundle_digest(whole, ROUND, 4, 7),
        bundle_digest(whole, ROUND, 7, 4),
        bundle_digest(whole, ROUND, 4, 8),
        bundle_digest(whole, bytes(32), 4, 7),
        bundle_digest(whole[32:] + whole[:32], ROUND, 4, 7),
    ]
    assert len(set(others)) == len(others)


def test_a_good_bundle_fits_its_digest_and_the_field() -> None:
    whole = bundle(3)
    assert good_bundle(whole, bundle_digest(whole, ROUND, 4, 7), ROUND, 4, 7)
    assert not good_bundle(whole, bytes(16), ROUND, 4, 7)
    limbs = np.frombuffer(whole, dtype="<u2").copy()
    limbs[-1] = PRIME
    outside = limbs.tobytes()
    assert not good_bundle(outside, bundle_digest(outside, ROUND, 4, 7), ROUND, 4, 7)
