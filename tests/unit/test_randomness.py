import hashlib
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.randomness import (
    SEED_BYTES,
    KeyStream,
    OsSecrets,
    ScriptedSecrets,
    SecretSource,
    derive_seed,
    expand,
    expand_words,
    little_endian,
)

SEED = bytes(range(32))
_PIECE = 1 << 18  # the stream is made in pieces of this many bytes
_seeds = st.binary(min_size=32, max_size=32)


def _reference(seed: bytes, count: int) -> bytes:
    """AES-256-CTR from counter zero, in one call."""
    encryptor = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    return encryptor.update(bytes(count)) + encryptor.finalize()


# The key stream.


def test_the_stream_begins_with_the_published_blocks() -> None:
    # AES-256 under the zero key of the counters 0, 1 and 2: the hash key, the tag of test case
    # 13 and the ciphertext of test case 14 of McGrew and Viega's GCM specification (2005).
    assert expand(bytes(32), 48).hex() == (
        "dc95c078a2408989ad48a21492842087"
        "530f8afbc74536b9a963b4f1c4cb738b"
        "cea7403d4d606b6e074ec5d3baf39d18"
    )


@given(seed=_seeds, count=st.integers(0, 300))
def test_a_seed_expands_to_aes_in_counter_mode(seed: bytes, count: int) -> None:
    assert expand(seed, count) == _reference(seed, count)


@pytest.mark.parametrize("count", [_PIECE - 1, _PIECE, _PIECE + 1, 3 * _PIECE + 5])
def test_the_stream_is_whole_across_pieces(count: int) -> None:
    assert expand(SEED, count) == _reference(SEED, count)


@given(sizes=st.lists(st.integers(0, 50), max_size=8))
def test_rooms_filled_in_turn_hold_the_whole_stream(sizes: list[int]) -> None:
    stream, got = KeyStream(SEED), b""
    for size in sizes:
        room = np.empty(size, dtype=np.uint8)
        stream.fill(room)
        got += room.tobytes()
    assert got == _reference(SEED, sum(sizes))


def test_large_rooms_filled_in_turn_hold_the_whole_stream() -> None:
    stream, room = KeyStream(SEED), np.empty(2 * _PIECE, dtype=np.uint8)
    stream.fill(room[:7])
    stream.fill(room[7 : _PIECE + 20])
    stream.fill(room[_PIECE + 20 :])
    assert room.tobytes() == _reference(SEED, 2 * _PIECE)


@pytest.mark.parametrize(
    "room",
    [
        np.zeros(8, dtype=np.uint64),
        np.zeros((4, 4), dtype=np.uint8),
        np.zeros(16, dtype=np.uint8)[::2],
        np.zeros(8, dtype=np.int8),
    ],
    ids=["words", "matrix", "every second byte", "signed"],
)
def test_a_room_that_would_be_filled_in_part_is_refused(room: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="one unbroken row of bytes"):
        KeyStream(SEED).fill(room)
    assert not room.any()


# Words.


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_words_are_little_endian_on_every_machine(bits: int) -> None:
    words = expand_words(SEED, 9, bits)
    step = bits // 8
    stream = _reference(SEED, 9 * step)
    wanted = [int.from_bytes(stream[i : i + step], "little") for i in range(0, 9 * step, step)]
    assert words.tolist() == wanted
    assert wanted != [int.from_bytes(stream[i : i + step], "big") for i in range(0, 9 * step, step)]
    assert words.dtype == np.dtype(f"u{step}")
    assert words.dtype.isnative


def test_bytes_are_read_as_little_endian_words() -> None:
    room = np.array([1, 2, 3, 4, 5, 6, 7, 8], dtype=np.uint8)
    assert little_endian(room, 16).tolist() == [0x0201, 0x0403, 0x0605, 0x0807]
    assert little_endian(room, 32).tolist() == [0x04030201, 0x08070605]
    assert little_endian(room, 64).tolist() == [0x0807060504030201]


