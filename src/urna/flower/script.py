"""Scripted randomness over Flower: the same draws as the in-memory search makes.

For tests and comparisons. With the same label, `vote.search` in memory and a vote over Flower
give the same tally, bit for bit. Nothing scripted is private, and every output says so.
"""

from dataclasses import dataclass

from urna.randomness import SEED_BYTES, ScriptedSecrets, expand

__all__ = ["PartyScript", "Script"]


class PartyScript:
    """One client's share of a script, which can be taken up again where it was left.

    Args:
        seed: The client's seed.
        taken: Bytes that earlier stages took.
    """

    private = False

    def __init__(self, seed: bytes, taken: int = 0) -> None:
        self._seed = seed
        self.taken = taken

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        start, self.taken = self.taken, self.taken + count
        return expand(self._seed, self.taken)[start:]


@dataclass(frozen=True, slots=True)
class Script:
    """All draws of a vote among `clients`, in the order of the in-memory search.

    The search takes every client's ballot key, then the round's coin, then every client's
    seed for the protocol, 32 bytes each (`vote.search`, `secagg.run`).
    """

    label: bytes
    clients: int

    def ballot_key(self, client: int) -> bytes:
        """Return the key that breaks ties in a client's ballot."""
        return self._draw(client)

    def party(self, client: int, taken: int = 0) -> PartyScript:
        """Return a client's source of keys, seeds and polynomials."""
        return PartyScript(self._draw(self.clients + 1 + client), taken)

    def _draw(self, place: int) -> bytes:
        secrets = ScriptedSecrets(self.label)
        secrets.take(SEED_BYTES * place)
        return secrets.take(SEED_BYTES)
