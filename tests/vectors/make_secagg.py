"""Write the golden and the tampered vectors of the secure sum.

    python tests/vectors/make_secagg.py

Running it again must show no difference: `test_secagg_vectors.py` checks that, and any change
of the wire format, of a derivation or of the noise shows up in the diff.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from urna import secagg
from urna.errors import RoundAborted, RoundUnfinished
from urna.randomness import ScriptedSecrets
from urna.secagg import Stage
from urna.secagg.run import _Electorate, conduct
from urna.secagg.transport import Letter

HERE = Path(__file__).parent
COIN = bytes(range(32))
PLANS = {
    "secagg_curious": {"xnoise": "precise", "server": "honest-but-curious", "ring_bits": 32},
    "secagg_dishonest": {"xnoise": "approximate", "server": "dishonest", "ring_bits": 16},
}
HEAD, DIGEST, NUMBER = 10, 32, 4  # lengths on the wire
# What is altered by one bit: direction, stage, place of the byte (from the end if negative).
TAMPERED = {
    "plan_digest": ("to", Stage.ADVERTISE, -1),
    "mask_key": ("to", Stage.SHARE, -66),
    "round_id": ("to", Stage.MASK, HEAD),
    "bundle": ("to", Stage.MASK, -1),
    "commitment": ("from", Stage.SHARE, HEAD + DIGEST + NUMBER),
    "survivors": ("to", Stage.UNMASK, HEAD + DIGEST),
    "share": ("from", Stage.UNMASK, HEAD + DIGEST + 8 * NUMBER),
    "version": ("from", Stage.MASK, 4),
}
VICTIM = 1


def plan_of(name: str) -> secagg.Plan:
    """The plan of a vector."""
    return secagg.plan(
        clients=6,
        dimension=3,
        dropout=Fraction(1, 6),
        noise_variance=Fraction(40),
        **PLANS[name],  # type: ignore[arg-type]
    )


class Recording:
    """A transport that notes what passes and turns one bit if asked to."""

    client_seconds = own_seconds = 0.0

    def __init__(self, plan: secagg.Plan, tamper: tuple[str, Stage, int] | None) -> None:
        source = ScriptedSecrets(b"urna test vectors")
        seeds = {c: source.take(32) for c in range(plan.clients)}
        keys = {c: source.take(32) for c in range(plan.clients)}
        vectors = {c: np.array([c, -c, 10 * c]) for c in range(plan.clients)}
        parties = _Electorate(plan, vectors, seeds, keys, 0, False).parties()
        faults = secagg.Faults(vanish={4: Stage.MASK})
        self._inner = secagg.MemoryTransport(parties, faults)
        self._tamper = tamper
        self.steps: list[dict[str, Any]] = []

    def exchange(self, stage: Stage, letters: list[Letter]) -> list[Letter]:
        there = [(c, self._pass("to", stage, c, data)) for c, data in letters]
        replies = self._inner.exchange(stage, there)
        back = [(c, self._pass("from", stage, c, data)) for c, data in replies]
        self.steps.append(
            {
                "stage": stage.name,
                "to_clients": {str(c): data.hex() for c, data in there},
                "from_clients": {str(c): data.hex() for c, data in back},
                "success": all(data[5] != 11 for _, data in back),  # 11 is a refusal
            }
        )
        return back

    def _pass(self, way: str, stage: Stage, client: int, data: bytes) -> bytes:
        if self._tamper is None or client != VICTIM or (way, stage) != self._tamper[:2]:
            return data
        altered = bytearray(data)
        altered[self._tamper[2]] ^= 1
        return bytes(altered)


def vector(name: str, tampered: str | None = None) -> dict[str, Any]:
    """Play one round and return all that passed and how it ended."""
    plan = plan_of(name)
    transport = Recording(plan, None if tampered is None else TAMPERED[tampered])
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
    try:
        outcome = conduct(plan, transport, number=1, coin=COIN)  # type: ignore[arg-type]
    except (RoundAborted, RoundUnfinished) as error:
        kind = type(error).__name__
        return found | {"success": False, "error": f"{kind}: {error}"}
    return found | {
        "success": True,
        "total": outcome.total.tolist(),
        "survivors": sorted(outcome.survivors),
        "lost": {str(c): [loss.stage.name, loss.reason] for c, loss in outcome.lost.items()},
        "noise_variance": str(outcome.noise_variance),
    }


def files() -> dict[str, dict[str, Any]]:
    """Return every file's name and content."""
    good = {f"{name}.json": vector(name) for name in PLANS}
    bad = {f"secagg_curious_bad_{t}.json": vector("secagg_curious", t) for t in TAMPERED}
    return good | bad


def text_of(content: dict[str, Any]) -> str:
    """Return a vector as it stands in its file."""
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for file, content in files().items():
        (HERE / file).write_text(text_of(content), encoding="utf-8")
