"""The wire format: one encoding per message, and nothing but the protocol's own error."""

import dataclasses
import hashlib
import struct
from functools import cache

import numpy as np
import pytest
from he_play import Play, exact, sums
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ProtocolError
from urna.protocols import he
from urna.protocols.he import keys as stages
from urna.protocols.he.messages import (
    ChannelBook,
    EncryptedShareBox,
    EncryptedShares,
    Message,
)
from urna.protocols.he.ntt import primes_below
from urna.protocols.he.wire import (
    VERSION,
    decode,
    encode,
    largest_message,
    pack,
    packed_bytes,
    unpack,
)
from urna.randomness import ScriptedSecrets

BODY = 4 + 2 + 8
BINDING = BODY + 32 + 32 + 1 + 4

Letter = tuple[he.Session, Message, int | None]


def letters_of(play: Play, vector: list[int]) -> dict[str, Letter]:
    """Return one message of each kind that a joint key has, with who sends it."""
    ciphertext = play.encrypt(vector)
    request = he.ask_to_decrypt(play.public_key, ciphertext)
    share = he.help_to_decrypt(play.holders[1], request, play.secrets)
    messages: list[tuple[Message, int | None]] = [
        (play.shares[1], 1),
        (play.sums, None),
        (ciphertext, 2),
        (request, None),
        (share, 1),
    ]
    if play.relinearisation_key is not None:
        messages += [(play.second[1], 1), (play.relinearisation_key, None)]
    return {
        f"{play.parameters.packing.value} {type(message).__name__}": (play.session, message, sender)
        for message, sender in messages
    }


@cache
def letters() -> dict[str, Letter]:
    secrets = ScriptedSecrets(b"wire")
    session = he.Session(he.additive(parties=3, width=2, threshold=2), secrets.take(32))
    channel, key = stages.open_channel(session, 2, secrets)
    book = ChannelBook((key.key,) * 3)
    drawn, _ = he.draw_key(session, secrets)
    shares = stages.share_secret(drawn, channel, book, secrets)
    box = EncryptedShareBox(1, shares.bundles)
    return {
        **letters_of(sums(), [1, 2]),
        **letters_of(exact(), [1, 2]),
        "ChannelKey": (session, key, 2),
        "ChannelBook": (session, book, None),
        "EncryptedShares": (session, shares, 2),
        "EncryptedShareBox": (session, box, None),
    }


NAMES = [
    *(f"coefficients {n}" for n in ("KeyShare", "KeySum", "Ciphertext")),
    *(f"coefficients Decryption{n}" for n in ("Request", "Share")),
    *(f"slots {n}" for n in ("KeyShare", "KeySum", "Ciphertext")),
    *(f"slots Decryption{n}" for n in ("Request", "Share")),
    *(f"slots Relinearisation{n}" for n in ("Key", "Share")),
    *("ChannelKey", "ChannelBook", "EncryptedShares", "EncryptedShareBox"),
]
each = pytest.mark.parametrize("name", NAMES)


def same(left: object, right: object) -> bool:
    """Compare messages field by field."""
    for field in dataclasses.fields(left):  # type: ignore[arg-type]
        a, b = getattr(left, field.name), getattr(right, field.name)
        if not (np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b):
            return False
    return type(left) is type(right)


@each
def test_a_message_comes_back_as_it_was(name: str) -> None:
    session, message, sender = letters()[name]
    data = encode(message, session, sender=sender)
    back = decode(data, session, type(message), sender=sender)
    assert same(back, message)
    assert encode(back, session, sender=sender) == data
    assert len(data) <= largest_message(session)


def refused(data: bytes, letter: Letter, reason: str = ".") -> None:
    session, message, sender = letter
    with pytest.raises(ProtocolError, match=reason):
        decode(data, session, type(message), sender=sender)


