"""The processes of one node's LLM servers, for every launcher that starts some.

- The LLM servers listen on loopback alone: they let in everyone who reaches them.
- The proxy before them, which admits our tokens alone, is what agent servers of other nodes ask.
- The control service puts weights on them, and announces them to the orchestrator.
"""

import socket
from pathlib import Path

import msgspec

from launch.deployment_tls import DeploymentTLS
from launch.engine import Engine, LLMKind
from launch.process_spec import ProcessSpec
from launch.processes import module_command
from serving.every_address import EVERY_ADDRESS
from serving.log_format import LogFormat

LOOPBACK = "127.0.0.1"
LLM_LEVEL, CALLERS_LEVEL = 2, 3
"""LLM servers and their proxy outlive those that ask them."""


class LLMPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where one LLM server listens, and on what it computes."""

    port: int
    seed: int
    """Servers with the same seed would sample the same tokens."""
    gpus: tuple[str, ...] = ()
    """CUDA devices; empty for the CPU."""


class LLMNodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The LLM servers of one node."""

    node_id: str
    model: Path
    engine: Engine
    servers: tuple[LLMPlace, ...]
    llm_host: str = LOOPBACK
    """Loopback address of the LLM servers."""
    host: str = LOOPBACK
    """Address of the proxy and of the control service."""
    proxy_port: int | None
    """None to have callers on this machine ask the LLM servers themselves."""
    control_port: int
    orchestrator_url: str
    token_file: Path | None
    """None where tokens are in the environment, and without any."""
    log_format: LogFormat = LogFormat.TEXT
    tls: DeploymentTLS | None = None
    """The certificate of the proxy and of the control service."""

    @property
    def server_urls(self) -> tuple[str, ...]:
        return tuple(url_of(self.llm_host, server.port) for server in self.servers)

    @property
    def proxy_url(self) -> str:
        """URL of the proxy; empty if there is none."""
        if self.proxy_port is None:
            return ""
        return url_of(self.called_at, self.proxy_port, tls=self.tls is not None)

    @property
    def called_at(self) -> str:
        """The host by which other machines call the proxy and the control service."""
        return socket.gethostname() if self.host in EVERY_ADDRESS else self.host


def url_of(address: str, port: int, *, tls: bool = False) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{'https' if tls else 'http'}://{host}:{port}"


def llm_processes(settings: LLMNodeSettings) -> tuple[ProcessSpec, ...]:
    """The processes, in the order in which they start."""
    servers = (_server(settings, index) for index in range(len(settings.servers)))
    proxy = () if settings.proxy_port is None else (_proxy(settings, settings.proxy_port),)
    return (*servers, *proxy, _control(settings))


def _server(settings: LLMNodeSettings, index: int) -> ProcessSpec:
    place = settings.servers[index]
    # The devices decide the type of the weights.
    engine = msgspec.structs.replace(settings.engine, gpus=place.gpus)
    program = {
        LLMKind.VLLM: ("llm_servers.vllm_server", "--python", str(engine.python)),
        LLMKind.SCRIPTED: ("llm_servers.scripted",),
    }[engine.kind]
    return ProcessSpec(
        name=f"llm-{index}",
        kind="LLM servers",
        level=LLM_LEVEL,
        command=module_command(
            *program,
            *("--model", str(settings.model)),
            *("--host", settings.llm_host),
            *("--port", str(place.port)),
            *("--seed", str(place.seed)),
            *(("--gpus", ",".join(place.gpus)) if place.gpus else ()),
            *engine.options,
        ),
        host=settings.llm_host,
        port=place.port,
        ready_path="/health",
        ready_seconds=engine.start_seconds,
    )


def _proxy(settings: LLMNodeSettings, port: int) -> ProcessSpec:
    return ProcessSpec(
        name="llm-proxy",
        kind="the proxy of the LLM servers",
        level=LLM_LEVEL,
        command=module_command("llm_servers.proxy", *_service(settings, port)),
        host=settings.host,
        port=port,
        tls=settings.tls is not None,
        ready_path="/health",  # it is healthy once one of the servers is
        ready_seconds=settings.engine.start_seconds,
    )


def _control(settings: LLMNodeSettings) -> ProcessSpec:
    port = settings.control_port
    return ProcessSpec(
        name="llm-node",
        kind="the control of the LLM servers",
        level=CALLERS_LEVEL,
        command=module_command(
            "llm_servers",
            *_service(settings, port),
            *("--node-id", settings.node_id),
            *(("--proxy", settings.proxy_url) if settings.proxy_url else ()),
            *("--model", str(settings.model)),
            *("--orchestrator", settings.orchestrator_url),
            *("--ready-seconds", str(settings.engine.start_seconds)),
        ),
        host=settings.host,
        port=port,
        tls=settings.tls is not None,
        ready_path="/readyz",
        ready_seconds=settings.engine.start_seconds,
    )


def _service(settings: LLMNodeSettings, port: int) -> tuple[str, ...]:
    """The options that the proxy and the control service share."""
    return (
        *(word for url in settings.server_urls for word in ("--server", url)),
        *("--host", settings.host),
        *("--port", str(port)),
        *(("--token-file", str(settings.token_file)) if settings.token_file else ()),
        *("--log-format", settings.log_format),
        *(settings.tls.options if settings.tls else ()),
    )
