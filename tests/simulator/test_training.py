"""Schedules small enough to be worked out by hand, and what holds for any."""

import math
from itertools import accumulate

import msgspec
import pytest

from orchestrator.sampling.decisions import Decision
from orchestrator.sampling.sampler import Sampler
from rollyard.errors import InvalidMessage, NotFound, PromptsExhausted
from simulator.dataset import World
from simulator.outcome import TrainingOutcome
from simulator.plan import Plan, Trouble
from simulator.policies import NAMES, policy
from simulator.training import Training, simulate
from tests.simulator.workloads import Written, row

MIXED_SHORT = row((1.0, 1.0), (0.0, 2.0))
MIXED_LONG = row((1.0, 10.0), (0.0, 10.0))
ALIKE = row((0.0, 3.0), (0.0, 3.0))
ONE_EACH = Plan(slots=2, requested_batch_size=1, steps=2, warm_up=0)
SMALL = Plan(slots=24, requested_batch_size=4, steps=6, warm_up=2)


def step_seconds(outcome: TrainingOutcome) -> list[float]:
    return [step.seconds for step in outcome.steps]


def test_a_step_ends_with_the_last_member_of_its_last_group() -> None:
    outcome = simulate(Written(MIXED_SHORT), policy("resume", group_size=2), ONE_EACH)
    # the free slot begins with the next group at 1, and is parked for no time at 2
    assert step_seconds(outcome) == [2.0, 2.0]


def test_a_batch_by_batch_step_waits_for_all_and_begins_anew() -> None:
    workload = Written(ALIKE, MIXED_SHORT, MIXED_SHORT)
    outcome = simulate(workload, policy("batchwise", group_size=2), ONE_EACH)
    assert step_seconds(outcome) == [3.0 + 2.0, 2.0]


@pytest.mark.parametrize(("name", "ends_at"), [("resume", 10.0), ("restart", 4.0 + 10.0)])
def test_a_long_job_goes_on_if_it_is_resumed_and_begins_anew_if_restarted(
    name: str, ends_at: float
) -> None:
    """Two short Groups complete Batches at 2 and at 4, while a long one is under way from 0."""
    plan = msgspec.structs.replace(ONE_EACH, slots=4, steps=12)
    workload = Written(MIXED_SHORT, MIXED_LONG)
    outcome = simulate(workload, policy(name, group_size=2, max_staleness=99), plan)
    complete = dict(zip(accumulate(step_seconds(outcome)), outcome.steps, strict=True))
    assert list(complete)[:2] == [2.0, 4.0]
    assert min(at for at, step in complete.items() if 10.0 in step.lengths) == ends_at


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    first, second = (simulate(World(7), policy(name, group_size=4), SMALL) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NAMES)
def test_every_batch_has_exactly_what_was_requested(name: str) -> None:
    outcome = simulate(World(3), policy(name, group_size=4), SMALL)
    assert [len(step.lengths) for step in outcome.steps] == [4 * 4] * 4


@pytest.mark.parametrize("kinds", [2, 8])
def test_servers_of_different_environments_are_as_busy_as_servers_of_one(kinds: int) -> None:
    """The order of the dataset is random, so that some kinds are fed further ahead than others."""
    plan = Plan(slots=64, requested_batch_size=8, steps=8, warm_up=2, kinds=kinds)
    outcome = simulate(World(3), policy("resume", group_size=8), plan)
    assert outcome.share("idle") <= 0.05
    assert [len(step.lengths) for step in outcome.steps] == [8 * 8] * 6


