"""Fault 22 of the fault catalogue in docs/reliability.md: Slurm tells an agent server to end.

The real agent server, amid Jobs: it takes nothing more, hands its Leases back and is gone within
the grace. Its Jobs run elsewhere at once, and are charged for nothing.
"""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from launch.free_ports import free_port
from launch.processes import Started
from rollyard.api import OrchestratorAPI
from rollyard.messages import AttemptRecord
from tests.faults import wire
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment, assert_once_each
from tests.llm_fixtures import POLICY, StartScriptedLLM, start_module
from tests.processes import lives
from tests.waiting import until

GRACE_SECONDS = 90.0
"""Between Slurm's SIGTERM and its SIGKILL."""
SIGNAL_SECONDS = 0.5
"""From the SIGTERM to all of the server knowing."""
ARBITER_AND_WORKER = 2
RUN, SLOTS, JOBS, MANY_JOBS = "drained", 4, 8, 60
NEVER_READY = ("--tool-rate", "1", "--token-seconds", "2")
QUICK = ("--tool-rate", "1", "--token-seconds", "0.01")
STAYING, LEAVING = "agent-0", "agent-1"

StartAgentServer = Callable[[FaultDeployment, str, str], Started]


@pytest.fixture
def start_agent_server(tmp_path: Path) -> Iterator[StartAgentServer]:
    """Starts real agent servers for a deployment, and ends them all with the test."""
    running: list[Started] = []

    def start(deployment: FaultDeployment, llm: str, server_id: str) -> Started:
        running.append(
            start_module(
                [
                    *("agent_server", "--port", str(free_port()), "--server-id", server_id),
                    *("--orchestrator", deployment.cluster.door_url, "--llm-server", llm),
                    *("--model", str(POLICY), "--slots", str(SLOTS)),
                ],
                tmp_path / f"{server_id}.log",
            )
        )
        return running[-1]

    yield start
    for started in running:
        started.kill()


def tell_the_leader(started: Started) -> None:
    started.process.terminate()


def tell_everyone(started: Started) -> None:
    """As `scancel` does, to all processes of a step."""
    started.signal(signal.SIGTERM)


def end(started: Started, tell: Callable[[Started], None]) -> float:
    """Tell it to end, and wait until all of it has; when it was told."""
    members, told_at = started.family(), time.time()
    tell(started)
    assert started.process.wait(GRACE_SECONDS) == 0
    until("nothing of it lives", lambda: not any(map(lives, members)), 2)
    return told_at


def group_of(started: Started) -> list[int]:
    """The processes that hear a signal to its group."""
    leader = started.process.pid
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == leader:
                members.append(process.pid)
    return members


def attempts(deployment: FaultDeployment) -> list[tuple[AttemptRecord, ...]]:
    """Of each Job."""
    return [job.attempts for job in OrchestratorAPI(deployment.cluster.door_url).jobs(RUN).jobs]


def rows(count: int) -> list[dict[str, Any]]:
    row = {"data_source": "arithmetic", "question": "37*48", "answer": "1776"}
    return [{**row, "number": number} for number in range(count)]


@pytest.mark.parametrize("tell", [tell_the_leader, tell_everyone])
def test_a_terminated_agent_server_hands_its_jobs_back_and_is_gone_within_the_grace(
    make_deployment: MakeDeployment,
    start_scripted_llm: StartScriptedLLM,
    start_agent_server: StartAgentServer,
    tell: Callable[[Started], None],
) -> None:
    deployment = make_deployment(
        agent_servers=0, lease_seconds=60.0
    )  # nothing waits for a Lease to expire
    deployment.start_services()
    leaving = start_agent_server(deployment, start_scripted_llm(*NEVER_READY), LEAVING)
    start_agent_server(deployment, start_scripted_llm(*QUICK), STAYING)
    deployment.wait_for_servers(2)
    batch = deployment.rollout(rows(JOBS), RUN)
    held: list[str] = []

    def only_these_are_left() -> bool:
        leases = wire.leases(deployment.cluster.door_url, RUN).values()
        held[:] = [server for server, _ in leases if server == LEAVING]
        return deployment.accepted(RUN) + len(held) == JOBS

    until("only jobs that never end are left", only_these_are_left)
    assert len(group_of(leaving)) == ARBITER_AND_WORKER, "none of its Jobs' processes are told"
    end(leaving, tell)
    assert_once_each(batch.result(10), range(JOBS), deployment.counters(RUN))
    assert deployment.counters(RUN).attempts_failed == 0
    ways = Counter(
        tuple((a.server_id, str(a.outcome)) for a in job) for job in attempts(deployment)
    )
    moved, stayed = (LEAVING, "given_back"), (STAYING, "accepted")
    assert ways == {(moved, stayed): len(held), (stayed,): JOBS - len(held)}
    assert len(held) >= SLOTS


def test_a_terminated_agent_server_begins_no_job_that_it_will_not_end(
    make_deployment: MakeDeployment,
    start_scripted_llm: StartScriptedLLM,
    start_agent_server: StartAgentServer,
) -> None:
    deployment = make_deployment(agent_servers=0, lease_seconds=60.0)
    deployment.start_services()
    llm = start_scripted_llm(*QUICK)
    leaving = start_agent_server(deployment, llm, LEAVING)
    deployment.wait_for_servers(1)
    batch = deployment.rollout(rows(MANY_JOBS), RUN)
    until("some jobs have run", lambda: deployment.accepted(RUN) > SLOTS)
    told_at = end(leaving, tell_everyone)
    began = [a.leased_at for job in attempts(deployment) for a in job if a.outcome == "accepted"]
    assert began
    assert max(began) < told_at + SIGNAL_SECONDS
    start_agent_server(deployment, llm, STAYING)
    assert_once_each(batch.result(240), range(MANY_JOBS), deployment.counters(RUN))
    assert deployment.counters(RUN).attempts_failed == 0
