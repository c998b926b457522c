"""Secret randomness, and the stream a 32-byte seed expands to.

Keys, masks and privacy noise come from a `SecretSource`; what may be public and repeatable
(splits, initial weights, simulated losses) comes from a `numpy.random.Generator` the caller
passes. Nothing here or elsewhere in Urna reads a global generator.
"""

import hashlib
import os
from typing import Protocol

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from urna.errors import ParameterError

__all__ = [
    "SEED_BYTES",
    "KeyStream",
    "OsSecrets",
    "ScriptedSecrets",
    "SecretSource",
    "StreamSecrets",
    "derive_seed",
    "expand",
    "expand_words",
    "little_endian",
    "secrets_of",
    "staged_secrets",
]

SEED_BYTES = 32

_PIECE = 1 << 18  # AES-CTR runs fastest in pieces that stay in the cache
_ZEROS = bytes(_PIECE)
_FROM_ZERO = modes.CTR(bytes(16))


class SecretSource(Protocol):
    """Where keys, masks and privacy noise come from."""

    @property
    def private(self) -> bool:
        """Whether nobody else can know or repeat these bytes."""
        ...

    def take(self, count: int) -> bytes:
        """Return `count` fresh bytes."""
        ...


class OsSecrets:
    """The operating system's secret source.

    Guarantee:
        Bytes are unpredictable to anyone outside this process, as far as the operating
        system's generator is.
    """

    private = True

    def take(self, count: int) -> bytes:
        """Return `count` fresh bytes from the operating system."""
        return os.urandom(count)


class ScriptedSecrets:
    """A repeatable source for tests, vectors and comparisons. Never private.

    Everything computed from it is marked non-private: its epsilon is reported as infinite.

    Args:
        label: Any bytes; equal labels give equal streams.

    Example:
        >>> ScriptedSecrets(b"a").take(4) == ScriptedSecrets(b"a").take(4)
        True
    """

    private = False

    def __init__(self, label: bytes) -> None:
        self._seed = hashlib.sha256(b"urna scripted secrets\0" + label).digest()
        self._taken = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes of the script."""
        if count < 0:  # going back would hand out the same bytes twice
            raise ParameterError(f"count must be at least 0, got {count}")
        start, self._taken = self._taken, self._taken + count
        block = start // 16
        nonce = block.to_bytes(16, "big")
        encryptor = Cipher(algorithms.AES256(self._seed), modes.CTR(nonce)).encryptor()
        skip = start - 16 * block
        return encryptor.update(bytes(skip + count))[skip:]


def secrets_of(script: str | None) -> SecretSource:
    """Return where keys and noise come from: the operating system, unless a script is named."""
    return OsSecrets() if script is None else ScriptedSecrets(script.encode())


def staged_secrets(source: SecretSource, *stages: bytes) -> list[SecretSource]:
    """Return a source for each stage of something that may be interrupted between two.

    A private source serves all of them. A script is divided, so that each stage draws the same
    whether or not the stages before it were held in this process.
    """
    if source.private:
        return [source for _ in stages]
    script = source.take(SEED_BYTES)
    return [ScriptedSecrets(script + stage) for stage in stages]


def derive_seed(seed: bytes, label: bytes) -> bytes:
    """Return a seed for one purpose, so that one secret can serve several.

    Guarantee:
        Seeds under different labels are as good as independent (SHA-256 as a random oracle
        over a fixed-length secret followed by the label).
    """
    _check_seed(seed)
    return hashlib.sha256(b"urna derive\0" + seed + label).digest()


class KeyStream:
    """The AES-256-CTR key stream of a 32-byte seed, from block zero onwards.

    The stream is the same on every platform. A seed must be expanded for one purpose only;
    `derive_seed` makes one seed per purpose.
    """

    def __init__(self, seed: bytes) -> None:
        _check_seed(seed)
        self._encryptor = Cipher(algorithms.AES256(seed), _FROM_ZERO).encryptor()

    def fill(self, room: npt.NDArray[np.uint8]) -> None:
        """Write the next `len(room)` bytes of the stream into `room`.

        In pieces that stay in the cache, and in place: that is where the speed comes from.

        Raises:
            ParameterError: `room` is not one unbroken row of bytes; it would be filled in part.
        """
        if room.dtype != np.uint8 or room.ndim != 1 or not room.flags.c_contiguous:
            raise ParameterError(
                "the room must be one unbroken row of bytes, got "
                f"{room.dtype} of shape {room.shape}"
            )
        for start in range(0, len(room), _PIECE):
            piece = room[start : start + _PIECE].data
            self._encryptor.update_into(memoryview(_ZEROS)[: len(piece)], piece)


class StreamSecrets:
    """A secret source out of one seed, for who must be able to draw the same again.

    Args:
        seed: 32 bytes, for this purpose only.
        private: Whether the seed itself was drawn from a private source.
    """

    def __init__(self, seed: bytes, *, private: bool = True) -> None:
        self.private = private
        self._stream = KeyStream(seed)

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes of the seed's stream."""
        room = np.empty(count, dtype=np.uint8)
        self._stream.fill(room)
        return room.tobytes()


def expand(seed: bytes, count: int) -> bytes:
    """Expand a 32-byte seed to `count` bytes of its key stream."""
    room = np.empty(count, dtype=np.uint8)
    KeyStream(seed).fill(room)
    return room.tobytes()


def expand_words(seed: bytes, count: int, bits: int) -> npt.NDArray[np.unsignedinteger]:
    """Expand a seed to `count` uniform little-endian words of 16, 32 or 64 bits."""
    if bits not in (16, 32, 64):
        raise ParameterError(f"words have 16, 32 or 64 bits, got {bits}")
    room = np.empty(count * bits // 8, dtype=np.uint8)
    KeyStream(seed).fill(room)
    return little_endian(room, bits)


def little_endian(room: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.unsignedinteger]:
    """Read bytes as little-endian words, in the machine's own byte order."""
    words = room.view(f"<u{bits // 8}")
    return words.astype(words.dtype.newbyteorder("="), copy=False)


def _check_seed(seed: bytes) -> None:
    if len(seed) != SEED_BYTES:
        raise ParameterError(f"a seed has {SEED_BYTES} bytes, got {len(seed)}")
