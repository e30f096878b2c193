"""The directories of one server's sandboxes on the host, and their removal.

- Owns one home directory. It is locked for as long as this process lives, so that the next server
  to start can tell it from the home of a dead one, and removes only the latter.
- A caller never waits for a removal and never sees one fail: one thread removes directories in
  turn, each in a child process with a deadline, for a tree can be deeper than any path may be long.
- A directory that could not be removed is named in the log, counted in `left`, and tried again.
"""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

import structlog

_PREFIX = "rollyard-workspaces-"
_REMOVAL_SECONDS = 60.0
_RETRY_SECONDS = 60.0
_CLOSE_SECONDS = 3.0
"""Less than the 5 s that gunicorn gives a worker to end; the next start removes what is left."""

_REMOVE = 'rm -rf --one-file-system -- "$1" || { chmod -R u+rwX -- "$1"; rm -rf -- "$1"; }'
"""The second try is for directories that their owner has closed to himself."""

log = structlog.get_logger()


class Workspaces:
    """Owns the home directory, its lock, and the thread that removes directories."""

    def __init__(self) -> None:
        self.home, self._lock = _claim()
        self._discarded: SimpleQueue[Path | None] = SimpleQueue()
        self._left: set[Path] = set()
        self._remover = threading.Thread(target=self._remove_all, name="remover", daemon=True)
        self._remover.start()

    @property
    def left(self) -> int:
        """Number of directories that could not be removed so far."""
        return len(self._left)

    def new(self) -> Path:
        """An empty directory that only its owner can enter."""
        return Path(tempfile.mkdtemp(prefix="workspace-", dir=self.home))

    def remove(self, directory: Path) -> None:
        """Remove the directory soon; nothing may run in it any more."""
        self._discarded.put(directory)

    def close(self) -> None:
        """Remove the home and everything in it."""
        self._discarded.put(self.home)
        self._discarded.put(None)
        self._remover.join(_CLOSE_SECONDS)
        os.close(self._lock)

    def _remove_all(self) -> None:
        _remove_abandoned()
        while True:
            try:
                directory = self._discarded.get(timeout=_RETRY_SECONDS if self._left else None)
            except Empty:
                for directory in tuple(self._left):
                    self._remove(directory)
                continue
            if directory is None:
                return
            self._remove(directory)

    def _remove(self, directory: Path) -> None:
        if reason := _why_not_removed(directory):
            self._left.add(directory)
            log.error("workspace_left", directory=str(directory), reason=reason, left=self.left)
        else:
            self._left.discard(directory)


def _claim() -> tuple[Path, int]:
    """A new home and the descriptor that holds its lock."""
    while True:
        home = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _lock(home)
        if lock is not None and home.exists():  # else a server that starts beside us was quicker
            return home, lock


def _remove_abandoned() -> None:
    """Remove the homes that dead servers of this user left behind."""
    for home in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if home.lstat().st_uid != os.geteuid():
                continue
            lock = _lock(home)
            if lock is None:
                continue
            reason = _why_not_removed(home)
            os.close(lock)
            log.info("abandoned_home", directory=str(home), reason=reason or "removed")


def _lock(home: Path) -> int | None:
    """A descriptor that holds the directory's lock, unless another process holds it."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as unless_locked:
        descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        unless_locked.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unless_locked.pop_all()
        return descriptor
    return None


def _why_not_removed(directory: Path) -> str:
    """Remove the directory. Returns the reason if that failed, else an empty string."""
    with contextlib.suppress(OSError):
        directory.rmdir()  # most are empty, and a child process costs milliseconds
        return ""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", _REMOVE, "remove", str(directory)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_REMOVAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not removed within {_REMOVAL_SECONDS:g} s"
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()
