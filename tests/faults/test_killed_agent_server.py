"""Fault 1 of the fault catalogue in docs/reliability.md: an agent server is killed amid its Jobs.

Its Jobs wait again, first in line, at the latest a Lease and two seconds after it died.
"""

import random
import time

import pytest

from tests.faults.conftest import MakeYard
from tests.faults.scale import scaled, timeout_seconds
from tests.faults.yard import FaultYard

KILL_EVERY_SECONDS = 2.0
AWAY_SECONDS = 1.0


@pytest.mark.timeout(timeout_seconds(600))
@pytest.mark.parametrize("seed", range(scaled(1, 3)))
def test_jobs_of_a_killed_agent_server_wait_again_within_a_lease_and_two_seconds(
    make_yard: MakeYard, seed: int
) -> None:
    yard = make_yard(seed=seed, agent_servers=4)
    yard.start()
    yard.train()
    yard.wait_for_progress(20)
    draw = random.Random(seed)
    for _ in range(scaled(3, 30)):
        kill_for_a_while(yard, draw.randrange(4))
    verdict = yard.verdict()
    assert verdict.ok, verdict.problems
    assert yard.observed("requeued"), "no server was killed amid a job"
    assert verdict.max_requeue_seconds <= yard.settings.lease_seconds + 2


def kill_for_a_while(yard: FaultYard, index: int) -> None:
    yard.troupe.kill_agent(index)
    yard.observer.killed(f"agent-{index}")
    time.sleep(AWAY_SECONDS)  # the catalogue's fault is by the clock
    yard.troupe.start_agent(index)
    time.sleep(KILL_EVERY_SECONDS - AWAY_SECONDS)


def test_jobs_of_an_agent_server_that_never_comes_back_run_elsewhere(make_yard: MakeYard) -> None:
    yard = make_yard(agent_servers=2, slots=8)
    yard.start_services()
    yard.troupe.start_agent(0)
    yard.wait_for_servers(1)
    rows = [{"number": number, "gate": str(yard.gate)} for number in range(8)]
    batch = yard.rollout(rows, "lost")
    yard.wait_for_running(8)
    yard.troupe.start_agent(1)
    yard.wait_for_servers(2)
    died_at = time.monotonic()
    yard.troupe.kill_agent(0)
    groups = batch.result(30).groups
    seconds = time.monotonic() - died_at
    assert [group.results[0].lease.server_id for group in groups] == ["agent-1"] * 8
    assert {group.results[0].lease.attempt for group in groups} == {2}
    assert yard.settings.lease_seconds - 0.5 <= seconds <= yard.settings.lease_seconds + 2
