"""Every field of every message altered once, on its way between honest parties.

What may happen: the round is aborted, its sender or receiver is lost and the sum of the others
is exact, or nothing at all. Where the server has the clients' keys nobody is named. Where it has
none, what arrives in a client's name is taken to be its own, and for the words of a masked vector
the sum moves by exactly the alteration, as if that client had put in another vector.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from secagg_play import ballots, small_plan

from urna.errors import RoundAborted, RoundUnfinished
from urna.protocols import secagg
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    AgreeRequest,
    Invitation,
    KeyBook,
    MaskedVector,
    Message,
    Parts,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
)
from urna.protocols.secagg.run import _Clients, conduct
from urna.protocols.secagg.server import invite
from urna.protocols.secagg.transport import Letter
from urna.protocols.secagg.wire import decode, encode, without_signature
from urna.randomness import ScriptedSecrets

PLAN = small_plan(server="dishonest")
NOISY = small_plan(noise_variance=Fraction(400), xnoise="precise")
VICTIM = 4


def alterations(value: Any) -> Iterator[Any]:
    """Yield a value of the same kind for every part of a field."""
    match value:
        case int():
            yield value + 1 if value < PLAN.clients - 1 else value - 1
        case bytes() if value:
            yield bytes([value[0] ^ 1]) + value[1:]
            yield value[:-1] + bytes([value[-1] ^ 0x80])
        case frozenset():
            yield value ^ {VICTIM}
            yield value ^ {0}
        case tuple() if value:
            yield value[1:]
            yield from ((other, *value[1:]) for other in alterations(value[0]))
        case Parts() if value:
            client = min(value)
            yield Parts.of({c: part for c, part in value.items() if c != client}, value.size)
            for other in alterations(value[client]):
                yield Parts.of({**value, client: other}, value.size)
        case Advertisement():
            for field in fields(value):
                for other in alterations(getattr(value, field.name)):
                    yield replace(value, **{field.name: other})


def cases() -> Iterator[Any]:
    kinds = [
        Invitation,
        Advertisement,
        KeyBook,
        SealedShares,
        ShareBox,
        MaskedVector,
        AgreeRequest,
        Agreement,
        UnmaskRequest,
        UnmaskReply,
    ]
    for kind in kinds:
        for field in fields(kind):
            yield pytest.param(kind, field.name, id=f"{kind.__name__}.{field.name}")


class Meddling:
    """A transport that alters one field of one message on its way."""

    def __init__(
        self, inner: secagg.MemoryTransport, plan: secagg.Plan, kind: type, field: str
    ) -> None:
        self._inner, self._plan, self.kind, self.field = inner, plan, kind, field
        self.which = 0
        self.altered: list[tuple[Message, Message]] = []
        self.left = 0

    client_seconds = own_seconds = 0.0

    def exchange(self, stage: secagg.Stage, letters: Iterable[Letter]) -> list[Letter]:
        there = [(c, self._meddle(c, data)) for c, data in letters]
        return [(c, self._meddle(c, data)) for c, data in self._inner.exchange(stage, there)]

    def _meddle(self, client: int, data: bytes) -> bytes:
        written = without_signature(data)
        message, signature = decode(written, self._plan), data[len(written) :]
        if client != VICTIM or type(message) is not self.kind:
            return data
        others = list(alterations(getattr(message, self.field)))
        self.left = len(others) - self.which - 1
        if self.left < 0:
            return data
        wrong = replace(message, **{self.field: others[self.which]})
        self.altered.append((message, wrong))
        return encode(wrong, self._plan) + signature


def client_data(plan: secagg.Plan) -> _Clients:
    source = ScriptedSecrets(b"fields")
    seeds = {c: source.take(32) for c in range(plan.clients)}
    return _Clients(plan, ballots(plan), seeds, signing_keys(plan), 0, False)


def signing_keys(plan: secagg.Plan) -> dict[int, bytes]:
    return {c: ScriptedSecrets(b"key %d" % c).take(32) for c in range(plan.clients)}


def directory_of(plan: secagg.Plan) -> secagg.Directory:
    keys = signing_keys(plan)
    return secagg.Directory({c: secagg.Identity.of(c, k).public for c, k in keys.items()})


@pytest.mark.parametrize(("kind", "field"), list(cases()))
@pytest.mark.parametrize("plan", [PLAN, NOISY], ids=["dishonest", "noisy"])
def test_an_altered_field_spoils_nothing_silently(
    plan: secagg.Plan, kind: type, field: str
) -> None:
    if plan is NOISY and kind in (AgreeRequest, Agreement):
        return  # not part of that plan's round
    # One of the victim's neighbours drops out, so that shares of its key are sent too.
    silent = int(invite(plan, 1, b"c" * 32)[0].neighbours[VICTIM][0])
    which, left, altered = 0, 1, False
    # Once the server can check signatures itself, once only the clients do.
    directory = directory_of(plan) if plan is PLAN else None
    while left > 0:
        faults = secagg.Faults(vanish={silent: secagg.Stage.MASK})
        inner = secagg.MemoryTransport(client_data(plan).parties(), faults)
        meddling = Meddling(inner, plan, kind, field)
        meddling.which = which
        try:
            outcome = conduct(plan, meddling, number=1, coin=b"c" * 32, directory=directory)
        except (RoundAborted, RoundUnfinished) as failed:
            named = dict(failed.faults)
        else:
            named = dict(outcome.faults)
            check(plan, outcome, meddling, silent)
        # Without keys, what reaches the server in a client's name is taken to be its own.
        assert named.keys() <= (set() if plan is PLAN else {VICTIM})
        assert all(deed.endswith("as it was sent or as it arrived") for deed in named.values())
        left, which = meddling.left, which + 1
        altered |= bool(meddling.altered)
    assert altered or (kind, field) == (UnmaskRequest, "signatures")


def check(plan: secagg.Plan, outcome: secagg.Outcome, meddling: Meddling, silent: int) -> None:
    truth = np.sum([ballots(plan)[c] for c in outcome.survivors], axis=0)
    gap = outcome.total - truth
    if plan is NOISY and (meddling.kind, meddling.field) == (MaskedVector, "words"):
        before, after = (np.frombuffer(m.words, dtype="<i4") for m in meddling.altered[0])  # type: ignore[union-attr]
        gap = gap - (after - before)
    if plan is NOISY:
        assert np.abs(gap).max() < 12 * 23  # 12 deviations of what is left; a mask would show
    else:
        assert not gap.any()
    # The victim, or the one neighbour that got what was altered.
    assert len(outcome.lost.keys() - {silent, VICTIM}) <= 1
