"""Processes of a deployment on one machine, as a pure function of its settings.

All agent servers share all LLM servers.
"""

from pathlib import Path

import msgspec

from launch.engine import Engine, LLMKind
from launch.processes import module_command
from rollyard.errors import LaunchError
from serving.log_format import LogFormat

START_SECONDS = 60.0
"""Time for Redis and for the orchestrator to become ready."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Loopback ports: one for each process, and one for each ProRL door."""

    orchestrator: int
    redis: int
    llm_node: int
    llm_servers: tuple[int, ...]
    agent_servers: tuple[int, ...]
    doors: tuple[int, ...] = ()
    """Ports of the agent servers' ProRL doors; empty if these stay shut."""

    def named(self) -> dict[str, int]:
        """Process name -> port."""
        return {
            "orchestrator": self.orchestrator,
            "redis": self.redis,
            "llm-node": self.llm_node,
            **{f"llm-{i}": port for i, port in enumerate(self.llm_servers)},
            **{f"agent-{i}": port for i, port in enumerate(self.agent_servers)},
            **{f"the ProRL door of agent-{i}": port for i, port in enumerate(self.doors)},
        }


class DeploymentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a deployment on this machine."""

    model: Path
    directory: Path
    """Directory of logs and the queues' data."""
    ports: Ports
    slots: int = 16
    """Slots of each agent server."""
    engine: Engine = Engine()
    log_format: LogFormat = LogFormat.TEXT
    """Format of every service's log."""
    stop_tokens: tuple[str, ...] = ()
    """Texts of tokens that end a response, in addition to those that the model's files name."""
    tool_calls: str = ""
    """Name of the format in which the model writes tool calls; empty to go by its chat template."""
    tags: tuple[str, ...] = ()
    """Names of what this machine has and environments and rows may need."""
    repositories: Path | None = None
    """Directory of the repositories that environments work on."""
    images: Path | None = None
    """Directory of the images of sandboxes."""
    prorl_open: bool = False
    """True if ProRL doors require no token."""
    reward_url: str = ""
    """URL of a service that grades answers; empty to let agent servers grade."""
    reward_token_file: Path | None = None
    """Token file of that service."""

    @property
    def orchestrator_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.orchestrator}"

    @property
    def prorl_server_urls(self) -> str:
        """The URLs of all ProRL doors, as their clients take them; empty if there are none."""
        return "+".join(f"http://127.0.0.1:{port}" for port in self.ports.doors)

    @property
    def token_file(self) -> Path:
        """File of the tokens of all services."""
        return self.directory / "tokens"

    @property
    def redis_password_file(self) -> Path:
        return self.directory / "redis-password"

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise LaunchError(f"an agent server needs at least 1 slot, got {self.slots}")
        if len(self.engine.gpus) % len(self.ports.llm_servers):
            raise LaunchError(
                f"{len(self.ports.llm_servers)} LLM servers cannot share "
                f"{len(self.engine.gpus)} GPUs evenly",
                fix="name as many --gpus for each of the --llm-servers",
            )


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
    ready_path: str
    """Path that answers 200 once the process is ready; if empty, it is ready once it accepts
    connections on `port`."""
    ready_seconds: float
    """Time for it to become ready."""

    @property
    def url(self) -> str:
        scheme = "http" if self.ready_path else "redis"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def local_plan(settings: DeploymentSettings) -> tuple[ProcessSpec, ...]:
    """All processes, in the order in which they start."""
    return (
        redis_process(
            settings.ports.redis, settings.directory / "redis", settings.redis_password_file
        ),
        _orchestrator(settings),
        *(_llm_server(settings, i) for i in range(len(settings.ports.llm_servers))),
        _llm_node(settings),
        *(_agent_server(settings, i) for i in range(len(settings.ports.agent_servers))),
    )


def redis_process(port: int, data: Path, password_file: Path) -> ProcessSpec:
    """The Redis of the queues, whose data is in the directory `data`. It listens on loopback."""
    return ProcessSpec(
        name="redis",
        kind="Redis",
        level=0,
        command=module_command(
            "orchestrator.queues.server",
            *("--port", str(port)),
            *("--data-dir", str(data)),
            *("--password-file", str(password_file)),
        ),
        port=port,
        ready_path="",
        ready_seconds=START_SECONDS,
    )


