"""What goes wrong in a simulation, by infrastructure: attempts that fail, a server that dies."""

import msgspec

from simulator.chance import uniforms
from simulator.dataset import Try


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    seed: int = 0
    failing_share: float = 0.0
    """Of all attempts; each fails somewhere on its way."""
    dies_after_seconds: float | None = None
    """When one server is lost for good."""
    servers: int = 8
    """Among which the Slots are shared."""
    detection_seconds: float = 30.0
    """Until the queues notice, and give its Jobs to others."""

    def fails_after(self, wanted: Try, attempts: int) -> float | None:
        """The share of its way after which the attempt fails, if it does."""
        if not self.failing_share:
            return None
        failing, share = uniforms(self.seed, "trouble", *wanted, attempts)
        return share if failing < self.failing_share else None


NO_TROUBLE = Trouble()
