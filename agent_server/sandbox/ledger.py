"""The ledger of one server's sandboxes, on disk, so that a server that is killed leaves nothing for
good.

- Owns one home directory, locked for as long as this process lives: so its caretaker and the next
  server tell it from the home of a dead one, and reap only the latter.
- A sandbox is entered before anything of it exists. The entry is its directory; its control group
  has the same name, and its processes name it in their command lines: what bears the name belongs
  to it.
- A caller never waits for a removal and never sees one fail: one thread removes what was struck
  off, in turn. What could not be removed is named in the log, counted in `left`, and tried again.
"""

import os
import tempfile
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec
import structlog

from agent_server.sandbox.caretaker import Caretaker
from agent_server.sandbox.cgroups import Cgroup, Cgroups
from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.removal import claim, reap_the_dead, record_cgroups, why_not_removed
from agent_server.sandbox.totals import SandboxTotals

_RETRY_SECONDS = 60.0
_CLOSE_SECONDS = 3.0
"""Less than the 5 s that gunicorn gives a worker to end; the next start reaps what is left."""

log = structlog.get_logger()


class Entry(msgspec.Struct, frozen=True):
    """What one sandbox has outside of itself."""

    directory: Path
    cgroup: Cgroup


class SandboxLedger:
    """Owns the home directory with its lock and caretaker, the control groups below one of its
    name, and the thread that removes."""

    def __init__(self, totals: SandboxTotals, cgroups: Cgroups | None) -> None:
        self._totals = totals
        self.home, self._lock = claim()
        self._cgroups = self._begin(cgroups)
        self._caretaker = Caretaker(self.home)
        self._struck: SimpleQueue[Entry | None] = SimpleQueue()
        self._left: dict[Path, Entry] = {}
        self._remover = threading.Thread(target=self._remove_all, name="remover", daemon=True)
        self._remover.start()

    @property
    def left(self) -> int:
        """Number of sandboxes of which something could not be removed so far."""
        return len(self._left)

    def enter(self) -> Entry:
        """A new sandbox's directory, which only its owner can enter, and its control group. Raises
        `SandboxUnavailable`."""
        try:
            directory = Path(tempfile.mkdtemp(prefix="sandbox-", dir=self.home))
            group = self._cgroups.make(directory.name, self._totals) if self._cgroups else Cgroup()
        except OSError as error:
            raise SandboxUnavailable(f"cannot enter a sandbox: {error}") from error
        return Entry(directory, group)

    def strike(self, entry: Entry) -> None:
        """Remove what the sandbox has, soon; nothing may run in it any more."""
        self._struck.put(entry)

    def close(self) -> None:
        """Remove the home and everything in it."""
        self._struck.put(
            Entry(self.home, Cgroup(self._cgroups.directories if self._cgroups else ()))
        )
        self._struck.put(None)
        self._remover.join(_CLOSE_SECONDS)
        if not self.home.exists():  # else the caretaker has something to do, once we have ended
            self._caretaker.dismiss()
        os.close(self._lock)

    def _begin(self, cgroups: Cgroups | None) -> Cgroups | None:
        if cgroups is None:
            return None
        record_cgroups(self.home, cgroups)
        try:
            return cgroups.below(self.home.name)
        except OSError as error:
            raise SandboxUnavailable(f"cannot make a control group: {error}") from error

    def _remove_all(self) -> None:
        reap_the_dead()
        while True:
            try:
                entry = self._struck.get(timeout=_RETRY_SECONDS if self._left else None)
            except Empty:
                for entry in tuple(self._left.values()):
                    self._remove(entry)
                continue
            if entry is None:
                return
            self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        try:
            reason = entry.cgroup.remove() or why_not_removed(entry.directory)
        except Exception as error:  # without this thread nothing would be removed
            reason = str(error) or type(error).__name__
        if reason:
            self._left[entry.directory] = entry
            log.error("sandbox_left", directory=str(entry.directory), reason=reason, left=self.left)
        else:
            self._left.pop(entry.directory, None)
