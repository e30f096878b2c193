"""What people look at."""

from rollyard.messages.base import Message
from rollyard.messages.batch import RunStatus
from rollyard.messages.work import LLMNode


class OccupancyPoint(Message, frozen=True):
    """How many Slots of each agent server ran a Job from `at` (unix seconds) on."""

    at: float
    busy: dict[str, int]


class Occupancy(Message, frozen=True):
    """Slot occupancy over time, oldest first; `slots` is each server's number of Slots."""

    slots: dict[str, int]
    points: tuple[OccupancyPoint, ...]


class AgentServerStatus(Message, frozen=True):
    server_id: str
    url: str
    slots: int
    busy_slots: int
    environments: tuple[str, ...]


class YardStatus(Message, frozen=True):
    """Everything an operator sees at a glance."""

    runs: tuple[RunStatus, ...]
    servers: tuple[AgentServerStatus, ...]
    llm_nodes: tuple[LLMNode, ...]
