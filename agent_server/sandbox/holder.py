"""The resident process of a sandbox, which holds its file system, its network and its processes.

- Everything that runs in the sandbox is in its process table or in one below it: when it ends, the
  kernel kills all of it, also what is only just being started.
- It ends with this server, however that ends, because its standard input does.
"""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

import psutil

from agent_server.sandbox.process import REAP_SECONDS, is_gone
from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.watcher import filled

OWN_FILES = ("workspace", "tmp", "dev/shm")
"""File systems that every sandbox has of its own."""

_START_SECONDS = 10.0
_FIRST_PROCESS = re.compile(rb'"child-pid": ([0-9]+)')


class Holder:
    """Owns the process, and descriptors of it and of its directory in /proc."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        find: Callable[[bytes], int | None],
        writable: Sequence[str] = OWN_FILES,
    ) -> None:
        """Start what `command` returns for a descriptor on which the sandbox may be described.
        `find` gives the first process of the sandbox by what was said there; `writable` are the
        file systems in memory that it may write to. Raises `SandboxUnavailable`."""
        self._find = find
        self._writable = writable
        self._descriptors = contextlib.ExitStack()
        self._handle: int | None = None
        self._proc = -1
        information, told_on = os.pipe()
        try:
            argv = command(told_on)
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                bufsize=0,
                process_group=0,  # a signal to the server's group is for the server
                pass_fds=(told_on,),
            )
        except OSError as error:
            os.close(information)
            raise SandboxUnavailable(f"cannot start a sandbox: {error}") from error
        finally:
            os.close(told_on)
        try:
            self._await_start(information)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(information)

    @property
    def alive(self) -> bool:
        return self._handle is not None and not is_gone(self._handle, 0)

    @property
    def directory(self) -> str:
        """A path to the process's directory in /proc, which never leads to another process."""
        return f"/proc/self/fd/{self._proc}"

    def root(self) -> int:
        """A new descriptor of the sandbox's root directory. Raises `OSError` once that is gone."""
        return os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)

    def filled(self, root: int) -> tuple[int, int]:
        return filled(root, self._writable)

    def kill(self) -> None:
        """Kill everything in the sandbox, without waiting."""
        if self._handle is None:
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def close(self) -> None:
        """Kill everything in the sandbox, and wait until it is gone. Called once."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise SandboxUnavailable("a sandbox does not end") from error
        finally:
            self._handle = None
            self._descriptors.close()

    def _await_start(self, information: int) -> None:
        """Wait until the sandbox is made. Raises `SandboxUnavailable` with what was said
        instead."""
        output = self._process.stdout
        assert output is not None
        deadline, said, description = time.monotonic() + _START_SECONDS, b"\n", b""
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            # An empty line says that it is made; programs may warn before it.
            while not said.endswith(b"\n\n") and (left := deadline - time.monotonic()) > 0:
                if selector.select(left):
                    if not (chunk := os.read(output.fileno(), 4096)):
                        break
                    said += chunk
        # Said before the line on standard output, or never.
        os.set_blocking(information, False)
        with contextlib.suppress(BlockingIOError):
            description = os.read(information, 4096)
        if not said.endswith(b"\n\n") or (first := self._find(description)) is None:
            problem = said.decode(errors="replace").strip() or "no answer"
            raise SandboxUnavailable(f"a sandbox could not be made: {problem}")
        try:
            self._handle = self._keep(os.pidfd_open(first))
            self._proc = self._keep(os.open(f"/proc/{first}", os.O_PATH | os.O_DIRECTORY))
        except OSError as error:
            raise SandboxUnavailable(f"a sandbox ended at its start: {error}") from error
        output.close()  # a server may hold a thousand sandboxes, and each descriptor counts

    def _keep(self, descriptor: int) -> int:
        self._descriptors.callback(os.close, descriptor)
        return descriptor


def described(description: bytes) -> int | None:
    """The first process of a sandbox that bwrap has described."""
    told = _FIRST_PROCESS.search(description)
    return int(told[1]) if told else None


def named(argv: Sequence[str]) -> int | None:
    """The process with this command line, which is in no other."""
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == list(argv):
            return int(process.pid)
    return None
