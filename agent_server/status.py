"""The state of an agent server, as it reports it."""

from rollyard.messages import Lease, LLMEndpoint, LostSlots, Message


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
    llm_servers: tuple[LLMEndpoint, ...] = ()
    """The LLM servers that have answered, and how they are asked."""
    unsafe: str = ""
    """What policies could do to its machine, as a sentence; empty where sandboxes hold them
    back."""
