"""Microsoft SEAL through TenSEAL, holding our keys and ciphertexts.

TenSEAL's `sealapi` names BFV and CKKS only, but the SEAL inside it has BGV as well: parameters
loaded from bytes that say so (scheme 3) work throughout. Objects are written in SEAL's own
format, uncompressed. SEAL transforms at the smallest root in bit-reversed order, as we do, so
residues are passed on as they are.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import tenseal.sealapi as sealapi

from urna.he.ntt import Residues

BGV, CKKS = 3, 2


def framed(body: bytes) -> bytes:
    """Put SEAL's header, without compression, before a body."""
    return struct.pack("<HBBBBHQ", 0xA15E, 16, 4, 3, 0, 0, 16 + len(body)) + body


def array(values: Residues) -> bytes:
    flat = np.ascontiguousarray(values, dtype="<u8").ravel()
    return framed(struct.pack("<Q", flat.size) + flat.tobytes())


class Seal:
    """SEAL with a chain of primes of ours, the last of which is its special prime."""

    def __init__(self, scheme: int, degree: int, primes: tuple[int, ...], folder: Path) -> None:
        raise NotImplementedError
