"""The state of an agent server, as it reports it."""

from rollyard.messages import Lease, LostSlots, Message


class Status(Message, frozen=True):
    """The attempts and Slots of one agent server."""

    server_id: str
    slots: int
    busy: int
    ahead: int
    """Jobs that wait for a Slot here."""
    parked: int
    """Jobs that stand still."""
    lost: LostSlots
    draining: bool
    stages: dict[str, int]
    leases: tuple[Lease, ...]
    unsafe: str = ""
    """What policies could do to its machine, as a sentence; empty where sandboxes hold them
    back."""
