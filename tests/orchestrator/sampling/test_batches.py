"""When a Batch is complete, and what becomes of what is not in it."""

from orchestrator.events import AttemptEnded, Ending, JobCancelled, JobDied, RunClosed
from orchestrator.sampling.decisions import Cancel, Close, Drop, Hold, Open, Park, RequeueAll, Why
from orchestrator.sampling.sampler import prompts_wanted
from orchestrator.sampling.state import SamplerState, Wanted
from rollyard.messages import Criterion, Recycling, RunSettings, Unit
from tests.orchestrator.sampling.driving import (
    ack,
    delivered,
    feed,
    finish,
    job,
    jobs,
    new_sampler,
    request,
    result,
    whole,
)


def test_a_request_opens_the_run() -> None:
    assert request(new_sampler(), 1) == [Open()]


def test_a_group_with_equal_rewards_is_filtered() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    assert finish(sampler, "g", 1.0, 1.0) == [Drop(group_ids=("g",), why=Why.FILTERED)]
    assert sampler.state.groups_filtered == 1
    assert not sampler.state.delivered


def test_the_request_ends_early_and_parks_what_is_unfinished() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    feed(sampler, "slow")
    result(sampler, "slow", 0, 0.0)
    hold, park, _ = decisions = finish(sampler, "g", 0.0, 1.0)
    assert (hold, park) == (Hold(), Park())
    assert delivered(decisions) == (whole("g"),)


def test_unfinished_jobs_begin_again_where_the_run_restarts_them() -> None:
    sampler = new_sampler(recycling=Recycling.RESTART)
    request(sampler, 1)
    feed(sampler, "slow")
    assert finish(sampler, "g", 0.0, 1.0)[:2] == [Hold(), RequeueAll()]


def test_nothing_but_the_batch_is_kept_where_the_run_discards() -> None:
    sampler = new_sampler(recycling=Recycling.DISCARD)
    finish(sampler, "g1", 0.0, 1.0)
    finish(sampler, "surplus", 0.0, 1.0)
    feed(sampler, "slow")
    decisions = request(sampler, 1)
    assert Drop(group_ids=("slow", "surplus"), why=Why.DISCARDED) in decisions
    assert delivered(decisions) == (whole("g1"),)
    assert sampler.state.groups_discarded == 2


def test_a_group_fed_while_the_batch_was_completed_is_not_kept_where_the_run_discards() -> None:
    sampler = new_sampler(recycling=Recycling.DISCARD)
    request(sampler, 1)
    finish(sampler, "g1", 0.0, 1.0)
    assert feed(sampler, "late") == [Drop(group_ids=("late",), why=Why.DISCARDED)]


def test_a_group_fed_while_the_batch_was_completed_stands_still_with_all_others() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    assert finish(sampler, "g1", 0.0, 1.0)[:2] == [Hold(), Park()]
    assert feed(sampler, "late") == []


def test_surplus_groups_serve_the_next_request_at_once() -> None:
    sampler = new_sampler()
    finish(sampler, "g0", 0.0, 1.0)
    finish(sampler, "g1", 0.0, 1.0)
    assert delivered(request(sampler, 1)) == (whole("g0"),)
    assert ack(sampler) == [Drop(group_ids=("g0",), why=Why.CONSUMED)]
    assert delivered(request(sampler, 1, "c")) == (whole("g1"),)


def test_a_finished_member_counts_when_its_group_completes_in_a_later_step() -> None:
    sampler = new_sampler()
    feed(sampler, "slow")
    result(sampler, "slow", 0, 0.0)
    request(sampler, 1)
    finish(sampler, "g", 0.0, 1.0)
    ack(sampler)
    request(sampler, 1, "c")
    assert delivered(result(sampler, "slow", 1, 1.0)) == (whole("slow"),)


def test_a_batch_requested_ahead_is_sampled_without_a_pause() -> None:
    sampler = new_sampler()
    request(sampler, 1, "b")
    assert request(sampler, 1, "c", weights=1) == []
    feed(sampler, "slow")
    (only,) = finish(sampler, "g1", 0.0, 1.0)
    assert delivered([only]) == (whole("g1"),)
    assert sampler.state.outstanding == ("b", "c")
    assert Hold() in finish(sampler, "g2", 0.0, 1.0)


def test_two_batches_are_complete_at_once_when_there_is_enough_for_both() -> None:
    sampler = new_sampler()
    finish(sampler, "g1", 0.0, 1.0)
    finish(sampler, "g2", 0.0, 1.0)
    feed(sampler, "g3")
    result(sampler, "g3", 0, 0.0)
    request(sampler, 3, "b")
    request(sampler, 1, "c")
    result(sampler, "g3", 1, 1.0)
    assert sampler.state.outstanding == ("b", "c")
    assert list(sampler.state.delivered) == ["b"]


