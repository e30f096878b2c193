"""Jobs leased ahead of a free Slot, on both queue implementations."""

import time
import uuid
from collections.abc import Callable

import msgspec
import pytest
import redis

from orchestrator.queues import Queues
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
from tests.orchestrator.moves import completed, conditions, decide, failed, is_stale, leased, report
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
def open_queues(patient_queues: Queues, settings: RunSettings) -> Queues:
    """An open Run and two servers with a Slot each, which take one Job ahead."""
    patient_queues.runs.create(settings)
    decide(patient_queues, Open())
    patient_queues.servers.register(server(0))
    patient_queues.servers.register(server(1))
    return patient_queues


def test_every_slot_works_before_a_job_is_leased_ahead(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt(f"p{n}") for n in range(4)])
    servers = [lease.lease.server_id for lease in open_queues.leases.lease(8)]
    assert sorted(servers[:2]) == ["agent-0", "agent-1"]
    assert sorted(servers[2:]) == ["agent-0", "agent-1"]
    assert open_queues.servers.busy_slots() == {"agent-0": 1, "agent-1": 1}
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 0


def test_no_job_is_leased_ahead_while_few_wait(open_queues: Queues, prompt: MakePrompt) -> None:
    """It would wait for a Slot of one server while another had nothing to do."""
    open_queues.tasks.submit("train", [prompt("p0")])
    assert len(open_queues.leases.lease(8)) == 2
    open_queues.tasks.submit("train", [prompt("p1")])
    assert (
        len(open_queues.leases.lease(8)) == 1
    )  # two wait, as many as could be ahead; then one, too few
    assert open_queues.leases.lease() == []


