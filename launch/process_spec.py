"""What a launcher knows of one process before it starts it."""

import msgspec

START_SECONDS = 60.0
"""Time for a process that loads no model to become ready."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process to start."""

    name: str
    kind: str
    """What it is one of. Those of a kind stand in for one another: nothing works without any."""
    after: tuple[str, ...] = ()
    """Names of the processes that must be ready before it starts. It waits for others itself."""
    level: int = 0
    """Levels are stopped from the highest down, as processes call those of lower levels."""
    command: tuple[str, ...]
    host: str = "127.0.0.1"
    """Address on which it listens."""
    port: int
    tls: bool = False
    ready_path: str
    """Path that answers 200 once the process is ready; if empty, it is ready once it accepts
    connections on `port`."""
    ready_seconds: float
    """Time for it to become ready."""

    @property
    def url(self) -> str:
        http = "https" if self.tls else "http"
        scheme = http if self.ready_path else "redis"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"
