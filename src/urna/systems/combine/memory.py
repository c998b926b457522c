"""A party's state as bytes, for parties that are started anew for every letter.

It holds secrets: the party's parts of all keys. It is meant for the party's own memory and never
travels. Arrays are written as numpy writes them, without pickles.
"""

import io
import json
import zipfile
from typing import Any

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.he import Drawn, KeyHolder, PublicKey
from urna.protocols.he.messages import ChannelBook
from urna.protocols.he.threshold import Channel
from urna.protocols.he.wire import decode, encode
from urna.systems.combine.letters import RunName, pack_opened, unpack_opened
from urna.systems.combine.party import Given, InvitedParty, Joined, KeyedParty, Over, State
from urna.systems.combine.tasks import digest_of

__all__ = ["freeze", "kept", "thaw"]


def freeze(state: Joined | KeyedParty | Given) -> bytes:
    """Return a state as bytes."""
    given = state if isinstance(state, Given) else None
    keyed = given.keyed if given is not None else state if isinstance(state, KeyedParty) else None
    joined = keyed.joined if keyed is not None else state
    if not isinstance(joined, Joined):
        raise ProtocolError("there is nothing to keep of this state")
    sessions = joined.run.sessions
    texts: dict[str, Any] = {
        "task": digest_of(joined.invited.task).hex(),
        "parties": joined.run.task.parties,
        "nonce": joined.run.nonce.hex(),
        "party": joined.party,
        "own": joined.sent,
        "channels": [channel.private.hex() for channel in joined.channels],
        "keyed": keyed is not None,
        "given": given is not None,
    }
    arrays: dict[str, Any] = {}
    if keyed is None:
        for number, drawn in enumerate(joined.drawn):
            arrays[f"secret{number}"] = drawn.secret
            if drawn.mask is not None:
                arrays[f"mask{number}"] = drawn.mask
    else:
        # What was drawn is in the holders now; the masks are not needed any more.
        for number, holder in enumerate(keyed.holders):
            arrays[f"secret{number}"] = holder.secret
            arrays[f"public{number}"] = holder.public_key.values
        texts["digests"] = [holder.public_key.digest.hex() for holder in keyed.holders]
        texts["switching"] = list(keyed.switching)
        texts["shared"] = [holder.shared for holder in keyed.holders]
        texts["contributed"] = sorted(keyed.contributed)
        texts["shown"] = [pack_opened(opened).hex() for opened in keyed.shown]
        texts["books"] = [
            encode(book, session).hex()
            for book, session in zip(keyed.books, sessions, strict=bool(keyed.books))
        ]
    if given is not None:
        texts |= {"sent": list(given.sent), "opened": given.opened.hex()}
        texts["in_it"] = sorted(given.contributed)
    written = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, texts=written, **arrays)
    return buffer.getvalue()


def thaw(data: bytes, invited: InvitedParty) -> State:
    """Return the state that was frozen.

    Args:
        data: What `freeze` returned.
        invited: The same task and search as before.

    Raises:
        ProtocolError: These are other bytes, or of another task: keys serve one task only.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as held:
            texts = json.loads(held["texts"].tobytes())
            arrays = {name: held[name] for name in held.files if name != "texts"}
        return _read(texts, arrays, invited)
    except (KeyError, ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ProtocolError("what this party kept of the run cannot be read") from error


def _read(texts: dict[str, Any], arrays: dict[str, Any], invited: InvitedParty) -> State:
    if texts["task"] != digest_of(invited.task).hex():
        raise ProtocolError("what this party kept belongs to another task")
    run = RunName(invited.task.among(texts["parties"]), bytes.fromhex(texts["nonce"]))
    party, sessions = texts["party"], run.sessions
    place = invited.place
    if place is not None and (place.nonce, place.party) != (run.nonce, party):
        raise ProtocolError("what this party kept belongs to another run")
    channels = tuple(
        Channel(session, party, bytes.fromhex(private))
        for session, private in zip(sessions, texts["channels"], strict=bool(texts["channels"]))
    )
    if not texts["keyed"]:
        drawn = tuple(
            Drawn(session, arrays[f"secret{number}"], arrays.get(f"mask{number}"))
            for number, session in enumerate(sessions)
        )
        return Joined(invited, run, party, drawn, channels, texts["own"])
    holders = tuple(
        KeyHolder(
            party,
            PublicKey(session, arrays[f"public{number}"], bytes.fromhex(texts["digests"][number])),
            arrays[f"secret{number}"],
            bool(texts["shared"][number]),
        )
        for number, session in enumerate(sessions)
    )
    books = tuple(
        decode(bytes.fromhex(book), session, ChannelBook)
        for book, session in zip(texts["books"], sessions, strict=bool(texts["books"]))
    )
    shown = tuple(unpack_opened(bytes.fromhex(opened)) for opened in texts["shown"])
    joined = Joined(invited, run, party, (), channels, texts["own"])
    contributed = frozenset(map(int, texts["contributed"]))
    keyed = KeyedParty(joined, holders, books, shown, contributed, tuple(texts["switching"]))
    if not texts["given"]:
        return keyed
    in_it = frozenset(map(int, texts["in_it"]))
    return Given(keyed, tuple(texts["sent"]), bytes.fromhex(texts["opened"]), in_it)


def kept(state: State) -> bytes:
    """Return what must be kept of a state: nothing before and after the run."""
    return b"" if isinstance(state, InvitedParty | Over) else freeze(state)
