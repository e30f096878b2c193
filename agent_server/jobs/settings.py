"""The settings of a job runner."""

import os

import msgspec

from agent_server.jobs.rooms import Rooms
from agent_server.jobs.slots import Room
from rollyard.messages import check


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    slots: int = 16
    ahead: int = 0
    """Jobs taken beyond the Slots, so that they are through INIT when a Slot becomes free."""
    init_at_once: int = 64
    """Maximum number of attempts in INIT: environments that start together slow each other down."""
    eval_at_once: int = 64
    """Maximum number of attempts in EVAL, for the same reason."""
    graded_here_at_once: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)
    """The same for those whose grading computes here. The others wait, without a deadline of EVAL:
    answers that take long would else have their neighbours' fail."""
    init_seconds: float = 60.0
    eval_seconds: float = 60.0
    grace_seconds: float = 15.0
    """Time for a stage to end after its deadline until its environment is killed, and again until
    the attempt is given up."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value, least = getattr(self, name), 0 if name == "ahead" else 1e-9
            check(value >= least, f"{name} must be positive, got {value}")

    def rooms(self) -> Rooms:
        return Rooms(
            slots=Room(self.slots, self.ahead),
            init=Room(self.init_at_once),
            eval=Room(self.eval_at_once),
            graded_here=Room(self.graded_here_at_once),
        )
