"""Whatever is decided, the time it cost is booked once, and what was learnt or known is kept."""

import pytest

from orchestrator.events import AttemptEnded, Ending, JobDied, Tried
from orchestrator.sampling.decisions import Deliver, Drop, Open, Remember, Requeue, Why
from orchestrator.sampling.ledger import Ledger
from orchestrator.sampling.sampler import Sampler
from rollyard.messages import Criterion, Prediction, Recycling, SlotSeconds, Unit
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


def next_account(sampler: Sampler, batch_id: str) -> SlotSeconds:
    """Where slot time went until the next Batch, which one more Group completes."""
    request(sampler, 1, batch_id)
    deliveries = [
        each
        for each in finish(sampler, f"group-of-{batch_id}", 0.0, 1.0)
        if isinstance(each, Deliver)
    ]
    return deliveries[0].report.slot_seconds


def test_every_acknowledged_batch_of_late_is_known_and_not_only_the_last() -> None:
    sampler = new_sampler()
    for batch in ("first", "second"):
        request(sampler, 1, batch)
        finish(sampler, f"of-{batch}", 0.0, 1.0)
        ack(sampler, batch)
    assert request(sampler, 1, "first") == []
    assert not sampler.state.wanted


def test_time_of_a_group_that_is_discarded_is_booked_as_cancelled() -> None:
    sampler = new_sampler(recycling=Recycling.DISCARD)
    request(sampler, 1, "first")
    feed(sampler, "slow")
    result(sampler, "slow", 0, 1.0, seconds=7.0)
    finish(sampler, "quick", 0.0, 1.0)
    ack(sampler, "first")
    assert next_account(sampler, "second").cancelled == 7.0


def test_time_of_a_group_with_a_dead_member_is_booked_as_cancelled() -> None:
    sampler = new_sampler()
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, seconds=5.0)
    sampler.handle(JobDied(job_id=job("g", 1), reason="poison"))
    assert next_account(sampler, "b").cancelled == 5.0


def test_time_of_a_result_that_comes_after_its_group_is_booked_as_cancelled() -> None:
    sampler = new_sampler()
    feed(sampler, "g")
    sampler.handle(JobDied(job_id=job("g", 1), reason="poison"))
    result(sampler, "g", 0, 1.0, seconds=3.0)
    assert next_account(sampler, "b").cancelled == 3.0


def test_time_of_groups_that_are_ready_beyond_the_batch_is_booked_as_surplus() -> None:
    sampler = new_sampler()
    finish(sampler, "g", 0.0, 1.0)
    finish(sampler, "beyond", 0.0, 1.0)
    (*_, batch) = request(sampler, 1)
    assert isinstance(batch, Deliver)
    assert batch.report.slot_seconds.surplus == 2.0


def test_members_stand_in_order_in_a_batch_however_they_finished() -> None:
    sampler = new_sampler(unit=Unit.TRAJECTORIES, criterion=Criterion.ANY_SOLVED)
    request(sampler, 2)
    feed(sampler, "g")
    result(sampler, "g", 1, 1.0)
    assert delivered(result(sampler, "g", 0, 1.0)) == (whole("g"),)


def test_only_the_first_group_of_a_row_tells_of_all_rows() -> None:
    sampler = new_sampler(prediction=Prediction(skip_by_history=True))
    feed(sampler, "first", row="x")
    result(sampler, "first", 0, 1.0)
    result(sampler, "first", 1, 0.0)
    feed(sampler, "again", row="x", tried=Tried(solved=1.0, failed=1.0))
    result(sampler, "again", 0, 1.0)
    result(sampler, "again", 1, 1.0)
    assert sampler.state.pass_counts == {"1/2": 1}


def test_a_group_that_is_cut_short_teaches_what_its_first_stage_saw() -> None:
    sampler = new_sampler(
        prediction=Prediction(stage_members=4, skip_by_history=True), group_size=8
    )
    sampler.state.pass_counts = {"0/8": 50, "4/8": 50}
    request(sampler, 1)
    feed(sampler, "g", row="x")
    for member in range(3):
        result(sampler, "g", member, 0.0)
    remember, drop = result(sampler, "g", 3, 0.0)
    assert remember == Remember(row="x", tried=Tried(solved=0.0, failed=4.0, batches=0))
    assert drop == Drop(group_ids=("g",), why=Why.CUT_SHORT)
    assert sampler.state.pass_counts["0/4"] == 1


def test_lengths_count_less_with_every_batch() -> None:
    ledger = Ledger()
    ledger.finished(1.0)
    ledger.close(useful=0.0, surplus=0.0)
    ledger.finished(4.0)
    expected = (0.9 * 1.0 + 4.0) / 1.9
    assert ledger.bias([], {}).started_mean_seconds == pytest.approx(expected)


def test_an_attempt_that_was_lost_begins_under_the_weights_of_its_next_lease() -> None:
    sampler = new_sampler(max_staleness=1, criterion=Criterion.COMPLETE)
    request(sampler, 1, "b", weights=1)
    feed(sampler, "lost")
    request(sampler, 1, "c", weights=2, lost_0=0, lost_1=0)
    sampler.handle(AttemptEnded(job_id=job("lost", 0), seconds=1.0, ending=Ending.FAILED))
    decisions = finish(sampler, "g", 0.0, 1.0, weights=1)
    assert [each for each in decisions if isinstance(each, Requeue)] == [
        Requeue(job_ids=jobs("lost", 1))
    ]


def test_groups_that_become_ready_together_keep_their_launch_order() -> None:
    sampler = new_sampler(prediction=Prediction(launch_order=True))
    assert request(sampler, 2) == [Open()]
    feed(sampler, "z-launched-first")
    finish(sampler, "a-launched-second", 0.0, 1.0)
    result(sampler, "z-launched-first", 0, 0.0)
    decisions = result(sampler, "z-launched-first", 1, 1.0)
    assert [each.group_id for each in delivered(decisions)] == [
        "z-launched-first",
        "a-launched-second",
    ]
