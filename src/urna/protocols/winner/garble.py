"""Garbling with half gates (Zahur, Rosulek & Evans 2015) and free XOR.

A label is 16 bytes, two words. Of a wire the garbler holds the label of 0; that of 1 is `offset`
away. Each AND gate is a table of two labels. The hash is TMMO over AES under the session's key,
π(π(x) ⊕ i) ⊕ π(x), which is tweakable circular correlation robust for an ideal permutation (Guo,
Katz, Wang & Yu 2020).
"""

import hashlib

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from urna.errors import ProtocolError
from urna.protocols.winner.circuit import Bits, Wires
from urna.randomness import KeyStream

LABEL_BYTES = 16
TABLE_BYTES = 2 * LABEL_BYTES

Labels = npt.NDArray[np.uint64]


def read_labels(data: bytes) -> Labels:
    """Return labels from their bytes."""
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False).reshape(-1, 2)


def fresh_offset(secret: bytes) -> Labels:
    """Return the secret difference of a wire's two labels; its lowest bit is 1.

    That bit tells a wire's two labels apart without telling which is which.
    """
    offset = read_labels(secret)[0].copy()
    offset[0] |= np.uint64(1)
    return np.asarray(offset)


class _Hash:
    """The hash of labels, each call under the next tweak."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES128(key[:16]), modes.ECB()).encryptor()  # noqa: S305 - a permutation
        self._tweak = 0

    def tweaks(self, count: int) -> npt.NDArray[np.uint64]:
        """Return fresh tweaks, never handed out before."""
        self._tweak += count
        return np.arange(self._tweak - count, self._tweak, dtype=np.uint64)

    def __call__(self, labels: Labels, tweaks: npt.NDArray[np.uint64]) -> Labels:
        """Hash labels of shape (…, gates, 2), one tweak a gate."""
        inner = self._permute(labels)
        outer = inner.copy()
        outer[..., 1] ^= tweaks
        return self._permute(outer) ^ inner

    def _permute(self, labels: Labels) -> Labels:
        flat = np.ascontiguousarray(labels).reshape(-1).view(np.uint8)
        found = self._encryptor.update(flat.data)
        return np.frombuffer(found, dtype=np.uint64).reshape(labels.shape)


class _Inputs:
    """Labels for what the garbler puts in: they follow from a seed that it sends."""

    def __init__(self, seed: bytes) -> None:
        self._stream = KeyStream(seed)

    def take(self, shape: tuple[int, ...]) -> Labels:
        """Return the next labels, of shape (*shape, 2)."""
        room = np.empty(int(np.prod(shape)) * LABEL_BYTES, dtype=np.uint8)
        self._stream.fill(room)
        return read_labels(room.tobytes()).reshape(*shape, 2)


class Garbler:
    """Gates as the helper reads them: it knows both labels of every wire.

    Args:
        key: Of the hash; public.
        offset: From `fresh_offset`; secret, and never used twice.
        seed: Of the labels of the helper's own inputs and of constants.
    """

    def __init__(self, key: bytes, offset: Labels, seed: bytes) -> None:
        self._hash, self._offset, self._inputs = _Hash(key), offset, _Inputs(seed)
        self._tables: list[Labels] = []

    @property
    def tables(self) -> bytes:
        """All tables, in the order of the gates."""
        return b"".join(table.astype("<u8", copy=False).tobytes() for table in self._tables)

    def constant(self, bits: Bits) -> Wires:
        """Return wires whose label, as the evaluator derives it, stands for these bits."""
        return self.flip(self._inputs.take(bits.shape), bits)

    def flip(self, wires: Wires, mask: Bits) -> Wires:
        """Swap the meaning of labels."""
        return wires ^ (mask.astype(np.uint64)[..., None] * self._offset)

    def both(self, a: Wires, b: Wires) -> Wires:
        """Garble an AND gate for each pair of wires."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        zeros = np.empty((2, *shape), dtype=np.uint64)
        zeros[0], zeros[1] = a, b
        zeros = zeros.reshape(2, -1, 2)
        gates = zeros.shape[1]
        tweaks = self._hash.tweaks(2 * gates).reshape(2, gates)
        hashed = self._hash(np.stack([zeros, zeros ^ self._offset]), tweaks[None])
        (hash_a, hash_b), (flipped_a, flipped_b) = hashed
        lows = -(zeros[..., :1] & np.uint64(1))  # all ones where the label of 0 ends in 1
        table = np.empty((gates, 2, 2), dtype=np.uint64)
        table[:, 0] = hash_a ^ flipped_a ^ (lows[1] & self._offset)
        table[:, 1] = hash_b ^ flipped_b ^ zeros[0]
        self._tables.append(table)
        generator = hash_a ^ (lows[0] & table[:, 0])
        evaluator = hash_b ^ (lows[1] & (table[:, 1] ^ zeros[0]))
        return np.asarray((generator ^ evaluator).reshape(shape))

    def commitments(self, wires: Wires) -> bytes:
        """Return, for each output, the digests of its two labels: 0 first."""
        return b"".join(_digest(label) for zero in wires for label in (zero, zero ^ self._offset))

    def decode(self, wires: Wires, labels: Labels) -> Bits:
        """Return the bits that the evaluator's output labels stand for.

        Raises:
            ProtocolError: One is no label of its wire.
        """
        ones = (labels == (wires ^ self._offset)).all(axis=-1)
        if not (ones | (labels == wires).all(axis=-1)).all():
            raise ProtocolError("an opened label is none of its wire's two")
        return np.asarray(ones, dtype=np.uint8)


