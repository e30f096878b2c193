"""Sandboxes made by bubblewrap, without a daemon and without privileges.

- A sandbox is one resident `bwrap` process, its holder; a command is another one, started in the
  holder's namespaces. Everything in them dies with the holder, and the holder dies with us.
- Its files are in memory and in its own mounts: they end with it too, and no other sandbox has to
  carry its mounts along.
- All that it is on this machine stands in the ledger first.
- There is no fallback: a machine without user namespaces raises `SandboxUnavailable` at the start.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from agent_server.sandbox.bubblewrap_sandbox import BubblewrapSandbox
from agent_server.sandbox.cgroups import Cgroup, Cgroups, find_cgroups
from agent_server.sandbox.command import (
    HOLD,
    NOBODY,
    as_nobody,
    confined,
    entered,
    grouped,
    held,
    own_files,
)
from agent_server.sandbox.containers import (
    CONTAINERS,
    Container,
    make_skeleton,
    why_not_here,
    with_home,
)
from agent_server.sandbox.holder import Holder, described, named
from agent_server.sandbox.ledger import Entry, SandboxLedger
from agent_server.sandbox.listener import listen_inside
from agent_server.sandbox.package import Package
from agent_server.sandbox.protocol import SandboxNeeds, SandboxUnavailable
from agent_server.sandbox.proxy import PROXY_PORT, Proxy
from agent_server.sandbox.seccomp import filter_program
from agent_server.sandbox.settings import BUBBLEWRAP, SandboxSettings
from agent_server.sandbox.syscalls import UNCOUNTED
from agent_server.sandbox.watcher import Watcher

_PROBE_SECONDS = 10.0


class Bubblewrap:
    """Opens sandboxes; owns their ledger and the watch over their totals."""

    def __init__(self, settings: SandboxSettings) -> None:
        """Raises `SandboxUnavailable`."""
        self.limits = settings.limits
        self.totals = settings.totals
        self._settings = settings
        self._drops_root = os.geteuid() == 0
        self.owner = NOBODY if self._drops_root else os.geteuid()
        """User to whom sandboxes and their files belong."""
        cgroups = self._find_cgroups(settings.cgroup)
        self._refused = UNCOUNTED if cgroups is None else ()
        self.ledger = SandboxLedger(self.totals, cgroups)
        self.watcher = Watcher(self.totals, counts_processes=cgroups is None)
        # Passable, not listable: the unprivileged user must reach its workspace and only that.
        self.ledger.home.chmod(0o711)
        self._package = Package(self.ledger.home / "package")
        self._filter = self.ledger.home / "seccomp"
        self._skeleton = self.ledger.home / "skeleton"
        try:
            self._install()
            self._probe()
        except BaseException:
            self.close()
            raise

    def open(self, needs: SandboxNeeds) -> BubblewrapSandbox:
        """Raises `InvalidMessage` for needs that it does not meet, and `SandboxUnavailable`."""
        self._settings.check(needs)
        with ExitStack() as parts:
            entry = self.ledger.enter()
            parts.callback(self.ledger.strike, entry)
            holder = self._hold(entry, needs)
            parts.callback(holder.close)
            if needs.network:
                listener = listen_inside(holder.directory, PROXY_PORT, privileged=self._drops_root)
                parts.callback(Proxy(listener, needs.network).close)
            return BubblewrapSandbox(self, needs, entry, holder, parts.pop_all())

    def close(self) -> None:
        """Remove what sandboxes left; they must be closed before."""
        self.watcher.close()
        self.ledger.close()

    def entering(self, argv: Sequence[str], cgroup: Cgroup, needs: SandboxNeeds) -> list[str]:
        """The command line that runs `argv` in a sandbox, for its holder's directory."""
        confinement = confined(argv, self.limits, proxied=bool(needs.network))
        command = self._unprivileged([*entered(self._package.bwrap_inside), *confinement])
        return grouped(command, cgroup.directories, self._filter)

    def _hold(self, entry: Entry, needs: SandboxNeeds) -> Holder:
        name, groups = str(entry.directory), entry.cgroup.directories
        if self._settings.provider == BUBBLEWRAP:
            own = own_files(self._package.directory, self.limits, self.totals)
            options = held(name, self._settings.sources.options(needs, own))

            def command(information: int) -> list[str]:
                bwrap = [self._package.bwrap, "--info-fd", str(information), *options]
                return grouped(self._unprivileged(bwrap), groups, None)

            return Holder(command, described)
        made = CONTAINERS[self._settings.provider](self._container(name, needs))
        first = made[made.index(HOLD) - 2 :]
        return Holder(lambda _: grouped(with_home(made), groups, None), lambda _: named(first))

    def _container(self, name: str, needs: SandboxNeeds) -> Container:
        return Container(
            name=name,
            image=self._settings.sources.image(needs),
            skeleton=self._skeleton,
            shown=self._settings.sources.tools(needs),
            package=self._package.directory,
            tmp_bytes=self.limits.tmp_bytes,
            workspace_bytes=self.totals.disk_bytes,
        )

    def _find_cgroups(self, named: Path | None) -> Cgroups | None:
        """The control groups to use, if there are any. An operator who names some wants them."""
        try:
            found = find_cgroups(named)
        except SandboxUnavailable as error:
            if named is not None:
                raise
            self.totals_held_by = f"a watcher ({error.message})"
            return None
        self.totals_held_by = f"control groups below {found.directories[0]}"
        return found

    def _unprivileged(self, command: list[str]) -> list[str]:
        return as_nobody(command) if self._drops_root else command

    def _install(self) -> None:
        """Make what all sandboxes share."""
        if self._settings.provider != BUBBLEWRAP:
            if problem := why_not_here(self._settings.provider):
                raise SandboxUnavailable(problem, fix="install it, or choose --sandbox bubblewrap")
            make_skeleton(self._skeleton)
        self._package.install()
        self._filter.write_bytes(filter_program(also=self._refused))

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
                f"{self._settings.provider} cannot make a sandbox here: {output or 'no output'}",
                fix="allow unprivileged user namespaces (sysctl user.max_user_namespaces and, "
                "where it exists, kernel.unprivileged_userns_clone); for root, the directory in "
                "TMPDIR must be passable for other users",
            )
