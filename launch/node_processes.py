"""What one node of a fleet runs, as a pure function of the fleet.

On every node: its LLM servers, if the placement has some there, with their proxy and their control
service, and one agent server. The head also has Redis and the orchestrator, and may have nothing
else: it then has no place in the placement. Agent servers of a fleet without LLM servers ask those
that a trainer announces, whenever it does.
"""

from collections.abc import Sequence

import msgspec

from launch.engine import LLMKind
from launch.fleet import FleetPlan, is_address
from launch.gpus import DEVICES
from launch.llm_processes import LOOPBACK, LLMNodeSettings, LLMPlace, llm_processes
from launch.plan import redis_process
from launch.process_spec import START_SECONDS, ProcessSpec
from launch.processes import module_command
from launch.services import AgentPlace, agent_process
from orchestrator.placement import PlacedLLM
from rollyard.errors import LaunchError

ANNOUNCE_SECONDS = 7200.0
"""Time for a trainer to announce its LLM servers: large ones load for long. An agent server that
waited in vain starts again."""
LOAD_SECONDS = 180.0
"""Time for an agent server to read the tokenizer and to look at its environments and sandboxes."""


def processes_of(
    fleet: FleetPlan, node: str, lent: tuple[str, ...] | None = None
) -> tuple[ProcessSpec, ...]:
    """The processes of a node, in the order in which they start. `lent` are the names of the GPUs
    that it may use, if they are not just their numbers. Raises `LaunchError`."""
    head = _head(fleet) if node == fleet.head else ()
    if node not in fleet.nodes:
        return head
    own = [server for server in fleet.placement.llm_servers if server.node == node]
    servers = llm_processes(_llm_node(fleet, node, own, lent)) if own else ()
    # Others use the LLM servers of a node whose agent server cannot live, so that the node ends
    # only with the last of them.
    kind = f"any server of {node}"
    of_node = (*servers, _agent_server(fleet, node))
    return (*head, *(msgspec.structs.replace(spec, kind=kind) for spec in of_node))


def _head(fleet: FleetPlan) -> tuple[ProcessSpec, ...]:
    settings = fleet.settings
    redis = redis_process(settings.port + 4, settings.queues, settings.redis_password_file)
    return redis, _orchestrator(fleet, redis.port)


def _orchestrator(fleet: FleetPlan, redis_port: int) -> ProcessSpec:
    settings = fleet.settings
    # A node may call from another of its addresses than the one under which it is reached. Not so
    # behind a name, which another machine may have tomorrow: it has to lead to the caller.
    known = sorted(each for each in {*fleet.addresses.values()} if is_address(each))
    allowed = (f"--allow-address={address}" for address in known)
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
            *("--retention-hours", f"{settings.retention_hours:g}"),
            *(settings.tls.options if settings.tls else ()),
            *allowed,
        ),
        host=fleet.addresses[fleet.head],
        port=settings.port,
        tls=settings.tls is not None,
        ready_path="/livez",
        ready_seconds=START_SECONDS,
    )


def _llm_node(
    fleet: FleetPlan, node: str, own: Sequence[PlacedLLM], lent: tuple[str, ...] | None
) -> LLMNodeSettings:
    settings = fleet.settings
    on_gpus = settings.engine.kind is LLMKind.VLLM and not settings.llm_on_cpus
    return LLMNodeSettings(
        node_id=node,
        model=settings.model,
        engine=settings.engine,
        servers=tuple(
            LLMPlace(
                port=settings.port + 6 + i,
                seed=fleet.placement.llm_servers.index(server),
                gpus=_named_gpus(node, server.gpus, lent) if on_gpus else (),
            )
            for i, server in enumerate(own)
        ),
        llm_host=fleet.llm_host(node),
        host=fleet.addresses[node],
        proxy_port=settings.port + 5,
        control_port=settings.port + 3,
        orchestrator_url=fleet.orchestrator_url,
        token_file=settings.token_file,
        log_format=settings.log_format,
        tls=settings.tls,
    )


def _named_gpus(node: str, numbers: Sequence[int], lent: tuple[str, ...] | None) -> tuple[str, ...]:
    if lent is None:
        return tuple(map(str, numbers))
    if any(number >= len(lent) for number in numbers):
        raise LaunchError(
            f"an LLM server of {node} is to have the GPUs {' '.join(map(str, numbers))}, and "
            f"{DEVICES} lends {len(lent)}",
            fix="have the launcher's allocation and the plan count the same GPUs",
        )
    return tuple(lent[number] for number in numbers)


def _agent_server(fleet: FleetPlan, node: str) -> ProcessSpec:
    settings = fleet.settings
    follows = not fleet.placement.llm_servers
    place = AgentPlace(
        name="agent",
        server_id=f"agent-{node}",
        identity_file=settings.directory_of(node) / "identity",
        host=fleet.addresses[node],
        port=settings.port + 2,
        orchestrator_url=fleet.orchestrator_url,
        token_file=settings.token_file,
        options=(
            *(("--llm-announced",) if follows else _proxies(fleet, node)),
            *("--prorl-port", str(settings.port + 1)),
        ),
        llm_seconds=ANNOUNCE_SECONDS if follows else None,
    )
    spec = agent_process(settings, place)
    if not follows:
        return spec
    # It registers only with LLM servers, which the trainer brings once all of this is ready.
    return msgspec.structs.replace(spec, ready_path="/livez", ready_seconds=LOAD_SECONDS)


def _proxies(fleet: FleetPlan, node: str) -> tuple[str, ...]:
    asked = (f"{url},{servers}" for url, servers in fleet.proxies_of(node).items())
    return tuple(word for proxy in asked for word in ("--llm-proxy", proxy))
