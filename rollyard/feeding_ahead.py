"""Feeding in the background: a thread of a Run that feeds Prompts while the trainer trains.

- Either the caller's thread or this one feeds, never both: `paused` hands over.
- It ends once there is nothing to do, and with its process.
- Its error is raised where the caller next takes over; that the orchestrator is away is none, since
  it may be back by then.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rollyard.errors import Unavailable

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""Time until it is tried again, after an orchestrator was away for as long as a call waits."""
STOP_SECONDS = 5.0
"""Time that `stop` waits for a dataloader or an answer, before it abandons the thread."""


class FeedingAhead:
    def __init__(self, name: str, feed: Callable[[], bool]) -> None:
        """`feed` is called repeatedly until it returns False, which means that nothing is left to
        do."""
        self._name = name
        self._feed = feed
        self._changed = threading.Condition()
        self._alive = False
        self._feeding = False
        self._asked = False
        """True if `go_on` was called since the thread last checked."""
        self._paused = False
        self._stopped = False
        self._error: Exception | None = None

    def go_on(self) -> None:
        """Feed, from now on, until there is nothing to do; starts the thread if needed."""
        with self._changed:
            self._asked = True
            if not (self._alive or self._stopped):
                self._alive = True
                threading.Thread(target=self._work, name=self._name, daemon=True).start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block in which the caller feeds instead. Raises the thread's error, if it had one."""
        with self._changed:
            self._paused = True
            self._changed.wait_for(lambda: not self._feeding)
            error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            yield
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Stop for good; later errors are discarded."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._alive, STOP_SECONDS)
            self._error = None

    def _work(self) -> None:
        more = True
        while self._begin(more):
            try:
                more = self._feed()
            except Unavailable as error:
                more = True
                log.info("fed again in %.0f s: %s", AGAIN_SECONDS, error)
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._paused, AGAIN_SECONDS)
            except Exception as error:  # a dataloader may raise anything
                more = False
                with self._changed:
                    self._error, self._asked = error, False
            with self._changed:
                self._feeding = False
                self._changed.notify_all()

    def _begin(self, more: bool) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._paused)
            self._alive = self._feeding = not self._stopped and (more or self._asked)
            self._asked = False
            self._changed.notify_all()
            return self._alive
