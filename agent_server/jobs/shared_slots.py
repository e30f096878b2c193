"""Slots that two sides share: the orchestrator's Jobs and the calls of a door.

- At most `size` Jobs of both sides together have a Slot, and none is taken from a Job that has it.
- Each side asks for as many Slots as it has Jobs, and a few more, so that the next one finds one.
- The door's part is what it asks for; if that is more than its share, the larger of its share and
  of what the orchestrator does not ask for. The rest is the orchestrator's part.
- A side takes no Slot beyond its part. What began while the part was larger goes on.

So a side whose Jobs wait has its share, as soon as Slots become free; and a side that is alone has
all Slots but the few.
"""

import math
import threading
from collections.abc import Callable

import msgspec

from agent_server.control.stop import StopSignal
from agent_server.jobs.rooms import Rooms
from agent_server.jobs.settings import RunnerSettings
from agent_server.jobs.slots import Crowded, jobs_ahead, withdrawn
from rollyard.errors import Conflict
from rollyard.messages import Lease


class SharedSlots:
    """Owns the Slots of both sides. Safe to share between threads."""

    def __init__(self, settings: RunnerSettings, tell: Callable[[], None]) -> None:
        """`tell` is called, in any thread, when the parts change."""
        self.size = settings.slots
        self.lock = threading.Lock()
        self._tell = tell
        self._share = 0
        self._part = 0
        self.doors = Side(self, math.inf)
        self.orchestrators = Side(self, settings.slots + settings.ahead)
        self.orchestrators.spare = jobs_ahead(self.size)
        self._rooms = settings.rooms()

    def rooms(self, side: "Side | None" = None) -> Rooms:
        """The rooms of a side, else of the orchestrator's; they share all but the Slots."""
        return msgspec.structs.replace(self._rooms, slots=side or self.orchestrators)

    def open(self, share: int) -> None:
        """Give the door a share from now on."""
        self._set_door(share, jobs_ahead(self.size))

    def close(self) -> None:
        """Let the door keep the Slots of the Jobs that it still has, and no more."""
        self._set_door(self._share, 0)

    def part_of(self, side: "Side") -> int:
        return self._part if side is self.doors else self.size - self._part

    def settle(self) -> bool:
        """Give Slots to those that wait, as far as the parts allow. Called under the lock; returns
        whether the parts have changed."""
        before = self._part
        most = max(self._share, self.size - self.orchestrators.asks)
        self._part = min(self.doors.asks, most)
        for side in (self.doors, self.orchestrators):
            # As the parts make up all Slots, a free one is within the part of a side.
            while side.waiting and side.busy < self.part_of(side) and self._busy < self.size:
                side.admit()
        return self._part != before

    def changed(self) -> None:
        """Tell of the new parts. Called without the lock."""
        self._tell()

    @property
    def _busy(self) -> int:
        return self.doors.busy + self.orchestrators.busy

    def _set_door(self, share: int, spare: int) -> None:
        with self.lock:
            self._share, self.doors.spare = share, spare
            changed = self.settle()
        if changed:
            self.changed()


class Side:
    """A `SlotRoom`: what one side has of the Slots."""

    def __init__(self, shared: SharedSlots, most: float) -> None:
        self._shared = shared
        self._most = most
        self._waiting: dict[Lease, threading.Event] = {}
        """Jobs without a Slot in order of arrival."""
        self._working: dict[Lease, threading.Event] = {}
        self.spare = 0
        """Slots that it asks for beyond its Jobs."""

    @property
    def size(self) -> int:
        return self._shared.part_of(self)

    @property
    def busy(self) -> int:
        return len(self._working)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def asks(self) -> int:
        """Number of Slots that it asks for."""
        return self.busy + self.waiting + self.spare

    def enter(self, lease: Lease) -> None:
        """Give the Job a Slot, or let it wait for one; entering twice changes nothing. Raises
        `Conflict` if too many wait."""
        with self._shared.lock:
            if lease in self._waiting or lease in self._working:
                return
            if self.busy + self.waiting >= self._most:
                raise Conflict(f"all {self._shared.size} slots are busy")
            self._waiting[lease] = threading.Event()
            changed = self._shared.settle()
        if changed:
            self._shared.changed()

    def wait(self, lease: Lease, stop: StopSignal, seconds: float) -> None:
        """Return once the Job has a Slot. Raises `Stopped`, or `Crowded` after `seconds` and for
        one that was withdrawn."""
        with self._shared.lock:
            place = self._waiting.get(lease) or self._working.get(lease) or withdrawn()
        with stop.interrupting(place.set):
            in_time = place.wait(seconds)
        stop.check()
        if not in_time:
            raise Crowded(f"none of {self._shared.size} slots became free in {seconds:g} s")

    def waiters(self) -> tuple[Lease, ...]:
        """The Jobs without a Slot, in their order."""
        with self._shared.lock:
            return tuple(self._waiting)

    def withdraw(self, lease: Lease) -> bool:
        """Let the Job wait no more; false if it has a Slot, or never asked for one. Who withdraws
        it wakes it with its stop signal."""
        with self._shared.lock:
            if lease not in self._waiting:
                return False
            del self._waiting[lease]
            changed = self._shared.settle()
        if changed:
            self._shared.changed()
        return True

    def leave(self, lease: Lease) -> None:
        """Give the Job's Slot up; leaving twice changes nothing."""
        with self._shared.lock:
            self._waiting.pop(lease, None)
            self._working.pop(lease, None)
            changed = self._shared.settle()
        if changed:
            self._shared.changed()

    def admit(self) -> None:
        """Give a Slot to the Job that has waited longest. Called under the lock."""
        lease = next(iter(self._waiting))
        place = self._working[lease] = self._waiting.pop(lease)
        place.set()
