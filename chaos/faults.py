"""Which fault comes next: seeded, and nothing else.

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
    """Since the fault before it."""
    kind: Kind
    index: int


class ServiceFault(msgspec.Struct, frozen=True):
    at_accepted: int
    kind: Kind
    away_seconds: float
    index: int
    """Which orchestrator."""


def agent_faults(settings: ChaosSettings, kind: Kind, every_seconds: float) -> Iterator[AgentFault]:
    """Without end; every agent server may be hit, also one that is down already."""
    draw = random.Random(f"{kind} {settings.seed}")
    while True:
        jitter = draw.uniform(0.8, 1.2)
        yield AgentFault(every_seconds * jitter, kind, draw.randrange(settings.agent_servers))


def service_faults(settings: ChaosSettings) -> list[ServiceFault]:
    """In the order of the progress at which they come; the last comes before the last tenth."""
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
