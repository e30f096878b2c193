"""The settings of the NeMo-Gym door."""

import msgspec

from agent_server.prorl.settings import DoorSettings


class NemoGymSettings(msgspec.Struct, frozen=True, kw_only=True):
    door: DoorSettings
    max_turns: int = 30
    """Limit on the Turns of a trajectory."""
    attempts: int = 3
    """How often a Job is tried that the infrastructure fails: a refusal ends a whole collection."""
    llm_seconds: float = 900.0
    """The longest that a Job waits until LLM servers are ready."""
    pause_seconds: float = 1.0
    """Time between attempts, and between looks at the LLM servers."""
