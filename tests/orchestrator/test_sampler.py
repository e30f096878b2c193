"""The DAPO sampler as a pure state machine."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from orchestrator.sampler import (
    AnyDecision,
    Deliver,
    Drop,
    Hold,
    Open,
    Recycle,
    Sampler,
    SamplerState,
    is_effective,
    prompts_wanted,
)

from orchestrator.events import (
    BatchAcknowledged,
    BatchRequested,
    JobDied,
    PromptFed,
    ResultAccepted,
    RunClosed,
    job_id,
)
from rollyard.messages import Criterion, RunSettings

SETTINGS = RunSettings(run_id="r", group_size=2)


def new_sampler(settings: RunSettings = SETTINGS) -> Sampler:
    return Sampler(settings, SamplerState())


def request(sampler: Sampler, size: int, batch_id: str = "b") -> list[AnyDecision]:
    return sampler.handle(BatchRequested(batch_id=batch_id, requested_batch_size=size))


def result(sampler: Sampler, group: str, member: int, reward: float) -> list[AnyDecision]:
    return sampler.handle(ResultAccepted(job_id=job_id("r", group, member), reward=reward))


def finish(sampler: Sampler, group: str, *rewards: float) -> list[AnyDecision]:
    sampler.handle(PromptFed(group_id=group))
    decisions: list[AnyDecision] = []
    for member, reward in enumerate(rewards):
        decisions = result(sampler, group, member, reward)
    return decisions


def test_a_request_opens_the_run() -> None:
    assert request(new_sampler(), 1) == [Open()]


def test_a_group_fed_while_the_batch_was_completed_does_not_run_on() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    finish(sampler, "g1", 0.0, 1.0)
    late = sampler.handle(PromptFed(group_id="g2"))
    assert late == [Recycle(job_ids=("r/g2/0", "r/g2/1"))]


def test_a_group_with_equal_rewards_is_filtered() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    assert finish(sampler, "g", 1.0, 1.0) == [Drop(group_ids=("g",))]
    assert sampler.state.groups_filtered == 1
    assert not sampler.state.delivered


def test_the_request_ends_early_and_recycles_what_is_unfinished() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    sampler.handle(PromptFed(group_id="slow"))
    result(sampler, "slow", 0, 0.0)
    assert finish(sampler, "g", 0.0, 1.0) == [
        Hold(),
        Recycle(job_ids=(job_id("r", "slow", 1),)),
        Deliver(batch_id="b", group_ids=("g",)),
    ]


def test_surplus_groups_serve_the_next_request_at_once() -> None:
    sampler = new_sampler()
    finish(sampler, "g0", 0.0, 1.0)
    finish(sampler, "g1", 0.0, 1.0)
    request(sampler, 1)
    assert sampler.state.delivered == ["g0"]
    assert sampler.handle(BatchAcknowledged(batch_id="b")) == [Drop(group_ids=("g0",))]
    assert Deliver(batch_id="c", group_ids=("g1",)) in request(sampler, 1, "c")


def test_a_finished_member_counts_when_its_group_completes_in_a_later_step() -> None:
    sampler = new_sampler()
    sampler.handle(PromptFed(group_id="slow"))
    result(sampler, "slow", 0, 0.0)
    request(sampler, 1)
    finish(sampler, "g", 0.0, 1.0)
    sampler.handle(BatchAcknowledged(batch_id="b"))
    request(sampler, 1, "c")
    assert Deliver(batch_id="c", group_ids=("slow",)) in result(sampler, "slow", 1, 1.0)


def test_a_dead_job_drops_its_group_and_never_scores_it() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    sampler.handle(PromptFed(group_id="g"))
    decisions = sampler.handle(JobDied(job_id=job_id("r", "g", 0), reason="poison"))
    assert decisions == [Drop(group_ids=("g",))]
    assert (sampler.state.groups_dead, sampler.state.groups_filtered) == (1, 0)


def test_a_result_of_a_dropped_group_changes_nothing() -> None:
    sampler = new_sampler()
    sampler.handle(PromptFed(group_id="g"))
    sampler.handle(JobDied(job_id=job_id("r", "g", 0), reason="poison"))
    assert result(sampler, "g", 1, 1.0) == []


def test_a_repeated_request_changes_nothing() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    assert request(sampler, 1) == []
    assert request(sampler, 5, "other") == []
    assert sampler.state.batch_id == "b"


def test_an_acknowledgement_before_delivery_changes_nothing() -> None:
    sampler = new_sampler()
    request(sampler, 1)
    assert sampler.handle(BatchAcknowledged(batch_id="b")) == []
    assert sampler.state.batch_id == "b"


def test_closing_drops_everything_once() -> None:
    sampler = new_sampler()
    request(sampler, 2)
    sampler.handle(PromptFed(group_id="open"))
    finish(sampler, "ready", 0.0, 1.0)
    assert sampler.handle(RunClosed()) == [Hold(), Drop(group_ids=("open", "ready"))]
    assert sampler.handle(RunClosed()) == []
    assert sampler.handle(PromptFed(group_id="late")) == [Drop(group_ids=("late",))]


def test_every_complete_group_counts_in_an_evaluation() -> None:
    assert is_effective(Criterion.COMPLETE, [1.0])
    assert not is_effective(Criterion.REWARD_SPREAD, [0.5, 0.5])
    assert is_effective(Criterion.REWARD_SPREAD, [0.5, 0.25])


def test_prompts_are_wanted_for_free_slots_and_the_look_ahead_only() -> None:
    state = SamplerState(batch_id="b", requested_batch_size=1)

    def wanted(queued: int, free: int) -> int:
        return prompts_wanted(SETTINGS, state, queued_jobs=queued, free_slots=free)

    assert wanted(0, 0) == 1
    assert wanted(1, 0) == 0
    assert wanted(0, 4) == 3
    assert wanted(5, 4) == 0


def test_no_prompt_is_wanted_without_a_request() -> None:
    assert prompts_wanted(SETTINGS, SamplerState(), queued_jobs=0, free_slots=8) == 0


@given(seed=st.integers(0, 2**32), group_size=st.integers(2, 4), size=st.integers(1, 4))
def test_any_order_of_results_keeps_batches_exact_and_groups_in_one_place(
    seed: int, group_size: int, size: int
) -> None:
    draw = random.Random(seed)
    sampler = new_sampler(RunSettings(run_id="r", group_size=group_size))
    fed: list[str] = []
    gone: set[str] = set()
    delivered: list[str] = []
    unfinished: list[tuple[str, int]] = []
    for step in range(200):
        # A restart between any two events must change nothing: go through the stored form.
        sampler.state = msgspec.convert(msgspec.to_builtins(sampler.state), SamplerState)
        decisions: list[AnyDecision] = []
        if sampler.state.delivered:
            decisions = sampler.handle(BatchAcknowledged(batch_id=sampler.state.batch_id or ""))
        elif sampler.state.batch_id is None:
            decisions = request(sampler, size, f"b{step}")
        elif not unfinished or draw.random() < 0.1:
            fed.append(f"g{step}")
            unfinished += [(fed[-1], member) for member in range(group_size)]
            decisions = sampler.handle(PromptFed(group_id=fed[-1]))
        else:
            group, member = unfinished.pop(draw.randrange(len(unfinished)))
            if draw.random() < 0.02:
                died = JobDied(job_id=job_id("r", group, member), reason="poison")
                decisions = sampler.handle(died)
            else:
                decisions = result(sampler, group, member, float(draw.random() < 0.5))
        for decision in decisions:
            if isinstance(decision, Drop):
                assert gone.isdisjoint(decision.group_ids)
                gone.update(decision.group_ids)
            if isinstance(decision, Deliver):
                assert len(decision.group_ids) == size
                assert set(decision.group_ids).isdisjoint(delivered)
                delivered += decision.group_ids
            if isinstance(decision, Recycle):
                alive = [job for job in unfinished if job[0] in sampler.state.open]
                recycled = [job_id("r", group, member) for group, member in alive]
                assert sorted(decision.job_ids) == sorted(recycled)
        state = sampler.state
        places = [*state.open, *state.ready, *state.delivered, *gone]
        assert sorted(places) == sorted(fed)
