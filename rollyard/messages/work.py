"""Jobs, Leases, and the agent servers that run them."""

from typing import Annotated

from rollyard.messages.base import (
    Accepted,
    Count,
    JobId,
    Message,
    Name,
    Url,
    check,
    check_least,
    check_most,
    check_name,
    check_url,
    described,
)
from rollyard.messages.llm import LLMEndpoint
from rollyard.messages.run import Limits, Prompt, Sampling, Tags, check_tags

MAX_SLOTS = 8192
"""Limit on the Slots of an agent server, all of which are written in one atomic move."""


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
    """A Job and its Lease, as the dispatcher sends them to an agent server."""

    job: Job
    lease: Lease


class Refusal(Message, frozen=True):
    """An Assignment that its server did not take, and the error that says why."""

    lease: Lease
    code: str
    """The kind of error, as in `rollyard.errors`."""
    message: str


class Taken(Message, frozen=True):
    """An agent server's answer to Assignments: it has taken all but these."""

    refused: tuple[Refusal, ...] = ()


class GiveBack(Message, frozen=True):
    """The request to hand back Jobs that wait for a Slot."""

    jobs: Count
    """How many, at the most."""


class GivenBack(Message, frozen=True):
    """The Leases that an agent server has handed back: none of them has begun to run."""

    leases: tuple[Lease, ...] = ()


class AgentServer(Message, frozen=True):
    """An agent server as it registers: where it listens and what it can run."""

    server_id: Name
    url: Url
    slots: Annotated[int, described(minimum=1, maximum=MAX_SLOTS)]
    environments: tuple[str, ...]
    tags: Tags = ()
    """Tags of what its machine has, such as `gpu`, which Jobs may need."""
    ahead: Annotated[int, described(minimum=0, maximum=MAX_SLOTS)] = 0
    """Jobs it takes beyond its Slots while many wait, so that a Slot that falls free has its next
    Job at once."""
    digest: str = ""
    """Digest of its model, see `serving.model_digest`; it works with LLM servers of the same model
    alone."""
    llm_servers: tuple[LLMEndpoint, ...] = ()
    """The LLM servers that its agents ask, as they were when it registered."""
    door: str = ""
    """URL at which it takes calls of ProRL's contract; empty if it takes none."""
    incarnation: str = ""
    """Unique to each start of the process: registering again under the same one changes nothing."""
    secret: str = ""
    """Secret whose holder may take this id over while its process is alive; it is never shown."""

    def __post_init__(self) -> None:
        check_name(self.server_id, "server_id")
        check_url(self.url)
        check_tags(self.tags)
        check_least(self.slots, 1, "slots")
        check_least(self.ahead, 0, "ahead")
        check_most(self.slots + self.ahead, MAX_SLOTS, "slots and jobs ahead")


class Registered(Accepted, frozen=True, omit_defaults=True):
    """The answer to the registration of an agent server."""

    published: Count = 0
    """Weight version that was published last."""


class LostSlots(Message, frozen=True):
    """Slots of an agent server whose attempts ignore their end: no Job can run there until the
    attempt's thread returns, or the server is started again."""

    count: Count = 0
    reason: str = ""
    """One sentence that says what holds them, with the fix."""


class Heartbeat(Message, frozen=True):
    """The regular message of an agent server that is alive and works on these Leases."""

    server_id: str
    leases: tuple[Lease, ...]
    lost: LostSlots = LostSlots()
    lent: Count = 0
    """Slots that callers of a door of the server have: the orchestrator must not offer them."""


class Farewell(Message, frozen=True):
    """The message of an agent server that leaves; its Jobs are requeued."""

    server_id: str


class HeartbeatReply(Message, frozen=True, omit_defaults=True):
    """The answer to a heartbeat. Its Leases that are in neither `stop` nor `parked` should run."""

    known: bool
    """False if the server has to register again."""
    drained: bool = False
    """True if an operator drained the server and nothing runs there any more: it should leave."""
    stop: tuple[Lease, ...] = ()
    """Leases that the server no longer holds: their attempts end."""
    parked: tuple[Lease, ...] = ()
    """Leases of parked Jobs: they stand still where they are and keep all they hold."""
    published: Count = 0
    """Weight version that was published last."""
