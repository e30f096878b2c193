"""Fault 25 of the fault catalogue in docs/reliability.md: whoever knows of parked Jobs dies.

A Batch is complete while other Jobs run: they are parked. That is a fact in Redis, and heartbeats
repeat it, so that neither parking nor going on depends on anybody who was told.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from chaos import work
from chaos.observer import PREFIX
from rollyard import Client, Criterion
from rollyard.api import OrchestratorAPI
from rollyard.messages import AttemptOutcome, Batch
from tests.faults import wire
from tests.faults.conftest import MakeYard
from tests.faults.crash_points import CrashPoint, CrashProxy, Side
from tests.faults.yard import FaultYard
from tests.waiting import until

RUN, SLOTS = "parked", 8
PARKED = SLOTS - 1
CONCLUDED = CrashPoint("conclude", Side.AFTER)


class Parkable:
    """A Run of which each Group has one Job: the first one is a Batch, all others are parked."""

    def __init__(self, yard: FaultYard) -> None:
        self.yard = yard
        self._first_gate = yard.settings.directory / "first-gate"
        gates = [self._first_gate, *[yard.gate] * PARKED]
        rows = [
            {"data_source": work.DATA_SOURCE, "number": number, "gate": str(gate)}
            for number, gate in enumerate(gates)
        ]
        client = Client(yard.troupe.door_url, patience_seconds=60)
        self._run = client.run(rows, run_id=RUN, group_size=1, criterion=Criterion.COMPLETE)
        self.api = OrchestratorAPI(yard.troupe.door_url)
        self._thread = ThreadPoolExecutor(1)

    def all_run(self) -> Future[Batch]:
        """Until every Job runs, and nothing is left to conclude."""
        batch = self.request(1)
        self.yard.wait_for_running(SLOTS)
        events = f"{PREFIX}run:{RUN}:events"
        until("all is concluded", lambda: not self.yard.redis.llen(events))
        return batch

    def request(self, groups: int) -> Future[Batch]:
        return self._thread.submit(self._run.rollout, groups, timeout_seconds=60)

    def complete(self) -> None:
        """Let the first Job finish: its Batch is complete, and the Run is held."""
        self._first_gate.touch()

    def stand_still(self) -> None:
        """The Jobs come to a turn boundary: what was told to be parked stands still there."""
        self.yard.gate.touch()
        assert self.yard.wait_for_standstill(RUN) == PARKED

    def park(self) -> None:
        batch = self.all_run()
        self.complete()
        self._run.ack(batch.result(30))
        until("the others are parked", lambda: self.yard.counters(RUN).jobs_parked == PARKED)
        self.stand_still()

    def outcomes(self) -> set[tuple[AttemptOutcome, ...]]:
        """Of the attempts of each Job that is not trained on."""
        listed = self.api.jobs(RUN).jobs
        return {tuple(attempt.outcome for attempt in job.attempts) for job in listed}


@pytest.fixture
def yard(make_yard: MakeYard) -> FaultYard:
    return make_yard(agent_servers=2, slots=SLOTS, lease_seconds=2.0, heartbeat_seconds=0.2)


def start(yard: FaultYard, *orchestrator_options: str) -> None:
    """Everything, with one agent server."""
    yard.start_services(*orchestrator_options)
    yard.troupe.start_agent(0)
    yard.wait_for_servers(1)


def wait_for_heartbeats(yard: FaultYard) -> None:
    """Until the agent server has heard the answer to a heartbeat of after this call: it sends the
    next one when it has obeyed the last."""

    def last_seen() -> float:
        return float(yard.redis.zscore(PREFIX + "seen", "agent-0") or 0)

    def has_beaten_since(moment: float) -> bool:
        return last_seen() > moment

    for _ in range(3):  # the first may be under way
        until("a heartbeat", partial(has_beaten_since, last_seen()))


def test_parked_jobs_of_a_killed_agent_server_begin_again_elsewhere_with_the_next_batch(
    yard: FaultYard,
) -> None:
    start(yard)
    run = Parkable(yard)
    run.park()
    yard.troupe.start_agent(1)
    yard.wait_for_servers(2)
    yard.troupe.kill_agent(0)
    until("they wait again", lambda: yard.counters(RUN).jobs_queued == PARKED)
    assert (yard.counters(RUN).jobs_leased, yard.counters(RUN).jobs_parked) == (0, 0)
    groups = run.request(PARKED).result(60).groups
    assert {group.results[0].lease.server_id for group in groups} == {"agent-1"}
    assert run.outcomes() == {(AttemptOutcome.LOST, AttemptOutcome.ACCEPTED)}
    assert yard.counters(RUN).jobs_dead == 0


@pytest.fixture(params=["orchestrator-0", "redis"])
def victim(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(yard: FaultYard, victim: str) -> Iterator[CrashProxy]:
    """Between the orchestrator and Redis; its strike is a kill -9 of one of the two."""
    proxy = CrashProxy(yard.ports.redis, lambda: yard.troupe.kill_service(victim))
    yield proxy
    proxy.close()


def revive(yard: FaultYard, proxy: CrashProxy, victim: str) -> None:
    assert proxy.struck.wait(20), "nothing was concluded"
    if victim == "redis":
        yard.troupe.start_redis()
    else:
        yard.troupe.start_orchestrator(0, "--redis-url", proxy.url)


def test_jobs_that_nobody_was_told_to_park_are_parked_by_the_next_heartbeat(
    yard: FaultYard, proxy: CrashProxy, victim: str
) -> None:
    start(yard, "--redis-url", proxy.url)
    run = Parkable(yard)
    first = run.all_run()
    proxy.arm(CONCLUDED)
    run.complete()
    revive(yard, proxy, victim)
    wait_for_heartbeats(yard)
    run.stand_still()
    assert len(first.result(30).groups) == 1


def test_jobs_that_nobody_was_told_to_resume_go_on_with_the_next_heartbeat(
    yard: FaultYard, proxy: CrashProxy, victim: str
) -> None:
    start(yard, "--redis-url", proxy.url)
    run = Parkable(yard)
    run.park()
    proxy.arm(CONCLUDED)
    second = run.request(PARKED)
    revive(yard, proxy, victim)
    groups = second.result(60).groups
    assert {group.results[0].lease.attempt for group in groups} == {1}
    assert run.outcomes() == {(AttemptOutcome.ACCEPTED,)}


def test_a_parked_job_that_is_cancelled_leaves_its_slot_at_once(yard: FaultYard) -> None:
    start(yard)
    run = Parkable(yard)
    run.park()
    cancelled = min(wire.parked(yard.troupe.door_url, RUN))
    run.api.cancel(cancelled)
    until("its slot is free", lambda: yard.workloads()[0].busy == PARKED - 1)
    until("nothing else is", lambda: yard.redis.llen(PREFIX + "free") == SLOTS - PARKED + 1)
    assert yard.wait_for_standstill(RUN) == PARKED - 1
    groups = run.request(PARKED - 1).result(60).groups
    assert cancelled not in {group.results[0].lease.job_id for group in groups}
    assert yard.counters(RUN).groups_cancelled == 1
