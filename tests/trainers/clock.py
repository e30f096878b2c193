"""A clock on which a minute takes no time."""

import threading


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class WaitsOn(threading.Event):
    """An event that nobody sets: a wait for it moves the clock on, in the thread that made it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._thread = threading.get_ident()

    def wait(self, timeout: float | None = None) -> bool:
        if threading.get_ident() == self._thread and not self.is_set():
            self._clock.now += timeout or 0.0
            return False
        return super().wait(timeout)
