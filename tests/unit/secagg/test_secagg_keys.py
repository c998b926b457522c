"""Public keys are compared by their bytes, so each is accepted in one encoding alone."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from urna.errors import ParameterError, ProtocolError
from urna.protocols.secagg import Directory, Identity
from urna.protocols.secagg.evidence import signs
from urna.protocols.secagg.keys import KeyPair, check_identity_key, sign_reply
from urna.protocols.x25519 import canonical
from urna.randomness import ScriptedSecrets

P = 2**255 - 19
LOW_ORDER = [
    0,
    1,
    P - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]
SMALL_ORDER_SIGNING = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
"""All points of order 1, 2, 4 and 8, and one that is written with a sign it does not have."""


def pair(label: bytes) -> KeyPair:
    return KeyPair.draw(ScriptedSecrets(label))


def top_bit(key: bytes) -> bytes:
    return key[:-1] + bytes([key[-1] | 0x80])


def exchanged(private: bytes, public: bytes) -> bytes:
    key = X25519PrivateKey.from_private_bytes(private)
    return key.exchange(X25519PublicKey.from_public_bytes(public))


class TestAgreementKeys:
    def test_the_same_key_in_other_bytes_is_refused(self) -> None:
        """To the library the two are one key: whoever compares bytes would take them for two."""
        mine, theirs = pair(b"mine"), pair(b"theirs")
        alias = top_bit(theirs.public)
        assert exchanged(mine.private, alias) == exchanged(mine.private, theirs.public)
        assert canonical(theirs.public)
        assert not canonical(alias)
        with pytest.raises(ProtocolError, match="not written as X25519 writes it"):
            mine.agree(alias, bytes(32), b"purpose", 32)

    @pytest.mark.parametrize("above", range(19))
    def test_a_key_above_the_prime_is_refused(self, above: int) -> None:
        alias = (P + above).to_bytes(32, "little")
        assert not canonical(alias)
        assert canonical(above.to_bytes(32, "little"))
        with pytest.raises(ProtocolError):
            pair(b"mine").agree(alias, bytes(32), b"purpose", 32)

    @pytest.mark.parametrize("number", LOW_ORDER)
    def test_a_key_of_low_order_is_refused(self, number: int) -> None:
        with pytest.raises(ProtocolError, match="not a valid X25519 key"):
            pair(b"mine").agree(number.to_bytes(32, "little"), bytes(32), b"purpose", 32)

    def test_every_key_that_is_drawn_is_accepted(self) -> None:
        assert all(canonical(pair(b"%d" % turn).public) for turn in range(100))


class TestIdentityKeys:
    @pytest.mark.parametrize("key", SMALL_ORDER_SIGNING)
    def test_a_key_of_small_order_stands_in_no_directory(self, key: str) -> None:
        assert not signs(bytes.fromhex(key))
        with pytest.raises(ParameterError, match="not one that Ed25519 makes"):
            Directory({0: bytes.fromhex(key)})

    @pytest.mark.parametrize("above", range(19))
    @pytest.mark.parametrize("sign", [0, 1 << 255])
    def test_a_key_above_the_prime_stands_in_no_directory(self, above: int, sign: int) -> None:
        with pytest.raises(ParameterError, match="not one that Ed25519 makes"):
            check_identity_key((P + above | sign).to_bytes(32, "little"))

    def test_every_key_that_is_drawn_is_accepted(self) -> None:
        for turn in range(100):
            check_identity_key(Identity.draw(0, ScriptedSecrets(b"%d" % turn)).public)


def test_a_signature_fits_one_reply_to_one_request_of_one_client() -> None:
    def digest(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    mine, other = (Identity.draw(c, ScriptedSecrets(b"%d" % c)) for c in (0, 1))
    both = Directory({0: mine.public, 1: other.public})
    twice = Directory({0: mine.public, 1: mine.public})
    signature = sign_reply(mine, b"request", b"reply")
    assert both.replied(0, signature, digest(b"request"), b"reply")
    assert not both.replied(0, signature, digest(b"request"), b"reply.")
    assert not both.replied(0, signature, digest(b"request."), b"reply")
    assert not both.replied(1, signature, digest(b"request"), b"reply")
    assert not twice.replied(1, signature, digest(b"request"), b"reply"), "the number is signed"
    assert not both.replied(2, signature, digest(b"request"), b"reply"), "nobody knows its key"
    for place in range(len(signature)):
        wrong = bytearray(signature)
        wrong[place] ^= 1
        assert not both.replied(0, bytes(wrong), digest(b"request"), b"reply")
    assert not both.replied(0, b"", digest(b"request"), b"reply")
