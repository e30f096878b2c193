"""Sandboxes made by bubblewrap, without a daemon and without privileges.

- A sandbox is one resident `bwrap` process, its holder; a command is another one, started in the
  holder's namespaces. Everything in them dies with the holder, and the holder dies with us.
- Its files are in memory and in its own mounts: they end with it too, and no other sandbox has to
  carry its mounts along.
- All that it is on this machine stands in the ledger first.
- There is no fallback: a machine without user namespaces raises `SandboxUnavailable` at the start.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from agent_server.sandbox.command import (
    HOLD,
    IMAGE_PATH,
    NOBODY,
    PATH,
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
from agent_server.sandbox.held_sandbox import HeldSandbox
from agent_server.sandbox.holder import OWN_FILES, Holder, described, named
from agent_server.sandbox.ledger import Entry
from agent_server.sandbox.listener import listen_inside
from agent_server.sandbox.package import Package
from agent_server.sandbox.protocol import (
    Address,
    SandboxFactory,
    SandboxNeeds,
    SandboxUnavailable,
)
from agent_server.sandbox.provider import Provider
from agent_server.sandbox.proxy import PROXY_PORT, Proxy
from agent_server.sandbox.relay import Relay
from agent_server.sandbox.seccomp import filter_program
from agent_server.sandbox.settings import BUBBLEWRAP, SandboxSettings
from agent_server.sandbox.syscalls import UNCOUNTED

_PROBE_SECONDS = 10.0
_CONNECT_SECONDS = 10.0


class Bubblewrap(Provider):
    """Opens sandboxes; has bwrap, the filter of system calls and what else all of them share."""

    def __init__(self, settings: SandboxSettings) -> None:
        """Raises `SandboxUnavailable`."""
        super().__init__(settings)
        self._package = Package(self.ledger.home / "package")
        self._filter = self.ledger.home / "seccomp"
        self._skeleton = self.ledger.home / "skeleton"
        try:
            self._install()
            self._probe()
        except BaseException:
            self.close()
            raise

    def open(self, needs: SandboxNeeds) -> HeldSandbox:
        return self.make(needs, self)

    def make(self, needs: SandboxNeeds, siblings: SandboxFactory) -> HeldSandbox:
        self._settings.check(needs)
        with ExitStack() as parts:
            entry = self.ledger.enter()
            parts.callback(self.ledger.strike, entry)
            holder = self._hold(entry, needs)
            parts.callback(holder.close)
            if needs.network:
                listener = listen_inside(holder.directory, PROXY_PORT, privileged=self._drops_root)
                parts.callback(Proxy(listener, needs.network).close)
            return HeldSandbox(self, needs, entry, holder, parts.pop_all(), siblings)

    def entering(self, argv: Sequence[str], entry: Entry, needs: SandboxNeeds) -> list[str]:
        path = ":".join((*needs.path, IMAGE_PATH if needs.image else PATH))
        confinement = confined(argv, self.limits, path=path, proxied=bool(needs.network))
        command = self._unprivileged([*entered(self._package.bwrap_inside), *confinement])
        return grouped(command, entry.cgroup.directories, self._filter)

    @contextmanager
    def leading_to(self, directory: str, server: Address) -> Iterator[Address]:
        listener = listen_inside(directory, 0, privileged=self._drops_root)
        host, port = listener.getsockname()
        with closing(Relay(listener, lambda _: socket.create_connection(server, _CONNECT_SECONDS))):
            yield host, port

    def _hold(self, entry: Entry, needs: SandboxNeeds) -> Holder:
        name, groups = str(entry.directory), entry.cgroup.directories
        if self._settings.provider == BUBBLEWRAP:
            own = own_files(self._package.directory, self.limits, self.totals)
            options = held(name, self._settings.sources.options(needs, own))

            def command(information: int) -> list[str]:
                bwrap = [self._package.bwrap, "--info-fd", str(information), *options]
                return grouped(self._unprivileged(bwrap), groups, None)

            return Holder(command, described, (".", *OWN_FILES))
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

    def _unprivileged(self, command: list[str]) -> list[str]:
        return as_nobody(command) if self._drops_root else command

    def _install(self) -> None:
        """Make what all sandboxes share."""
        if self._settings.provider != BUBBLEWRAP:
            if problem := why_not_here(self._settings.provider):
                raise SandboxUnavailable(problem, fix="install it, or choose --sandbox bubblewrap")
            make_skeleton(self._skeleton)
        self._package.install()
        also = UNCOUNTED if self._cgroups is None else ()
        self._filter.write_bytes(filter_program(also=also))

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
