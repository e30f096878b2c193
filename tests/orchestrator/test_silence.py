"""Who is silent, and whose fault that is."""

from collections.abc import Callable

import pytest
import redis

from orchestrator.queues import Queues
from orchestrator.queues.limits import MAX_EXCUSED
from orchestrator.sampling.decisions import Open
from rollyard.messages import AgentServer, AttemptOutcome, Heartbeat, Prompt, RunSettings
from tests.orchestrator.moves import assert_conserved, decide
from tests.queue_fixtures import QueueMaker

LEASE_SECONDS = 60.0
SERVERS = ("agent-0", "agent-1", "agent-2", "agent-3")


class AgedQueues(Queues):
    """Queues in which a time without news can be made up."""

    def age(self, *servers: str, seconds: float = 2 * LEASE_SECONDS) -> None:
        """As if these servers had been heard of so long ago."""

        def age(r: "redis.Redis") -> None:
            for server in servers:
                r.zincrby(self.connection.key("seen"), -seconds, server)

        self.connection.do(age)

    def lost_long_ago(self, job_id: str) -> None:
        """As if the Job had been lost more than a Lease ago."""
        lost = self.connection.of_run(job_id.split("/")[0], "lost")
        servers = self.connection.do(lambda r: r.hget(lost, job_id)).split(b" ", 1)[1]
        self.connection.do(lambda r: r.hset(lost, job_id, b"1.000 " + servers))


def server(name: str, slots: int = 1) -> AgentServer:
    return AgentServer(
        server_id=name, url="http://127.0.0.1:9", slots=slots, environments=("arithmetic",)
    )


@pytest.fixture
def open_queues(
    make_queues: QueueMaker, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> AgedQueues:
    """An open Run with four Jobs, and four servers of one Slot."""
    queues = make_queues(AgedQueues, lease_seconds=LEASE_SECONDS)
    queues.runs.create(settings)
    for name in SERVERS:
        queues.servers.register(server(name))
    queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    decide(queues, Open())
    return queues


def charged(open_queues: AgedQueues) -> int:
    return open_queues.runs.read("train").counters.attempts_failed


def test_nobody_is_judged_by_a_time_in_which_nobody_looked(open_queues: AgedQueues) -> None:
    open_queues.leases.lease(4)
    looked_at = open_queues.leases.expire().at
    open_queues.age(*SERVERS)
    look = open_queues.leases.expire(looked_at - LEASE_SECONDS)
    assert (len(open_queues.servers.registered()), charged(open_queues)) == (4, 0)
    assert open_queues.leases.expire(look.at).nap_seconds == pytest.approx(
        LEASE_SECONDS / 10, rel=0.1
    )


def test_nobody_is_judged_by_a_clock_that_was_set_back(open_queues: AgedQueues) -> None:
    open_queues.leases.lease(4)
    looked_at = open_queues.leases.expire().at
    open_queues.age("agent-0")
    open_queues.leases.expire(looked_at + 5.0)
    assert (len(open_queues.servers.registered()), charged(open_queues)) == (4, 0)


def test_a_server_that_is_silent_alone_is_charged_between_two_looks_in_time(
    open_queues: AgedQueues,
) -> None:
    open_queues.leases.lease(4)
    looked_at = open_queues.leases.expire().at
    open_queues.age("agent-0")
    open_queues.leases.expire(looked_at)
    assert (len(open_queues.servers.registered()), charged(open_queues)) == (3, 1)


def test_a_silence_of_most_servers_is_not_held_against_their_jobs(open_queues: AgedQueues) -> None:
    """They fall silent one after the other, as their heartbeats were due."""
    open_queues.leases.lease(4)
    open_queues.age("agent-0", "agent-1", "agent-2", seconds=0.9 * LEASE_SECONDS)
    for name in ("agent-0", "agent-1", "agent-2"):
        open_queues.age(name)
        open_queues.leases.expire()
    assert [each.server_id for each in open_queues.servers.registered()] == ["agent-3"]
    counters = open_queues.runs.read("train").counters
    assert (counters.attempts_failed, counters.jobs_queued, counters.jobs_leased) == (0, 3, 1)
    (attempt,) = open_queues.jobs.record("train/p0/0").attempts
    assert attempt.outcome is AttemptOutcome.LOST
    assert attempt.reason.endswith("as most servers did; not counted against the job")
    assert_conserved(open_queues)


def test_a_job_that_brings_all_servers_down_again_and_again_is_charged(
    open_queues: AgedQueues,
) -> None:
    for _ in range(MAX_EXCUSED):
        open_queues.leases.lease(4)
        open_queues.age(*SERVERS)
        open_queues.leases.expire()
        assert charged(open_queues) == 0
        for name in SERVERS:
            open_queues.servers.register(server(name))
    open_queues.leases.lease(4)
    open_queues.age(*SERVERS)
    open_queues.leases.expire()
    assert charged(open_queues) == 4


def test_the_jobs_of_a_server_that_has_ended_wait_at_once(open_queues: AgedQueues) -> None:
    held = {each.lease.server_id: each.lease.job_id for each in open_queues.leases.lease(4)}
    open_queues.age("agent-0", seconds=LEASE_SECONDS / 5)
    overdue = open_queues.leases.expire().overdue
    assert list(overdue) == ["agent-0"]
    open_queues.leases.expire(ended=overdue)
    assert [each.server_id for each in open_queues.servers.registered()] == list(SERVERS[1:])
    counters = open_queues.runs.read("train").counters
    assert (counters.attempts_failed, counters.jobs_queued, counters.jobs_leased) == (1, 1, 3)
    (attempt,) = open_queues.jobs.record(held["agent-0"]).attempts
    assert attempt.reason.startswith("agent server agent-0 ended while it ran the job")
    assert_conserved(open_queues)


def test_a_server_that_was_heard_of_meanwhile_has_not_ended(open_queues: AgedQueues) -> None:
    open_queues.leases.lease(4)
    open_queues.age("agent-0", "agent-1", seconds=LEASE_SECONDS / 5)
    overdue = open_queues.leases.expire().overdue
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    open_queues.servers.register(server("agent-1"))
    open_queues.leases.expire(ended=overdue)
    assert [each.server_id for each in open_queues.servers.registered()] == list(SERVERS)


def test_that_most_servers_have_ended_is_not_held_against_their_jobs(
    open_queues: AgedQueues,
) -> None:
    open_queues.leases.lease(4)
    open_queues.age(*SERVERS[:3], seconds=LEASE_SECONDS / 5)
    open_queues.leases.expire(ended=open_queues.leases.expire().overdue)
    assert [each.server_id for each in open_queues.servers.registered()] == ["agent-3"]
    assert charged(open_queues) == 0


def test_one_server_alone_is_no_fleet(open_queues: AgedQueues) -> None:
    for name in SERVERS[1:]:
        open_queues.servers.leave(name)
    open_queues.leases.lease(1)
    open_queues.age("agent-0")
    open_queues.leases.expire()
    assert charged(open_queues) == 1


def test_a_lost_job_waits_for_another_server_no_longer_than_a_lease(
    open_queues: AgedQueues,
) -> None:
    """The slots of the others may be busy for hours."""
    held = {each.lease.server_id: each.lease for each in open_queues.leases.lease(4)}
    lost = held["agent-0"].job_id
    open_queues.age("agent-0")
    open_queues.leases.expire()
    open_queues.servers.register(server("agent-0"))
    assert open_queues.leases.lease() == []
    open_queues.lost_long_ago(lost)
    (again,) = open_queues.leases.lease()
    assert (again.lease.job_id, again.lease.server_id) == (lost, "agent-0")
