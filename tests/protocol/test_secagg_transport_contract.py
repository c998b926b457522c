"""Both transports of this machine keep to the contract of all transports."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from secagg_echoes import Echoes

from urna.protocols.secagg import MemoryTransport, Transport
from urna.protocols.secagg.transport import WorkerTransport
from urna.testing import Echo, TransportContract


class TestMemoryTransport(TransportContract):
    def transport(self, parties: Mapping[int, Echo]) -> AbstractContextManager[Transport]:
        return nullcontext(MemoryTransport(parties))


class TestWorkerTransport(TransportContract):
    def transport(self, parties: Mapping[int, Echo]) -> AbstractContextManager[Transport]:
        return WorkerTransport([Echoes(frozenset(parties))])
