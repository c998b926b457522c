"""Threshold homomorphic encryption: computing on vectors that only all parties can decrypt.

`additive` and `levelled` plan parameters; a `Session` names one joint key.
The stages are `draw_key`, `add_key_shares`, `finish_key` and `join_relinearisation_key`; then
`encrypt`, an `Evaluator`, and `ask_to_decrypt`, `help_to_decrypt`, `combine`. `Parties` runs all
of them in one process.

Our own, unaudited code, for a semi-honest server and semi-honest parties. Up to all parties but
one may collude.
"""

from urna.protocols.he.decryption import ask_to_decrypt, combine, help_to_decrypt
from urna.protocols.he.evaluator import Evaluator, centred, encrypt, uniform_entries
from urna.protocols.he.keys import (
    Drawn,
    KeyHolder,
    add_key_shares,
    draw_key,
    finish_key,
    join_public_key,
    join_relinearisation_key,
)
from urna.protocols.he.messages import (
    Ciphertext,
    DecryptionRequest,
    DecryptionShare,
    KeyShare,
    KeySum,
    PartyId,
    PublicKey,
    RelinearisationKey,
    RelinearisationShare,
    Session,
)
from urna.protocols.he.parameters import LARGEST_MODULUS_BITS, Packing, Parameters
from urna.protocols.he.plan import (
    Arithmetic,
    ArithmeticCircuit,
    NoiseBound,
    NoiseModel,
    additive,
    levelled,
)
from urna.protocols.he.run import Parties

__all__ = [
    "LARGEST_MODULUS_BITS",
    "Arithmetic",
    "ArithmeticCircuit",
    "Ciphertext",
    "DecryptionRequest",
    "DecryptionShare",
    "Drawn",
    "Evaluator",
    "KeyHolder",
    "KeyShare",
    "KeySum",
    "NoiseBound",
    "NoiseModel",
    "Packing",
    "Parameters",
    "Parties",
    "PartyId",
    "PublicKey",
    "RelinearisationKey",
    "RelinearisationShare",
    "Session",
    "add_key_shares",
    "additive",
    "ask_to_decrypt",
    "centred",
    "combine",
    "draw_key",
    "encrypt",
    "finish_key",
    "help_to_decrypt",
    "join_public_key",
    "join_relinearisation_key",
    "levelled",
    "uniform_entries",
]
