"""Health of the queues and of the store that keeps them."""

from rollyard.messages.base import Message


class Storage(Message, frozen=True):
    """The store of the queues. A field is None where the store does not tell its user."""

    kind: str
    version: str = ""
    state_version: int = 0
    """Form in which Rollyard's state is kept there."""
    at: float = 0.0
    """Unix seconds by the store's clock: the time of all leases."""
    round_trip_seconds: float = 0.0
    """Duration of one call to the store, as the orchestrator measured it."""
    appendonly: str | None = None
    """Redis's setting `appendonly`, `yes` or `no`."""
    appendfsync: str | None = None
    """Redis's setting `appendfsync`: `always`, `everysec` or `no`."""
    eviction: str | None = None
    """Redis's setting `maxmemory-policy`."""
    used_bytes: int | None = None
    """Memory that the store uses."""
    max_bytes: int | None = None
    """Redis's setting `maxmemory`; 0 if it has no limit of its own."""


class Checkup(Message, frozen=True):
    """Findings of the orchestrator about its queues, for `rollyard doctor`."""

    storage: Storage
    stray_leases: tuple[str, ...]
    """Leased Jobs whose agent server is not registered."""
    events_waiting: dict[str, int]
    """Run id -> number of events that the collector has not concluded."""