def test_a_dead_job_drops_its_group_and_never_scores_it() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    feed(sampler, "g")
    decisions = sampler.handle(JobDied(job_id=job("g", 0), reason="poison"))
    assert decisions == [Drop(group_ids=("g",), why=Why.DEAD)]
    assert (sampler.state.groups_dead, sampler.state.groups_filtered) == (1, 0)


def test_a_result_of_a_dropped_group_changes_nothing() -> None:
    sampler = new_sampler()
    feed(sampler, "g")
    sampler.handle(JobCancelled(job_id=job("g", 0)))
    assert result(sampler, "g", 1, 1.0) == []


def test_a_repeated_request_changes_nothing() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    assert request(sampler, 1) == []
    assert sampler.state.outstanding == ("b",)


def test_an_acknowledgement_before_delivery_changes_nothing() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    assert ack(sampler) == []
    assert sampler.state.outstanding == ("b",)


def test_closing_drops_everything_once() -> None:
    sampler = new_sampler()
    request(sampler, 2)
    feed(sampler, "open")
    finish(sampler, "ready", 0.0, 1.0)
    assert sampler.handle(RunClosed()) == [Close()]
    assert (sampler.state.open, sampler.state.complete, sampler.state.ready) == ({}, {}, [])
    assert sampler.handle(RunClosed()) == []
    assert feed(sampler, "late") == [Drop(group_ids=("late",), why=Why.CLOSED)]


def test_a_batch_of_trajectories_takes_solved_ones_one_by_one() -> None:
    sampler = new_sampler(unit=Unit.TRAJECTORIES, criterion=Criterion.ANY_SOLVED, group_size=3)
    request(sampler, 2)
    feed(sampler, "g1")
    feed(sampler, "g2")
    assert result(sampler, "g1", 2, 1.0) == []
    assert result(sampler, "g1", 0, 0.0) == []
    decisions = result(sampler, "g2", 1, 1.0)
    assert [(each.group_id, each.members) for each in delivered(decisions)] == [
        ("g1", (2,)),
        ("g2", (1,)),
    ]
    assert Park() in decisions


def test_a_group_is_gone_when_the_last_of_its_trajectories_is() -> None:
    sampler = new_sampler(unit=Unit.TRAJECTORIES, criterion=Criterion.ANY_SOLVED)
    request(sampler, 1)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0)
    assert ack(sampler) == []
    assert result(sampler, "g", 1, 0.0) == [Drop(group_ids=("g",), why=Why.CONSUMED)]


def test_a_dead_trajectory_costs_the_others_of_its_group_nothing() -> None:
    sampler = new_sampler(unit=Unit.TRAJECTORIES, criterion=Criterion.ANY_SOLVED)
    request(sampler, 1)
    feed(sampler, "g")
    died = JobDied(job_id=job("g", 0), reason="poison")
    assert sampler.handle(died) == [Cancel(job_ids=jobs("g", 0), why=Why.DEAD)]
    assert delivered(result(sampler, "g", 1, 1.0))


def test_the_report_books_slot_time_by_its_fate() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    feed(sampler, "equal")
    result(sampler, "equal", 0, 1.0, seconds=2.0)
    result(sampler, "equal", 1, 1.0, seconds=3.0)
    stopped = AttemptEnded(job_id=job("x", 0), seconds=7.0, ending=Ending.STOPPED)
    sampler.handle(stopped)
    sampler.handle(AttemptEnded(job_id=job("x", 1), seconds=11.0, ending=Ending.FAILED))
    batch = finish(sampler, "g", 0.0, 1.0)[-1]
    seconds = batch.report.slot_seconds  # type: ignore[union-attr]
    booked = (seconds.useful, seconds.filtered, seconds.cancelled, seconds.failed)
    assert booked == (2.0, 5.0, 7.0, 11.0)


def test_prompts_are_wanted_for_free_slots_and_the_look_ahead_only() -> None:
    settings = RunSettings(run_id="r", group_size=2)
    request = Wanted(batch_id="b", requested_batch_size=1, weight_version=0)
    state = SamplerState(wanted=[request])

    def wanted(queued: int, free: int) -> int:
        return prompts_wanted(settings, state, queued_jobs=queued, free_slots=free)

    assert wanted(0, 0) == 1
    assert wanted(1, 0) == 0
    assert wanted(0, 4) == 3
    assert wanted(5, 4) == 0


def test_no_prompt_is_wanted_without_a_request() -> None:
    settings = RunSettings(run_id="r")
    assert prompts_wanted(settings, SamplerState(), queued_jobs=0, free_slots=8) == 0


def test_a_batch_that_was_acknowledged_is_not_sampled_again() -> None:
    """A request that was sent twice may arrive once more, long after its Batch was trained on."""
    sampler = new_sampler()
    request(sampler, 1)
    finish(sampler, "g", 0.0, 1.0)
    ack(sampler)
    assert request(sampler, 1) == []
    assert sampler.state.outstanding == ()
