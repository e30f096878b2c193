"""The contract of the queues."""

import threading
import time
from collections.abc import Callable

import msgspec
import pytest
import redis

from orchestrator.collector import Collector
from orchestrator.events import AttemptEnded, BatchRequested, JobDied, PromptFed, ResultAccepted
from orchestrator.queues.contract import Conclusion
from orchestrator.queues.operations import MOST_GONE_KNOWN
from orchestrator.queues.redis_queues import Queues
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


def test_jobs_are_leased_in_the_order_they_were_submitted(yard: Queues) -> None:
    assert [leased(yard).job_id, leased(yard).job_id] == ["train/p0/0", "train/p0/1"]
    assert yard.lease() == []


def test_a_lease_carries_everything_an_agent_server_needs(yard: Queues) -> None:
    (assignment,) = yard.lease()
    assert assignment.job.prompt.instance == {"data_source": "arithmetic"}
    assert assignment.job.sampling == yard.run("train").settings.sampling
    assert assignment.lease.server_id == "agent-0"


def test_each_slot_runs_one_job(yard: Queues, prompt: MakePrompt) -> None:
    yard.submit("train", [prompt("p1")])
    first, second = leased(yard), leased(yard)
    assert first.slot != second.slot
    assert yard.lease() == []
    assert yard.busy_slots() == {"agent-0": 2}
    report(yard, completed(first))
    assert leased(yard).slot == first.slot


def test_feeding_a_prompt_twice_feeds_it_once(yard: Queues, prompt: MakePrompt) -> None:
    assert yard.submit("train", [prompt("p1")]) == [True]
    assert yard.submit("train", [prompt("p1"), prompt("p2")]) == [False, True]
    assert yard.run("train").counters.jobs_submitted == 6


def test_a_run_of_weeks_does_not_remember_every_prompt(yard: Queues, prompt: MakePrompt) -> None:
    """A Prompt that may still be repeated is known; one of long ago costs nothing."""
    names = [f"g{number}" for number in range(MOST_GONE_KNOWN + 1)]
    for first in range(0, len(names), 500):
        yard.submit("train", [prompt(name) for name in names[first : first + 500]])
    conclude(yard, Drop(group_ids=tuple(names), why=Why.FILTERED), events=0)
    assert yard.submit("train", [prompt("g0"), prompt("g1")]) == [True, False]


def test_a_closed_run_and_a_full_one_take_none_of_the_prompts(
    yard: Queues, prompt: MakePrompt
) -> None:
    with pytest.raises(Unavailable, match="has 2 queued jobs already"):
        yard.submit("train", [prompt("p1"), prompt("p2")], most_queued=4)
    conclude(yard, events=0, state=SamplerState(closed=True))
    with pytest.raises(Conflict, match="is closed"):
        yard.submit("train", [prompt("p1"), prompt("p2")])
    assert yard.run("train").counters.jobs_submitted == 2


def test_one_lost_lease_spoils_none_of_the_other_reports(yard: Queues) -> None:
    lost, held = leased(yard), leased(yard)
    report(yard, failed(lost))
    answers = yard.report([completed(lost), completed(held)])
    assert [answer.receipt for answer in answers] == [Receipt.STALE, Receipt.ACCEPTED]


def test_a_held_run_is_not_dispatched(yard: Queues) -> None:
    decide(yard, Hold())
    assert yard.lease() == []
    decide(yard, Open())
    assert yard.lease() != []


def test_runs_take_turns(yard: Queues, prompt: MakePrompt, server: AgentServer) -> None:
    yard.create_run(RunSettings(run_id="other", group_size=2))
    yard.submit("other", [prompt("q0")])
    decide(yard, Open(), run_id="other")
    assert {leased(yard).job_id.split("/")[0] for _ in range(2)} == {"train", "other"}


def test_a_completed_result_is_accepted_once(yard: Queues) -> None:
    lease = leased(yard)
    assert report(yard, completed(lease)).receipt is Receipt.ACCEPTED
    assert report(yard, completed(lease)).receipt is Receipt.DUPLICATE
    counters = yard.run("train").counters
    assert (counters.jobs_accepted, counters.rewards_sum) == (1, 1.0)
    assert_conserved(yard)


def test_an_acceptance_becomes_an_event_after_those_before_it(yard: Queues) -> None:
    report(yard, completed(leased(yard), reward=0.25))
    (accepted,) = yard.next_events("train")
    assert isinstance(accepted, ResultAccepted)
    assert (accepted.job_id, accepted.reward) == ("train/p0/0", 0.25)


