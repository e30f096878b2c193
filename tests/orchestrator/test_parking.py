"""Parked Jobs keep Lease and Slot, promised by the queues."""

import time
from collections.abc import Callable

import pytest

from orchestrator.collector import Collector
from orchestrator.events import AttemptEnded, BatchRequested, Ending
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Moved
from orchestrator.sampling.decisions import Cancel, Drop, Hold, Open, Park, Requeue, Why
from rollyard.messages import (
    AgentServer,
    Heartbeat,
    HeartbeatReply,
    JobState,
    Lease,
    Prompt,
    Receipt,
    RunSettings,
)
from tests.orchestrator.moves import (
    assert_conserved,
    completed,
    decide,
    failed,
    leased,
    moved_by,
    report,
)

MakePrompt = Callable[[str], Prompt]
JOBS = ("train/p0/0", "train/p0/1")


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    return patient_queues


def park(queues: Queues) -> Moved:
    return moved_by(queues, Hold(), Park())


def heartbeat(queues: Queues, *leases: Lease) -> HeartbeatReply:
    return queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=leases))


def test_a_parked_job_keeps_its_lease_and_its_slot(open_queues: Queues) -> None:
    lease = leased(open_queues)
    assert park(open_queues) == Moved(park=(lease,))
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_leased, counters.jobs_parked, counters.jobs_queued) == (1, 1, 1)
    assert open_queues.servers.busy_slots() == {"agent-0": 1}
    assert open_queues.leases.lease() == []
    assert_conserved(open_queues)


def test_every_heartbeat_is_told_what_is_parked_until_the_run_is_opened(
    open_queues: Queues,
) -> None:
    parked = leased(open_queues)
    decide(open_queues, Park())
    other = leased(open_queues)
    for _ in range(2):
        assert heartbeat(open_queues, parked, other) == HeartbeatReply(known=True, parked=(parked,))
    assert moved_by(open_queues, Open()) == Moved(resume=(parked,))
    assert heartbeat(open_queues, parked, other) == HeartbeatReply(known=True)
    assert moved_by(open_queues, Open()) == Moved()


def test_a_job_is_parked_once(open_queues: Queues) -> None:
    leased(open_queues)
    park(open_queues)
    assert park(open_queues) == Moved()


def test_parked_jobs_are_listed_apart_from_those_that_run(open_queues: Queues) -> None:
    parked = leased(open_queues)
    decide(open_queues, Park())
    other = leased(open_queues)
    listed = {
        state: [j.job_id for j in open_queues.jobs.records("train", state, 9)] for state in JobState
    }
    assert (listed[JobState.PARKED], listed[JobState.LEASED]) == ([parked.job_id], [other.job_id])
    assert open_queues.jobs.record(parked.job_id).state is JobState.PARKED
    assert open_queues.jobs.record(parked.job_id).attempts[-1].ended_at is None


def test_a_parked_job_that_had_finished_is_accepted(open_queues: Queues) -> None:
    lease = leased(open_queues)
    park(open_queues)
    assert report(open_queues, completed(lease)).receipt is Receipt.ACCEPTED
    assert open_queues.runs.read("train").counters.jobs_parked == 0
    assert moved_by(open_queues, Open()) == Moved()


@pytest.mark.parametrize("loss", ["restart", "leave", "failure", "stop"])
def test_a_lease_that_ends_is_parked_no_more(
    open_queues: Queues, server: AgentServer, loss: str
) -> None:
    lease = leased(open_queues)
    park(open_queues)
    if loss == "restart":
        open_queues.servers.register(server)
    elif loss == "leave":
        open_queues.servers.leave("agent-0")
    elif loss == "failure":
        report(open_queues, failed(lease))
    else:
        decide(open_queues, Requeue(job_ids=JOBS))
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_leased, counters.jobs_parked, counters.jobs_queued) == (0, 0, 2)
    assert moved_by(open_queues, Open()) == Moved()
    assert_conserved(open_queues)


def test_what_is_parked_and_stopped_in_one_conclusion_is_told_to_stop(open_queues: Queues) -> None:
    lease = leased(open_queues)
    moved = moved_by(open_queues, Park(), Cancel(job_ids=(lease.job_id,)))
    assert moved == Moved(stop=(lease,))


def test_the_time_parked_is_not_time_on_the_slot(open_queues: Queues) -> None:
    began = time.monotonic()
    lease = leased(open_queues)
    park(open_queues)
    parked_at = time.monotonic()
    time.sleep(0.05)
    parked_for = time.monotonic() - parked_at
    decide(open_queues, Open())
    decide(open_queues, Drop(group_ids=("p0",), why=Why.FILTERED))
    (ended,) = open_queues.connection.ask(open_queues.events.oldest("train"))
    assert isinstance(ended, AttemptEnded)
    assert (ended.job_id, ended.ending) == (lease.job_id, Ending.STOPPED)
    assert 0 <= ended.seconds <= time.monotonic() - began - parked_for + 0.003  # ms are rounded


def test_an_attempt_that_fails_is_told_of_and_one_given_back_is_not(open_queues: Queues) -> None:
    decide(open_queues)
    open_queues.leases.give_back(leased(open_queues))
    assert open_queues.connection.ask(open_queues.events.oldest("train")) == []
    heartbeat(open_queues)
    lease = leased(open_queues)
    report(open_queues, failed(lease))
    (ended,) = open_queues.connection.ask(open_queues.events.oldest("train"))
    assert isinstance(ended, AttemptEnded)
    assert (ended.job_id, ended.ending) == (lease.job_id, Ending.FAILED)


def test_a_job_leased_as_the_batch_is_completed_is_parked_too(
    queues: Queues, settings: RunSettings, server: AgentServer, prompt: MakePrompt
) -> None:
    """The sampler has not heard of its Group when it holds the Run."""
    pushed: list[Moved] = []
    collector = Collector(queues.events, queues.runs, pushed.append)
    queues.runs.create(settings)
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt("p0")])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    collector.collect("train")
    for reward in (0.0, 1.0):
        report(queues, completed(leased(queues), reward))
    sampled = queues.runs.read("train")
    queues.tasks.submit("train", [prompt("late")])
    late = leased(queues)
    assert sampled.events_waiting == 2
    collector.collect("train")
    assert pushed[-1] == Moved(park=(late,))
    assert queues.runs.read("train").counters.jobs_parked == 1
