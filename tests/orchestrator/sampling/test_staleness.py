"""No token in a Batch lies more than `max_staleness` versions behind the weights it updates."""

from orchestrator.sampling.decisions import (
    Cancel,
    Drop,
    Enqueue,
    Open,
    Requeue,
    Retract,
    Why,
)
from rollyard.messages import NO_BOUND, Criterion, Prediction
from tests.orchestrator.sampling.driving import (
    ack,
    delivered,
    feed,
    finish,
    jobs,
    new_sampler,
    request,
    result,
    whole,
)


def test_a_parked_member_that_is_too_old_begins_again() -> None:
    sampler = new_sampler(max_staleness=1, group_size=4)
    feed(sampler, "g")
    result(sampler, "g", 2, 1.0, weights=1)
    result(sampler, "g", 3, 0.0, weights=1)
    decisions = request(sampler, 1, weights=2, g_0=0, g_1=1)
    assert decisions == [Requeue(job_ids=jobs("g", 0)), Open()]


def test_a_finished_member_that_waited_too_long_begins_again() -> None:
    sampler = new_sampler(max_staleness=1, group_size=3)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, weights=0)
    result(sampler, "g", 1, 0.0, weights=1)
    assert request(sampler, 1, weights=2) == [Retract(job_ids=jobs("g", 0)), Open()]
    assert sampler.state.members_restarted == 1


def test_a_group_that_may_still_be_filtered_goes_on_with_members_too_old() -> None:
    sampler = new_sampler(max_staleness=1)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, weights=0)
    assert request(sampler, 1, weights=2, g_1=0) == [Open()]
    assert result(sampler, "g", 1, 1.0, weights=0) == [Drop(group_ids=("g",), why=Why.FILTERED)]


def test_members_too_old_begin_again_once_their_group_is_effective() -> None:
    sampler = new_sampler(max_staleness=1, group_size=4)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, weights=0)
    request(sampler, 1, weights=2, g_1=0, g_2=1, g_3=0)
    decisions = result(sampler, "g", 2, 0.0, weights=1)
    assert decisions == [
        Requeue(job_ids=jobs("g", 1, 3)),
        Retract(job_ids=jobs("g", 0)),
    ]
    assert sampler.state.members_restarted == 3


def test_where_every_group_counts_a_job_too_old_begins_again_with_the_request() -> None:
    sampler = new_sampler(max_staleness=0, criterion=Criterion.COMPLETE)
    feed(sampler, "g")
    decisions = request(sampler, 1, weights=1, g_0=0, g_1=0)
    assert decisions == [Requeue(job_ids=jobs("g", 0, 1)), Open()]


def test_a_surplus_group_with_a_member_too_old_is_open_again() -> None:
    sampler = new_sampler(max_staleness=1)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, weights=0)
    result(sampler, "g", 1, 0.0, weights=1)
    assert request(sampler, 1, weights=2) == [Retract(job_ids=jobs("g", 0)), Open()]
    assert delivered(result(sampler, "g", 0, 1.0, weights=2)) == (whole("g"),)
    assert sampler.state.groups_kept == 1


def test_a_result_that_comes_too_old_begins_again_at_once() -> None:
    sampler = new_sampler(max_staleness=0)
    feed(sampler, "g")
    request(sampler, 1, weights=1)
    result(sampler, "g", 0, 1.0, weights=1)
    assert result(sampler, "g", 1, 0.0, weights=0) == [Retract(job_ids=jobs("g", 1))]


def test_a_delivered_member_is_not_taken_back() -> None:
    sampler = new_sampler(max_staleness=0)
    request(sampler, 1, weights=0)
    finish(sampler, "g", 0.0, 1.0)
    assert request(sampler, 1, "c", weights=5) == [Open()]


def test_what_began_too_early_for_a_batch_requested_ahead_begins_again_when_its_turn_comes() -> (
    None
):
    sampler = new_sampler(max_staleness=1, group_size=4)
    request(sampler, 1, "b", weights=1)
    feed(sampler, "slow")
    assert request(sampler, 1, "c", weights=2, slow_0=0, slow_1=1) == []
    result(sampler, "slow", 2, 1.0, weights=1)
    result(sampler, "slow", 3, 0.0, weights=1)
    decisions = finish(sampler, "g", 0.0, 1.0, 1.0, 1.0, weights=1)
    assert Requeue(job_ids=jobs("slow", 0)) in decisions


def test_without_a_bound_any_age_is_welcome_and_reported() -> None:
    sampler = new_sampler(max_staleness=NO_BOUND)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, weights=3)
    request(sampler, 1, weights=9, g_1=3)
    batch = result(sampler, "g", 1, 0.0, weights=8)[-1]
    assert batch.report.bias.ages == {1: 1, 6: 1}  # type: ignore[union-attr]


def test_an_acknowledged_batch_leaves_nothing_to_age() -> None:
    sampler = new_sampler(max_staleness=0)
    request(sampler, 1)
    finish(sampler, "g", 0.0, 1.0)
    ack(sampler)
    assert request(sampler, 1, "c", weights=1) == [Open()]


def test_a_group_is_complete_though_a_redundant_member_of_it_is_too_old() -> None:
    sampler = new_sampler(max_staleness=0, prediction=Prediction(redundant_members=1))
    feed(sampler, "g")
    request(sampler, 1, weights=1, g_2=0)
    result(sampler, "g", 0, 1.0, weights=1)
    decisions = result(sampler, "g", 1, 0.0, weights=1)
    assert delivered(decisions) == (whole("g"),)
    assert Cancel(job_ids=jobs("g", 2)) in decisions
    assert sampler.state.members_restarted == 0


def test_a_group_goes_on_with_its_next_stage_while_a_member_of_it_begins_again() -> None:
    sampler = new_sampler(max_staleness=0, group_size=4, prediction=Prediction(stage_members=3))
    feed(sampler, "g")
    request(sampler, 1, weights=1, g_2=0)
    result(sampler, "g", 0, 1.0, weights=1)
    decisions = result(sampler, "g", 1, 0.0, weights=1)
    assert decisions == [Requeue(job_ids=jobs("g", 2)), Enqueue(job_ids=jobs("g", 3))]


def test_a_member_newer_than_its_batch_has_an_age_below_zero() -> None:
    sampler = new_sampler(max_staleness=1)
    request(sampler, 1, weights=2)
    batch = finish(sampler, "g", 0.0, 1.0, weights=6)[-1]
    assert batch.report.bias.ages == {-4: 2}  # type: ignore[union-attr]
