"""The number of tasks that wait or run, and how many there may be."""

import threading

from rollyard.errors import Unavailable


class TaskCount:
    """Safe to share between threads."""

    def __init__(self, most_tasks: int) -> None:
        self._most_tasks = most_tasks
        self._lock = threading.Lock()
        self._tasks = 0

    @property
    def tasks(self) -> int:
        with self._lock:
            return self._tasks

    def enter(self, tasks: int) -> None:
        """Count tasks in, all or none. Raises `Unavailable` if they are too many."""
        with self._lock:
            if self._tasks + tasks > self._most_tasks:
                raise Unavailable(
                    f"{self._tasks} tasks wait already, and the reward service takes "
                    f"{self._most_tasks}",
                    fix="ask again later, or let it have more workers",
                )
            self._tasks += tasks

    def leave(self, tasks: int = 1) -> None:
        with self._lock:
            self._tasks -= tasks