def test_a_failed_attempt_goes_to_the_front_with_a_higher_attempt(yard: Queues) -> None:
    lease = leased(yard)
    assert report(yard, failed(lease)).receipt is Receipt.REQUEUED
    again = leased(yard)
    assert (again.job_id, again.attempt) == (lease.job_id, lease.attempt + 1)
    assert_conserved(yard)


def test_the_old_attempt_cannot_report_any_more(yard: Queues) -> None:
    old = leased(yard)
    report(yard, failed(old))
    new = leased(yard)
    assert is_stale(yard, completed(old))
    assert report(yard, completed(new)).receipt is Receipt.ACCEPTED


def test_a_late_result_is_counted_unless_its_attempt_was_told_to_stop(yard: Queues) -> None:
    old = leased(yard)
    report(yard, failed(old))
    cancelled = Result(lease=old, outcome=Outcome.CANCELLED, error="cancelled")
    assert all(is_stale(yard, late) for late in (completed(old), failed(old), cancelled))
    assert yard.run("train").counters.results_refused == 2


def test_a_late_result_of_an_unknown_run_leaves_nothing_in_redis(admin_redis_url: str) -> None:
    queues = Queues(admin_redis_url, prefix="rollyard:nobody:")
    lease = Lease(job_id="nobody/p0/0", attempt=1, server_id="agent-0", slot="agent-0#0")
    assert is_stale(queues, completed(lease))
    assert redis.Redis.from_url(admin_redis_url).keys("rollyard:nobody:*") == []


def test_a_stale_report_still_frees_its_slot(yard: Queues) -> None:
    lease = leased(yard)
    decide(yard, Requeue(job_ids=(lease.job_id,)))
    free = yard.free_slots()
    assert is_stale(yard, completed(lease))
    assert yard.free_slots() == free + 1


def test_a_late_report_leaves_its_slot_to_the_job_that_has_it_now(yard: Queues) -> None:
    old = leased(yard)
    decide(yard, Requeue(job_ids=(old.job_id,)))
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert old.slot in (leased(yard).slot, leased(yard).slot)
    assert is_stale(yard, completed(old))
    assert yard.busy_slots() == {"agent-0": 2}
    assert yard.lease() == []


def test_an_old_attempt_stays_stale_when_a_newer_one_was_accepted(yard: Queues) -> None:
    old = leased(yard)
    report(yard, failed(old))
    report(yard, completed(leased(yard)))
    assert is_stale(yard, completed(old))


def test_a_job_that_keeps_failing_dies_with_its_reason(yard: Queues) -> None:
    decide(yard)
    receipts = []
    for _ in range(3):
        receipts.append(report(yard, failed(leased(yard))).receipt)
    assert receipts == [Receipt.REQUEUED, Receipt.REQUEUED, Receipt.DEAD]
    *ended, died = yard.next_events("train")
    assert died == JobDied(job_id="train/p0/0", reason="the disk is full")
    assert [type(event) for event in ended] == [AttemptEnded] * 3
    assert_conserved(yard)


def test_a_cancelled_attempt_is_requeued_and_not_charged(yard: Queues) -> None:
    for _ in range(5):
        result = Result(lease=leased(yard), outcome=Outcome.CANCELLED, error="draining")
        assert report(yard, result).receipt is Receipt.REQUEUED
    assert yard.run("train").counters.attempts_failed == 0


def test_recycled_jobs_wait_oldest_first_and_their_leases_end(
    yard: Queues, prompt: MakePrompt
) -> None:
    yard.submit("train", [prompt("p1")])
    first, second = leased(yard), leased(yard)
    ended = decide(yard, Hold(), RequeueAll())
    assert sorted(lease.job_id for lease in ended) == [first.job_id, second.job_id]
    counters = yard.run("train").counters
    assert (counters.attempts_stopped, counters.jobs_recycled) == (2, 4)
    assert (counters.jobs_queued, counters.jobs_leased) == (4, 0)
    decide(yard, Open())
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert [leased(yard).job_id for _ in range(2)] == ["train/p0/0", "train/p0/1"]
    assert_conserved(yard)


def test_a_job_accepted_before_the_conclusion_is_not_counted_as_recycled(yard: Queues) -> None:
    report(yard, completed(leased(yard)))
    decide(yard, RequeueAll())
    assert yard.run("train").counters.jobs_recycled == 1


def test_a_job_begun_again_for_its_age_is_not_counted_as_kept_for_the_next_batch(
    yard: Queues,
) -> None:
    lease = leased(yard)
    decide(yard, Requeue(job_ids=(lease.job_id,)))
    counters = yard.run("train").counters
    assert (counters.attempts_stopped, counters.jobs_recycled) == (1, 0)


