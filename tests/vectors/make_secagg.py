"""Write the golden and the tampered vectors of the secure sum.

    python tests/vectors/make_secagg.py

Running it again must show no difference: `test_secagg_vectors.py` checks that, and any change
of the wire format, of a derivation or of the noise shows up in the diff.
"""

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from urna.errors import RoundFailed
from urna.protocols import secagg
from urna.protocols.secagg import Stage
from urna.protocols.secagg.keys import sign_reply
from urna.protocols.secagg.run import _Clients, conduct
from urna.protocols.secagg.transport import Letter
from urna.protocols.secagg.wire import without_signature
from urna.randomness import ScriptedSecrets

HERE = Path(__file__).parent
COIN = bytes(range(32))
PLANS = {
    "secagg_curious": {"xnoise": "precise", "server": "honest-but-curious", "ring_bits": 32},
    "secagg_dishonest": {"xnoise": "approximate", "server": "dishonest", "ring_bits": 16},
}
HEAD, DIGEST, NUMBER, SHARE, SIGNATURE = 10, 32, 4, 32, 64  # lengths on the wire
FIRST_ROW = 1 << 20  # stands for the first bundle of a client's shares, wherever it begins
Alteration = tuple[str, Stage, int]
"""Direction, stage, place of the byte that is altered by one bit (from the end if negative).

What is altered "to" or "from" a client is altered on its way; "by" it, it signs what it altered."""
TAMPERED: dict[str, tuple[str, tuple[Alteration, ...]]] = {
    "plan_digest": ("secagg_curious", (("to", Stage.ADVERTISE, -1),)),
    "mask_key": ("secagg_curious", (("to", Stage.SHARE, -66),)),
    "round_id": ("secagg_curious", (("to", Stage.MASK, HEAD),)),
    # On its way to the client, which then complains without reason; and to the server, where
    # the one who gets the bundle complains with reason: that round ends in receipts.
    "bundle": ("secagg_curious", (("to", Stage.MASK, -20),)),
    "digest": ("secagg_curious", (("to", Stage.MASK, -1),)),
    "complaint": ("secagg_curious", (("from", Stage.SHARE, FIRST_ROW),)),
    "commitment": ("secagg_curious", (("from", Stage.SHARE, HEAD + DIGEST + NUMBER),)),
    "peers_digest": ("secagg_curious", (("from", Stage.MASK, HEAD + DIGEST + NUMBER),)),
    "survivors": ("secagg_curious", (("to", Stage.UNMASK, HEAD + DIGEST),)),
    "share": ("secagg_curious", (("from", Stage.UNMASK, HEAD + DIGEST + 8 * NUMBER),)),
    "hidden_digest": (
        "secagg_curious",
        (("from", Stage.UNMASK, HEAD + DIGEST + 8 * NUMBER + 2 * SHARE),),
    ),
    "version": ("secagg_curious", (("from", Stage.MASK, 4),)),
    # Where the server has the clients' keys, whoever's message is altered is lost and not named.
    "advertisement": ("secagg_dishonest", (("from", Stage.ADVERTISE, HEAD + DIGEST + NUMBER),)),
    "shares": ("secagg_dishonest", (("from", Stage.SHARE, -1),)),
    "box": ("secagg_dishonest", (("to", Stage.MASK, -1),)),
    "vector": ("secagg_dishonest", (("from", Stage.MASK, -SIGNATURE - 1),)),
    "agreement": ("secagg_dishonest", (("from", Stage.AGREE, -SIGNATURE - 1),)),
    "reply": ("secagg_dishonest", (("from", Stage.UNMASK, HEAD + DIGEST + 8 * NUMBER),)),
    # Without its sender's signature a bundle is complained about, and nothing is shown.
    "unsigned": ("secagg_dishonest", (("by", Stage.SHARE, FIRST_ROW),)),
    "receipt": ("secagg_dishonest", (("by", Stage.SHARE, FIRST_ROW), ("by", Stage.VOID, -1))),
}
VICTIM = 1
REFUSAL, COMPLAINT = 11, 12  # kinds on the wire


def plan_of(name: str) -> secagg.Plan:
    """The plan of a vector."""
    return secagg.plan(
        clients=6,
        dimension=3,
        dropouts=2,
        noise_variance=Fraction(40),
        **PLANS[name],  # type: ignore[arg-type]
    )


