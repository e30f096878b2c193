"""A fleet planned again when nodes leave, join or come back, as a pure function.

- What a node runs never changes: only which LLM servers the agent servers on the helpers ask, which
  are the nodes without LLM servers of their own.
- Those that are there share the LLM servers that are there evenly, and as many as evenness allows
  go on with those that they asked.
- A helper that is away would begin with all LLM servers that are there, so that it can come back
  at any time.
- Where no LLM server of its model is left, a helper waits for those that it had.
"""

from collections.abc import Collection, Sequence

import msgspec

from launch.fleet import FleetPlan
from orchestrator.placement import FleetNode, PlacedAgents, Placement, place


def replanned(fleet: FleetPlan, present: Collection[str]) -> FleetPlan:
    """The fleet once these of its nodes, and no others, are there."""
    before = fleet.placement
    nodes = _nodes_to_share(before, present)
    there = [each for each in before.agent_servers if each.node not in fleet.absent]
    asked: dict[str, tuple[str, ...]] = {}
    if nodes:
        shared = place(
            nodes,
            tensor_parallel=fleet.settings.tensor_parallel,
            before=msgspec.structs.replace(before, agent_servers=tuple(there)),
        )
        asked = {each.node: each.llm_servers for each in shared.agent_servers}
        asked |= _asked_by_absent(before, present)
    agents = tuple(
        msgspec.structs.replace(each, llm_servers=asked.get(each.node, each.llm_servers))
        for each in before.agent_servers
    )
    return msgspec.structs.replace(
        fleet,
        placement=msgspec.structs.replace(before, agent_servers=agents),
        absent=tuple(node for node in fleet.nodes if node not in present),
    )


def changes(before: FleetPlan, after: FleetPlan) -> dict[str, dict[str, int]]:
    """Node -> the proxies that its agent server is to ask from now on, with the numbers of their
    LLM servers that it shares, for those that are there and whose proxies differ; an agent server
    that was away may have begun with any."""
    return {
        node: after.proxies_of(node)
        for node in after.nodes
        if node not in after.absent
        and (node in before.absent or before.proxies_of(node) != after.proxies_of(node))
    }


def _nodes_to_share(before: Placement, present: Collection[str]) -> list[FleetNode]:
    """The nodes among which LLM servers are shared; none where there is nothing to share."""
    gpus = {server.node: 0 for server in before.llm_servers}
    for server in before.llm_servers:
        gpus[server.node] += len(server.gpus)
    models = {server.model for server in before.llm_servers if server.node in present}
    return [
        FleetNode(name=each.node, gpus=gpus.get(each.node, 0), model=each.model)
        for each in before.agent_servers
        if each.node in present and each.model in models
    ]


def _asked_by_absent(before: Placement, present: Collection[str]) -> dict[str, tuple[str, ...]]:
    hosts = {server.node for server in before.llm_servers}
    absent = [
        each for each in before.agent_servers if each.node not in present and each.node not in hosts
    ]
    left = {each.model: _left(before, present, each) for each in absent}
    return {each.node: left[each.model] for each in absent if left[each.model]}


def _left(before: Placement, present: Collection[str], agents: PlacedAgents) -> tuple[str, ...]:
    """The LLM servers of the agents' model that are there."""
    servers: Sequence[str] = [
        server.name
        for server in before.llm_servers
        if server.node in present and server.model == agents.model
    ]
    return tuple(servers)
