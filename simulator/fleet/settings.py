"""Settings of a simulated fleet: its nodes, the pace of its LLM servers, and what agents do.

The defaults are those of docs/sizing.md, which says where each comes from.
"""

import math

import msgspec

from orchestrator.placement import FleetNode, Placement, place
from rollyard.messages import check
from rollyard.messages.base import check_least


class SimulatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, with an agent server on it."""

    name: str
    gpus: int = 0
    cpus: int
    slots: int = 64
    """Slots of its agent server."""
    speed: float = 1.0
    """Speed of its CPUs: half of it, and all that they do takes twice as long."""

    def __post_init__(self) -> None:
        check_least(self.cpus, 1, f"cpus of {self.name}")
        check_least(self.slots, 1, f"slots of {self.name}")
        check(self.speed > 0, f"speed of {self.name} must be positive, got {self.speed}")


class LLMPace(msgspec.Struct, frozen=True, kw_only=True):
    """Pace of one LLM server that samples for several trajectories at once."""

    step_seconds: float = 0.010
    """Time of a step, which gives each trajectory a token: to read the weights, and overhead."""
    trajectory_seconds: float = 0.001
    """What each trajectory adds to a step: its prefix is read from the cache."""
    prompt_tokens_in_one: float = 200.0
    """Prompt tokens that take as long to compute as one token to sample."""

    def tokens_per_second(self, trajectories: int) -> float:
        """Pace of each of so many trajectories."""
        return 1 / (self.step_seconds + self.trajectory_seconds * trajectories)


class AgentWork(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent does in one Turn, and how many Turns a trajectory of the dataset has."""

    longest_seconds: float = 1620.0
    """Length of the dataset's longest trajectories, which have `max_turns`. Shorter ones have fewer
    Turns."""
    max_turns: int = 30
    cpu_seconds: float = 59.0
    """CPU time of a Turn's tools, with its share in the environment's start and in the grading."""
    cpus: float = 1.0
    """CPUs that a tool can use at once."""
    response_tokens: int = 200
    observation_tokens: int = 600
    prompt_tokens: int = 6000
    """Tokens of the first prompt, which the members of a Group have in common."""

    def turns(self, seconds: float) -> int:
        """Number of Turns of a trajectory of this length."""
        return max(1, math.ceil(seconds / self.turn_seconds))

    @property
    def turn_seconds(self) -> float:
        """Length of a whole Turn in the dataset."""
        return self.longest_seconds / self.max_turns


class SimulatedFleet(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[SimulatedNode, ...]
    tensor_parallel: int = 1
    pace: LLMPace = LLMPace()
    work: AgentWork = AgentWork()
    lost_llm_servers: dict[str, float] = {}
    """LLM servers that are lost for good -> when, in seconds."""

    @property
    def slots(self) -> int:
        return sum(node.slots for node in self.nodes)

    def placement(self) -> Placement:
        """The servers on its nodes. Raises `LaunchError`."""
        nodes = [FleetNode(name=node.name, gpus=node.gpus) for node in self.nodes]
        return place(nodes, tensor_parallel=self.tensor_parallel)

    def node_of_slots(self) -> list[SimulatedNode]:
        """The node of each Slot. They are on offer one of each node at a time, as when all agent
        servers register at once."""
        most = max(node.slots for node in self.nodes)
        return [node for turn in range(most) for node in self.nodes if turn < node.slots]
