"""What people look at."""

from enum import StrEnum

from rollyard.messages.base import Message
from rollyard.messages.batch import RunStatus
from rollyard.messages.weights import LLMNode
from rollyard.messages.work import LostSlots


class OccupancyPoint(Message, frozen=True):
    """How many Slots of each agent server ran a Job from `at` (unix seconds) on."""

    at: float
    busy: dict[str, int]


class Occupancy(Message, frozen=True):
    """Slot occupancy over time, oldest first; `slots` is each server's number of Slots."""

    slots: dict[str, int]
    points: tuple[OccupancyPoint, ...]


class ServerState(StrEnum):
    """Which of an agent server's Slots stand on the server-availability queue."""

    SERVING = "serving"
    """All that are free."""
    QUARANTINED = "quarantined"
    """None: too many attempts failed there in a row."""
    PROBATION = "probation"
    """One, to find out whether the server works again."""
    DRAINING = "draining"
    """None: an operator wants it to go."""


class Explanation(Message, frozen=True):
    """Why something is as it is, in one sentence."""

    id: str
    reason: str


class ServerCondition(Message, frozen=True):
    """How an agent server does, beyond what it registered."""

    state: ServerState = ServerState.SERVING
    seen_seconds_ago: float = 0.0
    """Since its last heartbeat."""
    failing_jobs: tuple[str, ...] = ()
    """Different Jobs that failed there since its last success."""
    unreached: int = 0
    """Deliveries in a row that did not reach it, though its heartbeats may arrive."""
    lost: LostSlots = LostSlots()
    """They run nothing, and are offered to no Job."""
    jobs_ahead: int = 0
    """Jobs beyond its Slots, which wait there for a free one."""
    let_back_in_seconds: float = 0.0
    """Of a quarantined server."""
    reclaims: int = 0
    """Slots that became free after their attempt was stopped."""
    reclaim_seconds: float = 0.0
    """From the decision to stop until the Slot was free, all of them together."""
    worst_reclaim_seconds: float = 0.0


class AgentServerStatus(Message, frozen=True):
    server_id: str
    url: str
    slots: int
    busy_slots: int
    environments: tuple[str, ...]
    digest: str = ""
    """Of its model; empty where it did not tell."""
    condition: ServerCondition = ServerCondition()


class FleetStatus(Message, frozen=True):
    """Everything an operator sees at a glance."""

    runs: tuple[RunStatus, ...]
    servers: tuple[AgentServerStatus, ...]
    llm_nodes: tuple[LLMNode, ...]


class ServerList(Message, frozen=True):
    servers: tuple[AgentServerStatus, ...]