def test_a_dropped_group_leaves_nothing_behind(yard: Queues) -> None:
    lease = leased(yard)
    ended = decide(yard, Drop(group_ids=("p0",), why=Why.FILTERED))
    assert ended == [lease]
    counters = yard.run("train").counters
    assert (counters.jobs_dropped, counters.jobs_queued, counters.jobs_leased) == (2, 0, 0)
    assert_conserved(yard)
    assert is_stale(yard, completed(lease))


def test_a_group_dropped_while_it_waits_costs_no_slot(yard: Queues, prompt: MakePrompt) -> None:
    decide(yard, Drop(group_ids=("p0",), why=Why.FILTERED))
    assert yard.lease() == []
    assert yard.free_slots() == 2
    yard.submit("train", [prompt("p1")])
    assert leased(yard).job_id == "train/p1/0"


def test_redis_keeps_of_a_dropped_group_only_that_it_was_fed(yard: Queues, redis_url: str) -> None:
    report(yard, failed(leased(yard)))
    report(yard, completed(leased(yard)))
    decide(yard, Drop(group_ids=("p0",), why=Why.FILTERED))
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    prefix = yard._key("run:train:")
    left = {key.removeprefix(prefix) for key in client.scan_iter(f"{prefix}*")}
    assert left <= {"settings", "sampler", "config", "fed", "gone", "counts", "news", "settled"}
    assert client.zcard(yard._key("leases")) == 0


def test_a_delivered_batch_can_be_fetched_until_it_is_dropped(yard: Queues) -> None:
    for reward in (0.0, 1.0):
        report(yard, completed(leased(yard), reward))
    decide(yard, delivery("b", p0=(0, 1)))
    for _ in range(2):
        (group,) = yard.batch("train", "b")
        assert [result.reward for result in group.results] == [0.0, 1.0]
        assert group.prompt.prompt_id == "p0"
    with pytest.raises(NotFound):
        yard.batch("train", "other")


def test_the_state_is_stored_with_the_conclusion(yard: Queues) -> None:
    yard.tell("train", BatchRequested(batch_id="x", requested_batch_size=3))
    state = SamplerState(
        wanted=[Wanted(batch_id="x", requested_batch_size=3, weight_version=0)],
        open={"g": GroupState(number=0, asked=2, done={1: Member(0.5, 0, 3.0)})},
    )
    conclude(yard, state=state)
    stored = yard.run("train").state
    stored.open, stored.complete = dict(stored.open), dict(stored.complete)
    assert msgspec.to_builtins(stored) == msgspec.to_builtins(state)


def test_events_keep_their_order_until_concluded(
    queues: Queues, settings: RunSettings, prompt: MakePrompt
) -> None:
    queues.create_run(settings)
    queues.submit("train", [prompt("p0")])
    queues.tell("train", BatchRequested(batch_id="x", requested_batch_size=1))
    fed, requested = (
        PromptFed(group_id="p0"),
        BatchRequested(batch_id="x", requested_batch_size=1),
    )
    assert queues.next_events("train") == [fed, requested]
    assert queues.next_events("train", most=1) == [fed]
    conclude(queues, state=SamplerState())
    assert queues.next_events("train") == [requested]
    conclude(queues, state=SamplerState())
    assert queues.next_events("train") == []


def test_a_conclusion_from_an_outdated_state_changes_nothing(yard: Queues) -> None:
    yard.tell("train", BatchRequested(batch_id="x", requested_batch_size=3))
    outdated = yard.run("train").concluded
    conclude(yard)
    yard.tell("train", BatchRequested(batch_id="y", requested_batch_size=3))
    drop = Conclusion(
        after=outdated,
        events=1,
        state=SamplerState(closed=True),
        decisions=[Drop(group_ids=("p0",), why=Why.FILTERED)],
    )
    with pytest.raises(Conflict, match="somebody else concluded"):
        yard.conclude("train", drop)
    assert not yard.run("train").state.closed
    assert yard.run("train").counters.jobs_queued == 2
    assert len(yard.next_events("train")) == 1


def test_a_report_may_bring_the_slots_next_job(yard: Queues, prompt: MakePrompt) -> None:
    yard.submit("train", [prompt("p1")])
    first, _ = leased(yard), leased(yard)
    reported = report(yard, completed(first), more=True)
    assert reported.receipt is Receipt.ACCEPTED
    assert reported.assignment is not None
    assert reported.assignment.lease.slot == first.slot
    assert reported.assignment.job.job_id == "train/p1/0"
    assert yard.free_slots() == 0
    assert_conserved(yard)


