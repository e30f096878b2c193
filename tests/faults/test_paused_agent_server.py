"""Fault 24 of the fault catalogue in docs/reliability.md: an agent server stands still for a while.

Its heartbeats stop, its Leases are lost, and what it says when it wakes up is refused.
"""

import signal
import time

from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import assert_once_each
from tests.waiting import until

JOBS = 16


def test_a_server_that_stood_still_for_three_leases_wakes_up_fenced(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(agent_servers=2, slots=JOBS, heartbeat_seconds=1.0)
    deployment.start_services()
    deployment.cluster.start_agent(0)
    deployment.wait_for_servers(1)
    rows = [{"number": number, "gate": str(deployment.gate)} for number in range(JOBS)]
    batch = deployment.rollout(rows, "still")
    deployment.wait_for_running(JOBS)
    deployment.cluster.signal_agent(0, signal.SIGSTOP)
    deployment.cluster.start_agent(1)
    time.sleep(3 * deployment.settings.lease_seconds)
    groups = batch.result(10)  # the others did not have to wait for it to wake up
    assert deployment.counters("still").results_refused == 0
    deployment.gate.touch()
    deployment.cluster.signal_agent(0, signal.SIGCONT)
    until("late results are refused", lambda: deployment.counters("still").results_refused == JOBS)
    assert_once_each(groups, range(JOBS), deployment.counters("still"))
    assert {group.results[0].lease.server_id for group in groups.groups} == {"agent-1"}
    deployment.wait_for_servers(2)
