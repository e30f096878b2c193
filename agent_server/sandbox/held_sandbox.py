"""One sandbox: what holds it, and the commands that run in it.

- Commands of `run` go on beside each other and beside the bash session, in which one command waits
  for the other.
- Every process is started under the lock, so that `interrupt` and `close` see it or prevent it.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar

import msgspec

from agent_server.sandbox.cgroups import Cgroup
from agent_server.sandbox.command import CANNOT_EXECUTE, why_not_executable
from agent_server.sandbox.files import files_of, read_file, write_file
from agent_server.sandbox.ledger import Entry
from agent_server.sandbox.process import REAP_SECONDS, ChildProcess
from agent_server.sandbox.protocol import (
    Address,
    CommandResult,
    OpenSandbox,
    SandboxFactory,
    SandboxNeeds,
    SandboxUnavailable,
)
from agent_server.sandbox.provider import Provider
from agent_server.sandbox.session import BashSession

P = TypeVar("P", ChildProcess, BashSession)


class SandboxHolder(Protocol):
    """What a sandbox has for as long as it is open."""

    @property
    def alive(self) -> bool: ...

    @property
    def directory(self) -> str:
        """Directory in which commands are started."""
        ...

    def root(self) -> int:
        """A new descriptor of the sandbox's root directory. Raises `OSError` once that is gone."""
        ...

    def filled(self, root: int) -> tuple[int, int]:
        """Number of files in this root that count, and of their bytes."""
        ...