def test_a_repeated_report_is_told_the_same_next_job(yard: Queues, prompt: MakePrompt) -> None:
    yard.submit("train", [prompt("p1")])
    first, _ = leased(yard), leased(yard)
    told = report(yard, completed(first), more=True)
    again = report(yard, completed(first), more=True)
    assert again.receipt is Receipt.DUPLICATE
    assert again.assignment == told.assignment
    assert yard.run("train").counters.jobs_leased == 2


def test_a_slot_without_a_next_job_is_free(yard: Queues) -> None:
    first, _ = leased(yard), leased(yard)
    assert report(yard, completed(first), more=True).assignment is None
    assert yard.free_slots() == 1


def test_a_failed_attempt_brings_no_next_job_to_its_slot(yard: Queues, prompt: MakePrompt) -> None:
    yard.submit("train", [prompt("p1")])
    first, _ = leased(yard), leased(yard)
    assert report(yard, failed(first), more=True).assignment is None
    assert yard.free_slots() == 1


def test_a_run_cannot_be_created_again_with_other_settings(
    queues: Queues, settings: RunSettings
) -> None:
    queues.create_run(settings)
    queues.create_run(settings)
    with pytest.raises(Conflict, match="other settings"):
        queues.create_run(RunSettings(run_id="train", group_size=4))


def test_an_unknown_run_is_not_found(queues: Queues, prompt: MakePrompt) -> None:
    with pytest.raises(NotFound, match="no run 'nowhere'"):
        queues.run("nowhere")
    with pytest.raises(NotFound):
        queues.submit("nowhere", [prompt("p0")])


def test_heartbeats_keep_a_lease_beyond_its_first_deadline(yard: Queues) -> None:
    lease = leased(yard)
    started = time.monotonic()
    while time.monotonic() < started + 2 * LEASE_SECONDS:
        reply = yard.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,)))
        assert reply.known
        assert reply.stop == ()
        time.sleep(min(LEASE_SECONDS / 4, max(0.0, yard.expire().nap_seconds)))
    assert yard.run("train").counters.jobs_leased == 1


def test_a_silent_server_loses_its_jobs_and_its_slots(yard: Queues) -> None:
    lease = leased(yard)
    expire_all(yard)
    counters = yard.run("train").counters
    assert (counters.jobs_leased, counters.jobs_queued, counters.attempts_failed) == (0, 2, 1)
    assert yard.servers() == []
    assert yard.lease() == []
    assert not yard.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,))).known
    assert_conserved(yard)


def expire_all(queues: Queues) -> None:
    deadline = time.monotonic() + 4 * LEASE_SECONDS
    while queues.servers() and time.monotonic() < deadline:
        time.sleep(max(0.0, queues.expire().nap_seconds))


def test_a_lease_missing_from_heartbeats_expires_alone(yard: Queues) -> None:
    kept, lost = leased(yard), leased(yard)
    deadline = time.monotonic() + 4 * LEASE_SECONDS
    while yard.run("train").counters.jobs_leased == 2 and time.monotonic() < deadline:
        yard.heartbeat(Heartbeat(server_id="agent-0", leases=(kept,)))
        time.sleep(min(0.05, max(0.0, yard.expire().nap_seconds)))
    assert yard.run("train").counters.jobs_leased == 1
    assert yard.busy_slots() == {"agent-0": 1}
    reply = yard.heartbeat(Heartbeat(server_id="agent-0", leases=(kept, lost)))
    assert reply.stop == (lost,)


def test_a_heartbeat_is_told_to_stop_what_was_recycled(yard: Queues) -> None:
    lease = leased(yard)
    decide(yard, Requeue(job_ids=(lease.job_id,)))
    assert yard.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,))).stop == (lease,)


def test_a_batch_that_is_dropped_while_it_is_fetched_is_not_found(yard: Queues) -> None:
    for _ in range(2):
        report(yard, completed(leased(yard)))
    decide(yard, delivery("b", p0=(0, 1)))
    assert len(yard.batch("train", "b")) == 1
    decide(yard, Drop(group_ids=("p0",), why=Why.FILTERED))
    with pytest.raises(NotFound, match="no batch 'b'"):
        yard.batch("train", "b")


def test_a_slot_is_not_free_while_its_server_still_runs_a_fenced_attempt(yard: Queues) -> None:
    lease = leased(yard)
    decide(yard, Requeue(job_ids=(lease.job_id,)))
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=(lease,)))
    assert yard.free_slots() == 1
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert yard.free_slots() == 2


