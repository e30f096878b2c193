"""What operators see and order, promised by the queues."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Cancel, Drop, Open, Requeue, Why
from rollyard.errors import NotFound
from rollyard.messages import (
    AgentServer,
    AttemptOutcome,
    Heartbeat,
    JobState,
    Lease,
    Outcome,
    Prompt,
    Receipt,
    Result,
    RunSettings,
    ServerState,
)
from rollyard.unpacking import unpacked_group
from tests.orchestrator.moves import (
    assert_conserved,
    completed,
    conditions,
    decide,
    failed,
    is_stale,
    leased,
    report,
)
from tests.queue_fixtures import QUARANTINE, QueueMaker, embedded_redis

MakePrompt = Callable[[str], Prompt]


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    return patient_queues


@pytest.fixture
def open_queues(queues: Queues, settings: RunSettings, prompt: MakePrompt) -> Queues:
    """An open Run with Groups of two Jobs, and three servers of four Slots."""
    queues.runs.create(settings)
    for name in ("agent-0", "agent-1", "agent-2"):
        queues.servers.register(server(name))
    for number in range(6):
        queues.tasks.submit("train", [prompt(f"p{number}")])
    decide(queues, Open())
    return queues


def server(name: str) -> AgentServer:
    return AgentServer(
        server_id=name, url="http://127.0.0.1:9", slots=4, environments=("arithmetic",)
    )


def lease_on(queues: Queues, name: str) -> Lease:
    """The next Lease on that server; those on the others go back, and their servers are heard."""
    while True:
        lease = leased(queues)
        if lease.server_id == name:
            return lease
        report(queues, Result(lease=lease, outcome=Outcome.CANCELLED, error="wrong server"))


def lose(queues: Queues, lease: Lease) -> None:
    queues.servers.register(server(lease.server_id))


def fail_in_a_row(queues: Queues, name: str, jobs: int) -> None:
    """So many different Jobs fail there, one after the other."""
    for lease in [lease_on(queues, name) for _ in range(jobs)]:
        report(queues, failed(lease))


def state(queues: Queues, name: str = "agent-0") -> ServerState:
    return conditions(queues)[name].state


def test_a_job_lost_with_three_different_servers_is_dead(open_queues: Queues) -> None:
    for name in ("agent-0", "agent-1"):
        lose(open_queues, lease_on(open_queues, name))
    assert open_queues.runs.read("train").counters.jobs_dead == 0
    lose(open_queues, lease_on(open_queues, "agent-2"))
    assert open_queues.runs.read("train").counters.jobs_dead == 1
    (dead,) = open_queues.jobs.dead("train")
    assert dead.job_id == "train/p0/0"
    assert dead.reason == "agent server agent-2 restarted while it ran the job"
    lost = [a.server_id for a in dead.attempts if a.outcome is AttemptOutcome.LOST]
    assert lost == ["agent-0", "agent-1", "agent-2"]
    assert_conserved(open_queues)


def test_a_server_that_loses_a_job_again_and_again_counts_once_and_then_as_failures(
    open_queues: Queues,
) -> None:
    for other in ("agent-1", "agent-2"):
        open_queues.servers.leave(other)
    for _ in range(3):
        lose(open_queues, lease_on(open_queues, "agent-0"))
    assert open_queues.runs.read("train").counters.jobs_dead == 0
    lose(open_queues, lease_on(open_queues, "agent-0"))
    assert open_queues.runs.read("train").counters.jobs_dead == 1


def test_a_lost_job_is_never_given_to_the_same_server_while_there_is_another(
    open_queues: Queues,
) -> None:
    """It may be the Job that kills servers: each of them is to lose one process to it, not two."""
    leases = {
        assignment.lease.server_id: assignment.lease for assignment in open_queues.leases.lease(100)
    }
    lose(open_queues, leases["agent-0"])
    assert (
        open_queues.connection.ask(open_queues.servers.offer()).free_slots,
        open_queues.runs.read("train").counters.jobs_queued,
    ) == (4, 4)
    assert open_queues.leases.lease(100) == []  # the others are busy: it waits for them
    report(open_queues, completed(leases["agent-1"]))
    assert leased(open_queues).server_id == "agent-1"


def test_a_lost_job_goes_back_to_its_server_when_no_other_takes_jobs(open_queues: Queues) -> None:
    lost = lease_on(open_queues, "agent-0")
    lose(open_queues, lost)
    open_queues.servers.leave("agent-1")
    open_queues.servers.drain("agent-2")
    again = leased(open_queues)
    assert (again.job_id, again.server_id) == (lost.job_id, "agent-0")


def test_a_dead_job_is_requeued_as_a_new_group_with_a_fresh_budget(open_queues: Queues) -> None:
    bury(open_queues, "agent-0")
    decide(open_queues, Drop(group_ids=("p0",), why=Why.DEAD))
    assert open_queues.jobs.record("train/p0/0").state is JobState.DEAD
    assert open_queues.tasks.requeue("train/p0/0") == "p0:2"
    assert open_queues.jobs.dead("train") == []
    assert_conserved(open_queues)
    again = open_queues.jobs.record("train/p0:2/0")
    assert (again.state, again.attempts) == (JobState.QUEUED, ())
    with pytest.raises(NotFound, match="not among the dead"):
        open_queues.tasks.requeue("train/p0/0")


def test_a_requeued_job_takes_the_place_of_no_row_of_the_trainer(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p0:2")])
    bury(open_queues, "agent-0")
    assert open_queues.tasks.requeue("train/p0/0") == "p0:3"
    assert {"p0:2", "p0:3"} <= set(open_queues.tasks.prompts("train"))
    assert_conserved(open_queues)


def bury(queues: Queues, name: str) -> None:
    for _ in range(3):
        report(queues, failed(lease_on(queues, name)))


def test_a_requeued_prompt_is_sampled_into_a_batch(
    queues: Queues, settings: RunSettings, prompt: MakePrompt
) -> None:
    collector = Collector(queues.events, queues.runs, lambda lease: None)
    queues.runs.create(settings)
    queues.servers.register(server("agent-0"))
    queues.tasks.submit("train", [prompt("p0")])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    collector.collect("train")
    for _ in range(3):
        report(queues, failed(leased(queues)))
    collector.collect("train")
    assert queues.runs.read("train").counters.groups_dead == 1
    queues.tasks.requeue("train/p0/0")
    for reward in (0.0, 1.0):
        report(queues, completed(leased(queues), reward))
    collector.collect("train")
    (group,) = map(unpacked_group, queues.batches.groups("train", "b"))
    assert group.prompt.prompt_id == "p0:2"
    assert_conserved(queues)


def test_a_job_remembers_how_each_attempt_ended(open_queues: Queues) -> None:
    open_queues.leases.give_back(leased(open_queues), "connection refused")
    report(open_queues, failed(leased(open_queues)))
    running = open_queues.jobs.record("train/p0/0")
    assert [a.outcome for a in running.attempts] == [
        AttemptOutcome.GIVEN_BACK,
        AttemptOutcome.FAILED,
    ]
    assert [a.reason for a in running.attempts] == ["connection refused", "the disk is full"]
    lease = leased(open_queues)
    assert open_queues.jobs.record("train/p0/0").attempts[-1].outcome is AttemptOutcome.RUNNING
    report(open_queues, completed(lease, 0.5))
    record = open_queues.jobs.record("train/p0/0")
    last = record.attempts[-1]
    assert (record.state, record.reward, last.attempt) == (JobState.ACCEPTED, 0.5, 3)
    assert last.outcome is AttemptOutcome.ACCEPTED
    assert last.ended_at is not None
    assert last.ended_at >= last.leased_at > 0


def test_the_history_of_a_job_is_bounded(open_queues: Queues) -> None:
    for _ in range(20):
        result = Result(lease=leased(open_queues), outcome=Outcome.CANCELLED, error="e" * 10_000)
        report(open_queues, result)
    attempts = open_queues.jobs.record("train/p0/0").attempts
    assert [a.attempt for a in attempts] == list(range(13, 21))
    assert all(len(a.reason) == 1000 for a in attempts)


def test_jobs_are_listed_by_state_and_queued_ones_as_they_wait(open_queues: Queues) -> None:
    report(open_queues, completed(leased(open_queues)))
    leased(open_queues)
    queued = open_queues.jobs.records("train", JobState.QUEUED, 3)
    assert [job.job_id for job in queued] == ["train/p1/0", "train/p1/1", "train/p2/0"]
    assert [job.queue_position for job in queued] == [0, 1, 2]
    assert open_queues.jobs.record("train/p2/0").queue_position == 2
    assert [j.job_id for j in open_queues.jobs.records("train", JobState.LEASED, 9)] == [
        "train/p0/1"
    ]
    assert [j.job_id for j in open_queues.jobs.records("train", JobState.ACCEPTED, 9)] == [
        "train/p0/0"
    ]
    with pytest.raises(NotFound):
        open_queues.jobs.records("nowhere", JobState.QUEUED, 1)


@pytest.mark.parametrize("name", ["train/nothing/0", "nowhere/p0/0", "rubbish", "a/b/c"])
def test_an_unknown_job_is_not_found(open_queues: Queues, name: str) -> None:
    with pytest.raises(NotFound):
        open_queues.jobs.record(name)


def test_a_server_on_which_different_jobs_keep_failing_gets_no_more(open_queues: Queues) -> None:
    fail_in_a_row(open_queues, "agent-0", QUARANTINE.after_failures)
    assert state(open_queues) is ServerState.QUARANTINED
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 8
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 8
    assert conditions(open_queues)["agent-0"].let_back_in_seconds > 0


def test_one_job_that_keeps_failing_does_not_put_its_server_into_quarantine(
    queues: Queues, prompt: MakePrompt
) -> None:
    queues.runs.create(RunSettings(run_id="train", group_size=2, max_infra_failures=9))
    for name in ("agent-0", "agent-1"):
        queues.servers.register(server(name))
    queues.tasks.submit("train", [prompt("p0")])
    decide(queues, Open())
    for _ in range(8):
        report(queues, failed(leased(queues)))
    assert {c.state for c in conditions(queues).values()} == {ServerState.SERVING}


def test_a_success_ends_the_row_of_failures(open_queues: Queues) -> None:
    for _ in range(2):
        fail_in_a_row(open_queues, "agent-0", QUARANTINE.after_failures - 1)
        report(open_queues, completed(lease_on(open_queues, "agent-0")))
    assert state(open_queues) is ServerState.SERVING


def test_never_more_than_half_of_the_servers_are_quarantined(open_queues: Queues) -> None:
    fail_in_a_row(open_queues, "agent-0", QUARANTINE.after_failures)
    fail_in_a_row(open_queues, "agent-1", QUARANTINE.after_failures)
    assert state(open_queues, "agent-0") is ServerState.QUARANTINED
    assert state(open_queues, "agent-1") is ServerState.SERVING


def on_probation(queues: Queues, name: str = "agent-0") -> None:
    fail_in_a_row(queues, name, QUARANTINE.after_failures)
    deadline = time.monotonic() + 10
    while conditions(queues)[name].let_back_in_seconds and time.monotonic() < deadline:
        time.sleep(conditions(queues)[name].let_back_in_seconds)
    queues.servers.heartbeat(Heartbeat(server_id=name, leases=()))
    assert state(queues, name) is ServerState.PROBATION


def test_after_its_time_a_quarantined_server_gets_one_job_and_after_a_success_all(
    open_queues: Queues,
) -> None:
    on_probation(open_queues)
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 9
    report(open_queues, completed(lease_on(open_queues, "agent-0")))
    assert state(open_queues) is ServerState.SERVING
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 12


def test_a_failure_on_probation_is_the_next_longer_quarantine(open_queues: Queues) -> None:
    on_probation(open_queues)
    report(open_queues, failed(lease_on(open_queues, "agent-0")))
    assert state(open_queues) is ServerState.QUARANTINED
    assert conditions(open_queues)["agent-0"].let_back_in_seconds > QUARANTINE.first_seconds


def test_a_quarantined_server_that_starts_again_is_on_probation(open_queues: Queues) -> None:
    fail_in_a_row(open_queues, "agent-0", QUARANTINE.after_failures)
    open_queues.servers.register(server("agent-0"))
    assert state(open_queues) is ServerState.PROBATION
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 9


def test_a_draining_server_finishes_what_it_runs_and_is_told_to_leave(open_queues: Queues) -> None:
    lease = lease_on(open_queues, "agent-0")
    open_queues.servers.drain("agent-0")
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 8
    assert not open_queues.servers.heartbeat(
        Heartbeat(server_id="agent-0", leases=(lease,))
    ).drained
    assert report(open_queues, completed(lease)).receipt is Receipt.ACCEPTED
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 8
    assert open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=())).drained
    assert state(open_queues) is ServerState.DRAINING


def test_a_draining_server_is_not_told_to_leave_before_its_last_job_has_arrived(
    open_queues: Queues,
) -> None:
    lease_on(open_queues, "agent-0")
    open_queues.servers.drain("agent-0")
    assert not open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=())).drained


def test_a_drained_server_that_starts_again_serves_again(open_queues: Queues) -> None:
    open_queues.servers.drain("agent-0")
    open_queues.servers.register(server("agent-0"))
    assert state(open_queues) is ServerState.SERVING
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 12


def test_an_unknown_server_cannot_be_drained(open_queues: Queues) -> None:
    with pytest.raises(NotFound, match="no agent server 'agent-9'"):
        open_queues.servers.drain("agent-9")


def test_the_time_from_a_stop_to_the_free_slot_is_measured(open_queues: Queues) -> None:
    requeued, kept = lease_on(open_queues, "agent-0"), lease_on(open_queues, "agent-0")
    report(open_queues, completed(kept))
    assert lease_on(open_queues, "agent-0").job_id == "train/p1/0"
    decide(
        open_queues, Requeue(job_ids=(requeued.job_id,)), Drop(group_ids=("p1",), why=Why.FILTERED)
    )
    time.sleep(0.02)
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    condition = conditions(open_queues)["agent-0"]
    assert condition.reclaims == 2
    assert 0.02 <= condition.worst_reclaim_seconds <= condition.reclaim_seconds < 5


def test_a_stopped_attempt_that_ends_by_itself_is_measured_too(open_queues: Queues) -> None:
    lease = lease_on(open_queues, "agent-0")
    decide(open_queues, Requeue(job_ids=(lease.job_id,)))
    assert is_stale(open_queues, completed(lease))
    assert conditions(open_queues)["agent-0"].reclaims == 1


def test_a_report_brings_no_next_job_to_a_draining_server(open_queues: Queues) -> None:
    lease = lease_on(open_queues, "agent-0")
    open_queues.servers.drain("agent-0")
    assert report(open_queues, completed(lease), more=True).assignment is None


def test_a_report_brings_no_next_job_to_a_quarantined_server(open_queues: Queues) -> None:
    lease = lease_on(open_queues, "agent-0")
    fail_in_a_row(open_queues, "agent-0", QUARANTINE.after_failures)
    assert report(open_queues, completed(lease), more=True).assignment is None


def test_a_report_brings_the_next_job_to_a_server_that_succeeds_on_probation(
    open_queues: Queues,
) -> None:
    on_probation(open_queues)
    reported = report(open_queues, completed(lease_on(open_queues, "agent-0")), more=True)
    assert reported.assignment is not None
    assert reported.assignment.lease.server_id == "agent-0"


def test_no_lease_is_without_its_server(open_queues: Queues) -> None:
    leased(open_queues)
    assert open_queues.jobs.stray_leases() == ()
    open_queues.servers.leave("agent-0")
    assert open_queues.jobs.stray_leases() == ()


def test_the_embedded_redis_is_durable(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as url:
        storage = Queues(url).store.describe()
    assert (storage.appendonly, storage.appendfsync) == ("yes", "always")
    assert storage.eviction == "noeviction"
    assert abs(storage.at - time.time()) < 2
    assert storage.used_bytes


def test_a_limited_user_is_not_told_the_settings_of_redis(redis_url: str) -> None:
    storage = Queues(redis_url).store.describe()
    assert storage.kind == "redis"
    assert (storage.appendonly, storage.appendfsync) == (None, None)


@pytest.mark.parametrize("member", [2, 999])
def test_a_member_that_was_never_begun_is_not_found(open_queues: Queues, member: int) -> None:
    with pytest.raises(NotFound, match="or never begun"):
        open_queues.jobs.record(f"train/p0/{member}")


def test_a_member_that_was_cancelled_is_not_queued(open_queues: Queues) -> None:
    decide(open_queues, Cancel(job_ids=("train/p0/1",)))
    with pytest.raises(NotFound, match="it was cancelled"):
        open_queues.jobs.record("train/p0/1")
    assert open_queues.jobs.record("train/p0/0").state is JobState.QUEUED


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        (Why.HELD, "nothing of the run is wanted until the next batch"),
        (Why.AGED, "its tokens were too old for the batch"),
    ],
)
def test_an_attempt_that_was_stopped_remembers_why(
    open_queues: Queues, why: Why, reason: str
) -> None:
    lease = leased(open_queues)
    decide(open_queues, Requeue(job_ids=(lease.job_id,), why=why))
    (attempt,) = open_queues.jobs.record(lease.job_id).attempts
    assert (attempt.outcome, attempt.reason) == (AttemptOutcome.STOPPED, reason)


def test_accepted_jobs_are_listed_without_a_look_at_their_trajectories(
    make_queues: QueueMaker, settings: RunSettings, prompt: MakePrompt
) -> None:
    queues = make_queues(Queues, lease_seconds=60.0, quarantine=QUARANTINE)
    queues.runs.create(settings)
    queues.servers.register(server("agent-0"))
    queues.tasks.submit("train", [prompt("p0")])
    decide(queues, Open())
    lease = leased(queues)
    report(queues, completed(lease, reward=0.25))
    results = queues.connection.of_run("train", "results")
    queues.connection.do(lambda r: r.delete(results))
    (job,) = queues.jobs.records("train", JobState.ACCEPTED, 9)
    assert (job.job_id, job.reward) == (lease.job_id, 0.25)
    (attempt,) = job.attempts
    assert (attempt.server_id, attempt.attempt) == (lease.server_id, 1)


def test_every_reason_to_stop_is_told_in_words_of_its_own(open_queues: Queues) -> None:
    for why in Why:
        lease = leased(open_queues)
        decide(open_queues, Requeue(job_ids=(lease.job_id,), why=why))
    reasons = [attempt.reason for attempt in open_queues.jobs.record("train/p0/0").attempts]
    assert len(set(reasons)) == len(reasons)
