"""`rollyard servers | drain | dismiss`: list agent servers, drain one, give up an LLM node."""

from typing import Annotated

import typer

from launch.output import Answer, Listing, not_empty
from rollyard.api import OrchestratorAPI
from rollyard.messages import AgentServerStatus, ServerCondition

Server = Annotated[
    str,
    typer.Argument(help="Id of the server, as `rollyard servers` shows it.", callback=not_empty),
]
LLMNodeName = Annotated[
    str, typer.Argument(help="Id of the LLM node, as `rollyard why` names it.", callback=not_empty)
]


def servers(orchestrator: OrchestratorAPI) -> Answer:
    """List the agent servers. Reclaim is the time from stopping a job until its slot is free."""
    found = orchestrator.servers()
    shown = Listing("server", "state", "busy / slots", "last heard of", "reclaim mean / worst")
    for server in found.servers:
        shown.add(
            server.server_id,
            server.condition.state,
            _slots(server),
            f"{server.condition.seen_seconds_ago:.1f} s ago",
            _reclaim(server.condition),
        )
    return found, [shown]


def _slots(server: AgentServerStatus) -> str:
    lost, lent = server.condition.lost, server.condition.lent
    shown = f"{server.busy_slots} / {server.slots}"
    shown += f", {lent} lent to its door" if lent else ""
    return f"{shown}, {lost.count} lost: {lost.reason}" if lost.count else shown


def _reclaim(condition: ServerCondition) -> str:
    if not condition.reclaims:
        return "-"
    mean = condition.reclaim_seconds / condition.reclaims
    return f"{mean:.3f} / {condition.worst_reclaim_seconds:.3f} s of {condition.reclaims}"


def drain(orchestrator: OrchestratorAPI, server: Server) -> Answer:
    """Give a server no more jobs. It finishes those it runs, leaves, and stays away until it is
    started again."""
    done = orchestrator.drain(server)
    return done, [f"{server} gets no more jobs; it leaves when its last one has ended"]


def dismiss(orchestrator: OrchestratorAPI, node: LLMNodeName) -> Answer:
    """Stop waiting for an LLM node that is gone for good."""
    return orchestrator.dismiss(node), [f"nothing waits for {node} any more"]


SERVER_COMMANDS = (servers, drain, dismiss)
