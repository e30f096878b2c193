"""The guards that keep the gateway's traces exact, and its sessions to themselves."""

from tests.guards.guard import Guard

SESSION = "agent_server/gateway/session.py"
TRACES = "agent_server/gateway/traces.py"
ECHO = "agent_server/gateway/echo.py"
HISTORIES = "tests/agent_server/gateway/test_rewritten_histories.py"
STREAMS = "tests/agent_server/gateway/test_streams.py"
SESSIONS = "tests/agent_server/gateway/test_session.py"

GUARDS_OF_GATEWAY = (
    Guard(
        "every response of a parked job is woken",
        "agent_server/control/parking.py",
        "                for go_on in self._go_on:\n",
        "                for go_on in self._go_on[:1]:\n",
        "tests/agent_server/test_parking.py",
    ),
    Guard(
        "half a tag is not told",
        "agent_server/gateway/unfolding.py",
        "        at = len(self._held) - kept\n",
        "        at = len(self._held)\n",
        STREAMS,
    ),
    Guard(
        "what stands behind the beginning of a call is not told",
        "agent_server/gateway/unfolding.py",
        "content = self._content.tell(self._take(self._marks, _Place.CALLS))",
        "content = self._content.tell(self._take((), _Place.CALLS))",
        STREAMS,
    ),
    Guard(
        "a client is told of a failure by its status as long as it has heard nothing",
        "agent_server/gateway/telling.py",
        "            return not self._begun\n",
        "            return False\n",
        STREAMS,
    ),
    Guard(
        "the connections of a session are limited",
        "agent_server/gateway/door.py",
        "        if not entrance.room.acquire(blocking=False):\n",
        "        if not (entrance.room.acquire(blocking=False) or True):\n",
        "tests/agent_server/gateway/test_door.py",
    ),
    Guard(
        "a response on several traces is trained in one of them",
        TRACES,
        "        if node.number in trained:\n",
        "        if node.number < 0:\n",
        HISTORIES,
    ),
    Guard(
        "an answer that the client adds is no part of a trace that goes on",
        TRACES,
        '        if any(message.role == "assistant" for message in new):\n',
        "        if not new:\n",
        HISTORIES,
    ),
    Guard(
        "a conversation does not go on where the policy was told of other tools",
        TRACES,
        " if root.place.tools == tools]",
        "]",
        HISTORIES,
    ),
    Guard(
        "results that change their calls make another conversation",
        ECHO,
        "(message.role, message.content.strip(), calls, answered, ",
        "(message.role, message.content.strip(), calls, ",
        HISTORIES,
    ),
    Guard(
        "reasoning that is told otherwise makes another message",
        ECHO,
        "self.reasoning == other.reasoning or not self.reasoning or not other.reasoning",
        "True",
        HISTORIES,
    ),
    Guard(
        "a failure of ours is never a trajectory",
        SESSION,
        "                raise self._failure\n            last",
        "                pass\n            last",
        SESSIONS,
    ),
    Guard(
        "a session that is closed stops its requests",
        SESSION,
        "        self._over.stop(StopReason.CANCELLED)\n",
        "",
        SESSIONS,
    ),
    Guard(
        "a key opens nothing once its session is over",
        SESSION,
        "        self._forget(self.key)\n",
        "",
        SESSIONS,
    ),
)
