"""Parties in this process, and a party's state as bytes where it is started for every letter.

A state holds secrets: the party's parts of all keys. It is meant for the party's own memory and
never travels. Arrays are written as numpy writes them, without pickles.
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from urna.errors import ParameterError, ProtocolError
from urna.protocols.he import Drawn, KeyHolder, PartyId, PublicKey
from urna.protocols.he.keys import Channel
from urna.protocols.he.messages import ChannelBook
from urna.protocols.he.wire import decode, encode
from urna.randomness import SEED_BYTES, SecretSource
from urna.systems.combine.letters import RunName, pack_opened, unpack_opened
from urna.systems.combine.party import Given, Joined, KeyedParty, Over, PartySession, Seat, State
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.server import EncryptedOutcome, conduct
from urna.systems.combine.tasks import Task


class MemoryParties:
    """Parties in this process."""

    def __init__(self, parties: Mapping[PartyId, PartySession]) -> None:
        self._parties = parties

    def exchange(self, stage: str, letters: Mapping[PartyId, bytes]) -> dict[PartyId, bytes]:
        """Deliver letters and return the replies."""
        del stage
        return {party: self._parties[party].handle(data) for party, data in letters.items()}


def play(
    task: Task, searches: Sequence[LocalSearch], secrets: SecretSource, *, recomputes: bool = False
) -> EncryptedOutcome:
    """Play all parties and the server of a task in this process, each with its own search."""
    if len(searches) != task.parties:
        raise ParameterError(f"the task is for {task.parties} parties, got {len(searches)}")
    run = RunName(task, secrets.take(SEED_BYTES))
    seats = [Seat(run, party, search, recomputes) for party, search in enumerate(searches)]
    parties = MemoryParties({seat.party: PartySession(seat, secrets) for seat in seats})
    return conduct(run, parties, witnesses=recomputes)


def freeze(seat: Seat, state: State | None) -> bytes:
    """Return what must be kept of a state: nothing before and after the run."""
    if state is None or isinstance(state, Over):
        return b""
    keyed = state.keyed if isinstance(state, Given) else state
    texts: dict[str, Any] = {
        "run": seat.run.binding.hex(),
        "party": seat.party,
        "channels": [channel.private.hex() for channel in keyed.channels],
        "stage": type(state).__name__,
    }
    arrays: dict[str, Any] = {}
    if isinstance(keyed, Joined):
        texts["sent"] = keyed.sent
        for number, drawn in enumerate(keyed.drawn):
            arrays[f"secret{number}"] = drawn.secret
            if drawn.mask is not None:
                arrays[f"mask{number}"] = drawn.mask
    else:  # what was drawn is in the holders now; the masks are not needed any more
        for number, holder in enumerate(keyed.holders):
            arrays[f"secret{number}"] = holder.secret
            arrays[f"public{number}"] = holder.public_key.values
        texts["digests"] = [holder.public_key.digest.hex() for holder in keyed.holders]
        texts["shared"] = [holder.shared for holder in keyed.holders]
        texts["switching"] = keyed.switching
        texts["contributed"] = sorted(keyed.contributed)
        texts["shown"] = [pack_opened(opened).hex() for opened in keyed.shown]
        texts["books"] = [
            encode(book, session).hex()
            for book, session in zip(keyed.books, seat.run.sessions, strict=bool(keyed.books))
        ]
    if isinstance(state, Given):
        texts |= {"sent": state.sent, "opened": state.opened.hex()}
        texts["in_it"] = sorted(state.contributed)
    written = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, texts=written, **arrays)
    return buffer.getvalue()


def thaw(data: bytes, seat: Seat) -> State:
    """Return the state that was frozen; keys serve one place in one run only."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as held:
            texts = json.loads(held["texts"].tobytes())
            arrays = {name: held[name] for name in held.files if name != "texts"}
        return _read(texts, arrays, seat)
    except (KeyError, ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ProtocolError("what this party kept of the run cannot be read") from error


def _read(texts: dict[str, Any], arrays: dict[str, Any], seat: Seat) -> State:
    if (texts["run"], texts["party"]) != (seat.run.binding.hex(), seat.party):
        raise ProtocolError("what this party kept belongs to another run")
    sessions = seat.run.sessions
    channels = tuple(
        Channel(session, seat.party, bytes.fromhex(private))
        for session, private in zip(sessions, texts["channels"], strict=bool(texts["channels"]))
    )
    if texts["stage"] == Joined.__name__:
        drawn = tuple(
            Drawn(session, arrays[f"secret{number}"], arrays.get(f"mask{number}"))
            for number, session in enumerate(sessions)
        )
        return Joined(drawn, channels, texts["sent"])
    keyed = KeyedParty(
        tuple(
            KeyHolder(
                seat.party,
                PublicKey(session, arrays[f"public{number}"], bytes.fromhex(key)),
                arrays[f"secret{number}"],
                shared,
            )
            for number, (session, key, shared) in enumerate(
                zip(sessions, texts["digests"], texts["shared"], strict=True)
            )
        ),
        channels,
        tuple(
            decode(bytes.fromhex(book), session, ChannelBook)
            for book, session in zip(texts["books"], sessions, strict=bool(texts["books"]))
        ),
        tuple(texts["switching"]),
        tuple(unpack_opened(bytes.fromhex(opened)) for opened in texts["shown"]),
        frozenset(texts["contributed"]),
    )
    if texts["stage"] == KeyedParty.__name__:
        return keyed
    return Given(
        keyed, tuple(texts["sent"]), bytes.fromhex(texts["opened"]), frozenset(texts["in_it"])
    )
