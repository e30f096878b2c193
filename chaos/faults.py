"""The faults of a run, which follow from its seed alone.

Agent servers are hit by the clock; the orchestrator and Redis by the run's progress, so that a run
of any speed has them all.
"""

import random
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from chaos.settings import ChaosSettings


class Kind(StrEnum):
    KILL_AGENT = "kill_agent"
    PAUSE_AGENT = "pause_agent"
    KILL_ORCHESTRATOR = "kill_orchestrator"
    PAUSE_ORCHESTRATOR = "pause_orchestrator"
    KILL_REDIS = "kill_redis"


class AgentFault(msgspec.Struct, frozen=True):
    after_seconds: float
    """Time since the fault before it."""
    kind: Kind
    index: int


class ServiceFault(msgspec.Struct, frozen=True):
    at_accepted: int
    kind: Kind
    away_seconds: float
    index: int
    """Index of the orchestrator that it is for."""


def agent_faults(settings: ChaosSettings, kind: Kind, every_seconds: float) -> Iterator[AgentFault]:
    """Faults without end. Each may hit any agent server, also one that is down already."""
    draw = random.Random(f"{kind} {settings.seed}")
    while True:
        jitter = draw.uniform(0.8, 1.2)
        yield AgentFault(every_seconds * jitter, kind, draw.randrange(settings.agent_servers))


def service_faults(settings: ChaosSettings) -> list[ServiceFault]:
    """All faults of services, in the order of the progress at which they come. None comes in the
    last tenth of the run."""
    draw = random.Random(f"services {settings.seed}")
    kinds = [
        *[Kind.KILL_ORCHESTRATOR] * settings.service_kills,
        *[Kind.KILL_REDIS] * settings.service_kills,
        *[Kind.PAUSE_ORCHESTRATOR] * settings.orchestrator_pauses,
    ]
    draw.shuffle(kinds)
    step = 0.9 * settings.jobs / len(kinds)
    return [
        ServiceFault(
            int(step * (place + draw.random())),
            kind,
            draw.uniform(0.1, 1.0),
            draw.randrange(settings.orchestrators),
        )
        for place, kind in enumerate(kinds)
    ]