@pytest.mark.parametrize("kinds", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_every_job_is_in_one_place_at_any_moment(name: str, kinds: int) -> None:
    plan = msgspec.structs.replace(SMALL, kinds=kinds)
    training = Training(World(5), policy(name, group_size=4), plan, None)
    queues, state = training.queues, training.sampler.state
    hear = training.sampler.handle

    def checked(event: object) -> object:
        assert queues.free + len(queues.running) == SMALL.slots
        assert not set(queues.running) & set(queues.tasks)
        assert len(set(queues.tasks)) == queues.queued
        done = {
            f"simulated/{name}/{member}"
            for name in (*state.open, *state.complete)
            for member in state.group(name).done
        }
        assert not done & {*queues.tasks, *queues.running}
        return hear(event)  # type: ignore[arg-type]

    training.sampler.handle = checked  # type: ignore[method-assign,assignment]
    training.run()


@pytest.mark.parametrize("name", NAMES)
def test_all_slot_time_is_accounted_for(name: str) -> None:
    """But for what is under way when the reported steps begin and end."""
    outcome = simulate(World(11), policy(name), Plan(slots=64, steps=16, warm_up=4))
    fates = ("useful", "filtered", "cancelled", "failed", "idle")
    assert math.fsum(outcome.share(fate) for fate in fates) == pytest.approx(1, abs=0.05)


def test_policies_are_compared_on_the_same_draws() -> None:
    world = World(2)
    lengths = [
        set(simulate(world, policy(name, group_size=4), SMALL).lengths)
        for name in ("batchwise", "resume")
    ]
    assert len(lengths[0] & lengths[1]) > len(lengths[0]) / 4


def test_no_trajectory_is_older_than_the_bound() -> None:
    plan = Plan(slots=64, requested_batch_size=2, steps=12, warm_up=0)
    for bound in (0, 1, 2):
        outcome = simulate(World(4), policy("resume", max_staleness=bound), plan)
        assert max(outcome.ages) <= bound


def test_training_overlaps_with_rollouts_when_batches_are_requested_ahead() -> None:
    plan = Plan(slots=32, requested_batch_size=4, steps=8, warm_up=2, train_seconds=600.0)
    ahead = msgspec.structs.replace(plan, ahead=3)
    chosen = policy("resume", max_staleness=2)
    one_by_one, together = (simulate(World(6), chosen, each) for each in (plan, ahead))
    assert together.step_seconds < one_by_one.step_seconds - 300.0
    assert max(together.ages) <= 2


def test_a_dead_server_and_failing_attempts_cost_time_and_no_group() -> None:
    trouble = Trouble(failing_share=0.05, dies_after_seconds=3000.0, servers=4)
    plan = Plan(slots=32, requested_batch_size=4, steps=8, warm_up=0)
    quiet = simulate(World(6), policy("resume"), plan)
    loud = simulate(World(6), policy("resume"), msgspec.structs.replace(plan, trouble=trouble))
    assert quiet.lost_seconds == 0 < loud.lost_seconds
    assert loud.groups_lost == 0
    assert loud.step_seconds > quiet.step_seconds


def test_a_job_that_always_fails_is_dead_and_its_group_is_dropped() -> None:
    class Cursed(Trouble, frozen=True):
        def fails_after(self, wanted: object, attempts: int) -> float | None:
            return 0.5 if wanted == (0, 0, 0, 0) else None

    plan = msgspec.structs.replace(ONE_EACH, trouble=Cursed())
    outcome = simulate(Written(MIXED_SHORT), policy("resume", group_size=2), plan)
    assert outcome.groups_lost == 1


def test_a_workload_that_never_completes_a_batch_is_said_to_be_so() -> None:
    with pytest.raises(PromptsExhausted, match="see whether the dataset"):
        simulate(Written(ALIKE), policy("resume", group_size=2), ONE_EACH)


def test_unknown_policies_and_impossible_plans_are_refused_with_a_way_out() -> None:
    with pytest.raises(NotFound, match="take one of batchwise"):
        policy("magic")
    with pytest.raises(InvalidMessage, match="simulate more steps"):
        Plan(slots=1, steps=2, warm_up=2)
    with pytest.raises(InvalidMessage, match="slots"):
        Plan(slots=0)


class Unheard(Decision, frozen=True):
    """A decision that nobody has taught the simulator."""


def test_a_decision_that_the_simulator_does_not_know_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sampler, "handle", lambda *_: [Unheard()])
    with pytest.raises(AssertionError, match="Unheard"):
        simulate(Written(MIXED_SHORT), policy("resume", group_size=2), ONE_EACH)
