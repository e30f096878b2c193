"""The guards that keep the gateway's traces exact, and its sessions to themselves."""

from tests.guards.guard import Guard

SESSION = "agent_server/gateway/session.py"
TRACES = "agent_server/gateway/traces.py"
ECHO = "agent_server/gateway/echo.py"
HISTORIES = "tests/agent_server/gateway/test_rewritten_histories.py"
SESSIONS = "tests/agent_server/gateway/test_session.py"

GUARDS_OF_GATEWAY = (
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
