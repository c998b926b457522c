"""Microsoft SEAL through TenSEAL, holding our keys and ciphertexts.

TenSEAL's `sealapi` does not name BGV, but the SEAL inside it has it: parameters
loaded from bytes that say so (scheme 3) work throughout. Objects are written in SEAL's own
format, uncompressed. SEAL transforms at the smallest root in bit-reversed order, as we do, so
residues are passed on as they are.
"""

import functools
import struct
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from urna.protocols.he.ntt import Residues

sealapi = pytest.importorskip("tenseal.sealapi")

_BGV = 3


@functools.cache
def version() -> bytes:
    """Return the two bytes with which this SEAL's objects say its version."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "parameters.seal"
        sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.BFV).save(str(file))
        return file.read_bytes()[3:5]


class Seal:
    """SEAL with our primes, of which it takes the last as its special one.

    Args:
        degree: The ring's.
        primes: Ours, in our order.
        modulus: The plaintext modulus.
        folder: Where objects are written for SEAL to load.
    """

    def __init__(self, degree: int, primes: tuple[int, ...], modulus: int, folder: Path) -> None:
        self._file = folder / "object.seal"
        self.degree = degree
        numbers = b"".join(framed(struct.pack("<Q", p)) for p in (*primes, modulus))
        head = struct.pack("<BQQ", _BGV, degree, len(primes))
        parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.NONE)
        parameters.load(self._written(framed(head + numbers)))
        self.context = sealapi.SEALContext(parameters, True, sealapi.SEC_LEVEL_TYPE.TC128)
        assert self.context.parameters_set(), self.context.parameters_error_message()
        self.evaluator = sealapi.Evaluator(self.context)
        self._ids = {len(primes): self.context.key_parms_id()}
        level, rows = self.context.first_context_data(), len(primes) - 1
        while level is not None:
            self._ids[rows] = level.parms_id()
            level, rows = level.next_context_data(), rows - 1

    def secret_key(self, values: Residues) -> sealapi.SecretKey:
        """Load a secret, transformed, with a row for every prime."""
        body = self._id(len(values)) + struct.pack("<Qd", values.size, 1.0) + array(values)
        key = sealapi.SecretKey()
        key.load(self.context, self._written(framed(body)))
        return key

    def public_key(self, parts: Residues) -> sealapi.PublicKey:
        """Load a public key with a row for every prime."""
        key = sealapi.PublicKey()
        key.load(self.context, self._written(self._pair(parts)))
        return key

    def relinearisation_key(self, parts: Residues) -> sealapi.RelinKeys:
        """Load a key of shape (2, digits, primes, degree), one prime to a digit."""
        digits = parts.shape[1]
        pairs = b"".join(self._pair(parts[:, digit]) for digit in range(digits))
        body = self._id(parts.shape[2]) + struct.pack("<QQ", 1, digits) + pairs
        key = sealapi.RelinKeys()
        key.load(self.context, self._written(framed(body)))
        return key

    def ciphertext(self, parts: Residues) -> sealapi.Ciphertext:
        """Load a ciphertext of any level."""
        found = sealapi.Ciphertext()
        found.load(self.context, self._written(self._pair(parts)))
        return found

    def parts_of(self, ciphertext: sealapi.Ciphertext) -> Residues:
        """Return SEAL's ciphertext as our residues."""
        shape = (ciphertext.size(), ciphertext.coeff_modulus_size(), self.degree)
        flat = [ciphertext[place] for place in range(int(np.prod(shape)))]
        return np.array(flat, dtype=np.int64).reshape(shape)

    def decrypted(
        self, key: sealapi.SecretKey, ciphertext: sealapi.Ciphertext
    ) -> npt.NDArray[np.int64]:
        """Let SEAL decrypt; return the coefficients it found."""
        plain = sealapi.Plaintext()
        sealapi.Decryptor(self.context, key).decrypt(ciphertext, plain)
        return np.array([plain[place] for place in range(plain.coeff_count())], dtype=np.int64)

    def _pair(self, parts: Residues) -> bytes:
        size, rows, degree = parts.shape
        head = struct.pack("<BQQQdQ", 1, size, degree, rows, 1.0, 1)
        return framed(self._id(rows) + head + array(parts))

    def _id(self, rows: int) -> bytes:
        return struct.pack("<4Q", *self._ids[rows])

    def _written(self, data: bytes) -> str:
        self._file.write_bytes(data)
        return str(self._file)


def framed(body: bytes) -> bytes:
    """Put SEAL's header, which says that nothing is compressed, before a body."""
    return struct.pack("<HB2sBHQ", 0xA15E, 16, version(), 0, 0, 16 + len(body)) + body


def array(values: Residues) -> bytes:
    """Return an array as SEAL writes it."""
    flat = np.ascontiguousarray(values, dtype="<u8").ravel()
    return framed(struct.pack("<Q", flat.size) + flat.tobytes())