@pytest.mark.skipif(sys.byteorder == "big", reason="words are copied on big-endian machines")
def test_reading_words_copies_nothing() -> None:
    room = np.zeros(16, dtype=np.uint8)
    assert np.shares_memory(room, little_endian(room, 64))


@pytest.mark.parametrize("bits", [0, 8, 24, 128])
def test_words_of_other_sizes_are_refused(bits: int) -> None:
    with pytest.raises(ParameterError, match=f"16, 32 or 64 bits, got {bits}"):
        expand_words(SEED, 1, bits)


# Derived seeds.


def test_a_derived_seed_is_the_documented_digest() -> None:
    # Both parties derive it: a change here breaks the wire.
    wanted = hashlib.sha256(b"urna derive\0" + SEED + b"mask").digest()
    assert derive_seed(SEED, b"mask") == wanted
    assert len(wanted) == SEED_BYTES


@given(
    first=st.tuples(_seeds, st.binary(max_size=40)),
    second=st.tuples(_seeds, st.binary(max_size=40)),
)
def test_derived_seeds_are_equal_only_for_equal_seed_and_label(
    first: tuple[bytes, bytes], second: tuple[bytes, bytes]
) -> None:
    assert (derive_seed(*first) == derive_seed(*second)) == (first == second)


def test_derived_seeds_differ_from_their_origin_and_between_close_labels() -> None:
    labels = [b"", b"\0", b"mask", b"mask\0", b"noise", b"mask1", b"mask11"]
    seeds = {derive_seed(SEED, label) for label in labels} | {SEED}
    assert len(seeds) == len(labels) + 1
    assert derive_seed(derive_seed(SEED, b"a"), b"b") != derive_seed(SEED, b"ab")


# Bad seeds.


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_seed_of_another_length_is_refused_without_being_shown(length: int) -> None:
    seed = b"\xab" * length
    for use in (KeyStream, lambda s: expand(s, 4), lambda s: expand_words(s, 4, 16),
                lambda s: derive_seed(s, b"")):  # fmt: skip
        with pytest.raises(ParameterError, match=f"a seed has 32 bytes, got {length}$"):
            use(seed)


# Sources.


@given(sizes=st.lists(st.integers(0, 70), max_size=12), label=st.binary(max_size=8))
def test_scripted_pieces_are_the_whole_script(sizes: list[int], label: bytes) -> None:
    source = ScriptedSecrets(label)
    pieces = [source.take(size) for size in sizes]
    assert [len(piece) for piece in pieces] == sizes
    assert b"".join(pieces) == ScriptedSecrets(label).take(sum(sizes))


def test_a_script_is_the_documented_stream() -> None:
    # Test vectors are made from it: a change here changes them all.
    seed = hashlib.sha256(b"urna scripted secrets\0" + b"vectors").digest()
    assert ScriptedSecrets(b"vectors").take(100) == _reference(seed, 100)


def test_scripts_under_different_labels_differ() -> None:
    labels = [b"", b"\0", b"a", b"b", b"aa"]
    assert len({ScriptedSecrets(label).take(16) for label in labels}) == len(labels)


def test_a_script_does_not_run_backwards() -> None:
    source = ScriptedSecrets(b"x")
    first = source.take(20)
    with pytest.raises(ParameterError, match="count must be at least 0, got -2"):
        source.take(-2)
    assert first + source.take(4) == ScriptedSecrets(b"x").take(24)


def test_only_the_operating_systems_source_is_private() -> None:
    sources: list[SecretSource] = [OsSecrets(), ScriptedSecrets(b"")]
    assert [source.private for source in sources] == [True, False]


def test_the_operating_systems_source_gives_fresh_bytes() -> None:
    source = OsSecrets()
    assert [len(source.take(count)) for count in (0, 1, 32, 1000)] == [0, 1, 32, 1000]
    assert len({source.take(32) for _ in range(100)}) == 100
