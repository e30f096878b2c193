"""The contract of the queues."""

import threading
import time
from collections.abc import Callable

import msgspec
import pytest
import redis

from orchestrator.collector import Collector
from orchestrator.events import AttemptEnded, BatchRequested, JobDied, PromptFed, ResultAccepted
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion
from orchestrator.queues.limits import MAX_GONE_KNOWN
from orchestrator.sampling.decisions import (
    Chosen,
    Drop,
    Hold,
    Open,
    Requeue,
    RequeueAll,
    Why,
)
from orchestrator.sampling.state import GroupState, Member, SamplerState, Wanted
from rollyard.errors import Conflict, NotFound, Unavailable
from rollyard.messages import (
    AgentServer,
    Heartbeat,
    Lease,
    Outcome,
    Prompt,
    Receipt,
    Result,
    RunSettings,
)
from rollyard.unpacking import unpacked_group
from tests.orchestrator.moves import (
    assert_conserved,
    completed,
    conclude,
    decide,
    delivery,
    failed,
    is_stale,
    leased,
    report,
)
from tests.queue_fixtures import LEASE_SECONDS

MakePrompt = Callable[[str], Prompt]


def test_jobs_are_leased_in_the_order_they_were_submitted(open_queues: Queues) -> None:
    assert [leased(open_queues).job_id, leased(open_queues).job_id] == ["train/p0/0", "train/p0/1"]
    assert open_queues.leases.lease() == []


def test_a_lease_carries_everything_an_agent_server_needs(open_queues: Queues) -> None:
    (assignment,) = open_queues.leases.lease()
    assert assignment.job.prompt.instance == {"data_source": "arithmetic"}
    assert assignment.job.sampling == open_queues.runs.read("train").settings.sampling
    assert assignment.lease.server_id == "agent-0"


def test_each_slot_runs_one_job(open_queues: Queues, prompt: MakePrompt) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    first, second = leased(open_queues), leased(open_queues)
    assert first.slot != second.slot
    assert open_queues.leases.lease() == []
    assert open_queues.servers.busy_slots() == {"agent-0": 2}
    report(open_queues, completed(first))
    assert leased(open_queues).slot == first.slot


def test_feeding_a_prompt_twice_feeds_it_once(open_queues: Queues, prompt: MakePrompt) -> None:
    assert open_queues.tasks.submit("train", [prompt("p1")]) == [True]
    assert open_queues.tasks.submit("train", [prompt("p1"), prompt("p2")]) == [False, True]
    assert open_queues.runs.read("train").counters.jobs_submitted == 6


