"""What an agent server tells about itself."""

from rollyard.messages import Lease, LostSlots, Message


class Status(Message, frozen=True):
    """What an agent server is doing now."""

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
