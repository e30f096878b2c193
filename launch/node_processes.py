"""What one node of a fleet runs, as a pure function of the fleet.

On every node: its LLM servers, if the placement has some there, with their control service, and one
agent server. The head also has Redis and the orchestrator.
"""

from collections.abc import Mapping

import msgspec

from launch.engine import LLMKind
from launch.fleet import LOOPBACK, FleetPlan, url_of
from launch.plan import START_SECONDS, ProcessSpec, redis_process
from launch.processes import module_command
from orchestrator.placement import PlacedLLM


def processes_of(fleet: FleetPlan, node: str) -> tuple[ProcessSpec, ...]:
    """The processes of a node, in the order in which they start."""
    head = _head(fleet) if node == fleet.head else ()
    own = [server for server in fleet.placement.llm_servers if server.node == node]
    servers = (_llm_server(fleet, server) for server in own)
    control = (_llm_control(fleet, node, own),) if own else ()
    return (*head, *servers, *control, _agent_server(fleet, node))


def _head(fleet: FleetPlan) -> tuple[ProcessSpec, ...]:
    settings = fleet.settings
    redis = redis_process(settings.port + 4, settings.queues, settings.redis_password_file)
    return redis, _orchestrator(fleet, redis.port)


def _orchestrator(fleet: FleetPlan, redis_port: int) -> ProcessSpec:
    settings = fleet.settings
    # A node may call from another of its addresses than the one under which it is reached.
    allowed = (f"--allow-address={address}" for address in sorted({*fleet.addresses.values()}))
    return ProcessSpec(
        name="orchestrator",
        kind="an orchestrator",
        after=("redis",),
        level=1,
        command=module_command(
            "orchestrator",
            *("--host", fleet.addresses[fleet.head]),
            *("--port", str(settings.port)),
            *("--redis-url", f"redis://rollyard@{LOOPBACK}:{redis_port}"),
            *("--redis-password-file", str(settings.redis_password_file)),
            *("--token-file", str(settings.token_file)),
            *("--log-format", settings.log_format),
            *allowed,
        ),
        host=fleet.addresses[fleet.head],
        port=settings.port,
        ready_path="/livez",
        ready_seconds=START_SECONDS,
    )


def _llm_server(fleet: FleetPlan, server: PlacedLLM) -> ProcessSpec:
    settings, engine = fleet.settings, fleet.settings.engine
    host, port = fleet.llm_host(server.node), fleet.llm_port(server)
    on_gpus = engine.kind is LLMKind.VLLM and server.gpus and not settings.llm_on_cpus
    program = {
        LLMKind.VLLM: ("llm_servers.vllm_server", "--python", str(engine.python)),
        LLMKind.SCRIPTED: ("llm_servers.scripted",),
    }[engine.kind]
    if on_gpus:  # which decides the type of the weights
        engine = msgspec.structs.replace(engine, gpus=tuple(map(str, server.gpus)))
    # Servers with the same seed would sample the same tokens.
    seed = fleet.placement.llm_servers.index(server)
    return ProcessSpec(
        name=server.name.rpartition("/")[2],
        kind=_kind(server.node),
        level=2,
        command=module_command(
            *program,
            *("--model", str(settings.model)),
            *("--host", host),
            *("--port", str(port)),
            *("--seed", str(seed)),
            *(("--insecure",) if settings.insecure_llm else ()),
            *(("--gpus", ",".join(engine.gpus)) if on_gpus else ()),
            *engine.options,
        ),
        host=host,
        port=port,
        ready_path="/health",
        ready_seconds=engine.start_seconds,
    )


def _llm_control(fleet: FleetPlan, node: str, own: list[PlacedLLM]) -> ProcessSpec:
    host = fleet.llm_host(node)
    urls = (url_of(host, fleet.llm_port(server)) for server in own)
    servers = (word for url in urls for word in ("--server", url))
    port = fleet.settings.port + 3
    return _registering(fleet, node, "llm-node", port, ("llm_servers", *servers, "--node-id", node))


def _agent_server(fleet: FleetPlan, node: str) -> ProcessSpec:
    settings = fleet.settings
    given: Mapping[str, object] = {
        "--tool-calls": settings.tool_calls,
        "--repositories": settings.repositories,
        "--images": settings.images,
    }
    options = (
        *("--identity-file", str(settings.directory_of(node) / "identity")),
        *("--server-id", f"agent-{node}"),
        *(word for url in fleet.llm_urls(node) for word in ("--llm-server", url)),
        *(f"--stop-token={text}" for text in settings.stop_tokens),
        *(f"--tag={name}" for name in settings.tags),
        *(f"{name}={value}" for name, value in given.items() if value),
        *("--prorl-port", str(settings.port + 1)),
        *("--slots", str(settings.slots)),
    )
    return _registering(fleet, node, "agent", settings.port + 2, ("agent_server", *options))


def _registering(
    fleet: FleetPlan, node: str, name: str, port: int, command: tuple[str, ...]
) -> ProcessSpec:
    """A service that waits for the LLM servers and registers with the orchestrator."""
    settings = fleet.settings
    return ProcessSpec(
        name=name,
        kind=_kind(node),
        level=3,
        command=module_command(
            *command,
            *("--host", fleet.addresses[node]),
            *("--port", str(port)),
            *("--model", str(settings.model)),
            *("--orchestrator", fleet.orchestrator_url),
            *("--token-file", str(settings.token_file)),
            *("--log-format", settings.log_format),
            *("--ready-seconds", str(settings.engine.start_seconds)),
        ),
        host=fleet.addresses[node],
        port=port,
        ready_path="/readyz",
        ready_seconds=settings.engine.start_seconds,
    )


def _kind(node: str) -> str:
    """Others use the LLM servers of a node whose agent server cannot live, so that the node ends
    only with the last of them."""
    return f"any server of {node}"