def test_a_run_of_weeks_does_not_remember_every_prompt(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    """A Prompt that may still be repeated is known; one of long ago costs nothing."""
    names = [f"g{number}" for number in range(MAX_GONE_KNOWN + 1)]
    for first in range(0, len(names), 500):
        open_queues.tasks.submit("train", [prompt(name) for name in names[first : first + 500]])
    conclude(open_queues, Drop(group_ids=tuple(names), why=Why.FILTERED), events=0)
    assert open_queues.tasks.submit("train", [prompt("g0"), prompt("g1")]) == [True, False]


def test_a_closed_run_and_a_full_one_take_none_of_the_prompts(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    with pytest.raises(Unavailable, match="has 2 queued jobs already"):
        open_queues.tasks.submit("train", [prompt("p1"), prompt("p2")], max_queued=4)
    open_queues.events.close("train")
    with pytest.raises(Conflict, match="is closed"):
        open_queues.tasks.submit("train", [prompt("p1"), prompt("p2")])
    assert open_queues.runs.read("train").counters.jobs_submitted == 2


def test_one_lost_lease_spoils_none_of_the_other_reports(open_queues: Queues) -> None:
    lost, held = leased(open_queues), leased(open_queues)
    report(open_queues, failed(lost))
    answers = open_queues.leases.report([completed(lost), completed(held)])
    assert [answer.receipt for answer in answers] == [Receipt.STALE, Receipt.ACCEPTED]


def test_a_held_run_is_not_dispatched(open_queues: Queues) -> None:
    decide(open_queues, Hold())
    assert open_queues.leases.lease() == []
    decide(open_queues, Open())
    assert open_queues.leases.lease() != []


def test_runs_take_turns(open_queues: Queues, prompt: MakePrompt, server: AgentServer) -> None:
    open_queues.runs.create(RunSettings(run_id="other", group_size=2))
    open_queues.tasks.submit("other", [prompt("q0")])
    decide(open_queues, Open(), run_id="other")
    assert {leased(open_queues).job_id.split("/")[0] for _ in range(2)} == {"train", "other"}


def test_a_completed_result_is_accepted_once(open_queues: Queues) -> None:
    lease = leased(open_queues)
    assert report(open_queues, completed(lease)).receipt is Receipt.ACCEPTED
    assert report(open_queues, completed(lease)).receipt is Receipt.DUPLICATE
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_accepted, counters.rewards_sum) == (1, 1.0)
    assert_conserved(open_queues)


def test_an_acceptance_becomes_an_event_after_those_before_it(open_queues: Queues) -> None:
    report(open_queues, completed(leased(open_queues), reward=0.25))
    (accepted,) = open_queues.connection.ask(open_queues.events.oldest("train"))
    assert isinstance(accepted, ResultAccepted)
    assert (accepted.job_id, accepted.reward) == ("train/p0/0", 0.25)


def test_a_failed_attempt_goes_to_the_front_with_a_higher_attempt(open_queues: Queues) -> None:
    lease = leased(open_queues)
    assert report(open_queues, failed(lease)).receipt is Receipt.REQUEUED
    again = leased(open_queues)
    assert (again.job_id, again.attempt) == (lease.job_id, lease.attempt + 1)
    assert_conserved(open_queues)


def test_the_old_attempt_cannot_report_any_more(open_queues: Queues) -> None:
    old = leased(open_queues)
    report(open_queues, failed(old))
    new = leased(open_queues)
    assert is_stale(open_queues, completed(old))
    assert report(open_queues, completed(new)).receipt is Receipt.ACCEPTED


def test_a_late_result_is_counted_unless_its_attempt_was_told_to_stop(open_queues: Queues) -> None:
    old = leased(open_queues)
    report(open_queues, failed(old))
    cancelled = Result(lease=old, outcome=Outcome.CANCELLED, error="cancelled")
    assert all(is_stale(open_queues, late) for late in (completed(old), failed(old), cancelled))
    assert open_queues.runs.read("train").counters.results_refused == 2


def test_a_late_result_of_an_unknown_run_leaves_nothing_in_redis(admin_redis_url: str) -> None:
    queues = Queues(admin_redis_url, prefix="rollyard:nobody:")
    lease = Lease(job_id="nobody/p0/0", attempt=1, server_id="agent-0", slot="agent-0#0")
    assert is_stale(queues, completed(lease))
    assert redis.Redis.from_url(admin_redis_url).keys("rollyard:nobody:*") == [
        b"rollyard:nobody:version"
    ]


def test_a_stale_report_still_frees_its_slot(open_queues: Queues) -> None:
    lease = leased(open_queues)
    decide(open_queues, Requeue(job_ids=(lease.job_id,)))
    free = open_queues.connection.ask(open_queues.servers.offer()).free_slots
    assert is_stale(open_queues, completed(lease))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == free + 1


def test_a_late_report_leaves_its_slot_to_the_job_that_has_it_now(open_queues: Queues) -> None:
    old = leased(open_queues)
    decide(open_queues, Requeue(job_ids=(old.job_id,)))
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert old.slot in (leased(open_queues).slot, leased(open_queues).slot)
    assert is_stale(open_queues, completed(old))
    assert open_queues.servers.busy_slots() == {"agent-0": 2}
    assert open_queues.leases.lease() == []


def test_an_old_attempt_stays_stale_when_a_newer_one_was_accepted(open_queues: Queues) -> None:
    old = leased(open_queues)
    report(open_queues, failed(old))
    report(open_queues, completed(leased(open_queues)))
    assert is_stale(open_queues, completed(old))


def test_a_job_that_keeps_failing_dies_with_its_reason(open_queues: Queues) -> None:
    decide(open_queues)
    receipts = []
    for _ in range(3):
        receipts.append(report(open_queues, failed(leased(open_queues))).receipt)
    assert receipts == [Receipt.REQUEUED, Receipt.REQUEUED, Receipt.DEAD]
    *ended, died = open_queues.connection.ask(open_queues.events.oldest("train"))
    assert died == JobDied(job_id="train/p0/0", reason="the disk is full")
    assert [type(event) for event in ended] == [AttemptEnded] * 3
    assert_conserved(open_queues)


def test_a_cancelled_attempt_is_requeued_and_not_charged(open_queues: Queues) -> None:
    for _ in range(5):
        result = Result(lease=leased(open_queues), outcome=Outcome.CANCELLED, error="draining")
        assert report(open_queues, result).receipt is Receipt.REQUEUED
    assert open_queues.runs.read("train").counters.attempts_failed == 0


def test_requeued_jobs_wait_oldest_first_and_their_leases_end(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    first, second = leased(open_queues), leased(open_queues)
    ended = decide(open_queues, Hold(), RequeueAll())
    assert sorted(lease.job_id for lease in ended) == [first.job_id, second.job_id]
    counters = open_queues.runs.read("train").counters
    assert (counters.attempts_stopped, counters.jobs_carried_over) == (2, 4)
    assert (counters.jobs_queued, counters.jobs_leased) == (4, 0)
    decide(open_queues, Open())
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert [leased(open_queues).job_id for _ in range(2)] == ["train/p0/0", "train/p0/1"]
    assert_conserved(open_queues)


def test_a_job_accepted_before_the_conclusion_is_not_counted_as_carried_over(
    open_queues: Queues,
) -> None:
    report(open_queues, completed(leased(open_queues)))
    decide(open_queues, RequeueAll())
    assert open_queues.runs.read("train").counters.jobs_carried_over == 1


def test_a_job_begun_again_for_its_age_is_not_counted_as_kept_for_the_next_batch(
    open_queues: Queues,
) -> None:
    lease = leased(open_queues)
    decide(open_queues, Requeue(job_ids=(lease.job_id,)))
    counters = open_queues.runs.read("train").counters
    assert (counters.attempts_stopped, counters.jobs_carried_over) == (1, 0)


def test_a_dropped_group_leaves_nothing_behind(open_queues: Queues) -> None:
    lease = leased(open_queues)
    ended = decide(open_queues, Drop(group_ids=("p0",), why=Why.FILTERED))
    assert ended == [lease]
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_dropped, counters.jobs_queued, counters.jobs_leased) == (2, 0, 0)
    assert_conserved(open_queues)
    assert is_stale(open_queues, completed(lease))


def test_a_group_dropped_while_it_waits_costs_no_slot(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    decide(open_queues, Drop(group_ids=("p0",), why=Why.FILTERED))
    assert open_queues.leases.lease() == []
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 2
    open_queues.tasks.submit("train", [prompt("p1")])
    assert leased(open_queues).job_id == "train/p1/0"


def test_redis_keeps_of_a_dropped_group_only_that_it_was_fed(
    open_queues: Queues, redis_url: str
) -> None:
    report(open_queues, failed(leased(open_queues)))
    report(open_queues, completed(leased(open_queues)))
    decide(open_queues, Drop(group_ids=("p0",), why=Why.FILTERED))
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    prefix = open_queues.connection.key("run:train:")
    left = {key.removeprefix(prefix) for key in client.scan_iter(f"{prefix}*")}
    kept = {
        "settings",
        "sampler",
        "config",
        "fed",
        "gone_at",
        "counts",
        "queued",
        "news",
        "settled",
    }
    assert left <= kept
    assert client.zcard(open_queues.connection.key("leases")) == 0


def test_a_delivered_batch_can_be_fetched_until_it_is_dropped(open_queues: Queues) -> None:
    for reward in (0.0, 1.0):
        report(open_queues, completed(leased(open_queues), reward))
    decide(open_queues, delivery("b", p0=(0, 1)))
    for _ in range(2):
        (group,) = map(unpacked_group, open_queues.batches.groups("train", "b"))
        assert [result.reward for result in group.results] == [0.0, 1.0]
        assert group.prompt.prompt_id == "p0"
    with pytest.raises(NotFound):
        open_queues.batches.groups("train", "other")


def test_the_state_is_stored_with_the_conclusion(open_queues: Queues) -> None:
    open_queues.events.tell("train", BatchRequested(batch_id="x", requested_batch_size=3))
    state = SamplerState(
        wanted=[Wanted(batch_id="x", requested_batch_size=3, weight_version=0)],
        open={"g": GroupState(number=0, asked=2, done={1: Member(0.5, 0, 3.0)})},
    )
    conclude(open_queues, state=state)
    stored = open_queues.runs.read("train").state
    stored.open, stored.complete = dict(stored.open), dict(stored.complete)
    assert msgspec.to_builtins(stored) == msgspec.to_builtins(state)


def test_events_keep_their_order_until_concluded(
    queues: Queues, settings: RunSettings, prompt: MakePrompt
) -> None:
    queues.runs.create(settings)
    queues.tasks.submit("train", [prompt("p0")])
    queues.events.tell("train", BatchRequested(batch_id="x", requested_batch_size=1))
    fed, requested = (
        PromptFed(group_id="p0"),
        BatchRequested(batch_id="x", requested_batch_size=1),
    )
    assert queues.connection.ask(queues.events.oldest("train")) == [fed, requested]
    conclude(queues, state=SamplerState())
    assert queues.connection.ask(queues.events.oldest("train")) == [requested]
    conclude(queues, state=SamplerState())
    assert queues.connection.ask(queues.events.oldest("train")) == []


def test_a_conclusion_from_an_outdated_state_changes_nothing(open_queues: Queues) -> None:
    open_queues.events.tell("train", BatchRequested(batch_id="x", requested_batch_size=3))
    outdated = open_queues.runs.read("train").concluded
    conclude(open_queues)
    open_queues.events.tell("train", BatchRequested(batch_id="y", requested_batch_size=3))
    drop = Conclusion(
        after=outdated,
        events=1,
        state=SamplerState(closed=True),
        decisions=[Drop(group_ids=("p0",), why=Why.FILTERED)],
    )
    with pytest.raises(Conflict, match="somebody else concluded"):
        open_queues.events.conclude("train", drop)
    assert not open_queues.runs.read("train").state.closed
    assert open_queues.runs.read("train").counters.jobs_queued == 2
    assert len(open_queues.connection.ask(open_queues.events.oldest("train"))) == 1


def test_a_report_may_bring_the_slots_next_job(open_queues: Queues, prompt: MakePrompt) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    first, _ = leased(open_queues), leased(open_queues)
    reported = report(open_queues, completed(first), more=True)
    assert reported.receipt is Receipt.ACCEPTED
    assert reported.assignment is not None
    assert reported.assignment.lease.slot == first.slot
    assert reported.assignment.job.job_id == "train/p1/0"
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 0
    assert_conserved(open_queues)


def test_a_repeated_report_is_told_the_same_next_job(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    first, _ = leased(open_queues), leased(open_queues)
    told = report(open_queues, completed(first), more=True)
    again = report(open_queues, completed(first), more=True)
    assert again.receipt is Receipt.DUPLICATE
    assert again.assignment == told.assignment
    assert open_queues.runs.read("train").counters.jobs_leased == 2


def test_a_report_repeated_in_one_call_is_told_the_same_next_job(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    first, _ = leased(open_queues), leased(open_queues)
    told, again = open_queues.leases.report([completed(first), completed(first)], more=True)
    assert (told.receipt, again.receipt) == (Receipt.ACCEPTED, Receipt.DUPLICATE)
    assert told.assignment is not None
    assert again.assignment == told.assignment
    assert open_queues.runs.read("train").counters.jobs_accepted == 1
    assert_conserved(open_queues)


def test_results_that_are_reported_together_become_events_in_their_order(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    one, other = leased(open_queues), leased(open_queues)
    before = len(open_queues.connection.ask(open_queues.events.oldest("train")))
    open_queues.leases.report([completed(one), failed(other)])
    told = open_queues.connection.ask(open_queues.events.oldest("train"))[before:]
    assert [type(event).__name__ for event in told] == ["ResultAccepted", "AttemptEnded"]


def test_a_slot_without_a_next_job_is_free(open_queues: Queues) -> None:
    first, _ = leased(open_queues), leased(open_queues)
    assert report(open_queues, completed(first), more=True).assignment is None
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 1


def test_a_failed_attempt_brings_no_next_job_to_its_slot(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    first, _ = leased(open_queues), leased(open_queues)
    assert report(open_queues, failed(first), more=True).assignment is None
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 1


def test_a_run_cannot_be_created_again_with_other_settings(
    queues: Queues, settings: RunSettings
) -> None:
    queues.runs.create(settings)
    queues.runs.create(settings)
    with pytest.raises(Conflict, match="other settings"):
        queues.runs.create(RunSettings(run_id="train", group_size=4))


def test_an_unknown_run_is_not_found(queues: Queues, prompt: MakePrompt) -> None:
    with pytest.raises(NotFound, match="no run 'nowhere'"):
        queues.runs.read("nowhere")
    with pytest.raises(NotFound):
        queues.tasks.submit("nowhere", [prompt("p0")])


def test_heartbeats_keep_a_lease_beyond_its_first_deadline(open_queues: Queues) -> None:
    lease = leased(open_queues)
    started = time.monotonic()
    while time.monotonic() < started + 2 * LEASE_SECONDS:
        reply = open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,)))
        assert reply.known
        assert reply.stop == ()
        time.sleep(min(LEASE_SECONDS / 4, max(0.0, open_queues.leases.expire().nap_seconds)))
    assert open_queues.runs.read("train").counters.jobs_leased == 1


def test_a_silent_server_loses_its_jobs_and_its_slots(open_queues: Queues) -> None:
    lease = leased(open_queues)
    expire_all(open_queues)
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_leased, counters.jobs_queued, counters.attempts_failed) == (0, 2, 1)
    assert open_queues.servers.registered() == []
    assert open_queues.leases.lease() == []
    assert not open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,))).known
    assert_conserved(open_queues)


