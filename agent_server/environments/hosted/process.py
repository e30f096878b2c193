"""The server's side of one process that a zygote forked.

- `exchange` sends a frame and waits for the next one. Meanwhile this thread reads the output of the
  process, the end of which is kept for error messages.
- `kill` ends the process, all that it started, and the wait, whatever state the process is in.
"""

import contextlib
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable

import msgspec

from agent_server.environments.hosted import frames
from agent_server.sandbox.process import is_gone
from rollyard.errors import Unavailable

_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 300
_DEATH_SECONDS = 5.0


class HostUnavailable(Unavailable):
    """This server's inability to make or keep a process for others' code."""


class Line(msgspec.Struct, frozen=True):
    """The server's ends of the connections with one process that was asked for."""

    stream: socket.socket
    """Socket over which frames are exchanged with the process."""
    report: socket.socket
    """Socket over which the zygote reports the process's beginning and end."""
    output: int
    """Descriptor of the pipe with what the process prints."""


class ProcessEnd(msgspec.Struct, frozen=True):
    """The end of a process that nobody here killed."""

    exit_code: int
    """Exit code, or the negative number of the signal that ended the process."""
    said: str
    """The last that it wrote."""

    def __str__(self) -> str:
        how = f"exited with status {self.exit_code}"
        if self.exit_code < 0:
            how = f"was killed by {signal.Signals(-self.exit_code).name}"
        return f"{how}; it wrote last: {self.said}" if self.said else how


class HostedProcess:
    """One process, from the order for it to its end. `ask` asks the zygote for it; `stuck` is
    called with the descriptor of a process that was killed and lives on."""

    def __init__(self, ask: Callable[[], Line], stuck: Callable[[int], None]) -> None:
        self._ask = ask
        self._stuck = stuck
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._process: int | None = None
        """Descriptor of the process."""
        self.killed = False
        """Whether `kill` was called."""
        self._tail = b""
        self._selector = selectors.DefaultSelector()

    def begin(self) -> None:
        """Have the process started. Raises `HostUnavailable`."""
        line = self._ask()
        with self._lock:
            self._line = line
            if self.killed:
                raise HostUnavailable("the process was stopped before it began")
        for waited_for in (line.stream, line.report, line.output):
            self._selector.register(waited_for, selectors.EVENT_READ)
        first = self._first_report(line.report)
        if not isinstance(first, frames.Born):
            reason = first.reason if isinstance(first, frames.Failed) else "the zygote is gone"
            raise HostUnavailable(f"cannot start a process: {reason}")

    def exchange(self, frame: frames.Frame, ends_at: float | None = None) -> frames.Frame | None:
        """Send a frame and return the next, or None at the end of the process, which is killed if
        the monotonic clock reaches `ends_at`. The output is read meanwhile: a full pipe would block
        the process. Raises `BadFrame`."""
        assert self._line is not None
        stream, report = self._line.stream, self._line.report
        with contextlib.suppress(BrokenPipeError):  # the zygote's report says how it ended
            frames.send(stream, frame)
        while True:
            left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            ready = {key.fileobj for key, _ in self._selector.select(left)}
            if stream in ready:
                if (answer := frames.receive(stream)) is not None:
                    return answer
                self._selector.unregister(stream)  # the process has ended, or closed its end
            elif report in ready:
                return None
            elif ready:
                self._read_output()
            else:
                self.kill()
                return None

    def end(self) -> ProcessEnd | None:
        """How the process ended, once `exchange` has returned None; None if the zygote is gone."""
        assert self._line is not None
        last, _ = frames.receive_packet(self._line.report)
        if not isinstance(last, frames.Ended):
            return None
        while self._line.output in self._selector.get_map():  # nobody holds its other end any more
            self._read_output()
        said = " ".join(self._tail.decode(errors="replace").split())
        return ProcessEnd(os.waitstatus_to_exitcode(last.status), said)

    def kill(self) -> None:
        """End the process, from any thread, without waiting."""
        with self._lock:
            self.killed = True
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)
            if self._line is not None:
                for wait in (self._line.stream, self._line.report):
                    with contextlib.suppress(OSError):
                        wait.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process and give everything back; a second call changes nothing."""
        self.kill()
        with self._lock:
            line, self._line = self._line, None
            process, self._process = self._process, None
        self._selector.close()
        if line is not None:
            line.stream.close()
            line.report.close()
            os.close(line.output)
        if process is not None:
            if is_gone(process, _DEATH_SECONDS):
                os.close(process)
            else:
                self._stuck(process)

    def _first_report(self, report: socket.socket) -> frames.Frame | None:
        """The zygote's first report, with which the descriptor of the process comes."""
        with contextlib.suppress(OSError, frames.BadFrame):
            first, descriptors = frames.receive_packet(report)
            with self._lock:
                for descriptor in descriptors:
                    self._process = descriptor
            return first
        return None

    def _read_output(self) -> None:
        assert self._line is not None
        chunk = os.read(self._line.output, _CHUNK_BYTES)
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        if not chunk:
            self._selector.unregister(self._line.output)