class HeldSandbox(OpenSandbox):
    """Owns the holder, all commands in it, and the fresh sandboxes that were asked for."""

    def __init__(
        self,
        provider: Provider,
        needs: SandboxNeeds,
        entry: Entry,
        holder: SandboxHolder,
        parts: ExitStack,
        siblings: SandboxFactory,
    ) -> None:
        """`parts` ends all that it is made of, `siblings` opens fresh ones."""
        self._provider = provider
        self._siblings = siblings
        self._needs = needs
        self._entry = entry
        self._holder = holder
        self._parts = parts
        self._lock = threading.Lock()
        self._running: set[ChildProcess] = set()
        self._turn = threading.Lock()
        """Lock that the command under way in the bash session holds."""
        self._session: BashSession | None = None
        self._fresh: list[OpenSandbox] = []
        self._why_not = ""
        """The reason why no command may run; empty while one may."""
        self._closed = False
        self._exceeded: dict[ChildProcess | BashSession, str] = {}
        """The total for which each of these was killed, as a sentence."""
        provider.watcher.watch(self)

    @property
    def cgroup(self) -> Cgroup:
        return self._entry.cgroup

    @property
    def alive(self) -> bool:
        with self._lock:
            return not self._closed and self._holder.alive

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        if problem := why_not_executable(argv):
            return CommandResult(exit_code=CANNOT_EXECUTE, output=problem)
        with self._lock:
            child = self._start(argv, ChildProcess)
            self._running.add(child)
        killed = self.cgroup.memory_kills
        try:
            result = child.run(stdin.encode(errors="surrogatepass"), deadline_seconds)
        finally:
            with self._lock:
                self._running.discard(child)
        self._check_holder()
        return self._with_excess(result, child, killed)

    def bash(self, command: str, *, deadline_seconds: float) -> CommandResult:
        if "\0" in command:
            problem = "cannot execute: the command contains a NUL\n"
            return CommandResult(exit_code=CANNOT_EXECUTE, output=problem)
        with self._turn:
            session, anew = self._begin_session()
            killed = self.cgroup.memory_kills
            result = session.run(command.encode(errors="surrogatepass"), deadline_seconds)
            if result.restarted:
                self._session = None
        self._check_holder()
        result = self._with_excess(result, session, killed)
        return msgspec.structs.replace(result, restarted=True) if anew else result

    def write(self, path: str, content: bytes) -> None:
        with self._root() as root:
            write_file(root, path, content)

    def read(self, path: str, *, most_bytes: int) -> bytes:
        with self._root() as root:
            return read_file(root, path, most_bytes)

    def fresh(self) -> OpenSandbox:
        with self._lock:
            self._check()
        fresh = self._siblings.open(self._needs)
        with self._lock:
            self._fresh.append(fresh)
            closed, interrupted = self._closed, bool(self._why_not)
        if closed:
            fresh.close()
        elif interrupted:
            fresh.interrupt()
        return fresh

    @contextmanager
    def leading_to(self, server: Address) -> Iterator[Address]:
        with ExitStack() as way:
            with self._lock:
                self._check()
                leading = self._provider.leading_to(self._holder.directory, server)
                inside = way.enter_context(leading)
            yield inside

    def interrupt(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._why_not = "the time for commands is over"
            for child in self._running:
                child.kill()
            if self._session is not None:
                self._session.kill()
            fresh = tuple(self._fresh)
        for sandbox in fresh:
            sandbox.interrupt()

    def readmit(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._why_not = ""
            fresh = tuple(self._fresh)
        for sandbox in fresh:
            sandbox.readmit()

    def close(self) -> None:
        self._provider.watcher.forget(self)
        with self._lock:
            if self._closed:
                return
            self._closed, self._why_not = True, "the sandbox is closed"
            fresh = tuple(self._fresh)
            self._parts.close()
        # What ran is dead: the session's command, if there was one, is about to return.
        if self._turn.acquire(timeout=REAP_SECONDS):
            self._end_session()
            self._turn.release()
        for sandbox in fresh:
            sandbox.close()

    @property
    def busy(self) -> bool:
        with self._lock:
            return bool(self._running) or self._turn.locked()

    def processes(self) -> list[int]:
        with self._lock:
            return [each.pid for each in self._started()]

    def filled(self) -> tuple[int, int]:
        with contextlib.suppress(SandboxUnavailable), self._root() as root:
            return self._holder.filled(root)
        return 0, 0

    def overrun(self, reason: str) -> None:
        with self._lock:
            for each in self._started():
                self._exceeded[each] = reason
                each.kill()

    def _started(self) -> list[ChildProcess | BashSession]:
        """What runs; the lock is held."""
        session = () if self._session is None else (self._session,)
        return [*self._running, *session]

    def _with_excess(
        self, result: CommandResult, of: ChildProcess | BashSession, killed: int
    ) -> CommandResult:
        """The result, with the total that was exceeded. Before the command, the kernel had killed
        so many processes for memory."""
        with self._lock:
            reason = self._exceeded.pop(of, "")
        if not reason and self.cgroup.memory_kills > killed:
            reason = self._provider.totals.too_much_memory
        if not reason:
            return result
        output = f"{result.output}\n[killed: {reason}]\n"
        return msgspec.structs.replace(result, output=output, exceeded=reason)

    def _start(self, argv: Sequence[str], kind: type[P]) -> P:
        """Start a process of this kind in the sandbox; the lock is held."""
        self._check()
        output_bytes = self._provider.limits.output_bytes
        argv = self._provider.entering(argv, self._entry, self._needs)
        return kind(argv, self._holder.directory, output_bytes=output_bytes)

    def _begin_session(self) -> tuple[BashSession, bool]:
        """The bash session, and whether it had to be begun anew; the turn is held."""
        lost = self._session if self._session is not None and not self._session.alive else None
        if lost is not None:
            self._end_session()
        with self._lock:
            self._check()
            if self._session is not None:
                return self._session, False
            session = self._session = self._start(self._provider.bash, BashSession)
            if lost is not None and (reason := self._exceeded.pop(lost, "")):
                self._exceeded[session] = reason  # what it left in the background went too far
        try:
            session.await_start()
        except SandboxUnavailable:
            self._session = None
            raise
        return session, lost is not None

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.end()

    def _check(self) -> None:
        """Raise `SandboxUnavailable` if no command may run."""
        if self._why_not:
            raise SandboxUnavailable(self._why_not)

    def _check_holder(self) -> None:
        """Raise `SandboxUnavailable` if a command has ended because the sandbox did, unasked."""
        with self._lock:
            if not self._why_not and not self._holder.alive:
                raise SandboxUnavailable("the sandbox has ended")

    @contextmanager
    def _root(self) -> Iterator[int]:
        """Yield a descriptor of the root directory; meanwhile this thread has the rights of the
        sandbox's user."""
        with self._lock:
            if self._closed:
                raise SandboxUnavailable(self._why_not)
            try:
                root = self._holder.root()
            except OSError as error:
                raise SandboxUnavailable("the sandbox has ended") from error
        try:
            with files_of(self._provider.owner):
                yield root
        finally:
            os.close(root)
