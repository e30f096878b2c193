"""Signs of life for clients whose answers take long: they may wait for a Job that is parked."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 10.0
"""Time between two signs. Clients wait for minutes at least."""


class Reminder:
    """Owns the thread that gives them."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._signs: list[Callable[[], None]] = []
        self._closed = threading.Event()
        threading.Thread(target=self._keep, name="keep-alive", daemon=True).start()

    @contextmanager
    def giving(self, sign: Callable[[], None]) -> Iterator[None]:
        """Give this sign again and again inside the block. It must not block."""
        with self._lock:
            self._signs.append(sign)
        try:
            yield
        finally:
            with self._lock:
                self._signs.remove(sign)

    def close(self) -> None:
        self._closed.set()

    def _keep(self) -> None:
        while not self._closed.wait(self._seconds):
            with self._lock:
                signs = tuple(self._signs)
            for sign in signs:
                sign()
