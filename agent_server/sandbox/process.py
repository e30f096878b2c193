"""Child processes that are given input, read up to a cap, killed at a deadline, and always reaped.

`run` returns only when every holder of the output pipe is gone, and the child has been waited for:
the first process of the command's process table ends after all others in there.
"""

import contextlib
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Sequence

import psutil

from agent_server.sandbox.protocol import CommandResult, SandboxUnavailable

TRUNCATED = "\n[output truncated]"
REAP_SECONDS = 5.0
"""Time for the kernel to end a process that was killed."""

_CHUNK_BYTES = 1 << 16
_LOOK_SECONDS = 0.0005
_LOOK_FOR_SECONDS = 2.0


class Output:
    """What is kept of a command's output."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept = bytearray()
        self.truncated = False

    def keep(self, chunk: bytes) -> None:
        """Keep what fits; the rest is dropped, so that the command does not block on it."""
        room = self._most_bytes - len(self._kept)
        self._kept += chunk[: max(0, room)]
        self.truncated = self.truncated or len(chunk) > room

    def result(
        self, code: int, *, timed_out: bool = False, restarted: bool = False
    ) -> CommandResult:
        """The result of the command whose process ended with `code`, as `Popen` tells it."""
        return CommandResult(
            exit_code=code if code >= 0 else 128 - code,
            output=self._kept.decode(errors="replace") + (TRUNCATED if self.truncated else ""),
            timed_out=timed_out,
            truncated=self.truncated,
            restarted=restarted,
        )


class ChildProcess:
    """A started command. `kill` may come from any thread."""

    def __init__(self, argv: Sequence[str], directory: str, *, output_bytes: int) -> None:
        """Start `argv` in `directory`. Raises `SandboxUnavailable`."""
        self._output = Output(output_bytes)
        self._lock = threading.Lock()
        self._process = start(argv, directory, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, stdin: bytes, deadline_seconds: float) -> CommandResult:
        """Feed and read the process until its end or the deadline."""
        timed_out = not self._exchange(stdin, time.monotonic() + deadline_seconds)
        if timed_out:
            self.kill()
            self._exchange(b"", time.monotonic() + REAP_SECONDS)
        return self._output.result(self._reap(), timed_out=timed_out)

    def kill(self) -> None:
        """Kill the command unless it was reaped: its number may belong to another by then."""
        with self._lock:
            if self._process.returncode is None:
                kill_first_process(self._process.pid)

    def _exchange(self, stdin: bytes, deadline: float) -> bool:
        """Write `stdin` and read output until its end (True) or the deadline (False)."""
        child_in, child_out = self._process.stdin, self._process.stdout
        assert child_in is not None
        assert child_out is not None
        waiting = memoryview(stdin)
        with selectors.DefaultSelector() as selector:
            selector.register(child_out, selectors.EVENT_READ)
            if waiting:
                os.set_blocking(child_in.fileno(), False)
                selector.register(child_in, selectors.EVENT_WRITE)
            else:
                child_in.close()
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is child_out:
                        chunk = os.read(child_out.fileno(), _CHUNK_BYTES)
                        if not chunk:
                            return True
                        self._output.keep(chunk)
                    else:
                        waiting = waiting[write_some(child_in.fileno(), waiting) :]
                        if not waiting:
                            selector.unregister(child_in)
                            child_in.close()
        return False

    def _reap(self) -> int:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        # Waited for without the lock and reaped under it: see `kill`.
        exited = _wait_for_exit(self._process.pid, REAP_SECONDS)
        with self._lock:
            if exited:
                return self._process.wait()
            kill_first_process(self._process.pid)
            self._process.kill()
        raise SandboxUnavailable("a sandboxed process does not die")


def start(argv: Sequence[str], directory: str, *, stderr: int) -> subprocess.Popen[bytes]:
    """A process of `argv`, started in `directory`. Raises `SandboxUnavailable`."""
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={},
            cwd=directory,
            bufsize=0,
            process_group=0,  # a signal to the server's group is for the server
        )
    except OSError as error:
        raise SandboxUnavailable(f"cannot start {argv[0]}: {error}") from error


def first_process(pid: int) -> psutil.Process | None:
    """The first process in the process table of the command that our child `pid` starts; None if
    there is none yet, or none any more. Between the two is bwrap or a supervisor."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for between in psutil.Process(pid).children():
            # Those of a supervisor that are younger have lost their parents.
            return min(between.children(), key=psutil.Process.create_time, default=None)
    return None


def kill_first_process(pid: int) -> None:
    """Kill the first process of the command that our child `pid` starts, and so everything in it;
    the child then ends by itself."""
    # A child killed before it has told the kernel whose death it dies of would leave others behind.
    deadline = time.monotonic() + _LOOK_FOR_SECONDS
    while _is_running(pid) and time.monotonic() < deadline:
        if first := first_process(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                first.kill()
            return
        time.sleep(_LOOK_SECONDS)


def is_gone(process: int, seconds: float) -> bool:
    """Whether the process with this descriptor ends within `seconds`."""
    with selectors.DefaultSelector() as selector:
        selector.register(process, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def write_some(descriptor: int, data: memoryview) -> int:
    """Write what fits of `data`, and return how much that was: all of it if nobody reads it."""
    try:
        return os.write(descriptor, data[:_CHUNK_BYTES])
    except BrokenPipeError:
        return len(data)


def _is_running(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None


def _wait_for_exit(pid: int, seconds: float) -> bool:
    """Whether the process exits within `seconds`; a child of ours stays to be reaped."""
    handle = os.pidfd_open(pid)
    try:
        return is_gone(handle, seconds)
    finally:
        os.close(handle)
