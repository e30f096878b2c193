"""Tables of `rollyard status`: an orchestrator's servers and runs, and what was started again."""

from collections import defaultdict

from launch.output import Listing
from launch.parts import PartStatus, parts_listing
from rollyard.messages import FleetStatus, LLMNode, LLMServerState


class WholeStatus(FleetStatus, frozen=True):
    """What the orchestrator knows, and what the launcher of its deployment tells."""

    parts: tuple[PartStatus, ...] = ()

    @classmethod
    def of(cls, status: FleetStatus, parts: tuple[PartStatus, ...]) -> "WholeStatus":
        return cls(status.runs, status.servers, status.llm_nodes, status.llm_silence, parts)


def listings(status: FleetStatus, parts: tuple[PartStatus, ...] = ()) -> tuple[Listing, ...]:
    died = (parts_listing(parts),) if any(part.reason for part in parts) else ()
    return _servers(status), _llm_servers(status), _weights(status), *died, _runs(status)


def _servers(status: FleetStatus) -> Listing:
    shown = Listing("server", "URL", "busy / slots", "serves", title="Servers")
    for server in status.servers:
        slots = f"{server.busy_slots} / {server.slots}"
        tags = f" ({', '.join(server.tags)})" if server.tags else ""
        shown.add(server.server_id, server.url, slots, ", ".join(server.environments) + tags)
        if server.door:
            lent = str(server.condition.lent)
            shown.add(f"{server.server_id}'s door", server.door, lent, "callers of /process")
    for node in status.llm_nodes:
        shown.add(node.node_id, node.url, "", f"{len(node.servers)} LLM servers, {_model(node)}")
    return shown


def _model(node: LLMNode) -> str:
    return node.model if node.url else "which their trainer updates"


def _llm_servers(status: FleetStatus) -> Listing:
    users = defaultdict(list)
    for server in status.servers:
        for endpoint in server.llm_servers:
            users[endpoint].append(server.server_id)
    shown = Listing("URL", "dialect", "logprobs", "asked by", title="LLM servers")
    for endpoint in sorted(users, key=lambda each: each.url):
        shown.add(endpoint.url, endpoint.dialect, endpoint.logprobs, ", ".join(users[endpoint]))
    return shown


def _weights(status: FleetStatus) -> Listing:
    shown = Listing("node", "LLM server", "version", "state", title="Weights")
    for node in status.llm_nodes:
        of_all = all(server.healthy and not server.trouble for server in node.states)
        for server in node.states:
            version = "-" if server.version is None else str(server.version)
            trouble = server.trouble or (node.trouble if of_all else "")
            shown.add(node.node_id, server.url, version, _state(server, trouble))
    return shown


def _state(server: LLMServerState, trouble: str) -> str:
    if not server.healthy:
        return "no answer"
    state = "paused" if server.paused else "held back" if trouble else "serves"
    state += f" with adapter {server.adapter}" if server.adapter else ""
    return f"{state}; {trouble}" if trouble else state


def _runs(status: FleetStatus) -> Listing:
    numbers = ("effective groups", "filtered", "jobs running", "parked", "queued")
    shown = Listing("run", *numbers, "waiting for", title="Runs")
    for run in status.runs:
        shown.add(
            run.run_id,
            f"{run.effective_groups} of {run.requested_batch_size}" if run.batch_id else "-",
            str(run.counters.groups_filtered),
            str(run.counters.jobs_leased - run.counters.jobs_parked),
            str(run.counters.jobs_parked),
            str(run.counters.jobs_queued),
            run.waiting_for,
        )
    return shown
