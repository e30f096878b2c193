"""What is said of a deployment's services alike, on one machine and on all nodes of a fleet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from launch.deployment_tls import DeploymentTLS
from launch.engine import Engine
from launch.llm_processes import CALLERS_LEVEL, LOOPBACK
from launch.process_spec import ProcessSpec
from launch.processes import module_command
from rollyard.errors import LaunchError
from serving.log_format import LogFormat

RETENTION_HOURS = 168.0


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that do not depend on where services run."""

    model: Path
    engine: Engine = Engine()
    slots: int = 16
    """Slots of each agent server."""
    stop_tokens: tuple[str, ...] = ()
    """Texts of tokens that end a response, in addition to those that the model's files name."""
    tool_calls: str = ""
    """Name of the format in which the model writes tool calls; empty to go by its chat template."""
    tags: tuple[str, ...] = ()
    """Names of what the machines have and environments and rows may need."""
    repositories: Path | None = None
    """Directory of the repositories that environments work on."""
    images: Path | None = None
    """Directory of the images of sandboxes."""
    reward_url: str = ""
    """URL of a service that grades answers; empty to let agent servers grade."""
    reward_token_file: Path | None = None
    """Token file of that service."""
    log_format: LogFormat = LogFormat.TEXT
    """Format of every service's log."""
    tls: DeploymentTLS | None = None
    """The certificate of all services; None if they speak HTTP without TLS."""
    retention_hours: float = RETENTION_HOURS
    """Hours for which closed Runs stay in Redis."""

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise LaunchError(f"an agent server needs at least 1 slot, got {self.slots}")

    def fields(self) -> dict[str, Any]:
        """These settings by name, for settings that have more."""
        return {name: getattr(self, name) for name in ServiceSettings.__struct_fields__}


class AgentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where one agent server runs, and whom it asks."""

    name: str
    """Name of the process."""
    server_id: str
    identity_file: Path
    host: str = LOOPBACK
    port: int
    orchestrator_url: str
    token_file: Path
    options: tuple[str, ...]
    """Further options: its LLM servers and its ProRL door."""
    llm_seconds: float | None = None
    """Time for its LLM servers to be there; None for that of the engine."""


def agent_process(settings: ServiceSettings, place: AgentPlace) -> ProcessSpec:
    """An agent server, which waits for its LLM servers and registers with the orchestrator."""
    given: Mapping[str, object] = {
        "--tool-calls": settings.tool_calls,
        "--repositories": settings.repositories,
        "--images": settings.images,
        "--reward-url": settings.reward_url,
        "--reward-token-file": settings.reward_token_file,
    }
    return ProcessSpec(
        name=place.name,
        kind="agent servers",
        level=CALLERS_LEVEL,
        command=module_command(
            "agent_server",
            *("--identity-file", str(place.identity_file)),
            *("--server-id", place.server_id),
            *place.options,
            *(f"--stop-token={text}" for text in settings.stop_tokens),
            *(f"--tag={name}" for name in settings.tags),
            *(f"{option}={value}" for option, value in given.items() if value),
            *("--slots", str(settings.slots)),
            *("--host", place.host),
            *("--port", str(place.port)),
            *("--model", str(settings.model)),
            *("--orchestrator", place.orchestrator_url),
            *("--token-file", str(place.token_file)),
            *("--log-format", settings.log_format),
            *("--ready-seconds", str(place.llm_seconds or settings.engine.start_seconds)),
            *(settings.tls.options if settings.tls else ()),
        ),
        host=place.host,
        port=place.port,
        tls=settings.tls is not None,
        ready_path="/readyz",
        ready_seconds=settings.engine.start_seconds,
    )