@each
def test_a_message_cut_or_continued_is_refused(name: str) -> None:
    session, message, sender = letters()[name]
    data = encode(message, session, sender=sender)
    for end in {
        0,
        3,
        BODY - 1,
        BODY,
        BODY + 10,
        BINDING - 1,
        BINDING,
        len(data) // 2,
        len(data) - 1,
    }:
        refused(data[:end], letters()[name])
        # And with a head that says so.
        if end >= BODY:
            short = data[:6] + (end - BODY).to_bytes(8, "big") + data[BODY:end]
            refused(short, letters()[name], "too early|residue|polynomials")
    refused(data + b"\0", letters()[name])
    longer = data[:6] + (len(data) + 1 - BODY).to_bytes(8, "big") + data[BODY:] + b"\0"
    refused(longer, letters()[name], "trailing|bytes, got")


@each
@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (0, "not a message"),
        (4, f"this is message version {VERSION}"),
        (5, "is expected here"),
        (6, "shorter or longer"),
        (13, "shorter or longer"),
        (BODY, "another session"),
        (BODY + 31, "another session"),
        (BODY + 32, "other parameters"),
        (BODY + 63, "other parameters"),
        (BODY + 64, "another exchange"),
        (BODY + 65, "another sender"),
        (BODY + 68, "another sender"),
    ],
)
def test_a_message_with_one_field_of_its_binding_altered_is_refused(
    name: str, place: int, reason: str
) -> None:
    session, message, sender = letters()[name]
    data = bytearray(encode(message, session, sender=sender))
    data[place] ^= 1
    refused(bytes(data), letters()[name], reason)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if not n.startswith(("Channel", "EncryptedShare"))]
)
def test_a_residue_that_is_not_reduced_is_refused(name: str) -> None:
    session, message, sender = letters()[name]
    parameters = session.parameters
    data = bytearray(encode(message, session, sender=sender))
    # The last row of every message is the residues of its last prime: write the prime itself.
    level = message.noise.level if isinstance(message, he.DecryptionRequest) else None
    level = message.level if isinstance(message, he.Ciphertext | he.DecryptionShare) else level
    primes = parameters.chain + parameters.special if level is None else parameters.primes(level)
    length = parameters.width if isinstance(message, he.DecryptionShare) else parameters.degree
    prime = primes[-1]
    row = packed_bytes((prime,), length)
    start, high = len(data) - row, (prime.bit_length() + 7) // 8 - 4
    struct.pack_into("<I", data, start, prime & 0xFFFFFFFF)
    if high > 0:
        top = (prime >> 32).to_bytes(high, "little")
        data[start + 4 * length : start + 4 * length + high] = top
    refused(bytes(data), letters()[name], "not reduced")


def altered(message: Message, **changes: object) -> Message:
    return dataclasses.replace(message, **changes)  # type: ignore[arg-type, type-var]


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (32, b"\x03", "levels are 0 to 2"),
        (33, b"\xff" * 128, "below the level's modulus"),
    ],
)
def test_a_noise_bound_that_cannot_be_is_refused(offset: int, value: bytes, reason: str) -> None:
    session, message, sender = letters()["slots Ciphertext"]
    data = bytearray(encode(message, session, sender=sender))
    data[BINDING + offset : BINDING + offset + len(value)] = value
    refused(bytes(data), letters()["slots Ciphertext"], reason)


@pytest.mark.parametrize(
    ("helpers", "reason"),
    [((0, 2, 1), "in order"), ((0, 1, 1), "once each"), ((0, 1, 3), "numbered below 3")],
)
def test_a_wrong_list_of_helpers_is_refused(helpers: tuple[int, ...], reason: str) -> None:
    session, message, sender = letters()["coefficients DecryptionRequest"]
    data = bytearray(encode(message, session, sender=sender))
    at = BINDING + 32 + 1 + 128
    data[at : at + 12] = struct.pack(">3I", *helpers)
    refused(bytes(data), letters()["coefficients DecryptionRequest"], reason)


def test_a_ciphertext_of_another_level_has_another_length() -> None:
    session, message, sender = letters()["slots Ciphertext"]
    data = bytearray(encode(message, session, sender=sender))
    data[BINDING + 32] = 1
    refused(bytes(data), letters()["slots Ciphertext"], "trailing|modulus|not reduced")


def test_a_message_too_long_for_its_session_is_refused_unread() -> None:
    session, message, sender = letters()["coefficients Ciphertext"]
    data = encode(message, session, sender=sender)
    huge = data + bytes(largest_message(session))
    refused(huge, letters()["coefficients Ciphertext"], "a message of this session has")