def _orchestrator(settings: DeploymentSettings) -> ProcessSpec:
    port = settings.ports.orchestrator
    return ProcessSpec(
        name="orchestrator",
        kind="an orchestrator",
        after=("redis",),
        level=1,
        command=module_command(
            "orchestrator",
            *("--port", str(port)),
            *("--redis-url", f"redis://rollyard@127.0.0.1:{settings.ports.redis}"),
            *("--redis-password-file", str(settings.redis_password_file)),
            *("--token-file", str(settings.token_file)),
            *("--log-format", settings.log_format),
        ),
        port=port,
        ready_path="/livez",
        ready_seconds=START_SECONDS,
    )


def _llm_server(settings: DeploymentSettings, index: int) -> ProcessSpec:
    port, servers = settings.ports.llm_servers[index], len(settings.ports.llm_servers)
    gpus = settings.engine.gpus_of(index, servers)
    program = {
        LLMKind.VLLM: ("llm_servers.vllm_server", "--python", str(settings.engine.python)),
        LLMKind.SCRIPTED: ("llm_servers.scripted",),
    }[settings.engine.kind]
    return ProcessSpec(
        name=f"llm-{index}",
        kind="LLM servers",
        level=2,
        command=module_command(
            *program,
            *("--model", str(settings.model)),
            *("--port", str(port)),
            *("--seed", str(index)),  # servers with the same seed would sample the same tokens
            *(("--gpus", ",".join(gpus)) if gpus else ()),
            *settings.engine.options,
        ),
        port=port,
        ready_path="/health",
        ready_seconds=settings.engine.start_seconds,
    )


def _llm_node(settings: DeploymentSettings) -> ProcessSpec:
    servers = _each("--server", settings)
    port = settings.ports.llm_node
    return msgspec.structs.replace(
        _registering(settings, "llm-node", port, "llm_servers", *servers, "--node-id", "local"),
        kind="the control of the LLM servers",
    )


def _agent_server(settings: DeploymentSettings, index: int) -> ProcessSpec:
    name, port = f"agent-{index}", settings.ports.agent_servers[index]
    return _registering(
        settings,
        name,
        port,
        "agent_server",
        *("--identity-file", str(settings.directory / f"{name}.identity")),
        *("--server-id", name),
        *_each("--llm-server", settings),
        *(f"--stop-token={text}" for text in settings.stop_tokens),
        *((f"--tool-calls={settings.tool_calls}",) if settings.tool_calls else ()),
        *(f"--tag={name}" for name in settings.tags),
        *((f"--repositories={settings.repositories}",) if settings.repositories else ()),
        *((f"--images={settings.images}",) if settings.images else ()),
        *_rewards(settings),
        *_door(settings, index),
        *("--slots", str(settings.slots)),
    )


def _door(settings: DeploymentSettings, index: int) -> tuple[str, ...]:
    if not settings.ports.doors:
        return ()
    opened = ("--prorl-open",) if settings.prorl_open else ()
    return ("--prorl-port", str(settings.ports.doors[index]), *opened)


def _rewards(settings: DeploymentSettings) -> tuple[str, ...]:
    url, tokens = settings.reward_url, settings.reward_token_file
    return (
        *((f"--reward-url={url}",) if url else ()),
        *((f"--reward-token-file={tokens}",) if tokens else ()),
    )


def _each(option: str, settings: DeploymentSettings) -> tuple[str, ...]:
    """`option` once for each LLM server, with its URL."""
    ports = settings.ports.llm_servers
    return tuple(word for port in ports for word in (option, f"http://127.0.0.1:{port}"))


def _registering(
    settings: DeploymentSettings, name: str, port: int, module: str, *options: str
) -> ProcessSpec:
    """A service that waits for the LLM servers and registers with the orchestrator."""
    return ProcessSpec(
        name=name,
        kind="agent servers",
        level=3,
        command=module_command(
            module,
            *options,
            *("--port", str(port)),
            *("--model", str(settings.model)),
            *("--orchestrator", settings.orchestrator_url),
            *("--token-file", str(settings.token_file)),
            *("--log-format", settings.log_format),
            *("--ready-seconds", str(settings.engine.start_seconds)),
        ),
        port=port,
        ready_path="/readyz",
        ready_seconds=settings.engine.start_seconds,
    )
