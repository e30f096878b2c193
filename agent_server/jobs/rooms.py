"""The rooms of a job runner. Runners that share a machine may share them."""

from typing import Protocol

import msgspec

from agent_server.control.stop import StopSignal
from agent_server.jobs.slots import Room
from rollyard.messages import Lease


class SlotRoom(Protocol):
    """The Slots of a job runner, as a `Room` has them."""

    @property
    def size(self) -> int: ...
    @property
    def busy(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    def enter(self, lease: Lease) -> None: ...
    def wait(self, lease: Lease, stop: StopSignal, seconds: float) -> None: ...
    def waiters(self) -> tuple[Lease, ...]: ...
    def withdraw(self, lease: Lease) -> bool: ...
    def leave(self, lease: Lease) -> None: ...


class Rooms(msgspec.Struct, frozen=True):
    """The Slots, and the places for the other stages."""

    slots: SlotRoom
    init: Room[Lease]
    eval: Room[Lease]
    graded_here: Room[Lease]
