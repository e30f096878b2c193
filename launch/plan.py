"""Processes of a deployment on one machine, as a pure function of its settings.

All agent servers share all LLM servers. Redis and the LLM servers listen on loopback, where no
process needs TLS.
"""

from pathlib import Path
from typing import Any

from launch.llm_processes import LOOPBACK, LLMNodeSettings, LLMPlace, llm_processes, url_of
from launch.ports import Ports
from launch.process_spec import START_SECONDS, ProcessSpec
from launch.processes import module_command
from launch.services import AgentPlace, ServiceSettings, agent_process
from rollyard.errors import LaunchError


class DeploymentSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of a deployment on this machine."""

    directory: Path
    """Directory of logs and the queues' data."""
    ports: Ports
    prorl_open: bool = False
    """True if ProRL doors require no token."""
    nemo_gym: bool = False
    """True if the doors are NeMo-Gym's."""
    nemo_gym_open: bool = False
    """True if NeMo-Gym doors require no token."""
    host: str = LOOPBACK
    """Address or name of this machine on which its services listen, and by which they are
    called."""

    @property
    def orchestrator_url(self) -> str:
        return self.url_of(self.ports.orchestrator)

    def url_of(self, port: int) -> str:
        """URL of the service at the port."""
        return url_of(self.host, port, tls=self.tls is not None)

    @property
    def prorl_server_urls(self) -> str:
        """The URLs of all ProRL doors, as their clients take them; empty if there are none."""
        if self.nemo_gym:
            return ""
        if self.prorl_open:  # such doors are on loopback, without TLS
            return "+".join(url_of(LOOPBACK, port) for port in self.ports.doors)
        return "+".join(map(self.url_of, self.ports.doors))

    @property
    def nemo_gym_agents(self) -> dict[str, Any]:
        """All NeMo-Gym doors as NeMo-Gym's configuration names agent servers, which has no TLS;
        empty if there are none."""
        host = LOOPBACK if self.nemo_gym_open else self.host
        return {
            f"rollyard-{index}": {
                "responses_api_agents": {"rollyard": {"host": host, "port": port}}
            }
            for index, port in enumerate(self.ports.doors if self.nemo_gym else ())
        }

    @property
    def nemo_gym_file(self) -> Path:
        """Where `nemo_gym_agents` are written."""
        return self.directory / "nemo-gym.yaml"

    @property
    def token_file(self) -> Path:
        """File of the tokens of all services."""
        return self.directory / "tokens"

    @property
    def redis_password_file(self) -> Path:
        return self.directory / "redis-password"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.engine.gpus) % len(self.ports.llm_servers):
            raise LaunchError(
                f"{len(self.ports.llm_servers)} LLM servers cannot share "
                f"{len(self.engine.gpus)} GPUs evenly",
                fix="name as many --gpus for each of the --llm-servers",
            )


def local_plan(settings: DeploymentSettings) -> tuple[ProcessSpec, ...]:
    """All processes, in the order in which they start."""
    return (
        redis_process(
            settings.ports.redis, settings.directory / "redis", settings.redis_password_file
        ),
        _orchestrator(settings),
        *llm_processes(_llm_node(settings)),
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
            *("--host", settings.host),
            *("--port", str(port)),
            *("--redis-url", f"redis://rollyard@{LOOPBACK}:{settings.ports.redis}"),
            *("--redis-password-file", str(settings.redis_password_file)),
            *("--token-file", str(settings.token_file)),
            *("--log-format", settings.log_format),
            *("--retention-hours", f"{settings.retention_hours:g}"),
            *(settings.tls.options if settings.tls else ()),
        ),
        host=settings.host,
        port=port,
        tls=settings.tls is not None,
        ready_path="/livez",
        ready_seconds=START_SECONDS,
    )


def _llm_node(settings: DeploymentSettings) -> LLMNodeSettings:
    ports, engine = settings.ports, settings.engine
    servers = len(ports.llm_servers)
    return LLMNodeSettings(
        node_id="local",
        model=settings.model,
        engine=engine,
        servers=tuple(
            LLMPlace(port=port, seed=i, gpus=engine.gpus_of(i, servers))
            for i, port in enumerate(ports.llm_servers)
        ),
        host=settings.host,
        proxy_port=ports.llm_proxy,
        control_port=ports.llm_node,
        orchestrator_url=settings.orchestrator_url,
        token_file=settings.token_file,
        log_format=settings.log_format,
        tls=settings.tls,
    )


def _agent_server(settings: DeploymentSettings, index: int) -> ProcessSpec:
    name = f"agent-{index}"
    place = AgentPlace(
        name=name,
        server_id=name,
        identity_file=settings.directory / f"{name}.identity",
        host=settings.host,
        port=settings.ports.agent_servers[index],
        orchestrator_url=settings.orchestrator_url,
        token_file=settings.token_file,
        options=(*_llm_urls(settings), "--llm-announced", *_door(settings, index)),
    )
    return agent_process(settings, place)


def _door(settings: DeploymentSettings, index: int) -> tuple[str, ...]:
    if not settings.ports.doors:
        return ()
    kind = "nemo-gym" if settings.nemo_gym else "prorl"
    is_open = settings.nemo_gym_open if settings.nemo_gym else settings.prorl_open
    opened = (f"--{kind}-open",) if is_open else ()
    return (f"--{kind}-port", str(settings.ports.doors[index]), *opened)


def _llm_urls(settings: DeploymentSettings) -> tuple[str, ...]:
    """The options that name whom agent servers ask for tokens."""
    ports = settings.ports
    if ports.llm_proxy is not None:
        return ("--llm-proxy", settings.url_of(ports.llm_proxy))
    urls = (url_of(LOOPBACK, port) for port in ports.llm_servers)
    return tuple(word for url in urls for word in ("--llm-server", url))
