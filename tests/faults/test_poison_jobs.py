"""Fault 13 of the fault catalogue in docs/reliability.md: a few Jobs kill every server they run on.

Each is dead after three different servers, and whatever was lost beside it is not.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.queues.limits import MAX_SERVERS_LOST
from rollyard.errors import PromptsExhausted
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment
from tests.faults.scale import scaled, timeout_seconds

POISON = 5


@pytest.mark.timeout(timeout_seconds(600))
@pytest.mark.parametrize("seed", range(scaled(1, 2)))
def test_poison_jobs_die_and_nothing_else_does(make_deployment: MakeDeployment, seed: int) -> None:
    jobs = scaled(600, 10_000)
    poison = set(random.Random(seed).sample(range(jobs), POISON))
    deployment = make_deployment(seed=seed, agent_servers=8, slots=2)
    deployment.start()
    rows = [{"number": number, "poison": number in poison} for number in range(jobs)]
    with reviving(deployment) as deaths:
        # At the end nothing but poison may be left, and die in a row.
        batch = deployment.rollout(rows, "poisoned", failing_groups=POISON + 1)
        with pytest.raises(PromptsExhausted, match=f"{jobs - POISON} of {jobs} effective"):
            batch.result(scaled(90, 500))
        counters = deployment.counters("poisoned")
    assert counters.jobs_dead == POISON
    assert counters.jobs_accepted == jobs - POISON
    assert len(deaths) <= POISON * MAX_SERVERS_LOST
    print(f"seed {seed}: {POISON} poison jobs in {jobs}, {len(deaths)} server deaths")


@contextmanager
def reviving(deployment: FaultDeployment) -> Iterator[list[int]]:
    """Starts every dead agent server again; yields which ones died, one after the other."""
    deaths: list[int] = []
    over = threading.Event()

    def revive() -> None:
        while not over.wait(0.1):
            for index in range(deployment.settings.agent_servers):
                if deployment.cluster.agent_is_dead(index):
                    deaths.append(index)
                    deployment.cluster.start_agent(index)

    thread = threading.Thread(target=revive, name="reviving")
    thread.start()
    try:
        yield deaths
    finally:
        over.set()
        thread.join(10)
