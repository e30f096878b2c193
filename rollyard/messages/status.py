"""Status of agent servers and of their Slots, for operators."""

from enum import StrEnum

from rollyard.messages.base import Message
from rollyard.messages.batch import RunStatus
from rollyard.messages.llm import LLMEndpoint
from rollyard.messages.weights import LLMNode
from rollyard.messages.work import LostSlots


class OccupancyPoint(Message, frozen=True):
    """Number of busy Slots of each agent server from `at` (unix seconds) to the next point."""

    at: float
    busy: dict[str, int]


class Occupancy(Message, frozen=True):
    """Busy Slots of every agent server over time."""

    slots: dict[str, int]
    """Agent server id -> its number of Slots."""
    points: tuple[OccupancyPoint, ...]
    """Points in time, oldest first."""


class ServerState(StrEnum):
    """Standing of an agent server, which decides how many of its free Slots are offered on the
    server-availability queue."""

    SERVING = "serving"
    """All free Slots are offered."""
    QUARANTINED = "quarantined"
    """No Slot is offered: too many attempts failed there in a row."""
    PROBATION = "probation"
    """One Slot is offered, to find out whether the server works again."""
    DRAINING = "draining"
    """No Slot is offered: an operator asked the server to finish its Jobs and leave."""


class Explanation(Message, frozen=True):
    """The reason why something waits."""

    id: str
    """Name of the Run, Batch, Group, Job or server that was asked about."""
    reason: str
    """One sentence."""


class ServerCondition(Message, frozen=True):
    """Health of an agent server, as the orchestrator sees it."""

    state: ServerState = ServerState.SERVING
    seen_seconds_ago: float = 0.0
    """Seconds since its last heartbeat."""
    failing_jobs: tuple[str, ...] = ()
    """Distinct Jobs that failed there since its last success."""
    unreached: int = 0
    """Deliveries in a row that did not reach it, though its heartbeats may arrive."""
    lost: LostSlots = LostSlots()
    """Slots that are offered to no Job, since their attempts ignore their end."""
    lent: int = 0
    """Slots that are offered to no Job, since callers of a door of the server have them."""
    jobs_ahead: int = 0
    """Jobs sent to it beyond its Slots, which wait there for a free one."""
    let_back_in_seconds: float = 0.0
    """Seconds until a quarantined server is on probation; 0 for any other."""
    reclaims: int = 0
    """Number of Slots that became free after their attempt was stopped."""
    reclaim_seconds: float = 0.0
    """Sum over `reclaims` of the time from the decision to stop until the Slot was free."""
    worst_reclaim_seconds: float = 0.0
    """The longest of these times."""


class AgentServerStatus(Message, frozen=True):
    """Registration, load and health of an agent server."""

    server_id: str
    url: str
    slots: int
    busy_slots: int
    environments: tuple[str, ...]
    """Environments that it can run, by their `data_source`."""
    tags: tuple[str, ...] = ()
    """Tags of what its machine has."""
    digest: str = ""
    """Digest of its model; empty if it told none."""
    llm_servers: tuple[LLMEndpoint, ...] = ()
    """The LLM servers that its agents ask, as they were when it registered."""
    door: str = ""
    """URL at which it takes calls of ProRL's contract; empty if it takes none."""
    condition: ServerCondition = ServerCondition()

    @property
    def working_slots(self) -> int:
        """Number of its Slots that are for Jobs of the orchestrator."""
        return self.slots - self.condition.lost.count - self.condition.lent


class FleetStatus(Message, frozen=True):
    """Status of all Runs, agent servers and LLM nodes."""

    runs: tuple[RunStatus, ...]
    servers: tuple[AgentServerStatus, ...]
    llm_nodes: tuple[LLMNode, ...]
    llm_silence: dict[str, float] = {}
    """LLM node -> seconds since its last heartbeat."""


class ServerList(Message, frozen=True):
    """All registered agent servers."""

    servers: tuple[AgentServerStatus, ...]
