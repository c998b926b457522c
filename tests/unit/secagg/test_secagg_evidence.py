"""Proofs about X25519 values, beside the library that computes them."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ProtocolError
from urna.protocols.secagg.evidence import PROOF_BYTES, on_curve, prove, small_order, verified
from urna.protocols.secagg.keys import KeyPair, channel_keys, shown_channel_keys
from urna.randomness import ScriptedSecrets

CONTEXT = b"a round and two clients"
P = 2**255 - 19


def pair(label: bytes) -> KeyPair:
    return KeyPair.draw(ScriptedSecrets(label))


def exchanged(private: bytes, public: bytes) -> bytes:
    key = X25519PrivateKey.from_private_bytes(private)
    return key.exchange(X25519PublicKey.from_public_bytes(public))


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_proof_shows_what_the_library_computes(one: bytes, other: bytes) -> None:
    """For private keys of any bytes: X25519 clamps them, and so must the proof."""
    mine, theirs = KeyPair.of(one), KeyPair.of(other)
    if mine.public == theirs.public:
        return
    proof = prove(mine.private, theirs.public, CONTEXT, ScriptedSecrets(b"nonce"))
    assert len(proof) == PROOF_BYTES
    shown = verified(proof, mine.public, theirs.public, CONTEXT)
    assert shown == exchanged(mine.private, theirs.public)


def test_with_what_is_shown_the_channels_keys_are_found() -> None:
    mine, theirs, round_id = pair(b"mine"), pair(b"theirs"), bytes(range(32))
    proof = prove(mine.private, theirs.public, CONTEXT, ScriptedSecrets(b"nonce"))
    shown = verified(proof, mine.public, theirs.public, CONTEXT)
    assert shown is not None
    found = shown_channel_keys(shown, mine.public, theirs.public, round_id)
    assert found == channel_keys(mine, theirs.public, round_id)
    assert found == channel_keys(theirs, mine.public, round_id)[::-1]


class TestWhatProvesNothing:
    mine, theirs, third = pair(b"mine"), pair(b"theirs"), pair(b"third")

    def proof(self, context: bytes = CONTEXT) -> bytes:
        return prove(self.mine.private, self.theirs.public, context, ScriptedSecrets(b"nonce"))

    def test_a_proof_altered_anywhere(self) -> None:
        right = self.proof()
        for place in range(PROOF_BYTES):
            wrong = bytearray(right)
            wrong[place] ^= 1 << (place % 8)
            assert verified(bytes(wrong), self.mine.public, self.theirs.public, CONTEXT) is None

    def test_a_proof_for_others_or_for_something_else(self) -> None:
        right = self.proof()
        assert verified(right, self.third.public, self.theirs.public, CONTEXT) is None
        assert verified(right, self.mine.public, self.third.public, CONTEXT) is None
        assert verified(right, self.theirs.public, self.mine.public, CONTEXT) is None
        assert verified(right, self.mine.public, self.theirs.public, b"another") is None
        assert verified(right, self.mine.public, self.theirs.public, CONTEXT) is not None

    @pytest.mark.parametrize("length", [0, 1, 127, 129, 256])
    def test_a_proof_of_another_length(self, length: int) -> None:
        wrong = (self.proof() * 2)[:length]
        assert verified(wrong, self.mine.public, self.theirs.public, CONTEXT) is None

    @settings(max_examples=60, deadline=None)
    @given(st.binary(min_size=PROOF_BYTES, max_size=PROOF_BYTES))
    def test_any_bytes(self, wrong: bytes) -> None:
        assert verified(wrong, self.mine.public, self.theirs.public, CONTEXT) is None

    @pytest.mark.parametrize("part", [0, 1], ids=["shared", "own"])
    @pytest.mark.parametrize("point", [0, 1, P - 1, P, P + 1, 2**255 - 1])
    def test_points_of_small_order_or_written_twice(self, part: int, point: int) -> None:
        for sign in (0, 1 << 255):
            packed = (point | sign).to_bytes(32, "little")
            right = self.proof()
            wrong = right[: 32 * part] + packed + right[32 * (part + 1) :]
            assert verified(wrong, self.mine.public, self.theirs.public, CONTEXT) is None

    def test_a_value_that_is_not_the_common_one(self) -> None:
        """What a client that wants somebody blamed would have to show."""
        honest = self.proof()
        other = prove(self.mine.private, self.third.public, CONTEXT, ScriptedSecrets(b"nonce"))
        mixed = other[:32] + honest[32:]
        assert verified(mixed, self.mine.public, self.theirs.public, CONTEXT) is None

    def test_a_peers_key_off_the_curve(self) -> None:
        off = next(
            key
            for i in range(99)
            if not on_curve(key := ScriptedSecrets(b"%d" % i).take(31) + b"\0")
        )
        assert verified(self.proof(), self.mine.public, off, CONTEXT) is None
        with pytest.raises(ProtocolError, match="no point of the curve"):
            prove(self.mine.private, off, CONTEXT, ScriptedSecrets(b"nonce"))


def test_two_proofs_of_one_value_share_no_nonce() -> None:
    source = ScriptedSecrets(b"nonces")
    mine, theirs = pair(b"mine"), pair(b"theirs")
    one, other = (prove(mine.private, theirs.public, CONTEXT, source) for _ in range(2))
    assert one[:64] == other[:64]
    assert one[64:96] != other[64:96]
    assert one[96:] != other[96:]


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_every_key_that_x25519_makes_is_on_the_curve_and_of_large_order(private: bytes) -> None:
    public = KeyPair.of(private).public
    assert on_curve(public)
    assert not small_order(public)


def test_half_of_all_strings_are_no_key() -> None:
    # 400 fair coins: beyond 6 deviations with a probability of 2e-9.
    strings = [ScriptedSecrets(b"string %d" % i).take(32) for i in range(400)]
    assert abs(sum(map(on_curve, strings)) - 200) < 60


@pytest.mark.parametrize(
    "u",
    [
        0,
        1,
        P - 1,
        P,
        P + 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    ],
    ids=["0", "1", "-1", "0 again", "1 again", "of order 8", "of order 8 too"],
)
@pytest.mark.parametrize("top", [0, 1 << 255], ids=["", "top bit"])
def test_keys_whose_common_value_everybody_knows_are_found(u: int, top: int) -> None:
    """Beside the library, which refuses to compute zero."""
    public = (u | top).to_bytes(32, "little")
    assert small_order(public)
    with pytest.raises(ValueError, match="shared key"):
        exchanged(bytes(range(32)), public)


def test_no_other_small_number_is_of_small_order() -> None:
    for u in range(2, 60):
        public = u.to_bytes(32, "little")
        assert not small_order(public)
        assert exchanged(bytes(range(32)), public) != bytes(32)
