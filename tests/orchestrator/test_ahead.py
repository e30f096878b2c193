"""Jobs leased ahead of a free Slot, on both queue implementations."""

import time
import uuid
from collections.abc import Callable

import pytest
import redis

from orchestrator.queues.redis_queues import Queues
from orchestrator.sampling.decisions import Drop, Open, Requeue, Why
from rollyard.messages import (
    AgentServer,
    Heartbeat,
    JobState,
    Lease,
    Prompt,
    RunSettings,
    ServerState,
)
from tests.orchestrator.moves import completed, decide, failed, is_stale, leased, report
from tests.queue_fixtures import QUARANTINE

MakePrompt = Callable[[str], Prompt]


def server(number: int, *, slots: int = 1, ahead: int = 1) -> AgentServer:
    return AgentServer(
        server_id=f"agent-{number}",
        url="http://127.0.0.1:9",
        slots=slots,
        ahead=ahead,
        environments=("arithmetic",),
    )


@pytest.fixture
def yard(patient_queues: Queues, settings: RunSettings) -> Queues:
    """An open Run and two servers with a Slot each, which take one Job ahead."""
    patient_queues.create_run(settings)
    decide(patient_queues, Open())
    patient_queues.register(server(0))
    patient_queues.register(server(1))
    return patient_queues


def test_every_slot_works_before_a_job_is_leased_ahead(yard: Queues, prompt: MakePrompt) -> None:
    yard.submit("train", [prompt(f"p{n}") for n in range(4)])
    servers = [lease.lease.server_id for lease in yard.lease(8)]
    assert sorted(servers[:2]) == ["agent-0", "agent-1"]
    assert sorted(servers[2:]) == ["agent-0", "agent-1"]
    assert yard.busy_slots() == {"agent-0": 1, "agent-1": 1}
    assert yard.free_slots() == 0


def test_no_job_is_leased_ahead_while_few_wait(yard: Queues, prompt: MakePrompt) -> None:
    """It would wait for a Slot of one server while another had nothing to do."""
    yard.submit("train", [prompt("p0")])
    assert len(yard.lease(8)) == 2
    yard.submit("train", [prompt("p1")])
    assert len(yard.lease(8)) == 1  # two wait, as many as could be ahead; then one, too few
    assert yard.lease() == []


def test_a_report_takes_no_job_ahead_while_few_wait(yard: Queues, prompt: MakePrompt) -> None:
    """One that is for a Slot, it takes."""
    yard.submit("train", [prompt("p0"), prompt("p1")])
    leases = [each.lease for each in yard.lease(8)]
    ahead_on = leases[2].server_id
    one_of_two, only = sorted(leases[:2], key=lambda lease: lease.server_id != ahead_on)
    assert report(yard, completed(one_of_two), more=True).assignment is None
    assert report(yard, completed(only), more=True).assignment is not None


def test_a_server_with_a_job_ahead_is_offered_nothing_when_its_slot_is_free(
    yard: Queues, prompt: MakePrompt
) -> None:
    """The Job that waits there takes the Slot."""
    yard.leave("agent-1")
    yard.submit("train", [prompt("p0")])
    working, waiting = leased(yard), leased(yard)
    report(yard, completed(working))
    assert yard.busy_slots() == {"agent-0": 1}
    assert yard.free_slots() == 0
    report(yard, completed(waiting))
    assert yard.free_slots() == 1


def test_a_place_that_was_lost_is_offered_again_as_what_is_missing(
    yard: Queues, prompt: MakePrompt
) -> None:
    yard.leave("agent-1")
    yard.submit("train", [prompt("p0")])
    working, waiting = leased(yard), leased(yard)
    yard.give_back(working)
    yard.give_back(waiting)
    assert yard.free_slots() == 0
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert yard.free_slots() == 1
    assert len(yard.lease(8)) == 2


