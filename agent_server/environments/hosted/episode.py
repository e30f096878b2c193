"""The server's side of an environment that runs in a process of its own.

- `start`, `step`, `solve` and `grade` send a request and wait for its answer. Meanwhile this
  thread, the attempt's, runs the environment's commands in its sandbox and reads its output, the
  end of which is kept for error messages.
- `kill` ends the process, all that it started, and the wait, whatever state the process is in.
"""

import contextlib
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

from agent_server.environments.hosted import frames
from agent_server.environments.protocol import (
    EnvironmentFailed,
    EnvironmentKilled,
    Observation,
    Opening,
    Response,
)
from agent_server.sandbox.process import is_gone
from agent_server.sandbox.protocol import Sandbox, SandboxUnavailable
from rollyard.errors import RollyardError, Unavailable
from rollyard.messages import Grade, Prompt

_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 300
_DEATH_SECONDS = 5.0

F = TypeVar("F", bound=frames.Frame)


class HostUnavailable(Unavailable):
    """This server's inability to make or keep a process for an environment."""


class Line(msgspec.Struct, frozen=True):
    """The server's ends of the connections with one process that was asked for."""

    environment: socket.socket
    report: socket.socket
    """Socket over which the zygote reports the process's beginning and end."""
    output: int
    """Descriptor of the pipe with what the process prints."""


class HostedEpisode:
    """An `Episode`. `ask` asks the zygote for a process; `stuck` is called with the descriptor of a
    process that was killed and lives on."""

    def __init__(self, ask: Callable[[], Line], stuck: Callable[[int], None]) -> None:
        self._ask = ask
        self._stuck = stuck
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._process: int | None = None
        """Descriptor of the process."""
        self._killed = False
        self._sandbox: Sandbox | None = None
        self._end_reason: RollyardError | None = None
        """Error that ended the episode; every later call raises it again."""
        self._tail = b""
        self._selector = selectors.DefaultSelector()

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._sandbox = sandbox
        self._begin()
        return self._call(frames.StartFrame(prompt), frames.Opened).opening

    def step(self, response: Response) -> Observation:
        return self._call(frames.StepFrame(response), frames.Observed).observation

    def solve(self) -> None:
        self._call(frames.Solve(), frames.Solved)

    def grade(self) -> Grade:
        return self._call(frames.GradeFrame(), frames.Graded).grade

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)
            if self._line is not None:
                for wait in (self._line.environment, self._line.report):
                    with contextlib.suppress(OSError):
                        wait.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.kill()
        with self._lock:
            line, self._line = self._line, None
            process, self._process = self._process, None
        self._selector.close()
        if line is not None:
            line.environment.close()
            line.report.close()
            os.close(line.output)
        if process is not None:
            if is_gone(process, _DEATH_SECONDS):
                os.close(process)
            else:
                self._stuck(process)

    def _begin(self) -> None:
        line = self._ask()
        with self._lock:
            self._line = line
            if self._killed:
                raise HostUnavailable("the environment was stopped before it began")
        for waited_for in (line.environment, line.report, line.output):
            self._selector.register(waited_for, selectors.EVENT_READ)
        first = self._first_report(line.report)
        if not isinstance(first, frames.Born):
            reason = first.reason if isinstance(first, frames.Failed) else "the zygote is gone"
            raise HostUnavailable(f"cannot start a process for the environment: {reason}")

    def _first_report(self, report: socket.socket) -> frames.Frame | None:
        """The zygote's first report, with which the descriptor of the process comes."""
        with contextlib.suppress(OSError, frames.BadFrame):
            first, descriptors = frames.receive_packet(report)
            with self._lock:
                for descriptor in descriptors:
                    self._process = descriptor
            return first
        return None

    def _call(self, request: frames.Frame, wanted: type[F]) -> F:
        """The answer to `request`. Raises the errors of an `Episode`."""
        if self._end_reason is not None:
            raise self._end_reason
        try:
            answer = self._exchange(request)
            while isinstance(answer, frames.RunFrame):
                answer = self._exchange(self._run(answer))
        except frames.BadFrame as error:
            if self._killed:
                raise EnvironmentKilled("the environment was killed") from error
            raise EnvironmentFailed(f"the environment spoilt its connection: {error}") from error
        if isinstance(answer, wanted):
            return answer
        if isinstance(answer, frames.Failed):
            raise (SandboxUnavailable if answer.unavailable else EnvironmentFailed)(answer.reason)
        if answer is None:
            self._end_reason = self._end()
        else:
            said = type(answer).__name__
            self._end_reason = EnvironmentFailed(f"the environment answered with a {said}")
        raise self._end_reason

    def _exchange(self, frame: frames.Frame) -> frames.Frame | None:
        """Send a frame and return the next, or None at the end of the process. The output is read
        meanwhile: a full pipe would block the process."""
        assert self._line is not None
        environment, report = self._line.environment, self._line.report
        with contextlib.suppress(BrokenPipeError):  # the zygote's report says how it ended
            frames.send(environment, frame)
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if environment in ready:
                if (answer := frames.receive(environment)) is not None:
                    return answer
                self._selector.unregister(environment)  # the process has ended, or closed its end
            elif report in ready:
                return None
            else:
                self._read_output()

    def _read_output(self) -> None:
        assert self._line is not None
        chunk = os.read(self._line.output, _CHUNK_BYTES)
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        if not chunk:
            self._selector.unregister(self._line.output)

    def _run(self, command: frames.RunFrame) -> frames.Frame:
        assert self._sandbox is not None
        argv = [word.decode(errors="surrogatepass") for word in command.argv]
        stdin = command.stdin.decode(errors="surrogatepass")
        try:
            result = self._sandbox.run(argv, stdin=stdin, deadline_seconds=command.deadline_seconds)
        except SandboxUnavailable as error:
            return frames.Failed(str(error))
        return frames.Ran(result)

    def _end(self) -> RollyardError:
        """The error for the call during which the process ended."""
        if self._killed:
            return EnvironmentKilled("the environment was killed")
        assert self._line is not None
        last, _ = frames.receive_packet(self._line.report)
        if not isinstance(last, frames.Ended):
            return HostUnavailable("the zygote of the environments is gone")
        while self._line.output in self._selector.get_map():  # nobody holds its other end any more
            self._read_output()
        said = " ".join(self._tail.decode(errors="replace").split())
        reason = f"the environment's process {_describe(last.status)}"
        return EnvironmentFailed(f"{reason}; it wrote last: {said}" if said else reason)


def _describe(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with status {code}"
    return f"was killed by {signal.Signals(-code).name}"
