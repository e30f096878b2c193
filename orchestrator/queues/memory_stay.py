"""How long an attempt has been on its Slot, in the in-memory queues: `times` of a leased Job."""

import msgspec


class Stay(msgspec.Struct, kw_only=True):
    leased_at: float
    weight_version: int
    """That was served then."""
    stood: float = 0.0
    """Seconds parked, before it is or was the last time."""
    parked_since: float | None = None

    def seconds(self, at: float) -> float:
        """On the Slot, without those parked."""
        until = at if self.parked_since is None else self.parked_since
        return max(0.0, until - self.leased_at - self.stood)

    def go_on(self, at: float) -> None:
        if self.parked_since is not None:
            self.stood += at - self.parked_since
            self.parked_since = None