def test_a_message_of_one_kind_is_not_read_as_another() -> None:
    session, message, sender = letters()["coefficients KeyShare"]
    data = encode(message, session, sender=sender)
    with pytest.raises(ProtocolError, match="a KeySum is expected"):
        decode(data, session, he.KeySum)


@each
def test_a_message_of_another_session_or_sender_is_refused(name: str) -> None:
    session, message, sender = letters()[name]
    other = dataclasses.replace(session, identifier=bytes(32))
    data = encode(message, other, sender=sender)
    refused(data, letters()[name], "another session")
    data = encode(message, session, sender=0)
    refused(data, letters()[name], "another sender")


def test_what_parties_send_does_not_come_from_the_server() -> None:
    session, message, _ = letters()["coefficients KeyShare"]
    with pytest.raises(ProtocolError, match="comes from a party"):
        encode(message, session)
    data = bytearray(encode(message, session, sender=1))
    data[BODY + 65 : BODY + 69] = b"\xff" * 4  # as if from the server
    with pytest.raises(ProtocolError, match="comes from a party"):
        decode(bytes(data), session, he.KeyShare)


def test_secrets_are_shared_only_where_some_may_be_away() -> None:
    message = letters()["EncryptedShares"][1]
    everyone = letters()["coefficients KeySum"][0]
    size = packed_bytes(everyone.parameters.chain, everyone.parameters.degree) + 16
    moved = altered(message, bundles=dict.fromkeys(range(3), bytes(size)))
    with pytest.raises(ProtocolError, match=r"no secrets are shared|bytes, got"):
        decode(encode(moved, everyone, sender=2), everyone, EncryptedShares, sender=2)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_a_message_or_the_protocols_error(noise: bytes) -> None:
    session, message, sender = letters()["coefficients DecryptionShare"]
    data = encode(message, session, sender=sender)
    for wrong in (
        noise,
        data[:BODY] + noise,
        data[:BINDING] + noise + data[BINDING + len(noise) :],
    ):
        try:
            back = decode(wrong, session, type(message), sender=sender)
        except ProtocolError:
            continue
        assert encode(back, session, sender=sender) == wrong


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_residues_come_back_in_as_few_bytes_as_their_primes_need(data: st.DataObject) -> None:
    primes = tuple(
        primes_below(1 << bits, step=16, count=1)[0]
        for bits in data.draw(st.lists(st.sampled_from([9, 31, 32, 33, 40, 41, 47]), min_size=1))
    )
    rows = np.array(
        [data.draw(st.lists(st.integers(0, p - 1), min_size=5, max_size=5)) for p in primes]
    )
    packed = pack(rows, primes)
    assert (
        len(packed)
        == packed_bytes(primes, 5)
        == sum(5 * max(4, -(-(p - 1).bit_length() // 8)) for p in primes)
    )
    assert np.array_equal(unpack(memoryview(packed), primes, (), 5), rows)
    with pytest.raises(ProtocolError, match="not the polynomials"):
        unpack(memoryview(packed + b"\0"), primes, (), 5)


# SHA-256 of what scripted parties say; a change here is a change of the wire format, of a
# sampler or of the planner, and belongs into the changelog.
SCRIPTED = {
    "KeyShare": "49692745709cc19a",
    "KeySum": "64c51ec2a21d0b43",
    "RelinearisationShare": "dda2226ef9eddfc2",
    "RelinearisationKey": "645f61181404c48f",
    "Ciphertext": "b3df48d80b8ff7f4",
    "DecryptionRequest": "1a2a1253c39d53e6",
    "DecryptionShare": "1f5c9349d08ac36a",
}


def test_scripted_parties_say_the_same_bytes_everywhere() -> None:
    play = Play(exact().parameters, b"scripted")
    found = {}
    for name, (session, message, sender) in letters_of(play, [1, 2, 3]).items():
        data = encode(message, session, sender=sender)
        found[name.removeprefix("slots ")] = hashlib.sha256(data).hexdigest()[:16]
    assert found == SCRIPTED
