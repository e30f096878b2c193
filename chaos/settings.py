"""How a chaos run is set up; everything random in it follows from the seed."""

from pathlib import Path

import msgspec

HOST = "127.0.0.1"


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster is made of, whoever uses it."""

    directory: Path
    """Logs, histories and the queues' data."""
    orchestrators: int = 1
    agent_servers: int = 0
    slots: int = 8
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 2.0


class ChaosSettings(ClusterSettings, frozen=True, kw_only=True):
    seed: int
    jobs: int
    orchestrators: int = 2
    agent_servers: int = 8
    lease_seconds: float = 2.0
    heartbeat_seconds: float = 0.5
    agent_kill_every_seconds: float = 1.0
    agent_away_seconds: float = 1.0
    agent_pause_every_seconds: float = 9.0
    service_kills: int = 6
    """Of the orchestrators, and of Redis, spread over the run by its progress."""
    orchestrator_pauses: int = 2
    lost_reply_share: float = 0.1
    trainer_crash_share: float = 0.2
    """At each of three points of each Batch."""
    deadline_seconds: float = 600.0
    """A run that takes longer is stuck."""

    @property
    def pause_seconds(self) -> float:
        """Longer than a Lease, so that what stood still wakes up fenced."""
        return 2 * self.lease_seconds
