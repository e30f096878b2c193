"""Sandboxes made ahead, so that an attempt does not wait for one.

- Owns the sandboxes that wait, by their needs, and the one thread that makes and looks after them.
- What is handed out was alive a moment before; nothing of the pool is left once it is closed.
- Needs are learnt from what is opened: the first sandbox of a kind is made on the spot. Only the
  last few kinds are kept, since rows may name images by the thousand.
- The fresh sandboxes of what it handed out are its own too, so that grading waits for none either.
- Making one ahead may fail without harm: the next is then made on the spot, and says why.
"""

import threading
from collections import deque
from collections.abc import Callable

import structlog

from agent_server.sandbox.protocol import (
    OpenSandbox,
    SandboxFactory,
    SandboxMaker,
    SandboxNeeds,
)
from rollyard.errors import RollyardError

_LOOK_SECONDS = 5.0
"""Time between two looks at the sandboxes that wait."""
_WARM_UP_SECONDS = 10.0
_MOST_KINDS = 8
"""Number of needs for which sandboxes wait."""
_CLOSE_SECONDS = 3.0
"""Less than the 5 s that gunicorn gives a worker to end."""

log = structlog.get_logger()


class WarmPool(SandboxFactory):
    """A factory that keeps `size` sandboxes of a maker ready for each of the needs it has met
    last."""

    def __init__(self, maker: SandboxMaker, size: int) -> None:
        self._maker = maker
        self._size = size
        self._changed = threading.Condition()
        self._waiting: dict[SandboxNeeds, deque[OpenSandbox]] = {}
        """The kind that was met last is at the end."""
        self._closed = False
        self._thread = threading.Thread(target=self._keep_full, name="warm-pool", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> int:
        """Number of sandboxes that wait."""
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def open(self, needs: SandboxNeeds) -> OpenSandbox:
        while sandbox := self._take(needs):
            if sandbox.alive:
                return sandbox
            _close(sandbox)
        return self._maker.make(needs, self)

    def close(self) -> None:
        """Close the sandboxes that wait; those that were handed out belong to others."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        for waiting in self._waiting.values():
            while waiting:
                _close(waiting.popleft())

    def _take(self, needs: SandboxNeeds) -> OpenSandbox | None:
        """A sandbox that has waited, if there is one; those of the kind that was met longest ago
        make room."""
        forgotten: deque[OpenSandbox] = deque()
        with self._changed:
            waiting = self._waiting[needs] = self._waiting.pop(needs, deque())
            if len(self._waiting) > _MOST_KINDS:
                forgotten = self._waiting.pop(next(iter(self._waiting)))
            self._changed.notify_all()
            taken = waiting.popleft() if waiting else None
        for sandbox in forgotten:
            _close(sandbox)
        return taken

    def _keep_full(self) -> None:
        """Make what is missing and replace what has died, until the pool is closed."""
        while not self._closed:
            try:
                self._drop_the_dead()
                while (needs := self._missing()) is not None:
                    self._add(needs)
                self._rest(lambda: self._missing() is not None)
            except Exception as error:  # without this thread every sandbox would be started cold
                log.warning("sandbox_not_made_ahead", reason=str(error))
                self._rest(lambda: False)

    def _rest(self, is_over: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or is_over(), _LOOK_SECONDS)

    def _missing(self) -> SandboxNeeds | None:
        """Needs for which too few sandboxes wait, those with the fewest first."""
        with self._changed:
            if self._closed or not self._waiting:
                return None
            needs = min(self._waiting, key=lambda each: len(self._waiting[each]))
            return needs if len(self._waiting[needs]) < self._size else None

    def _add(self, needs: SandboxNeeds) -> None:
        """Make a sandbox whose bash session has begun."""
        sandbox = self._maker.make(needs, self)
        try:
            sandbox.bash(":", deadline_seconds=_WARM_UP_SECONDS)
        except BaseException:
            _close(sandbox)
            raise
        with self._changed:
            if (waiting := self._waiting.get(needs)) is not None:
                waiting.append(sandbox)
                self._changed.notify_all()
                return
        _close(sandbox)  # its kind has made room meanwhile

    def _drop_the_dead(self) -> None:
        dead = []
        with self._changed:
            for needs, waiting in self._waiting.items():
                dead += [sandbox for sandbox in waiting if not sandbox.alive]
                self._waiting[needs] = deque(each for each in waiting if each not in dead)
        for sandbox in dead:
            log.warning("waiting_sandbox_lost")
            _close(sandbox)


def _close(sandbox: OpenSandbox) -> None:
    try:
        sandbox.close()
    except RollyardError as error:
        log.error("sandbox_not_closed", reason=str(error))
