"""Settings of a chaos run, in which everything random follows from the seed."""

from pathlib import Path

import msgspec

HOST = "127.0.0.1"


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a cluster."""

    directory: Path
    """Directory of logs, histories and the queues' data."""
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
    """Kills of orchestrators, and as many of Redis, spread over the progress of the run."""
    orchestrator_pauses: int = 2
    lost_reply_share: float = 0.1
    trainer_crash_share: float = 0.2
    """Probability that the trainer dies at each of three points of each Batch."""
    deadline_seconds: float = 600.0
    """Time after which a run counts as stuck."""

    @property
    def pause_seconds(self) -> float:
        """Length of a pause: longer than a Lease, so that whatever was paused wakes up fenced."""
        return 2 * self.lease_seconds
