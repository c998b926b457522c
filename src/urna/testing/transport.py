"""What every transport of the secure sum must do, as a suite that implementations subclass."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

from urna.protocols.secagg import ClientId, Stage, Transport

__all__ = ["Echo", "TransportContract"]


class Echo:
    """A client that answers with its own name, a count and what it was sent."""

    def __init__(self, client: ClientId) -> None:
        self._client, self._count = client, 0

    def handle(self, data: bytes) -> bytes:
        """Answer one letter."""
        self._count += 1
        return b"%d/%d/" % (self._client, self._count) + data


class TransportContract(ABC):
    """Subclass it as `TestMyTransport` and supply `transport`."""

    @abstractmethod
    def transport(self, parties: Mapping[ClientId, Echo]) -> AbstractContextManager[Transport]:
        """Return a transport that reaches exactly these clients."""

    def test_every_letter_is_answered_by_its_client(self) -> None:
        """Replies carry the sender the transport knows, and each client keeps its state."""
        with self.transport({c: Echo(c) for c in range(5)}) as transport:
            for number, stage in enumerate((Stage.ADVERTISE, Stage.SHARE), start=1):
                letters = [(c, b"letter %d" % c) for c in range(5)]
                found = dict(transport.exchange(stage, letters))
                assert found == {c: b"%d/%d/letter %d" % (c, number, c) for c in range(5)}

    def test_only_those_who_get_a_letter_answer(self) -> None:
        """Silence in one stage changes nothing for the next."""
        with self.transport({c: Echo(c) for c in range(4)}) as transport:
            assert dict(transport.exchange(Stage.ADVERTISE, [(2, b"a")])) == {2: b"2/1/a"}
            assert dict(transport.exchange(Stage.SHARE, [])) == {}
            both = dict(transport.exchange(Stage.MASK, [(1, b"b"), (2, b"c")]))
            assert both == {1: b"1/1/b", 2: b"2/2/c"}

    def test_a_client_out_of_reach_is_silent(self) -> None:
        """A letter to nobody is no error: its receiver counts as lost."""
        with self.transport({0: Echo(0)}) as transport:
            found = dict(transport.exchange(Stage.ADVERTISE, [(0, b"a"), (9, b"b")]))
            assert found == {0: b"0/1/a"}

    def test_large_letters_arrive_whole(self) -> None:
        """Nothing is cut, whatever the transport's own buffers."""
        with self.transport({c: Echo(c) for c in range(3)}) as transport:
            large = bytes(range(256)) * 4_000
            found = dict(transport.exchange(Stage.MASK, [(c, large) for c in range(3)]))
            assert found == {c: b"%d/1/" % c + large for c in range(3)}

    def test_times_are_not_negative(self) -> None:
        """A transport that runs no clients says zero."""
        with self.transport({0: Echo(0)}) as transport:
            list(transport.exchange(Stage.ADVERTISE, [(0, b"a")]))
            assert transport.client_seconds >= 0
            assert transport.own_seconds >= 0
