"""The simulated task queue and server-availability queue: for each kind of Job a list of those that
wait, and one of the free Slots that can run them.

- A kind has Slots of its own.
- The Jobs of a kind go to its Slots in their order.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from orchestrator.demand import jobs_that_count


class SimulatedTasks:
    def __init__(self, slots: Sequence[int], kind_of: Callable[[str], int]) -> None:
        """`slots` has the kind of each Slot, and `kind_of` names that of a Job."""
        self._slots = slots
        self._kind_of = kind_of
        self._jobs: dict[int, deque[str]] = {}
        """Kind that was ever fed -> its queued Jobs."""
        self._free = [deque[int]() for _ in range(max(slots) + 1)]
        for slot, kind in enumerate(slots):
            self._free[kind].append(slot)

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def __iter__(self) -> Iterator[str]:
        for jobs in self._jobs.values():
            yield from jobs

    @property
    def free(self) -> int:
        """Number of free Slots."""
        return sum(map(len, self._free))

    def that_count(self, look_ahead: int) -> int:
        """Number of Jobs that count against the Prompts wanted."""
        queued = {str(kind): len(jobs) for kind, jobs in self._jobs.items()}
        free = {str(kind): len(slots) for kind, slots in enumerate(self._free)}
        return jobs_that_count(len(self), queued, free, look_ahead, len(self._slots))

    def queue_last(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self._jobs.setdefault(self._kind_of(job), deque()).append(job)

    def queue_first(self, jobs: Sequence[str]) -> None:
        for job in reversed(jobs):
            self._jobs.setdefault(self._kind_of(job), deque()).appendleft(job)

    def take_pairs(self) -> Iterator[tuple[str, int]]:
        """The next Jobs, each with the Slot that it gets, as long as there are both."""
        for kind, jobs in self._jobs.items():
            while jobs and self._free[kind]:
                yield jobs.popleft(), self._free[kind].popleft()

    def drop(self, dropped: set[str]) -> None:
        for kind, jobs in self._jobs.items():
            if any(job in dropped for job in jobs):
                self._jobs[kind] = deque(job for job in jobs if job not in dropped)

    def free_slot(self, slot: int) -> None:
        self._free[self._slots[slot]].append(slot)

    def lose(self, slots: range) -> None:
        """Remove Slots for good."""
        self._free = [deque(slot for slot in free if slot not in slots) for free in self._free]