def expire_all(queues: Queues) -> None:
    deadline = time.monotonic() + 4 * LEASE_SECONDS
    while queues.servers.registered() and time.monotonic() < deadline:
        time.sleep(max(0.0, queues.leases.expire().nap_seconds))


def test_a_lease_missing_from_heartbeats_expires_alone(open_queues: Queues) -> None:
    kept, lost = leased(open_queues), leased(open_queues)
    deadline = time.monotonic() + 4 * LEASE_SECONDS
    while open_queues.runs.read("train").counters.jobs_leased == 2 and time.monotonic() < deadline:
        open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(kept,)))
        time.sleep(min(0.05, max(0.0, open_queues.leases.expire().nap_seconds)))
    assert open_queues.runs.read("train").counters.jobs_leased == 1
    assert open_queues.servers.busy_slots() == {"agent-0": 1}
    reply = open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(kept, lost)))
    assert reply.stop == (lost,)


def test_a_heartbeat_is_told_to_stop_what_was_requeued(open_queues: Queues) -> None:
    lease = leased(open_queues)
    decide(open_queues, Requeue(job_ids=(lease.job_id,)))
    assert open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,))).stop == (
        lease,
    )


def test_a_batch_that_is_dropped_while_it_is_fetched_is_not_found(open_queues: Queues) -> None:
    for _ in range(2):
        report(open_queues, completed(leased(open_queues)))
    decide(open_queues, delivery("b", p0=(0, 1)))
    assert len(open_queues.batches.groups("train", "b")) == 1
    decide(open_queues, Drop(group_ids=("p0",), why=Why.FILTERED))
    with pytest.raises(NotFound, match="no batch 'b'"):
        open_queues.batches.groups("train", "b")


