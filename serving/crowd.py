"""Open connections, and which of them is closed when there are too many.

- Only a connection that no thread works for is closed: first one that was never answered, then
  one that was; of each kind the one that has waited longest.
- A peer that has too many loses one of its own. When there are too many in total, the peer with
  the most connections loses one.
"""

from collections import defaultdict
from typing import Generic, Protocol, TypeVar

MAX_OF_ONE_PEER = 2048
"""Maximum number of connections from one address: a machine of agent servers has hundreds."""


class Visitor(Protocol):
    """One connection."""

    answered: bool
    """True once a request of it was answered."""

    @property
    def peer(self) -> str:
        """Address of the caller."""
        ...


V = TypeVar("V", bound=Visitor)


class _Peer(Generic[V]):
    """The connections from one address."""

    def __init__(self) -> None:
        self.connections = 0
        """All of them, including those that a thread works for."""
        self.waiting: tuple[dict[V, None], dict[V, None]] = ({}, {})
        """Connections that no thread works for: those never answered, and the others. Dicts serve
        as ordered sets."""


class Crowd(Generic[V]):
    """All open connections of a service. Used by one thread alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._peers: defaultdict[str, _Peer[V]] = defaultdict(_Peer)

    @property
    def waiting(self) -> list[V]:
        return [each for peer in self._peers.values() for part in peer.waiting for each in part]

    def surplus(self, newcomer: V) -> V | None:
        """The connection to close so that `newcomer` fits: None if it fits anyway, and `newcomer`
        itself if no other can be closed."""
        peer = self._peers.get(newcomer.peer)
        if peer is None or peer.connections < MAX_OF_ONE_PEER:
            if self._total < self._most:
                return None
            peer = max(self._peers.values(), key=lambda each: each.connections)
        return next((each for part in peer.waiting for each in part), newcomer)

    def enter(self, connection: V) -> None:
        self._total += 1
        self._peers[connection.peer].connections += 1
        self.wait(connection)

    def wait(self, connection: V) -> None:
        """Note that no thread works for the connection."""
        self._peers[connection.peer].waiting[connection.answered][connection] = None

    def work(self, connection: V) -> None:
        """Note that a thread works for the connection."""
        for part in self._peers[connection.peer].waiting:
            part.pop(connection, None)

    def leave(self, connection: V) -> None:
        self.work(connection)
        self._total -= 1
        peer = self._peers[connection.peer]
        peer.connections -= 1
        if not peer.connections:
            del self._peers[connection.peer]