def test_a_lease_that_was_lost_cannot_be_given_back(yard: Queues) -> None:
    """Its Job waits already, or somebody else has it."""
    lost = leased(yard)
    report(yard, failed(lost))
    yard.give_back(lost)
    assert yard.run("train").counters.jobs_queued == 2
    held = leased(yard)
    yard.give_back(lost)
    assert report(yard, completed(held)).receipt is Receipt.ACCEPTED
    assert_conserved(yard)


def test_an_undelivered_assignment_waits_again_uncharged_on_a_suspended_slot(
    yard: Queues,
) -> None:
    lease = leased(yard)
    yard.give_back(lease)
    assert yard.run("train").counters.attempts_failed == 0
    assert yard.free_slots() == 1
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert yard.free_slots() == 2
    assert leased(yard).job_id == lease.job_id


def test_a_restarted_server_starts_with_all_slots_free(yard: Queues, server: AgentServer) -> None:
    leased(yard)
    yard.register(server)
    assert yard.free_slots() == 2
    assert yard.run("train").counters.attempts_failed == 1
    assert_conserved(yard)


def test_a_leaving_server_hands_its_jobs_back_uncharged(yard: Queues) -> None:
    leased(yard)
    yard.leave("agent-0")
    counters = yard.run("train").counters
    assert (counters.jobs_queued, counters.attempts_failed) == (2, 0)
    assert yard.servers() == []
    assert yard.lease() == []


def test_no_job_runs_on_when_a_batch_is_delivered(
    queues: Queues, settings: RunSettings, server: AgentServer, prompt: MakePrompt
) -> None:
    collector = Collector(queues, lambda lease: None)
    queues.create_run(settings)
    queues.register(server)
    queues.submit("train", [prompt("p0")])
    queues.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    collector.collect("train")
    for reward in (0.0, 1.0):
        report(queues, completed(leased(queues), reward))
    queues.submit("train", [prompt("late")])
    leased(queues)
    collector.collect("train")
    run = queues.run("train")
    assert run.state.delivered == {"b": (Chosen(group_id="p0", members=(0, 1)),)}
    counters = run.counters
    assert (counters.jobs_leased, counters.jobs_parked, counters.jobs_queued) == (1, 1, 1)


def test_renewed_servers_and_leases_outlive_a_silence(yard: Queues) -> None:
    leased(yard)
    time.sleep(LEASE_SECONDS + 0.1)
    yard.renew()
    assert yard.expire().nap_seconds == pytest.approx(LEASE_SECONDS / 4)
    counters = yard.run("train").counters
    assert (counters.jobs_leased, counters.attempts_failed) == (1, 0)
    assert len(yard.servers()) == 1


def test_a_submitted_job_wakes_the_dispatcher(yard: Queues, prompt: MakePrompt) -> None:
    while yard.lease() != []:
        pass
    yard.wait_for_work(0)
    assert woken_by(yard.wait_for_work, lambda: yard.submit("train", [prompt("p9")])) < 5


def test_a_freed_slot_wakes_the_dispatcher(yard: Queues) -> None:
    lease = leased(yard)
    yard.wait_for_work(0)
    assert woken_by(yard.wait_for_work, lambda: report(yard, completed(lease))) < 5


def test_a_lease_wakes_the_trainer(yard: Queues) -> None:
    yard.wait_for_news("train", 0)
    wait = lambda seconds: yard.wait_for_news("train", seconds)  # noqa: E731
    assert woken_by(wait, yard.lease) < 5


def test_an_event_wakes_the_collector_with_its_run(yard: Queues) -> None:
    while yard.wait_for_events(0) is not None:
        pass
    yard.tell("train", BatchRequested(batch_id="x", requested_batch_size=1))
    assert yard.wait_for_events(5) == "train"


def test_a_run_with_events_left_wakes_the_collector_again_once(yard: Queues) -> None:
    for _ in range(3):
        yard.tell("train", BatchRequested(batch_id="x", requested_batch_size=1))
    while yard.wait_for_events(0) is not None:
        pass
    for _ in range(2):
        conclude(yard)
    assert yard.wait_for_events(0) == "train"
    assert yard.wait_for_events(0) is None
    conclude(yard)
    assert yard.wait_for_events(0) is None


def test_a_wait_ends_at_its_deadline(yard: Queues) -> None:
    yard.wait_for_work(0)
    started = time.monotonic()
    yard.wait_for_work(0.1)
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
