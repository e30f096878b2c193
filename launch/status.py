"""`rollyard status`: what an orchestrator knows, for people and as JSON."""

from rich.console import Group
from rich.table import Table

from rollyard.messages import YardStatus


def tables(status: YardStatus) -> Group:
    return Group(_servers(status), _runs(status))


def _servers(status: YardStatus) -> Table:
    table = Table(title="Servers", title_justify="left")
    for column in ("server", "URL", "busy / slots", "serves"):
        table.add_column(column)
    for server in status.servers:
        slots = f"{server.busy_slots} / {server.slots}"
        table.add_row(server.server_id, server.url, slots, ", ".join(server.environments))
    for node in status.llm_nodes:
        table.add_row(node.node_id, node.url, "", f"{len(node.servers)} LLM servers, {node.model}")
    return table


def _runs(status: YardStatus) -> Table:
    table = Table(title="Runs", title_justify="left")
    numbers = ("effective groups", "filtered", "jobs running", "parked", "queued")
    for column in ("run", *numbers, "waiting for"):
        table.add_column(column)
    for run in status.runs:
        table.add_row(
            run.run_id,
            f"{run.effective_groups} of {run.requested_batch_size}" if run.batch_id else "-",
            str(run.counters.groups_filtered),
            str(run.counters.jobs_leased - run.counters.jobs_parked),
            str(run.counters.jobs_parked),
            str(run.counters.jobs_queued),
            run.waiting_for,
        )
    return table
