"""All checks, ordered so that each comes after those it depends on."""

from pathlib import Path

from launch.doctor.check import Check, CheckVerdict, skipped
from launch.doctor.machine import machine_checks
from launch.doctor.queues import run_checks, storage_checks
from launch.doctor.servers import server_checks
from rollyard.api import OrchestratorAPI
from rollyard.errors import OrchestratorUnavailable, RollyardError
from rollyard.messages import Checkup, FleetStatus, Storage


def examine(
    orchestrator: OrchestratorAPI, url: str, token: str, directory: Path, llm_python: Path
) -> list[Check]:
    checks = machine_checks(directory, llm_python)
    reached = _reached(orchestrator, url)
    checks.append(reached)
    if reached.verdict is CheckVerdict.FAILED:
        return [*checks, *_out_of_reach()]
    try:
        status, checkup = orchestrator.status(), orchestrator.checkup()
    except RollyardError as error:
        return [*checks, *(skipped(check.name, str(error)) for check in _out_of_reach())]
    return [
        *checks,
        *storage_checks(checkup.storage),
        *run_checks(status, checkup),
        *server_checks(status, token),
    ]


def _reached(orchestrator: OrchestratorAPI, url: str) -> Check:
    """The check that the orchestrator answers."""
    # An orchestrator that answers with an error runs: starting another would not help.
    name, start_it = "orchestrator", "start it with `rollyard up`, or name another with --url"
    try:
        return Check(
            name, CheckVerdict.OK, f"{url} answers, {len(orchestrator.status().runs)} runs"
        )
    except OrchestratorUnavailable as error:
        return Check(name, CheckVerdict.FAILED, error.message, start_it)
    except RollyardError as error:
        return Check(name, CheckVerdict.FAILED, error.message, error.fix or "its log says more")


def _out_of_reach() -> list[Check]:
    nobody = FleetStatus(runs=(), servers=(), llm_nodes=())
    nothing = Checkup(storage=Storage(kind=""), stray_leases=(), events_waiting={})
    names = [*storage_checks(nothing.storage), *run_checks(nobody, nothing), *server_checks(nobody)]
    return [skipped(check.name, "the orchestrator does not answer") for check in names]
