"""What the queues say of their own health."""

from rollyard.messages.base import Message


class Storage(Message, frozen=True):
    """The store of the queues. None: the store does not tell its user."""

    kind: str
    version: str = ""
    state_version: int = 0
    """Form in which Rollyard's state is kept there."""
    at: float = 0.0
    """Unix seconds by the store's clock: the time of all leases."""
    round_trip_seconds: float = 0.0
    appendonly: str | None = None
    appendfsync: str | None = None
    eviction: str | None = None
    used_bytes: int | None = None
    max_bytes: int | None = None
    """0: no limit of its own."""


class Checkup(Message, frozen=True):
    storage: Storage
    stray_leases: tuple[str, ...]
    """Leased Jobs whose agent server is not registered."""
    events_waiting: dict[str, int]
    """Run id -> events that its collector has not concluded."""
