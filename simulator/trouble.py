"""Infrastructure failures in a simulation: attempts that fail, and a server that dies."""

import msgspec

from simulator.chance import uniforms
from simulator.dataset import Try


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    seed: int = 0
    failing_share: float = 0.0
    """Share of attempts that fail, at a uniformly distributed point of their length."""
    dies_after_seconds: float | None = None
    """Time at which one server is lost for good; None for never."""
    servers: int = 8
    """Number of servers, which have equal shares of the Slots."""
    detection_seconds: float = 30.0
    """Time until the queues notice the loss, and requeue the server's Jobs."""

    def fails_after(self, wanted: Try, attempts: int) -> float | None:
        """Fraction of its length after which the attempt fails; None if it does not fail."""
        if not self.failing_share:
            return None
        failing, share = uniforms(self.seed, "trouble", *wanted, attempts)
        return share if failing < self.failing_share else None


NO_TROUBLE = Trouble()
