"""Fault 24 of the fault catalogue in docs/reliability.md: an agent server stands still for a while.

Its heartbeats stop, its Leases are lost, and what it says when it wakes up is refused.
"""

import signal
import time

from tests.faults.conftest import MakeYard
from tests.faults.yard import assert_once_each
from tests.waiting import until

JOBS = 16


def test_a_server_that_stood_still_for_three_leases_wakes_up_fenced(make_yard: MakeYard) -> None:
    yard = make_yard(agent_servers=2, slots=JOBS, heartbeat_seconds=1.0)
    yard.start_services()
    yard.troupe.start_agent(0)
    yard.wait_for_servers(1)
    rows = [{"number": number, "gate": str(yard.gate)} for number in range(JOBS)]
    batch = yard.rollout(rows, "still")
    yard.wait_for_running(JOBS)
    yard.troupe.signal_agent(0, signal.SIGSTOP)
    yard.troupe.start_agent(1)
    time.sleep(3 * yard.settings.lease_seconds)
    groups = batch.result(10)  # the others did not have to wait for it to wake up
    assert yard.counters("still").results_refused == 0
    yard.gate.touch()
    yard.troupe.signal_agent(0, signal.SIGCONT)
    until("late results are refused", lambda: yard.counters("still").results_refused == JOBS)
    assert_once_each(groups, range(JOBS), yard.counters("still"))
    assert {group.results[0].lease.server_id for group in groups.groups} == {"agent-1"}
    yard.wait_for_servers(2)
