"""All checks, ordered so that each comes after those it depends on."""

from pathlib import Path

from launch.doctor.check import Check, CheckVerdict, skipped
from launch.doctor.machine import machine_checks
from launch.doctor.queues import run_checks, storage_checks
from launch.doctor.servers import Way, server_checks
from rollyard.api import OrchestratorAPI
from rollyard.errors import OrchestratorUnavailable, RollyardError
from rollyard.messages import Checkup, FleetStatus, Storage
from rollyard.trust import ca_file_for


def examine(
    orchestrator: OrchestratorAPI, url: str, token: str, directory: Path, llm_python: Path
) -> list[Check]:
    checks = machine_checks(directory, llm_python)
    try:
        status = orchestrator.status()
    except RollyardError as error:
        return [*checks, _unreached(error), *_skipped("the orchestrator does not answer")]
    checks.append(Check("orchestrator", CheckVerdict.OK, f"{url} answers, {len(status.runs)} runs"))
    try:
        checkup = orchestrator.checkup()
    except RollyardError as error:
        return [*checks, *_skipped(str(error))]
    return [
        *checks,
        *storage_checks(checkup.storage),
        *run_checks(status, checkup),
        *server_checks(status, Way(token, ca_file_for(url))),
    ]


def _unreached(error: RollyardError) -> Check:
    # An orchestrator that answers with an error runs: starting another would not help.
    fix = error.fix or "its log says more"
    if isinstance(error, OrchestratorUnavailable) and not error.lasts:
        fix = "start it with `rollyard up`, or name another with --url"
    return Check("orchestrator", CheckVerdict.FAILED, error.message, fix)


def _skipped(why: str) -> list[Check]:
    """All checks that ask the orchestrator."""
    nobody = FleetStatus(runs=(), servers=(), llm_nodes=())
    nothing = Checkup(storage=Storage(kind=""), stray_leases=(), events_waiting={})
    names = [*storage_checks(nothing.storage), *run_checks(nobody, nothing), *server_checks(nobody)]
    return [skipped(check.name, why) for check in names]
