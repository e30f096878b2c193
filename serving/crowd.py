"""The connections that no thread works for, and which of them goes when there are too many.

- First goes one that was never answered, then one between two requests; always the one that has
  waited longest.
- A peer that has too many loses its own; only when all together are too many, the peer with the
  most of them loses one.
"""

from collections import defaultdict

from serving.connection import Connection

MAX_OF_ONE_PEER = 2048
"""Connections from one address: a machine full of agent servers has a few hundred."""


class _Peer:
    def __init__(self) -> None:
        self.connections = 0
        """With those that a thread works for."""
        self.waiting: tuple[dict[Connection, None], dict[Connection, None]] = ({}, {})
        """Never answered ones, and others. A dict keeps their order."""


class Crowd:
    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._peers: defaultdict[str, _Peer] = defaultdict(_Peer)

    @property
    def waiting(self) -> list[Connection]:
        return [each for peer in self._peers.values() for part in peer.waiting for each in part]

    def surplus(self, newcomer: Connection) -> Connection | None:
        """Which one has to go so that there is room for another; `newcomer` if no other can."""
        peer = self._peers.get(newcomer.peer)
        if peer is None or peer.connections < MAX_OF_ONE_PEER:
            if self._total < self._most:
                return None
            peer = max(self._peers.values(), key=lambda each: each.connections)
        return next((each for part in peer.waiting for each in part), newcomer)

    def enter(self, connection: Connection) -> None:
        self._total += 1
        self._peers[connection.peer].connections += 1
        self.wait(connection)

    def wait(self, connection: Connection) -> None:
        """No thread works for it."""
        self._peers[connection.peer].waiting[connection.answered][connection] = None

    def work(self, connection: Connection) -> None:
        """A thread works for it."""
        for part in self._peers[connection.peer].waiting:
            part.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        self.work(connection)
        self._total -= 1
        peer = self._peers[connection.peer]
        peer.connections -= 1
        if not peer.connections:
            del self._peers[connection.peer]