def test_a_slot_is_not_free_while_its_server_still_runs_a_fenced_attempt(
    open_queues: Queues,
) -> None:
    lease = leased(open_queues)
    decide(open_queues, Requeue(job_ids=(lease.job_id,)))
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,)))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 1
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 2


def test_a_lease_that_was_lost_cannot_be_given_back(open_queues: Queues) -> None:
    """Its Job waits already, or somebody else has it."""
    lost = leased(open_queues)
    report(open_queues, failed(lost))
    open_queues.leases.give_back(lost)
    assert open_queues.runs.read("train").counters.jobs_queued == 2
    held = leased(open_queues)
    open_queues.leases.give_back(lost)
    assert report(open_queues, completed(held)).receipt is Receipt.ACCEPTED
    assert_conserved(open_queues)


def test_an_undelivered_assignment_waits_again_uncharged_on_a_suspended_slot(
    open_queues: Queues,
) -> None:
    lease = leased(open_queues)
    open_queues.leases.give_back(lease)
    assert open_queues.runs.read("train").counters.attempts_failed == 0
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 1
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 2
    assert leased(open_queues).job_id == lease.job_id


def test_a_restarted_server_starts_with_all_slots_free(
    open_queues: Queues, server: AgentServer
) -> None:
    leased(open_queues)
    open_queues.servers.register(server)
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 2
    assert open_queues.runs.read("train").counters.attempts_failed == 1
    assert_conserved(open_queues)


