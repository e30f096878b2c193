"""Sandboxes that hold nothing back, for machines that can make no others, and for debugging.

- Commands run on this machine itself: its files, its network and its processes are theirs. As root
  an agent server runs them as an unprivileged user; any other runs them as its own.
- What holds is the protocol: each sandbox has a workspace and a /tmp of its own, and nothing in it
  outlives its command, its sandbox or the server, as long as it does not set out to.
- There is no /workspace on this machine. Where a command names it or /tmp, the directory of the
  sandbox is put in its place; files that a command writes are left as they are.
"""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import structlog

from agent_server.sandbox.command import STUB, grouped, limited
from agent_server.sandbox.held_sandbox import HeldSandbox
from agent_server.sandbox.ledger import Entry
from agent_server.sandbox.protocol import (
    WORKSPACE,
    Address,
    CommandResult,
    SandboxFactory,
    SandboxNeeds,
    SandboxUnavailable,
)
from agent_server.sandbox.provider import Provider
from agent_server.sandbox.removal import why_not_dead
from agent_server.sandbox.session import SOURCED, bash_that_sources
from agent_server.sandbox.settings import SandboxSettings

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_SUPERVISED = '"$@"; exit $?'
"""Keeps a process between this server and the supervisor, as `process.first_process` expects."""
_OWN = (WORKSPACE, "/tmp")  # noqa: S108 - replaced by a directory of the sandbox

log = structlog.get_logger()


class UnsafeLocal(Provider):
    unsafe = "what policies write runs on this machine without isolation (--sandbox unsafe-local)"

    def __init__(self, settings: SandboxSettings) -> None:
        """Raises `SandboxUnavailable`."""
        super().__init__(settings)
        stub = self.ledger.home / STUB
        stub.write_text(SOURCED)
        stub.chmod(0o644)
        self.bash = bash_that_sources(str(stub))
        log.warning("sandboxes_unsafe", reason=self.unsafe)

    def open(self, needs: SandboxNeeds) -> "LocalSandbox":
        return self.make(needs, self)

    def make(self, needs: SandboxNeeds, siblings: SandboxFactory) -> "LocalSandbox":
        self._settings.check(needs)
        with ExitStack() as parts:
            entry = self.ledger.enter()
            parts.callback(self.ledger.strike, entry)
            directories = _Directories(entry.directory, self.owner)
            parts.callback(directories.close)
            return LocalSandbox(self, needs, entry, directories, parts.pop_all(), siblings)

    def entering(self, argv: Sequence[str], entry: Entry, needs: SandboxNeeds) -> list[str]:
        command = limited(argv, self.limits, "hard")  # others of this user have processes as well
        supervisor = [sys.executable, "-I", "-S", str(_SUPERVISOR)]
        supervised = [*supervisor, str(os.getpid()), str(self.owner), str(entry.directory)]
        waiting = ["/bin/sh", "-c", _SUPERVISED, "supervised", *supervised, *command]
        return grouped(waiting, entry.cgroup.directories, None)

    def leading_to(self, directory: str, server: Address) -> AbstractContextManager[Address]:
        return nullcontext(server)  # commands reach whatever this machine does


class LocalSandbox(HeldSandbox):
    """A sandbox whose commands are told where its files are."""

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        words = [self._placed(word) for word in argv]
        return super().run(words, stdin=stdin, deadline_seconds=deadline_seconds)

    def bash(self, command: str, *, deadline_seconds: float) -> CommandResult:
        return super().bash(self._placed(command), deadline_seconds=deadline_seconds)

    def close(self) -> None:
        self.interrupt()  # there is no process with which all others end
        super().close()

    def _placed(self, text: str) -> str:
        """The text with the sandbox's own directories in the place of those that it names."""
        # A path that a command has printed is whole, and leads through this machine's /tmp.
        own = str(self._entry.directory)
        names = "|".join(map(re.escape, _OWN))
        pattern = rf"(?<![\w./~-])(?!{re.escape(own)})(?:{names})(?![\w.-])"
        return re.sub(pattern, lambda found: own + found[0], text)


class _Directories:
    """The directories of a sandbox, in which nothing runs once they are closed."""

    def __init__(self, directory: Path, owner: int) -> None:
        self._directory = directory
        try:
            for name in _OWN:
                own = directory / name.removeprefix("/")
                own.mkdir(mode=0o755)
                os.chown(own, owner, -1)
            directory.chmod(0o555)
        except OSError as error:
            raise SandboxUnavailable(f"cannot make a sandbox: {error}") from error
        self.alive = True

    @property
    def directory(self) -> str:
        return str(self._directory)

    def root(self) -> int:
        return os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def filled(self, root: int) -> tuple[int, int]:
        return 0, 0  # on a disk that others fill as well

    def close(self) -> None:
        self.alive = False
        if reason := why_not_dead(self._directory):
            raise SandboxUnavailable(f"a sandbox does not end: {reason}")
