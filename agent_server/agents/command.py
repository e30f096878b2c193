"""The agent that is somebody else's program: a command in the sandbox of the attempt.

The program knows nothing of Rollyard. It finds the address and the key of a session of the gateway
in the variables that clients of OpenAI's and of Anthropic's protocol read; that address is all that
it reaches, and the trajectory is what the gateway recorded. How the program ends is not graded.
"""

import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

import structlog

from agent_server.agents.protocol import PolicySession, Task
from agent_server.control.stop import StopReason, StopSignal
from agent_server.environments.protocol import EnvironmentFailed
from agent_server.sandbox.protocol import CommandResult, OpenSandbox, SandboxUnavailable
from rollyard.errors import Unavailable
from rollyard.messages import Trajectory

# Variables come by standard input: a command line can be read by every user of the machine. The
# program has no input.
_SCRIPT = 'set -a; eval "$(cat)"; set +a; exec /bin/bash -c "$1" < /dev/null'
_MAX_SECONDS = 7 * 24 * 3600.0
"""Longer than any Job: the deadline of RUN, whose clock stands still while the Job is parked, ends
what runs in the sandbox."""
_SHOWN_CHARACTERS = 1000

log = structlog.get_logger()


class CommandAgent:
    """An `Agent`."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def run(self, stop: StopSignal) -> Trajectory:
        sandbox = self._sandbox()
        if self.task.gateway is None:
            raise Unavailable("this agent server has no gateway")
        with self.task.gateway.open(self.task, stop) as session:
            try:
                done = self._execute(sandbox, session)
            except SandboxUnavailable:
                stop.check()  # what is stopped loses its sandbox, and that is not its fault
                raise
            if stop.reason is StopReason.CANCELLED:
                stop.check()
            log.info("agent_ended", agent=self.task.name, exit_code=done.exit_code)
            try:
                return session.trajectory(truncated=stop.reason is not None)
            except EnvironmentFailed as error:  # its output alone says why
                raise _with_output(error, done) from error

    def _sandbox(self) -> OpenSandbox:
        """The sandbox to run the command in. Raises `EnvironmentFailed`."""
        if self.task.sandbox is None or not self.task.opening.command:
            raise EnvironmentFailed(
                "the environment needs the agent `command`, and gives it "
                + ("no sandbox" if self.task.sandbox is None else "no command"),
                fix="put a sandbox into its `needs`, and let start() return Opening(command=...)",
            )
        return self.task.sandbox

    def _execute(self, sandbox: OpenSandbox, session: PolicySession) -> CommandResult:
        """Run the command to its end, or to that of all commands of its sandbox."""
        url = urlsplit(session.url)
        assert url.hostname is not None
        assert url.port is not None
        with sandbox.leading_to((url.hostname, url.port)) as (host, port):
            inside = url._replace(netloc=f"{host}:{port}").geturl()
            return sandbox.run(
                ["/bin/bash", "-c", _SCRIPT, "agent", self.task.opening.command],
                stdin=_assignments(variables(inside, session.key)),
                deadline_seconds=_MAX_SECONDS,
            )


def variables(url: str, key: str) -> dict[str, str]:
    """The variables by which clients of either protocol find a server. Those of Anthropic's put the
    `/v1` behind its URL themselves."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",  # its name of old, which LiteLLM still reads
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
    }


def _assignments(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _with_output(error: EnvironmentFailed, done: CommandResult) -> EnvironmentFailed:
    said = done.output.strip()[-_SHOWN_CHARACTERS:] or "(nothing)"
    return EnvironmentFailed(
        f"{error.message}; its command ended with exit code {done.exit_code} and said: {said}",
        fix=error.fix,
    )
