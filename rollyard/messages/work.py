"""What runs where: Jobs, Leases, and the servers that work on them."""

from typing import Annotated

from rollyard.messages.base import (
    Count,
    JobId,
    Message,
    Name,
    Url,
    check,
    check_most,
    check_name,
    check_url,
    described,
)
from rollyard.messages.run import Limits, Prompt, Sampling

MAX_SLOTS = 8192
"""Every Slot of a server is written in one atomic move."""


class Job(Message, frozen=True):
    """One trajectory to produce: one member of one Group."""

    job_id: str
    run_id: str
    group_id: str
    member: Count
    prompt: Prompt
    sampling: Sampling
    limits: Limits


class Lease(Message, frozen=True):
    """The right to run a Job once on a Slot. `attempt` rises with every lease of the Job."""

    job_id: JobId
    attempt: Count
    server_id: str
    slot: str

    def __post_init__(self) -> None:
        check(self.job_id[:1] not in ("", "/"), f"job_id {self.job_id!r} names no run")


class Assignment(Message, frozen=True):
    """What the dispatcher sends to an agent server."""

    job: Job
    lease: Lease


class Refusal(Message, frozen=True):
    """An Assignment that its server did not take, and the error that says why."""

    lease: Lease
    code: str
    message: str


class Taken(Message, frozen=True):
    """An agent server's answer to Assignments: it has taken all but these."""

    refused: tuple[Refusal, ...] = ()


class AgentServer(Message, frozen=True):
    """An agent server as it registers: where it listens and what it can run."""

    server_id: Name
    url: Url
    slots: Annotated[int, described(minimum=1, maximum=MAX_SLOTS)]
    environments: tuple[str, ...]
    ahead: Annotated[int, described(minimum=0, maximum=MAX_SLOTS)] = 0
    """Jobs it takes beyond its Slots while many wait, so that a free Slot has one at once."""
    digest: str = ""
    """Of its model, see `serving.model_digest`; it works with LLM servers of the same one alone."""
    incarnation: str = ""
    """New with every start of the process: registering again under the same one changes nothing."""
    secret: str = ""
    """Who knows it may take this id over while its process is alive; nobody is told."""

    def __post_init__(self) -> None:
        check_name(self.server_id, "server_id")
        check_url(self.url)
        check(self.slots >= 1, f"slots must be positive, got {self.slots}")
        check(self.ahead >= 0, f"ahead must not be negative, got {self.ahead}")
        check_most(self.slots + self.ahead, MAX_SLOTS, "slots and jobs ahead")


class LostSlots(Message, frozen=True):
    """Slots of an agent server whose attempts ignore their end: no Job can run there until the
    server is started again."""

    count: Count = 0
    reason: str = ""
    """In one sentence, with the fix."""


class Heartbeat(Message, frozen=True):
    """An agent server is alive and works on these leases."""

    server_id: str
    leases: tuple[Lease, ...]
    lost: LostSlots = LostSlots()


class Farewell(Message, frozen=True):
    """An agent server goes; what it held is queued again."""

    server_id: str


class HeartbeatReply(Message, frozen=True):
    """What becomes of the heartbeat's Leases: those in neither `stop` nor `parked` should run.
    `known` false: register again. `drained`: nothing runs and nothing more will come; leave."""

    known: bool
    drained: bool = False
    stop: tuple[Lease, ...] = ()
    """No longer held by the server."""
    parked: tuple[Lease, ...] = ()
    """To stand still at their turn boundary, and to keep what they hold."""
