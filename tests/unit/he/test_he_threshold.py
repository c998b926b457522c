"""t of n: any group of the right size decrypts, no smaller one does, shares stay sealed."""

import dataclasses
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from urna.errors import ProtocolError
from urna.protocols import he
from urna.protocols.he import keys as stages
from urna.randomness import ScriptedSecrets

SECRETS = ScriptedSecrets(b"threshold")
PLAN = he.additive(parties=5, width=4, threshold=3)
KEYS = he.Parties(PLAN, SECRETS)
SESSION = KEYS.session
CIPHERTEXT = he.encrypt(KEYS.public_key, [5, 6, 7], SECRETS)


@pytest.mark.parametrize("helpers", list(itertools.combinations(range(5), 3)), ids=str)
def test_any_three_of_five_decrypt(helpers: tuple[int, ...]) -> None:
    opened = KEYS.decrypt(CIPHERTEXT, helpers)
    assert opened.tolist() == [5, 6, 7, 0]


@pytest.mark.parametrize("helpers", [(0, 1), (0, 1, 2, 3), None], ids=["two", "four", "all"])
def test_another_number_of_helpers_is_refused(helpers: tuple[int, ...] | None) -> None:
    with pytest.raises(ProtocolError, match="exactly 3 parties"):
        KEYS.decrypt(CIPHERTEXT, helpers)


def test_who_was_not_asked_does_not_help() -> None:
    request = he.ask_to_decrypt(KEYS.public_key, CIPHERTEXT, {0, 1, 2})
    with pytest.raises(ProtocolError, match="party 4 is not among"):
        he.help_to_decrypt(KEYS.holders[4], request, SECRETS)


def test_shares_of_two_different_groups_do_not_combine() -> None:
    shares = {}
    for group in ({0, 1, 2}, {2, 3, 4}):
        request = he.ask_to_decrypt(KEYS.public_key, CIPHERTEXT, group)
        for party in group:
            shares[party] = he.help_to_decrypt(KEYS.holders[party], request, SECRETS)
    mixed = {party: shares[party] for party in (0, 1, 2)}
    with pytest.raises(ProtocolError, match="answers another request"):
        he.combine(KEYS.public_key, CIPHERTEXT, mixed)


def test_weights_rebuild_a_polynomials_value_at_zero() -> None:
    prime = 97
    values = {party: (11 + 5 * (party + 1) + 3 * (party + 1) ** 2) % prime for party in range(6)}
    for group in itertools.combinations(range(6), 3):
        rebuilt = sum(stages.lagrange((prime,), group, party)[0] * values[party] for party in group)
        assert rebuilt % prime == 11


def test_a_party_holds_no_share_that_is_its_own_secret() -> None:
    # The joint share is the sum of five polynomials' values; its own secret went into one.
    secrets = ScriptedSecrets(b"own")
    drawn, _ = he.draw_key(SESSION, secrets)
    assert not np.array_equal(KEYS.holders[0].secret, drawn.secret[: len(PLAN.chain)])


def test_who_has_not_taken_the_others_shares_does_not_help() -> None:
    early = dataclasses.replace(KEYS.holders[0], shared=False)
    request = he.ask_to_decrypt(KEYS.public_key, CIPHERTEXT, {0, 1, 2})
    with pytest.raises(ProtocolError, match="has not taken"):
        he.help_to_decrypt(early, request, SECRETS)


def sealed() -> tuple[stages.Channel, stages.ChannelBook, stages.EncryptedShareBox, he.KeyHolder]:
    """Play the exchanges up to what party 1 receives."""
    secrets = ScriptedSecrets(b"sealed")
    channels, keys, drawn, shares = {}, {}, {}, {}
    for party in range(5):
        channels[party], keys[party] = stages.open_channel(SESSION, party, secrets)
        drawn[party], _ = he.draw_key(SESSION, secrets)
    book = stages.pass_on_channel_keys(SESSION, keys)
    for party in range(5):
        shares[party] = stages.share_secret(drawn[party], channels[party], book, secrets)
    box = stages.pass_on_shares(SESSION, shares)[1]
    return channels[1], book, box, KEYS.holders[1]


def test_a_share_is_sealed_for_the_very_keys_of_both() -> None:
    """A key and the same plus a point of order two, the inverse, agree on the same values."""
    channel, book, box, holder = sealed()
    prime = 2**255 - 19
    old = book.keys[0]
    inverse = pow(int.from_bytes(old, "little"), -1, prime).to_bytes(32, "little")
    own = X25519PrivateKey.from_private_bytes(channel.private)
    agreed = [own.exchange(X25519PublicKey.from_public_bytes(key)) for key in (old, inverse)]
    assert agreed[0] == agreed[1]
    other = dataclasses.replace(book, keys=(inverse, *book.keys[1:]))
    with pytest.raises(ProtocolError, match="party 0 was not sealed for this one"):
        stages.take_shares(holder, channel, other, box)


def test_a_channel_key_in_other_bytes_is_refused() -> None:
    """X25519 ignores the top bit, so these bytes would stand for the same key."""
    channel, book, box, holder = sealed()
    again = bytes([*book.keys[0][:31], book.keys[0][31] | 128])
    other = dataclasses.replace(book, keys=(again, *book.keys[1:]))
    with pytest.raises(ProtocolError, match="not written as X25519 writes it"):
        stages.take_shares(holder, channel, other, box)


def test_a_share_that_was_sealed_for_another_is_refused() -> None:
    channel, book, box, holder = sealed()
    assert stages.take_shares(holder, channel, book, box).secret.shape == holder.secret.shape
    swapped = {**box.bundles, 2: box.bundles[3], 3: box.bundles[2]}
    altered = {**box.bundles, 0: bytes([box.bundles[0][0] ^ 1]) + box.bundles[0][1:]}
    missing = {party: box.bundles[party] for party in range(4)}
    for bundles, reason in (
        (swapped, "party 2 was not sealed"),
        (altered, "party 0 was not sealed"),
        (missing, r"shares of secrets of every party are needed; \[4\] are missing"),
    ):
        wrong = dataclasses.replace(box, bundles=bundles)
        with pytest.raises(ProtocolError, match=reason):
            stages.take_shares(holder, channel, book, wrong)
    with pytest.raises(ProtocolError, match="another party's"):
        stages.take_shares(holder, channel, book, dataclasses.replace(box, party=2))


def test_secrets_are_not_shared_with_an_incomplete_group() -> None:
    secrets = ScriptedSecrets(b"incomplete")
    channel, key = stages.open_channel(SESSION, 0, secrets)
    with pytest.raises(ProtocolError, match=r"\[1, 2, 3, 4\] are missing"):
        stages.pass_on_channel_keys(SESSION, {0: key})
    drawn, _ = he.draw_key(SESSION, secrets)
    book = stages.ChannelBook((key.key,) * 4)
    with pytest.raises(ProtocolError, match=r"\[4\] are missing"):
        stages.share_secret(drawn, channel, book, secrets)
    with pytest.raises(ProtocolError, match="shares of secrets of every party"):
        stages.pass_on_shares(SESSION, {})
    wrong = dataclasses.replace(book, keys=(bytes(32),) * 5)
    with pytest.raises(ProtocolError, match="not a valid X25519 key"):
        stages.share_secret(drawn, channel, wrong, secrets)
    assert channel.private.hex() not in repr(channel)
