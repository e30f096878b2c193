"""What all sandboxes of one server share, whoever makes them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from agent_server.sandbox.cgroups import Cgroups, find_cgroups
from agent_server.sandbox.command import NOBODY
from agent_server.sandbox.ledger import Entry, SandboxLedger
from agent_server.sandbox.protocol import (
    Address,
    OpenSandbox,
    SandboxFactory,
    SandboxMaker,
    SandboxNeeds,
    SandboxUnavailable,
)
from agent_server.sandbox.session import BASH
from agent_server.sandbox.settings import SandboxSettings
from agent_server.sandbox.watcher import Watcher


class Provider(SandboxMaker, ABC):
    """A maker of sandboxes; owns their ledger and the watch over their totals."""

    unsafe = ""
    """What the policy's commands could do to this machine, as a sentence; empty where sandboxes
    hold them back."""
    bash: Sequence[str] = BASH
    """Command line of the bash session."""

    def __init__(self, settings: SandboxSettings) -> None:
        """Raises `SandboxUnavailable`."""
        self.limits = settings.limits
        self.totals = settings.totals
        self._settings = settings
        self._drops_root = os.geteuid() == 0
        self.owner = NOBODY if self._drops_root else os.geteuid()
        """User to whom sandboxes and their files belong."""
        self._cgroups = self._find_cgroups()
        self.ledger = SandboxLedger(self.totals, self._cgroups)
        self.watcher = Watcher(self.totals, counts_processes=self._cgroups is None)
        # Passable, not listable: the unprivileged user must reach its workspace and only that.
        self.ledger.home.chmod(0o711)

    @abstractmethod
    def open(self, needs: SandboxNeeds) -> OpenSandbox:
        """Raises `InvalidMessage` for needs that it does not meet, and `SandboxUnavailable`."""

    @abstractmethod
    def make(self, needs: SandboxNeeds, siblings: SandboxFactory) -> OpenSandbox:
        """Raises like `open`."""

    @abstractmethod
    def entering(self, argv: Sequence[str], entry: Entry, needs: SandboxNeeds) -> list[str]:
        """The command line that runs `argv` in the sandbox with this entry, for its holder's
        directory."""

    @abstractmethod
    def leading_to(self, directory: str, server: Address) -> AbstractContextManager[Address]:
        """See `OpenSandbox.leading_to`, of the sandbox whose holder has this directory."""

    def close(self) -> None:
        """Remove what sandboxes left; they must be closed before."""
        self.watcher.close()
        self.ledger.close()

    def _find_cgroups(self) -> Cgroups | None:
        """The control groups to use, if there are any. An operator who names some wants them."""
        named = self._settings.cgroup
        try:
            found = find_cgroups(named)
        except SandboxUnavailable as error:
            if named is not None:
                raise
            self.totals_held_by = f"a watcher ({error.message})"
            return None
        self.totals_held_by = f"control groups below {found.directories[0]}"
        return found