def test_places_that_no_job_may_have_stay_on_offer_as_they_were(
    yard: Queues, prompt: MakePrompt
) -> None:
    """A Job ahead is not turned into one for a Slot because its server was passed over."""
    yard.register(server(1, ahead=0))
    yard.submit("train", [prompt("p0")])
    lost = {each.job.job_id for each in yard.lease(8) if each.lease.server_id == "agent-0"}
    assert len(lost) == 1
    yard.register(server(0))
    assert yard.lease(8) == []  # the Job may not go there, and the other server is full
    assert yard.lease(8) == []
    yard.submit("train", [prompt("p1")])
    leases = [each.lease for each in yard.lease(8)]
    assert [lease.slot for lease in leases] == ["agent-0#0", "agent-0#1"]
    for lease in leases:
        report(yard, completed(lease))
    assert yard.free_slots() == 1


def test_jobs_that_were_passed_over_wait_in_their_order(yard: Queues, prompt: MakePrompt) -> None:
    yard.register(server(0, slots=2, ahead=0))
    yard.register(server(1, slots=1, ahead=0))
    yard.submit("train", [prompt("p0"), prompt("p1")])
    assert len(yard.lease(8)) == 3
    yard.register(server(0, slots=2, ahead=0))  # it loses two, and the other server is full
    *lost, last = (record.job_id for record in yard.jobs("train", JobState.QUEUED, 8))
    assert leased(yard).job_id == last
    assert [record.job_id for record in yard.jobs("train", JobState.QUEUED, 8)] == lost


def test_a_server_on_probation_gets_its_job_also_when_it_was_full_and_few_jobs_wait(
    yard: Queues, prompt: MakePrompt
) -> None:
    yard.leave("agent-1")
    yard.register(server(0, ahead=QUARANTINE.after_failures))
    yard.submit("train", [prompt(f"p{n}") for n in range(3)])
    running, *ahead = [each.lease for each in yard.lease(8)]
    yard.register(server(1, ahead=0))
    for lease in ahead:
        report(yard, failed(lease))
    assert yard.conditions()["agent-0"].state is ServerState.QUARANTINED
    until_let_back(yard, running)
    decide(yard, Requeue(job_ids=(running.job_id,)), Drop(group_ids=("p1", "p2"), why=Why.FILTERED))
    assert is_stale(yard, completed(running))
    yard.leave("agent-1")
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert [each.lease.server_id for each in yard.lease(8)] == ["agent-0"]


def until_let_back(queues: Queues, running: Lease) -> None:
    """The quarantine of its server is over, and the server says that it works at `running`."""
    while left := queues.conditions()[running.server_id].let_back_in_seconds:
        time.sleep(left)
    queues.heartbeat(Heartbeat(server_id=running.server_id, leases=(running,)))


def test_the_jobs_ahead_of_a_server_that_left_count_no_more(
    yard: Queues, prompt: MakePrompt
) -> None:
    yard.leave("agent-1")
    yard.submit("train", [prompt("p0")])
    assert len(yard.lease(8)) == 2  # one Job that waits is as many as could be ahead now


def test_jobs_that_a_server_may_not_have_are_looked_through_once_and_not_for_each_slot(
    admin_redis_url: str, settings: RunSettings, prompt: MakePrompt
) -> None:
    slots = 40
    prefix = f"rollyard:test:{uuid.uuid4().hex}:"
    queues = Queues(admin_redis_url, lease_seconds=60.0, prefix=prefix)
    queues.create_run(settings)
    decide(queues, Open())
    queues.register(server(0, slots=slots))
    queues.submit("train", [prompt(f"p{n}") for n in range(slots // 2)])
    assert len(queues.lease(slots)) == slots
    queues.register(server(0, slots=slots))  # it loses them all
    queues.register(server(1, slots=1, ahead=0))
    with redis.Redis.from_url(admin_redis_url) as client:
        before = client.info("commandstats")["cmdstat_lpop"]["calls"]
        assert [each.lease.server_id for each in queues.lease(slots)] == ["agent-1"]
        after = client.info("commandstats")["cmdstat_lpop"]["calls"]
    assert after - before < 4 * slots
