"""Child processes that are given input, read up to a cap, killed at a deadline, and always reaped.

`run` returns only when every holder of the output pipe is gone, so that nothing of the child is
left behind when the child is a sandbox that dies with its first process.
"""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

import psutil

from agent_server.sandbox.protocol import CommandResult, SandboxUnavailable

TRUNCATED = "\n[output truncated]"

_CHUNK_BYTES = 1 << 16
_REAP_SECONDS = 5.0
_STOP_SECONDS = 1.0
_LOOK_SECONDS = 0.0005
_FIRST_PROCESS = re.compile(rb'"child-pid": ([0-9]+)')


class ChildProcess:
    """A started command. `kill` may come from any thread."""

    def __init__(self, command: Callable[[int], Sequence[str]], *, output_bytes: int) -> None:
        """Start what `command` returns for the descriptor on which bwrap is to describe its first
        process."""
        self._output_bytes = output_bytes
        self._lock = threading.Lock()
        self._kept = bytearray()
        self._truncated = False
        self._information, told_on = os.pipe()
        argv = command(told_on)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                bufsize=0,
                pass_fds=(told_on,),
            )
        except OSError as error:
            os.close(self._information)
            raise SandboxUnavailable(f"cannot start {argv[0]}: {error}") from error
        finally:
            os.close(told_on)

    def run(self, stdin: bytes, deadline_seconds: float) -> CommandResult:
        """Feed and read the process until its end or the deadline."""
        timed_out = not self._exchange(stdin, time.monotonic() + deadline_seconds)
        if timed_out:
            self.kill()
            self._exchange(b"", time.monotonic() + _REAP_SECONDS)
        code = self._reap()
        self._await_the_first_process()
        return CommandResult(
            exit_code=code if code >= 0 else 128 - code,
            output=self._kept.decode(errors="replace") + (TRUNCATED if self._truncated else ""),
            timed_out=timed_out,
            truncated=self._truncated,
        )

    def kill(self) -> None:
        """Kill the process unless it was reaped: its number may belong to another by then."""
        with self._lock:
            if self._process.returncode is None:
                _kill_with_children(self._process.pid)

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
                        self._keep(chunk)
                    else:
                        waiting = waiting[_write(child_in.fileno(), waiting) :]
                        if not waiting:
                            selector.unregister(child_in)
                            child_in.close()
        return False

    def _keep(self, chunk: bytes) -> None:
        """Keep what fits; the rest is read and dropped, so that the child does not block on it."""
        room = self._output_bytes - len(self._kept)
        self._kept += chunk[: max(0, room)]
        self._truncated = self._truncated or len(chunk) > room

    def _reap(self) -> int:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        deadline = time.monotonic() + _REAP_SECONDS
        while True:
            # Waited for without the lock and reaped under it: see `kill`.
            exited = _wait_for_exit(self._process.pid, deadline)
            with self._lock:
                if exited:
                    return self._process.wait()
                _kill_with_children(self._process.pid)
            if time.monotonic() > deadline + _REAP_SECONDS:
                raise SandboxUnavailable("a sandboxed process does not die")

    def _await_the_first_process(self) -> None:
        """Wait for the end of the sandbox's process 1, and so of everything in the sandbox: bwrap
        itself may end a moment earlier."""
        with os.fdopen(self._information, "rb", buffering=0) as pipe:
            os.set_blocking(pipe.fileno(), False)
            told = _FIRST_PROCESS.search(pipe.read(4096) or b"")
        if told is None:
            return  # it was killed before there was one
        with contextlib.suppress(ProcessLookupError):
            if not _wait_for_exit(int(told[1]), time.monotonic() + _REAP_SECONDS):
                raise SandboxUnavailable("a sandbox does not end")


def is_gone(process: int, seconds: float) -> bool:
    """Whether the process with this descriptor ends within `seconds`."""
    with selectors.DefaultSelector() as selector:
        selector.register(process, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _wait_for_exit(pid: int, deadline: float) -> bool:
    """Whether the process exits by the deadline; a child of ours stays to be reaped."""
    handle = os.pidfd_open(pid)
    try:
        return is_gone(handle, max(0.1, deadline - time.monotonic()))
    finally:
        os.close(handle)


def _kill_with_children(pid: int) -> None:
    """Kill `pid` and its children, while it is stopped and cannot make more of them."""
    # bwrap's child dies with bwrap only once it has asked the kernel for that, which is too late
    # for a kill that comes directly after the start.
    os.kill(pid, signal.SIGSTOP)
    _await_stop(pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    os.kill(pid, signal.SIGKILL)


def _await_stop(pid: int) -> None:
    """Wait until the process has stopped or ended, at most `_STOP_SECONDS`: the kernel may hold it
    up."""
    deadline = time.monotonic() + _STOP_SECONDS
    options = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    while os.waitid(os.P_PID, pid, options) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _write(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data[:_CHUNK_BYTES])
    except BrokenPipeError:  # the command does not read its input
        return len(data)
