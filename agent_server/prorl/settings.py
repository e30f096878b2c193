"""The settings of the ProRL door."""

import msgspec

from agent_server.jobs.runner import RunnerSettings
from agent_server.prorl.calls import RUN_ID
from rollyard.tokens import NO_TOKENS, Tokens
from serving.bind import Bind
from serving.lanes import MAX_CALLS

_SPARE_THREADS = 24
"""Threads that refuse calls while all others wait for answers."""


class DoorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the ProRL door, and where it listens."""

    bind: Bind
    tokens: Tokens = NO_TOKENS
    """Tokens of its callers."""
    runner: RunnerSettings
    """All Slots, and the limits of stages: those of the agent server itself."""
    share: int
    """Slots that the door may always have, if it has calls for them."""
    job_seconds: float = 300.0
    """Limit of a Job in all stages together. No wait counts."""
    waiting_seconds: float = 3600.0
    """The longest that a call waits for a Slot."""
    stop_seconds: float = 10.0
    """The longest that `/stop` waits for Jobs to end."""
    most_calls: int = MAX_CALLS - _SPARE_THREADS
    """Limit on the calls that are not answered."""
    run_id: str = RUN_ID
    """The Run of its Jobs."""
