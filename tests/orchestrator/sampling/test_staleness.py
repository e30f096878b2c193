"""No token in a Batch lies more than `max_staleness` versions behind the weights it updates."""

from orchestrator.sampling.decisions import Open, Recycle, Restart
from rollyard.messages import NO_BOUND
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
    sampler = new_sampler(max_staleness=1)
    feed(sampler, "g")
    decisions = request(sampler, 1, weights=2, g_0=0, g_1=1)
    assert decisions == [Recycle(job_ids=jobs("g", 0)), Open()]


def test_a_finished_member_that_waited_too_long_begins_again() -> None:
    sampler = new_sampler(max_staleness=1)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, weights=0)
    assert request(sampler, 1, weights=2) == [Restart(job_ids=jobs("g", 0)), Open()]
    assert sampler.state.members_restarted == 1


def test_a_surplus_group_with_a_member_too_old_is_open_again() -> None:
    sampler = new_sampler(max_staleness=1)
    feed(sampler, "g")
    result(sampler, "g", 0, 1.0, weights=0)
    result(sampler, "g", 1, 0.0, weights=1)
    assert request(sampler, 1, weights=2) == [Restart(job_ids=jobs("g", 0)), Open()]
    assert delivered(result(sampler, "g", 0, 1.0, weights=2)) == (whole("g"),)
    assert sampler.state.groups_kept == 1


def test_a_result_that_comes_too_old_begins_again_at_once() -> None:
    sampler = new_sampler(max_staleness=0)
    feed(sampler, "g")
    request(sampler, 1, weights=1)
    assert result(sampler, "g", 0, 1.0, weights=0) == [Restart(job_ids=jobs("g", 0))]


def test_a_delivered_member_is_not_taken_back() -> None:
    sampler = new_sampler(max_staleness=0)
    request(sampler, 1, weights=0)
    finish(sampler, "g", 0.0, 1.0)
    assert request(sampler, 1, "c", weights=5) == [Open()]


def test_what_began_too_early_for_a_batch_requested_ahead_begins_again_when_its_turn_comes() -> (
    None
):
    sampler = new_sampler(max_staleness=1)
    request(sampler, 1, "b", weights=1)
    feed(sampler, "slow")
    assert request(sampler, 1, "c", weights=2, slow_0=0, slow_1=1) == []
    decisions = finish(sampler, "g", 0.0, 1.0, weights=1)
    assert Recycle(job_ids=jobs("slow", 0)) in decisions


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