def test_a_report_takes_no_job_ahead_while_few_wait(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    """One that is for a Slot, it takes."""
    open_queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    leases = [each.lease for each in open_queues.leases.lease(8)]
    ahead_on = leases[2].server_id
    one_of_two, only = sorted(leases[:2], key=lambda lease: lease.server_id != ahead_on)
    assert report(open_queues, completed(one_of_two), more=True).assignment is None
    assert report(open_queues, completed(only), more=True).assignment is not None


def test_a_server_with_a_job_ahead_is_offered_nothing_when_its_slot_is_free(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    """The Job that waits there takes the Slot."""
    open_queues.servers.leave("agent-1")
    open_queues.tasks.submit("train", [prompt("p0")])
    working, waiting = leased(open_queues), leased(open_queues)
    report(open_queues, completed(working))
    assert open_queues.servers.busy_slots() == {"agent-0": 1}
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 0
    report(open_queues, completed(waiting))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 1


def test_jobs_ahead_are_recalled_for_free_slots_of_servers_that_can_run_them(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.servers.leave("agent-1")
    open_queues.servers.register(server(0, ahead=2))
    open_queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    assert len(open_queues.leases.lease(8)) == 3
    assert open_queues.leases.recalls() == {}  # nobody has a free slot
    abler = msgspec.structs.replace(server(1), environments=("arithmetic", "swe"), tags=("gpu",))
    open_queues.servers.register(abler)
    (waited,) = open_queues.leases.lease(8)  # while a job waits, it is the one to lease
    assert waited.lease.server_id == "agent-1"
    open_queues.servers.register(server(2))
    assert open_queues.leases.recalls() == {"agent-0": 1}
    open_queues.servers.leave("agent-2")
    open_queues.servers.register(msgspec.structs.replace(abler, server_id="agent-2"))
    assert open_queues.leases.recalls() == {"agent-0": 1}
    open_queues.servers.register(server(3, slots=5))
    assert open_queues.leases.recalls() == {"agent-0": 2}


def test_nothing_is_recalled_for_a_server_that_can_run_less(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    """What comes back might have to wait."""
    open_queues.servers.leave("agent-1")
    abler = msgspec.structs.replace(server(0), environments=("arithmetic", "swe"))
    open_queues.servers.register(abler)
    open_queues.tasks.submit("train", [prompt("p0")])
    assert len(open_queues.leases.lease(8)) == 2
    open_queues.servers.register(server(1))
    assert open_queues.leases.recalls() == {}


def test_a_place_that_was_lost_is_offered_again_as_what_is_missing(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.servers.leave("agent-1")
    open_queues.tasks.submit("train", [prompt("p0")])
    working, waiting = leased(open_queues), leased(open_queues)
    open_queues.leases.give_back(working)
    open_queues.leases.give_back(waiting)
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 0
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 1
    assert len(open_queues.leases.lease(8)) == 2


def test_places_that_no_job_may_have_stay_on_offer_as_they_were(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    """A Job ahead is not turned into one for a Slot because its server was passed over."""
    open_queues.servers.register(server(1, ahead=0))
    open_queues.tasks.submit("train", [prompt("p0")])
    lost = {
        each.job.job_id for each in open_queues.leases.lease(8) if each.lease.server_id == "agent-0"
    }
    assert len(lost) == 1
    open_queues.servers.register(server(0))
    assert (
        open_queues.leases.lease(8) == []
    )  # the Job may not go there, and the other server is full
    assert open_queues.leases.lease(8) == []
    open_queues.tasks.submit("train", [prompt("p1")])
    leases = [each.lease for each in open_queues.leases.lease(8)]
    assert [lease.slot for lease in leases] == ["agent-0#0", "agent-0#1"]
    for lease in leases:
        report(open_queues, completed(lease))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 1


def test_jobs_that_were_passed_over_wait_in_their_order(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.servers.register(server(0, slots=2, ahead=0))
    open_queues.servers.register(server(1, slots=1, ahead=0))
    open_queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    assert len(open_queues.leases.lease(8)) == 3
    open_queues.servers.register(
        server(0, slots=2, ahead=0)
    )  # it loses two, and the other server is full
    *lost, last = (
        record.job_id for record in open_queues.jobs.records("train", JobState.QUEUED, 8)
    )
    assert leased(open_queues).job_id == last
    assert [
        record.job_id for record in open_queues.jobs.records("train", JobState.QUEUED, 8)
    ] == lost


def test_a_server_on_probation_gets_its_job_also_when_it_was_full_and_few_jobs_wait(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.servers.leave("agent-1")
    open_queues.servers.register(server(0, ahead=QUARANTINE.after_failures))
    open_queues.tasks.submit("train", [prompt(f"p{n}") for n in range(3)])
    running, *ahead = [each.lease for each in open_queues.leases.lease(8)]
    open_queues.servers.register(server(1, ahead=0))
    for lease in ahead:
        report(open_queues, failed(lease))
    assert conditions(open_queues)["agent-0"].state is ServerState.QUARANTINED
    until_let_back(open_queues, running)
    decide(
        open_queues,
        Requeue(job_ids=(running.job_id,)),
        Drop(group_ids=("p1", "p2"), why=Why.FILTERED),
    )
    assert is_stale(open_queues, completed(running))
    open_queues.servers.leave("agent-1")
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert [each.lease.server_id for each in open_queues.leases.lease(8)] == ["agent-0"]


def until_let_back(queues: Queues, running: Lease) -> None:
    """The quarantine of its server is over, and the server says that it works at `running`."""
    while left := conditions(queues)[running.server_id].let_back_in_seconds:
        time.sleep(left)
    queues.servers.heartbeat(Heartbeat(server_id=running.server_id, leases=(running,)))


def test_the_jobs_ahead_of_a_server_that_left_count_no_more(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.servers.leave("agent-1")
    open_queues.tasks.submit("train", [prompt("p0")])
    assert (
        len(open_queues.leases.lease(8)) == 2
    )  # one Job that waits is as many as could be ahead now


def test_jobs_that_a_server_may_not_have_are_looked_through_once_and_not_for_each_slot(
    admin_redis_url: str, settings: RunSettings, prompt: MakePrompt
) -> None:
    slots = 40
    prefix = f"rollyard:test:{uuid.uuid4().hex}:"
    queues = Queues(admin_redis_url, lease_seconds=60.0, prefix=prefix)
    queues.runs.create(settings)
    decide(queues, Open())
    queues.servers.register(server(0, slots=slots))
    queues.tasks.submit("train", [prompt(f"p{n}") for n in range(slots // 2)])
    assert len(queues.leases.lease(slots)) == slots
    queues.servers.register(server(0, slots=slots))  # it loses them all
    queues.servers.register(server(1, slots=1, ahead=0))
    with redis.Redis.from_url(admin_redis_url) as client:
        before = client.info("commandstats")["cmdstat_lpop"]["calls"]
        assert [each.lease.server_id for each in queues.leases.lease(slots)] == ["agent-1"]
        after = client.info("commandstats")["cmdstat_lpop"]["calls"]
    assert after - before < 4 * slots