class GateReader:
    """Gates as the leader reads them: one label of every wire, and no idea which.

    Args:
        key: Of the hash; public.
        tables: What the garbler sent.
        seed: Of the labels of the helper's inputs and of constants.
    """

    def __init__(self, key: bytes, tables: bytes, seed: bytes) -> None:
        self._hash, self._inputs = _Hash(key), _Inputs(seed)
        self._tables, self._used = read_labels(tables).reshape(-1, 2, 2), 0

    def constant(self, bits: Bits) -> Wires:
        """Return the label that follows from the seed, whatever the bits are."""
        return self._inputs.take(bits.shape)

    def flip(self, wires: Wires, mask: Bits) -> Wires:
        """Do nothing: only the garbler knows what labels mean."""
        del mask
        return wires

    def both(self, a: Wires, b: Wires) -> Wires:
        """Evaluate an AND gate for each pair of wires."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        held = np.empty((2, *shape), dtype=np.uint64)
        held[0], held[1] = a, b
        held = held.reshape(2, -1, 2)
        gates = held.shape[1]
        table = self._tables[self._used : self._used + gates]
        self._used += gates
        hash_a, hash_b = self._hash(held, self._hash.tweaks(2 * gates).reshape(2, gates))
        lows = -(held[..., :1] & np.uint64(1))
        generator = hash_a ^ (lows[0] & table[:, 0])
        evaluator = hash_b ^ (lows[1] & (table[:, 1] ^ held[0]))
        return np.asarray((generator ^ evaluator).reshape(shape))


def decode(labels: Labels, commitments: bytes) -> Bits:
    """Return the bits of output labels by the digests of each wire's two labels.

    Raises:
        ProtocolError: A label is none of its wire's two.
    """
    bits = []
    for place, label in enumerate(labels):
        pair = commitments[32 * place : 32 * place + 32]
        found = _digest(label)
        if found not in (pair[:16], pair[16:]) or pair[:16] == pair[16:]:
            raise ProtocolError("an opened label is none of its wire's two")
        bits.append(int(found == pair[16:]))
    return np.array(bits, dtype=np.uint8)


def _digest(label: Labels) -> bytes:
    return hashlib.sha256(b"urna output label\0" + label.astype("<u8").tobytes()).digest()[:16]
