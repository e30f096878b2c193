"""Fault 26 of the fault catalogue in docs/reliability.md: the orchestrator, or Redis, stands still.

Nobody could be heard meanwhile, so nobody is judged by it; who is dead is still found out.
"""

import signal
import time

import pytest

from chaos.observer import PREFIX
from tests.faults.conftest import MakeYard
from tests.faults.yard import FaultYard, assert_once_each
from tests.waiting import until

SERVERS, SLOTS = 4, 4
JOBS = SERVERS * SLOTS
PAUSES = 4
"""More than the servers that a Job may be lost with."""


def stand_still(yard: FaultYard, service: str) -> None:
    """Stop all processes of the service for two Leases, and let it hear everybody again."""
    yard.troupe.signal_service(service, signal.SIGSTOP)
    time.sleep(2 * yard.settings.lease_seconds)
    yard.troupe.signal_service(service, signal.SIGCONT)
    woken_at = yard.redis.time()[0]
    until(
        "every server is heard of again",
        lambda: yard.redis.zcount(PREFIX + "seen", woken_at + 1, "inf") == SERVERS,
        60.0,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("service", ["orchestrator-0", "redis"])
def test_a_silence_of_ours_is_charged_to_no_job(make_yard: MakeYard, service: str) -> None:
    yard = make_yard(agent_servers=SERVERS, slots=SLOTS)
    yard.start()
    rows = [{"number": number, "gate": str(yard.gate)} for number in range(JOBS)]
    batch = yard.rollout(rows, "quiet")
    yard.wait_for_running(JOBS)
    for _ in range(PAUSES):
        stand_still(yard, service)
    counters = yard.counters("quiet")
    assert (counters.attempts_failed, counters.jobs_dead, counters.jobs_leased) == (0, 0, JOBS)
    yard.troupe.kill_agent(0)
    until(
        "the jobs of a server that is dead wait for another",
        lambda: yard.counters("quiet").attempts_failed == SLOTS,
    )
    yard.gate.touch()
    assert_once_each(batch.result(60), range(JOBS), yard.counters("quiet"))
