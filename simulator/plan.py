"""Settings of a simulation: its Slots, its trainer, and its failures."""

import msgspec

from rollyard.messages import check
from rollyard.messages.base import check_least, check_most
from simulator.chance import uniforms
from simulator.dataset import Try


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Infrastructure failures: attempts that fail, and a server that dies."""

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


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    slots: int
    kinds: int = 1
    """Kinds of Jobs, each with as many rows of the dataset and as many Slots as any other."""
    requested_batch_size: int = 32
    steps: int = 24
    warm_up: int = 8
    """Number of first steps, in which the pipeline fills, that are not reported."""
    train_seconds: float = 0.0
    """Time from a Batch to the weights that it leads to."""
    ahead: int = 1
    """Maximum number of Batches requested and not acknowledged."""
    trouble: Trouble = NO_TROUBLE

    def __post_init__(self) -> None:
        for name in ("slots", "kinds", "requested_batch_size", "steps", "ahead"):
            check_least(getattr(self, name), 1, name)
        check_most(self.kinds, self.slots, "kinds")
        check(
            0 <= self.warm_up < self.steps,
            f"of {self.steps} steps, {self.warm_up} cannot be warm-up",
            fix="simulate more steps, or warm up for fewer",
        )
