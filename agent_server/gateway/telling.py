"""One answer as it is told in events, while it is being sampled.

- Nothing is sent before the first text is certain, so that a refusal has a status of its own. From
  then on the stream has one, and a failure is its last event.
- A client that has heard nothing for a while is told so, whatever the answer waits for.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from agent_server.control.stop import StopReason, StopSignal
from agent_server.gateway.dialects.protocol import EventStream
from agent_server.gateway.exchange import Completion, Piece


class WaitingClient(Protocol):
    """Whoever waits for an answer."""

    @property
    def gone(self) -> StopSignal:
        """Signal that is given when it hangs up."""
        ...

    @property
    def takes_more(self) -> bool:
        """Whether a few bytes more could be sent without waiting for the client."""
        ...

    def send(self, events: bytes) -> None:
        """Send the next events. Raises `OSError`."""
        ...

    def reminded(self, remind: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `remind` now and then inside the block, for it may last."""
        ...


class Telling:
    """A `Hearer`. Safe to use from any thread."""

    def __init__(self, events: EventStream, caller: WaitingClient) -> None:
        self._events = events
        self._caller = caller
        self._lock = threading.Lock()
        self._prompt_tokens: int | None = None
        self._ended = False
        self._quiet = False
        """True if nothing was sent since the last look at it."""
        self._begun = False

    def begin(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens

    def hear(self, choice: int, piece: Piece) -> None:
        with self._lock:
            self._quiet = False
            self._send(self._start() + self._events.tell(choice, piece))

    def keep_alive(self) -> None:
        """Tell a client that has heard nothing since the last call that it is not forgotten."""
        if self._prompt_tokens is None or not self._lock.acquire(blocking=False):
            return
        try:
            # One that reads nothing would keep the others from being reminded.
            if self._quiet and not self._ended and self._caller.takes_more:
                self._send(self._start() + self._events.wait())
            self._quiet = True
        finally:
            self._lock.release()

    def end(self, answer: Completion) -> bytes:
        """The last events of an answer."""
        with self._lock:
            self._ended = True
            return self._start() + self._events.end(answer)

    def withdraw(self) -> bool:
        """Send nothing any more. Returns False if a stream has begun, which needs an end."""
        with self._lock:
            self._ended = True
            return not self._begun

    def fail(self, status: int, message: str, code: str) -> bytes:
        """The last event of a stream that has no other end."""
        return self._events.fail(status, message, code)

    def _start(self) -> bytes:
        if self._begun:
            return b""
        assert self._prompt_tokens is not None
        self._begun = True
        return self._events.begin(self._prompt_tokens)

    def _send(self, events: bytes) -> None:
        if self._caller.gone.reason is not None:
            return
        try:
            self._caller.send(events)
        except OSError:  # what is sampled is recorded all the same
            self._caller.gone.stop(StopReason.CANCELLED)