def test_a_leaving_server_hands_its_jobs_back_uncharged(open_queues: Queues) -> None:
    leased(open_queues)
    open_queues.servers.leave("agent-0")
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_queued, counters.attempts_failed) == (2, 0)
    assert open_queues.servers.registered() == []
    assert open_queues.leases.lease() == []


def test_no_job_runs_on_when_a_batch_is_delivered(
    queues: Queues, settings: RunSettings, server: AgentServer, prompt: MakePrompt
) -> None:
    collector = Collector(queues.events, queues.runs, lambda lease: None)
    queues.runs.create(settings)
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt("p0")])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    collector.collect("train")
    for reward in (0.0, 1.0):
        report(queues, completed(leased(queues), reward))
    queues.tasks.submit("train", [prompt("late")])
    leased(queues)
    collector.collect("train")
    run = queues.runs.read("train")
    assert run.state.delivered == {"b": (Chosen(group_id="p0", members=(0, 1)),)}
    counters = run.counters
    assert (counters.jobs_leased, counters.jobs_parked, counters.jobs_queued) == (1, 1, 1)


def test_renewed_servers_and_leases_outlive_a_silence(open_queues: Queues) -> None:
    leased(open_queues)
    time.sleep(LEASE_SECONDS + 0.1)
    open_queues.leases.expire(0.0)
    assert 0 < open_queues.leases.expire().nap_seconds <= LEASE_SECONDS / 10
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_leased, counters.attempts_failed) == (1, 0)
    assert len(open_queues.servers.registered()) == 1


