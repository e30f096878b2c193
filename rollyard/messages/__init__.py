"""What crosses a process boundary: every message, once, frozen and typed."""

from rollyard.messages.base import NAME, Accepted, Message, check, check_name
from rollyard.messages.batch import Batch, BatchRequest, Counters, Group, RunStatus
from rollyard.messages.result import (
    ChatMessage,
    LogprobArray,
    Outcome,
    Result,
    Timings,
    TokenArray,
    Trajectory,
    Turn,
    WeightSpan,
)
from rollyard.messages.run import Criterion, Limits, Prompt, RunSettings, Sampling
from rollyard.messages.status import AgentServerStatus, Occupancy, OccupancyPoint, YardStatus
from rollyard.messages.weights import (
    ScoreRequest,
    Scores,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)
from rollyard.messages.work import (
    AgentServer,
    Assignment,
    Heartbeat,
    HeartbeatReply,
    Job,
    Lease,
    LLMNode,
)

__all__ = [
    "NAME",
    "Accepted",
    "AgentServer",
    "AgentServerStatus",
    "Assignment",
    "Batch",
    "BatchRequest",
    "ChatMessage",
    "Counters",
    "Criterion",
    "Group",
    "Heartbeat",
    "HeartbeatReply",
    "Job",
    "LLMNode",
    "Lease",
    "Limits",
    "LogprobArray",
    "Message",
    "Occupancy",
    "OccupancyPoint",
    "Outcome",
    "Prompt",
    "Result",
    "RunSettings",
    "RunStatus",
    "Sampling",
    "ScoreRequest",
    "Scores",
    "Timings",
    "TokenArray",
    "Trajectory",
    "Turn",
    "WeightReport",
    "WeightSpan",
    "WeightUpdate",
    "WeightVersion",
    "YardStatus",
    "check",
    "check_name",
]
