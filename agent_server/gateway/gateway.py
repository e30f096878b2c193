"""The gateway of an agent server: sessions by their keys, behind one door.

A key is its session's alone, is never written down, and opens nothing once the session is over.
"""

import threading

from agent_server.agents.protocol import Task
from agent_server.control.stop import StopSignal
from agent_server.gateway.door import Door
from agent_server.gateway.routes import GatewayRoutes
from agent_server.gateway.session import GatewaySession
from rollyard.errors import Unauthorized


class Gateway:
    """Owns the sessions that are open, and the door at which their clients knock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, GatewaySession] = {}
        self._door = Door(GatewayRoutes(self.session))

    def open(self, task: Task, stop: StopSignal) -> GatewaySession:
        """A session for the agent that works on this task, until it is closed."""
        entrance = self._door.open()

        def forget(key: str) -> None:
            self._door.shut(entrance)
            with self._lock:
                self._sessions.pop(key, None)

        session = GatewaySession(task, stop, entrance.url, forget)
        with self._lock:
            self._sessions[session.key] = session
        return session

    def session(self, key: str) -> GatewaySession:
        """The session that this key opens. Raises `Unauthorized`."""
        with self._lock:
            session = self._sessions.get(key)
        if session is None:
            raise Unauthorized(
                "this key opens no session", fix="a job's key is valid until the job ends"
            )
        return session

    def close(self) -> None:
        """End all sessions, and close the door."""
        with self._lock:
            sessions = tuple(self._sessions.values())
        for session in sessions:
            session.close()
        self._door.close()