def test_a_submitted_job_wakes_the_dispatcher(open_queues: Queues, prompt: MakePrompt) -> None:
    while open_queues.leases.lease() != []:
        pass
    open_queues.leases.wait_for_work(0)
    assert (
        woken_by(
            open_queues.leases.wait_for_work,
            lambda: open_queues.tasks.submit("train", [prompt("p9")]),
        )
        < 5
    )


def test_a_freed_slot_wakes_the_dispatcher(open_queues: Queues) -> None:
    lease = leased(open_queues)
    open_queues.leases.wait_for_work(0)
    assert (
        woken_by(open_queues.leases.wait_for_work, lambda: report(open_queues, completed(lease)))
        < 5
    )


def test_a_lease_wakes_the_trainer(open_queues: Queues) -> None:
    open_queues.runs.wait_for_news("train", 0)
    wait = lambda seconds: open_queues.runs.wait_for_news("train", seconds)  # noqa: E731
    assert woken_by(wait, open_queues.leases.lease) < 5


def test_an_event_wakes_the_collector_with_its_run(open_queues: Queues) -> None:
    while open_queues.events.wait(0) is not None:
        pass
    open_queues.events.tell("train", BatchRequested(batch_id="x", requested_batch_size=1))
    assert open_queues.events.wait(5) == "train"


def test_a_run_with_events_left_wakes_the_collector_again_once(open_queues: Queues) -> None:
    for _ in range(3):
        open_queues.events.tell("train", BatchRequested(batch_id="x", requested_batch_size=1))
    while open_queues.events.wait(0) is not None:
        pass
    for _ in range(2):
        conclude(open_queues)
    assert open_queues.events.wait(0) == "train"
    assert open_queues.events.wait(0) is None
    conclude(open_queues)
    assert open_queues.events.wait(0) is None


def test_a_wait_ends_at_its_deadline(open_queues: Queues) -> None:
    open_queues.leases.wait_for_work(0)
    started = time.monotonic()
    open_queues.leases.wait_for_work(0.1)
    assert time.monotonic() - started >= 0.09


def woken_by(wait: Callable[[float], object], act: Callable[[], object]) -> float:
    """Seconds until a waiter with a deadline of 10 s returns, once `act` was done."""
    returned_at: list[float] = []

    def wait_and_note() -> None:
        wait(10.0)
        returned_at.append(time.monotonic())

    waiter = threading.Thread(target=wait_and_note)
    waiter.start()
    acted_at = time.monotonic()
    act()
    waiter.join(20)
    return returned_at[0] - acted_at
