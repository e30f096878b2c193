"""What a caller sees whose token is limited to some Runs: of the fleet, no name of any other."""

import msgspec

from orchestrator.ids import run_of
from orchestrator.queues.jobs import Standing
from orchestrator.queues.runs import Runs
from rollyard.errors import Forbidden
from rollyard.messages import AgentServerStatus, FleetStatus
from serving.access import the_caller

OTHERS = ""
"""Stands for the name of every Run that the caller may not open."""


def own_status(status: FleetStatus) -> FleetStatus:
    runs = tuple(run for run in status.runs if the_caller().opens(run.run_id))
    return msgspec.structs.replace(status, runs=runs, servers=own_servers(status.servers))


def own_servers(servers: tuple[AgentServerStatus, ...]) -> tuple[AgentServerStatus, ...]:
    """The servers, of whose failing Jobs the caller sees its own."""
    caller = the_caller()
    if not caller.runs:
        return servers
    seen = []
    for server in servers:
        failing = tuple(job for job in server.condition.failing_jobs if caller.opens(run_of(job)))
        condition = msgspec.structs.replace(server.condition, failing_jobs=failing)
        seen.append(msgspec.structs.replace(server, condition=condition))
    return tuple(seen)


def own_standing(standing: Standing) -> Standing:
    """The Jobs that hold Slots; those of Runs that the caller may not open are of `OTHERS`."""
    caller, parked = the_caller(), dict[str, int]()
    for run, jobs in standing.parked.items():
        name = run if caller.opens(run) else OTHERS
        parked[name] = parked.get(name, 0) + jobs
    return msgspec.structs.replace(standing, parked=parked)


def check_no_other_run(runs: Runs) -> None:
    """Raise `Forbidden` if there is an open Run that the caller may not open."""
    caller = the_caller()
    if not caller.runs:
        return
    others = set(runs.ids()) - runs.closed_ids() - caller.runs
    if others:
        raise Forbidden(
            "the LLM servers sample for runs, too, that this token is not for",
            fix="have their weights updated with a token that is not limited to runs",
        )
