"""Fault 25 of the fault catalogue in docs/reliability.md: whoever knows of parked Jobs dies.

A Batch is complete while other Jobs run: they are parked. That is a fact in Redis, and heartbeats
repeat it, so that neither parking nor going on depends on anybody who was told.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from chaos import work
from chaos.observer import PREFIX, free_slots
from rollyard import Client, Criterion
from rollyard.api import OrchestratorAPI
from rollyard.messages import AttemptOutcome, Batch
from tests.faults import wire
from tests.faults.conftest import MakeDeployment
from tests.faults.crash_points import CrashPoint, CrashProxy, Side
from tests.faults.fault_deployment import FaultDeployment
from tests.waiting import until

RUN, SLOTS = "parked", 8
PARKED = SLOTS - 1
CONCLUDED = CrashPoint("conclude", Side.AFTER)


class Parkable:
    """A Run of which each Group has one Job: the first one is a Batch, all others are parked."""

    def __init__(self, deployment: FaultDeployment) -> None:
        self.deployment = deployment
        self._first_gate = deployment.settings.directory / "first-gate"
        gates = [self._first_gate, *[deployment.gate] * PARKED]
        rows = [
            {"data_source": work.DATA_SOURCE, "number": number, "gate": str(gate)}
            for number, gate in enumerate(gates)
        ]
        client = Client(deployment.cluster.door_url, patience_seconds=60)
        self._run = client.run(rows, run_id=RUN, group_size=1, criterion=Criterion.COMPLETE)
        self.api = OrchestratorAPI(deployment.cluster.door_url)
        self._thread = ThreadPoolExecutor(1)

    def all_run(self) -> Future[Batch]:
        """Until every Job runs, and nothing is left to conclude."""
        batch = self.request(1)
        self.deployment.wait_for_running(SLOTS)
        events = f"{PREFIX}run:{RUN}:events"
        until("all is concluded", lambda: not self.deployment.redis.llen(events))
        return batch

    def request(self, groups: int) -> Future[Batch]:
        return self._thread.submit(self._run.rollout, groups, timeout_seconds=60)

    def complete(self) -> None:
        """Let the first Job finish: its Batch is complete, and the Run is held."""
        self._first_gate.touch()

    def stand_still(self) -> None:
        """The Jobs come to a turn boundary: what was told to be parked stands still there."""
        self.deployment.gate.touch()
        assert self.deployment.wait_for_standstill(RUN) == PARKED

    def park(self) -> None:
        batch = self.all_run()
        self.complete()
        self._run.ack(batch.result(30))
        until("the others are parked", lambda: self.deployment.counters(RUN).jobs_parked == PARKED)
        self.stand_still()

    def outcomes(self) -> set[tuple[AttemptOutcome, ...]]:
        """Of the attempts of each Job that is not trained on."""
        listed = self.api.jobs(RUN).jobs
        return {tuple(attempt.outcome for attempt in job.attempts) for job in listed}


@pytest.fixture
def deployment(make_deployment: MakeDeployment) -> FaultDeployment:
    return make_deployment(
        durable=True, agent_servers=2, slots=SLOTS, lease_seconds=2.0, heartbeat_seconds=0.2
    )


def start(deployment: FaultDeployment, *orchestrator_options: str) -> None:
    """Everything, with one agent server."""
    deployment.start_services(*orchestrator_options)
    deployment.cluster.start_agent(0)
    deployment.wait_for_servers(1)


def wait_for_heartbeats(deployment: FaultDeployment) -> None:
    """Until the agent server has heard the answer to a heartbeat of after this call: it sends the
    next one when it has obeyed the last."""

    def last_seen() -> float:
        return float(deployment.redis.zscore(PREFIX + "seen", "agent-0") or 0)

    def has_beaten_since(moment: float) -> bool:
        return last_seen() > moment

    for _ in range(3):  # the first may be under way
        until("a heartbeat", partial(has_beaten_since, last_seen()))


def test_parked_jobs_of_a_killed_agent_server_begin_again_elsewhere_with_the_next_batch(
    deployment: FaultDeployment,
) -> None:
    start(deployment)
    run = Parkable(deployment)
    run.park()
    deployment.cluster.start_agent(1)
    deployment.wait_for_servers(2)
    deployment.cluster.kill_agent(0)
    until("they wait again", lambda: deployment.counters(RUN).jobs_queued == PARKED)
    assert (deployment.counters(RUN).jobs_leased, deployment.counters(RUN).jobs_parked) == (0, 0)
    groups = run.request(PARKED).result(60).groups
    assert {group.results[0].lease.server_id for group in groups} == {"agent-1"}
    assert run.outcomes() == {(AttemptOutcome.LOST, AttemptOutcome.ACCEPTED)}
    assert deployment.counters(RUN).jobs_dead == 0


@pytest.fixture(params=["orchestrator-0", "redis"])
def victim(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(deployment: FaultDeployment, victim: str) -> Iterator[CrashProxy]:
    """Between the orchestrator and Redis; its strike is a kill -9 of one of the two."""
    proxy = CrashProxy(deployment.ports.redis, lambda: deployment.cluster.service(victim).kill())
    yield proxy
    proxy.close()


def revive(deployment: FaultDeployment, proxy: CrashProxy, victim: str) -> None:
    assert proxy.struck.wait(20), "nothing was concluded"
    if victim == "redis":
        deployment.cluster.start_redis()
    else:
        deployment.cluster.start_orchestrator(0, "--redis-url", proxy.url)


def test_jobs_that_nobody_was_told_to_park_are_parked_by_the_next_heartbeat(
    deployment: FaultDeployment, proxy: CrashProxy, victim: str
) -> None:
    start(deployment, "--redis-url", proxy.url)
    run = Parkable(deployment)
    first = run.all_run()
    proxy.arm(CONCLUDED)
    run.complete()
    revive(deployment, proxy, victim)
    wait_for_heartbeats(deployment)
    run.stand_still()
    assert len(first.result(30).groups) == 1


def test_jobs_that_nobody_was_told_to_resume_go_on_with_the_next_heartbeat(
    deployment: FaultDeployment, proxy: CrashProxy, victim: str
) -> None:
    start(deployment, "--redis-url", proxy.url)
    run = Parkable(deployment)
    run.park()
    proxy.arm(CONCLUDED)
    second = run.request(PARKED)
    revive(deployment, proxy, victim)
    groups = second.result(60).groups
    assert {group.results[0].lease.attempt for group in groups} == {1}
    assert run.outcomes() == {(AttemptOutcome.ACCEPTED,)}


def test_a_parked_job_that_is_cancelled_leaves_its_slot_at_once(
    deployment: FaultDeployment,
) -> None:
    start(deployment)
    run = Parkable(deployment)
    run.park()
    cancelled = min(wire.parked(deployment.cluster.door_url, RUN))
    run.api.cancel(cancelled)
    until("its slot is free", lambda: deployment.workloads()[0].busy == PARKED - 1)
    until("nothing else is", lambda: len(free_slots(deployment.redis)) == SLOTS - PARKED + 1)
    assert deployment.wait_for_standstill(RUN) == PARKED - 1
    groups = run.request(PARKED - 1).result(60).groups
    assert cancelled not in {group.results[0].lease.job_id for group in groups}
    assert deployment.counters(RUN).groups_cancelled == 1