class Recording:
    """A transport that notes what passes and turns one bit if asked to."""

    client_seconds = own_seconds = 0.0

    def __init__(self, plan: secagg.Plan, tampered: tuple[Alteration, ...]) -> None:
        source = ScriptedSecrets(b"urna test vectors")
        seeds = {c: source.take(32) for c in range(plan.clients)}
        keys = {c: source.take(32) for c in range(plan.clients)}
        self._victim = secagg.Identity.of(VICTIM, keys[VICTIM])
        self.directory = secagg.Directory(
            {c: secagg.Identity.of(c, key).public for c, key in keys.items()}
        )
        vectors = {c: np.array([c, -c, 10 * c]) for c in range(plan.clients)}
        parties = _Clients(plan, vectors, seeds, keys, 0, False).parties()
        faults = secagg.Faults(vanish={4: Stage.MASK})
        self._inner = secagg.MemoryTransport(parties, faults)
        self._tampered = {(way, stage): place for way, stage, place in tampered}
        self._plan, self.steps = plan, list[dict[str, Any]]()

    def exchange(self, stage: Stage, letters: list[Letter]) -> list[Letter]:
        there = [(c, self._pass("to", stage, c, data)) for c, data in letters]
        replies = self._inner.exchange(stage, there)
        asked = dict(there)
        lied = [(c, self._lie(stage, c, asked[c], data)) for c, data in replies]
        back = [(c, self._pass("from", stage, c, data)) for c, data in lied]
        self.steps.append(
            {
                "stage": stage.name,
                "to_clients": {str(c): data.hex() for c, data in there},
                "from_clients": {str(c): data.hex() for c, data in back},
                "success": all(data[5] not in (REFUSAL, COMPLAINT) for _, data in back),
            }
        )
        return back

    def _pass(self, way: str, stage: Stage, client: int, data: bytes) -> bytes:
        place = self._tampered.get((way, stage))
        if place is None or client != VICTIM:
            return data
        altered = bytearray(data)
        if place == FIRST_ROW:
            place = len(without_signature(data)) + 5
            place -= self._plan.neighbours * self._plan.bundle_bytes
        altered[place] ^= 1
        return bytes(altered)

    def _lie(self, stage: Stage, client: int, request: bytes, data: bytes) -> bytes:
        honest = without_signature(data)
        said = self._pass("by", stage, client, honest)
        return data if said == honest else said + sign_reply(self._victim, request, said)


def vector(name: str, tampered: str | None = None) -> dict[str, Any]:
    """Play one round and return all that passed and how it ended."""
    plan = plan_of(name)
    transport = Recording(plan, () if tampered is None else TAMPERED[tampered][1])
    found: dict[str, Any] = {
        "plan": {
            "clients": plan.clients,
            "dimension": plan.dimension,
            "ring_bits": plan.ring_bits,
            "neighbours": plan.neighbours,
            "threshold": plan.threshold,
            "server": plan.server.value,
            "digest": plan.digest.hex(),
        },
        "tampered": tampered,
        "steps": transport.steps,
    }
    # A curious server goes without the keys: then it is clients who check signatures.
    directory = transport.directory if plan.server is secagg.ServerModel.DISHONEST else None
    try:
        outcome = conduct(plan, transport, number=1, coin=COIN, directory=directory)  # type: ignore[arg-type]
    except RoundFailed as error:
        return found | {
            "success": False,
            "error": f"{type(error).__name__}: {error}",
            "faults": named(error.faults),
            "receipts": {str(c): receipt.hex() for c, receipt in error.receipts.items()},
        }
    return found | {
        "success": True,
        "total": outcome.total.tolist(),
        "survivors": sorted(outcome.survivors),
        "lost": {str(c): [loss.stage.name, loss.reason] for c, loss in outcome.lost.items()},
        "faults": named(outcome.faults),
        "noise_variance": str(outcome.noise_variance),
    }


def named(faults: Mapping[int, str]) -> dict[str, str]:
    return {str(client): deed for client, deed in faults.items()}


def files() -> dict[str, dict[str, Any]]:
    """Return every file's name and content."""
    good = {f"{name}.json": vector(name) for name in PLANS}
    bad = {f"{name}_bad_{t}.json": vector(name, t) for t, (name, _) in TAMPERED.items()}
    return good | bad


def text_of(content: dict[str, Any]) -> str:
    """Return a vector as it stands in its file."""
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for file, content in files().items():
        (HERE / file).write_text(text_of(content), encoding="utf-8")
